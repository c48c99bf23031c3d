"""Erasing all that is stored of one person."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from redrive import App, CatchRequest, Context, Filter, Flow
from redrive.cli import cli
from redrive.engine.counters import ErrorLine, TallyRows
from redrive.engine.lifecycle import State
from redrive.errors import ConfigurationError, PayloadEncoded
from redrive.stores.operations.counters import write_counters
from redrive.stores.operations.erasing import ERASED, Erased, erase_jobs
from redrive.testing import drain
from tests.runtime.runs.conftest import app as app_of_a_store
from tests.runtime.runs.conftest import every_store
from tests.web.client import Operator

app = app_of_a_store

PERSON, OTHER = "customer:7", "customer:77"


@dataclass
class Opened:
    """The event of an instance of a machine that is searched."""

    customer: int


@dataclass
class Begin:
    """The event of an instance, and of a topic."""

    name: str


class Shop:
    """An app with something of each kind for each person."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.task(name="charge", retry="1 1s catch caught")
        def charge(who: str, fails: bool = False) -> str:
            if fails:
                raise OSError(f"the card of {who} was declined")
            return who

        @app.task(name="caught")
        def caught(request: CatchRequest[Any]) -> None:
            """Do nothing."""

        def pay(who: str) -> str:
            return who

        @app.workflow(name="inner")
        async def inner(flow: Flow, who: str) -> str:
            return who

        @app.workflow(name="order")
        async def order(flow: Flow, who: str) -> str:
            await flow.step(pay, who)
            await flow.call(inner, who)
            return await flow.wait_for("go", str)

        machine = app.machine("door")

        @machine.start
        def opened(event: Begin) -> None:
            """Do nothing."""

        paid = app.topic("paid", Begin)

        @paid.subscribe("mail", retry="0")
        def mail(event: Begin) -> None:
            raise OSError(event.name)

        @app.refresh("every hour", name="fresh")
        def fresh(ctx: Context) -> None:
            """Do nothing."""

        self.charge, self.order, self.machine, self.paid, self.fresh = charge, order, machine, paid, fresh

    def start(self, who: str) -> Any:
        """Store something of each kind under the value of a person; return the run, which waits for a signal."""
        self.charge.options(tags=[who]).enqueue(who)
        self.charge.options(idempotency_key=who, key=who).enqueue(who, fails=True)
        self.charge.options(partition=who, delay="30d").enqueue(who)
        self.machine.send(who, Begin(who))
        self.paid.publish(Begin(who), key=who)
        self.fresh.track(who)
        self.app.emit(who, who)
        return self.order.start(who, id=who)

    def end(self, run: Any) -> None:
        """Let what has begun end."""
        drain(self.app, within="5s")
        run.signal("go", "yes")
        drain(self.app, within="5s")


def left(app: App, word: str) -> list[str]:
    """Return the texts of the audit log, the jobs, the error groups and the operations that have a value."""
    texts = [str(each) for each in (*app.database.audit(), *app.jobs.select(Filter(all=True)))]
    return [each for each in texts if word in each]


@every_store
def test_everything_of_one_person_is_erased(app: App):
    """Jobs, runs with children, forks and catch jobs, instances, items, events and values are gone; others stay."""
    shop = Shop(app)
    for who in (OTHER, PERSON):
        shop.end(shop.start(who))
    shop.order.run(PERSON).fork(from_step="go").signal("go", "yes")
    drain(app, within="5s")
    before = len(app.jobs.select(Filter(all=True, limit=1000)))
    report = app.database.erase(PERSON)
    after = app.jobs.select(Filter(all=True, limit=1000))

    assert () == report.kept
    assert {"jobs": 10, "runs": 3, "steps": 6, "signals": 3, "instances": 1, "items": 1, "events": 1, "values": 1} == {
        kind: report.counts[kind]
        for kind in ("jobs", "runs", "steps", "signals", "instances", "items", "events", "values")
    }
    assert before - report.counts["jobs"] == len(after)
    assert Erased() == app.database.erase(PERSON, dry_run=True)
    assert {} != app.database.erase(OTHER, dry_run=True).counts


@every_store
def test_jobs_are_found_when_what_they_belonged_to_is_gone(app: App):
    """Those of an instance and an item that were deleted, and of failed events that were pruned, in each order."""
    shop = Shop(app)

    @shop.paid.subscribe("log", order="none", retry="0")
    def log(event: Begin) -> None:
        raise OSError(event.name)

    @shop.paid.subscribe("books", order="key", retry="0")
    def books(event: Begin) -> None:
        raise OSError(event.name)

    people = (PERSON, OTHER, f"x/{PERSON}")
    for who in people:
        shop.machine.send(who, Begin(who))
        shop.paid.publish(Begin(who), key=who)
        shop.fresh.track(who)
    drain(app, within="5s")
    for who in people:
        shop.machine.delete(who)
        shop.fresh.untrack(who)
    app.clock.advance("1h")
    app.topics.prune("paid", keep_for="1s")
    before = app.jobs.select(Filter(all=True, limit=1000))
    report = app.database.erase(PERSON)
    after = app.jobs.select(Filter(all=True, limit=1000))
    gone = sorted(each.task for each in before if each.id not in {job.id for job in after})

    assert (0, ()) == (report.counts.get("events", 0), report.kept)
    assert ["door.opened", "fresh", "paid.books", "paid.log", "paid.mail"] == gone


@every_store
def test_the_audit_log_has_the_erasure_without_the_value(app: App):
    """Earlier lines, ended operations and error groups that mention the value have a mark in its place."""
    shop = Shop(app)
    run = shop.start(PERSON)
    shop.end(run)
    run.cancel(f"asked by {PERSON}")
    app.jobs.cancel(Filter(tag=PERSON))
    app.database.erase(PERSON, actor="ann")
    lines = app.database.audit()
    (mine,) = [each for each in lines if each.action == "erase"]

    assert ("ann", []) == (mine.actor, [each for each in lines if PERSON in str(each)])
    assert json.loads(mine.details)["counts"]["jobs"] > 0


@every_store
def test_a_dry_run_changes_nothing(app: App):
    """It reports what would be erased, and what would stay."""
    shop = Shop(app)
    run = shop.start(PERSON)
    shop.end(run)
    found = app.database.erase(PERSON, dry_run=True)
    again = app.database.erase(PERSON, dry_run=True)
    done = app.database.erase(PERSON)

    assert found == again
    assert found.counts["jobs"] == done.counts["jobs"]
    assert "erase" in {each.action for each in app.database.audit()}


@every_store
def test_what_has_begun_is_kept(app: App):
    """A run with finished steps, and its child, stay with a reason; a call after their end erases them."""
    shop = Shop(app)
    run = shop.start(PERSON)
    drain(app, within="5s")
    first = app.database.erase(PERSON)
    state = run.state
    run.cancel("no longer wanted")
    drain(app, within="5s")
    second = app.database.erase(PERSON)

    assert any("is a run with finished steps" in each for each in first.kept)
    assert any("belongs to a run that run" in each for each in first.kept)
    assert State.READY is state
    assert ((), Erased()) == (second.kept, app.database.erase(PERSON, dry_run=True))


@every_store
def test_a_repeated_call_finds_what_the_first_one_kept(app: App):
    """A delivery that ran when its event was erased, and a fork of a run that had ended."""
    shop = Shop(app)
    kept: list[tuple[str, ...]] = []

    @shop.paid.subscribe("log", retry="2 1s")
    def log(ctx: Context, event: Begin) -> None:
        if ctx.attempt == 1:
            raise OSError(event.name)
        kept.append(app.database.erase(PERSON).kept)

    shop.paid.publish(Begin(PERSON), key=PERSON)
    drain(app, within="5s")
    again = app.database.erase(PERSON)
    run = shop.order.start(PERSON, id=PERSON)
    shop.end(run)
    fork = run.fork(from_step="go")
    drain(app, within="5s")
    kept.append(app.database.erase(PERSON).kept)
    fork.cancel("no longer wanted")
    drain(app, within="5s")
    last = app.database.erase(PERSON)

    assert ((True, 1), ()) == ((any("runs: cancel it" in each for each in kept[0]), again.counts["jobs"]), again.kept)
    assert ["is a run with finished", "stays: job"] == [
        text for text in ("is a run with finished", "stays: job") if text in str(kept[1])
    ]
    assert ((), Erased()) == (last.kept, app.database.erase(PERSON, dry_run=True))
    assert [] == [each for each in app.jobs.select(Filter(all=True)) if "feeder" not in each.task]


@every_store
def test_what_has_not_started_is_cancelled_first(app: App):
    """A job that is due later, a transition that waits and an event before its delivery."""
    shop = Shop(app)
    shop.charge.options(tags=[PERSON], delay="1h").enqueue(PERSON)
    shop.machine.send(PERSON, Begin(PERSON))
    shop.paid.publish(Begin(PERSON), key=PERSON)
    report = app.database.erase(PERSON)

    assert 2 == report.counts["jobs"]
    assert 1 == report.counts["instances"]


@every_store
def test_what_is_on_its_way_is_kept(app: App):
    """A transition that runs, and an event before its delivery."""
    shop = Shop(app)
    report = Erased()

    machine = app.machine("gate")

    @machine.start
    def opened(event: Begin) -> None:
        nonlocal report
        report = app.database.erase(PERSON)

    machine.send(PERSON, Begin(PERSON))
    drain(app, within="1s")
    shop.paid.publish(Begin(PERSON), key=PERSON)
    later = app.database.erase(PERSON)

    assert ("1 events of topic paid stay: a subscription has not got them",) == later.kept
    assert "an instance of machine gate stays: its transition has not ended" in report.kept
    assert any("runs: cancel it first" in each for each in report.kept)
    assert 1 == later.counts["instances"]


@every_store
def test_texts_are_cleaned_in_error_groups_and_bulk_operations(app: App):
    """The title of a group and the filter of an ended operation have a mark in place of the value."""

    @app.task(name="fails")
    def fails(number: int) -> None:
        """Do nothing."""

    now = app.now()
    assert now is not None
    line = ErrorLine("1-1", "fails", "ERROR", "builtins.OSError", "customer-anna was declined", "", now, now, 1)
    app.store.run(write_counters(TallyRows((), (), (line,))))
    fails.options(tags=["customer-anna"], delay="1h").enqueue(2)
    operation = app.operations.start(app.operations.preview("cancel", Filter(tag="customer-anna")))
    app.operations.finish(operation.id)
    operator = Operator(app)
    before = [str(operator.read(page)) for page in ("/errors", "/operations")]
    report = app.database.erase("customer-anna")
    after = [str(operator.read(page)) for page in ("/errors", "/operations")]

    assert [True, True] == ["customer-anna" in each for each in before]
    assert [False, False] == ["customer-anna" in each for each in after]
    assert (1, 1) == (report.counts["error groups"], report.counts["bulk operations"])
    assert ERASED in after[0]


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
def test_a_job_that_is_locked_is_kept(app: App):
    """The erasure does not wait for the transaction of another one; a repeated call erases the job."""
    Shop(app).charge.options(tags=[PERSON]).enqueue_many([(PERSON, False)] * 2)
    server, _, schema = app.url.partition("&schema=")
    with psycopg.connect(server, options=f"-csearch_path={schema}") as other:
        other.execute("SELECT FROM redrive_jobs WHERE id = 1 FOR UPDATE")
        first = app.database.erase(PERSON)
    second = app.database.erase(PERSON)

    assert (("job 1 is being changed by another transaction",), 1) == (first.kept, first.counts["jobs"])
    assert ((), 1) == (second.kept, second.counts["jobs"])


def test_an_erasure_that_broke_off_is_repeated(app: App):
    """What a killed process had erased stays so, and the repeated call erases the rest and is recorded."""
    Shop(app).charge.options(tags=[PERSON]).enqueue_many([(PERSON, False)] * 3)
    app.store.run(erase_jobs((1, 2), now=app.now()))
    report = app.database.erase(PERSON)

    assert 1 == report.counts["jobs"]
    assert ["erase"] == [each.action for each in app.database.audit()]


def test_numbers_within_others_are_not_found(app: App):
    """A value is compared as a whole: that of one person is no part of that of another one."""
    shop = Shop(app)
    shop.charge.options(tags=[OTHER]).enqueue(OTHER)
    app.jobs.cancel(Filter(tag=OTHER))
    report = app.database.erase(PERSON)

    assert {} == report.counts
    assert left(app, OTHER)


def test_a_long_value_of_a_searched_field_is_found(app: App):
    """Its tag is shortened; that of another value with the same beginning is another one."""

    @app.task(name="mail", search=["to"])
    def mail(to: str) -> None:
        """Do nothing."""

    person, other = (f"{'long-name.' * 8}{end}@example.org" for end in ("ann", "bob"))
    for each in (person, other):
        mail.enqueue(each)

    assert {"jobs": 1, "arguments": 1} == dict(app.database.erase(person).counts)


def test_a_searched_field_is_named_with_its_value(app: App):
    """Its tag is the value alone, which may be short, or the same for another reason."""

    @app.task(name="mail", search=["customer", "order.customers.id"])
    def mail(customer: int = 0, order: dict[str, Any] | None = None) -> None:
        """Do nothing."""

    inside = mail.options(tags=["x"]).enqueue(order={"customers": [{"id": 77}]})
    mail.options(tags=["77"]).enqueue(7)
    jobs = [mail.enqueue(77) for _ in range(401)]

    assert not app.database.erase("order:77").matched
    assert not app.database.erase("customer:").matched
    assert {"jobs": 401, "arguments": 401} == dict(app.database.erase("customer:77").counts)
    assert not app.database.erase("customer:77").matched
    assert {"jobs": 1, "arguments": 1} == dict(app.database.erase("order.customers.id:77").counts)
    assert {inside.id, *(job.id for job in jobs)}.isdisjoint(job.id for job in app.jobs.select())


def test_a_searched_field_of_an_event_is_named_with_its_value(app: App):
    """Jobs of transitions have the event as a part of their arguments."""
    shop = app.machine("shop", search=["customer"])

    @shop.start
    def opened(event: Opened) -> None:
        """Do nothing."""

    shop.send("s-1", Opened(42))
    drain(app)

    assert 1 == app.database.erase("customer:42", dry_run=True).counts["jobs"]


def test_a_field_that_cannot_be_decoded_is_an_error(tmp_path: Path):
    """Without the key no argument shows which of them has the value."""

    class Reversed:
        def encode(self, document: bytes) -> str:
            return document.decode()[::-1]

        def decode(self, text: str) -> bytes:
            return text[::-1].encode()

    url = f"sqlite:///{tmp_path}/app.db"
    for codec, close in ((Reversed(), False), (None, True)):
        app = App(url, codec=codec)

        @app.task(name="mail", search=["customer"])
        def mail(customer: int) -> None:
            """Do nothing."""

        if close:
            with pytest.raises(PayloadEncoded, match="erase it in a process with the codec"):
                app.database.erase("customer:7")
            answer = Operator(app).post("/api/v1/erase", json={"value": "customer:7"})
            assert 422 == answer.status_code
        else:
            mail.enqueue(7)
            assert app.database.erase("customer:7", dry_run=True).matched
        app.close()


def test_many_jobs_are_erased_in_batches(app: App):
    """Each transaction deletes some of them."""
    shop = Shop(app)
    shop.charge.options(tags=[PERSON]).enqueue_many([("a", False)] * 450)

    assert {"jobs": 450, "arguments": 450} == dict(app.database.erase(PERSON).counts)


@pytest.mark.parametrize("value", ["", "7", "ab"])
def test_a_short_value_is_refused(app: App, value: str):
    """It would be found in texts about something else."""
    with pytest.raises(ConfigurationError):
        app.database.erase(value)


def test_the_command_asks_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`redrive erase` demands --yes of a program, and shows the counts."""
    (tmp_path / "persons.py").write_text(
        "import redrive\n"
        f"app = redrive.App('sqlite:///{tmp_path}/app.db')\n"
        "@app.task(name='charge')\n"
        "def charge(who: str) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    app = App(f"sqlite:///{tmp_path}/app.db")
    app.named("charge").options(tags=[PERSON]).enqueue(who=PERSON)
    run = CliRunner().invoke
    asked = run(cli, ["erase", "persons:app", PERSON])
    dry = run(cli, ["erase", "persons:app", PERSON, "--dry-run"])
    done = run(cli, ["erase", "persons:app", PERSON, "--yes", "--json"])
    again = [run(cli, ["erase", "persons:app", PERSON, *options]) for options in ((), ("--yes",), ("--dry-run",))]

    assert (2, 0, 0) == (asked.exit_code, dry.exit_code, done.exit_code)
    assert "1 jobs, 1 arguments would be erased" in dry.output
    assert [1, 1, 1] == [each.exit_code for each in again]
    assert all("nothing is stored under this value" in each.output for each in again)
    assert {"jobs": 1, "arguments": 1} == json.loads(done.output)["counts"]
    app.close()


def test_the_api_erases(app: App):
    """`POST /api/v1/erase` reports, also as a dry run, and does not repeat the value."""
    shop = Shop(app)
    shop.charge.options(tags=[PERSON]).enqueue(PERSON)
    operator = Operator(app)
    dry = operator.post("/api/v1/erase", json={"value": PERSON, "dry_run": True})
    done = operator.post("/api/v1/erase", json={"value": PERSON})
    short = operator.post("/api/v1/erase", json={"value": "7"})

    assert (200, {"jobs": 1, "arguments": 1}, True) == (dry.status_code, dry.json()["counts"], dry.json()["dry_run"])
    assert (200, {"jobs": 1, "arguments": 1}, False) == (
        done.status_code,
        done.json()["counts"],
        done.json()["dry_run"],
    )
    assert (422, False) == (short.status_code, PERSON in done.text)
