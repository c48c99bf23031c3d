"""Batches in the code: what may be added, and what follows when all has ended."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from redrive import App, Batch, Context, EnqueueRequest, Filter, Flow, Tasks, observe
from redrive.errors import ConfigurationError, PayloadError, StoreBusy
from redrive.testing import VirtualClock, drain


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """Yield an app in virtual time, in a file."""
    app = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", clock=VirtualClock())
    yield app
    app.close()


def filled(app: App, seen: list[str]) -> tuple[Batch, Any]:
    """Return a batch of two tasks, of which one job dies, and the task that follows."""

    @app.task(retry="1 10s")
    def charge(invoice: int) -> None:
        seen.append(f"charge {invoice}")
        if invoice == 2:
            raise ValueError("no such invoice")

    @app.task
    def remind(customer: str, *, urgent: bool = False) -> None:
        seen.append(f"remind {customer} {urgent}")

    @app.task
    def report(month: str, ctx: Context) -> str:
        dead = app.jobs.select(Filter(tag=f"batch:{ctx.job_id}", state="dead"))
        seen.append(f"{month}: {len(dead)} dead")
        return month

    return another(app), report


def another(app: App) -> Batch:
    """Return a batch of the same jobs."""
    batch = app.batch()
    batch.add_many(app.tasks["charge"].options(tags="billing"), [1, 2, 3])
    batch.add(app.tasks["remind"], "ada", urgent=True)
    return batch


def test_a_job_follows_when_all_have_ended(app: App):
    """It runs once, after the last attempt of the last job, and finds what went wrong by the tag."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    then = batch.enqueue(report, "January")
    why = then.why
    drain(app)

    assert (4, "waits for the jobs of its batch") == (len(batch), why)
    assert ("January: 1 dead", 6) == (seen[-1], len(seen))
    assert "January" == then.result(timeout=0)
    assert 3 == len(app.jobs.select(Filter(tag="billing")))


def test_a_batch_is_enqueued_asynchronously(app: App):
    """The asynchronous form does the same."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    then = asyncio.run(batch.aenqueue(report, month="May"))
    drain(app)

    assert ("succeeded", "May: 1 dead") == (then.state, seen[-1])


def test_an_empty_batch_is_followed_at_once(app: App):
    """Without jobs only the one that follows runs."""
    seen: list[str] = []
    _, report = filled(app, seen)
    app.batch().enqueue(report, "June")
    drain(app)

    assert ["June: 0 dead"] == seen


def test_a_batch_is_written_in_the_transaction_of_the_caller(app: App, tmp_path: Path):
    """With a connection of the caller it exists if and only if that commits."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    app.open()
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        batch.enqueue(report, "July", using=connection)
        connection.rollback()
        before = app.jobs.select()
        another(app).enqueue(report, "July", using=connection)
    connection.close()
    drain(app)

    assert ((), "July: 1 dead") == (before, seen[-1])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_of_a_handler_is_written_when_its_attempt_succeeds(app: App, is_async: bool):
    """An attempt that fails leaves no batch; the one that succeeds leaves one, all of it."""
    seen: list[str] = []
    _, report = filled(app, seen)

    async def abegin(ctx: Context) -> None:
        await another(app).aenqueue(report, f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError("again")

    def begin(ctx: Context) -> None:
        another(app).enqueue(report, f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError("again")

    app.task(abegin if is_async else begin, name="begin", retry="1 1s").enqueue()
    drain(app)

    assert "attempt 2: 1 dead" == seen[-1]
    assert 1 == sum("dead" in each for each in seen)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_immediate_batch_does_not_wait_for_the_attempt(app: App, is_async: bool):
    """If what follows is immediate, the whole batch exists although the attempt fails; a single job cannot be."""
    seen: list[str] = []
    batch, report = filled(app, seen)

    async def abegin() -> None:
        await batch.aenqueue(report.options(immediate=True), "May")
        raise ValueError("no")

    def begin() -> None:
        batch.enqueue(report.options(immediate=True), "May")
        raise ValueError("no")

    app.task(abegin if is_async else begin, name="begin").enqueue()
    drain(app)

    assert ("May: 1 dead", 6) == (seen[-1], len(seen))
    with pytest.raises(ConfigurationError, match="written as a whole"):
        app.batch().add(app.tasks["charge"].options(immediate=True), 1)


@pytest.mark.parametrize("given", [{"delay": "1h"}, {"at": datetime(2030, 1, 1, tzinfo=UTC)}, {"expires": "1h"}])
def test_times_of_what_follows_are_refused(app: App, given: dict[str, Any]):
    """It is due when the others have ended."""
    batch, report = filled(app, [])
    with pytest.raises(ConfigurationError, match="has no delay=, at= and expires="):
        batch.enqueue(report.options(**given), "May")
    batch.enqueue(report.options(delay=0), "May")

    assert 5 == len(app.jobs.select())


def test_an_erased_job_of_a_batch_has_ended(app: App):
    """The job that follows does not wait for it, and runs once; an erased follower leaves the others alone."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    batch.add_many(app.tasks["remind"].options(tags="person:dan"), [("dan",)])
    then = batch.enqueue(report, "January")
    erased = app.database.erase("person:dan")
    drain(app)

    assert 1 == erased.counts["jobs"]
    assert ("January: 1 dead", 6) == (seen[-1], len(seen))
    assert "January" == then.result(timeout=0)

    other = app.batch()
    other.add(app.tasks["remind"], "eve")
    other.enqueue(report.options(tags="person:eve"), "May")
    app.database.erase("person:eve")
    drain(app)

    assert ("remind eve False", 7) == (seen[-1], len(seen))


def test_jobs_of_a_batch_are_seen_when_they_are_enqueued(app: App):
    """`App.on_enqueue` tags the jobs of a batch, and the one that follows."""
    batch, report = filled(app, [])

    @app.on_enqueue
    def tag(request: EnqueueRequest) -> list[str]:
        return [f"of {request.task}"]

    batch.add(app.tasks["remind"], "bob")
    batch.enqueue(report, "January")

    assert [1, 1] == [len(app.jobs.select(Filter(tag=f"of {name}"))) for name in ("remind", "report")]


def test_wrong_jobs_are_refused_when_they_are_added(app: App):
    """Arguments are checked at once, keys when the batch is enqueued; nothing is stored."""
    batch, report = filled(app, [])
    charge = app.tasks["charge"]
    with pytest.raises(PayloadError):
        batch.add(charge, "x")
    with pytest.raises(PayloadError, match="call 1"):
        batch.add_many(charge, [1, "x"])
    with pytest.raises(PayloadError):
        batch.enqueue(report, 7)
    batch.add(charge.options(key="one"), 1)
    with pytest.raises(ConfigurationError, match="have no key"):
        batch.enqueue(report, "May")

    assert () == app.jobs.select()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_is_enqueued_once(app: App, is_async: bool):
    """Another enqueue would double its jobs, and a job that is added later would be lost; both are refused."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    with pytest.raises(PayloadError):
        batch.enqueue(report, 7)
    asyncio.run(batch.aenqueue(report, "May")) if is_async else batch.enqueue(report, "May")
    for refused in (
        lambda: batch.enqueue(report, "June"),
        lambda: asyncio.run(batch.aenqueue(report, "June")),
        lambda: batch.add(app.tasks["remind"], "bob"),
        lambda: batch.add_many(app.tasks["charge"], [4]),
    ):
        with pytest.raises(ConfigurationError, match=r"was enqueued before.*app\.batch\(\)"):
            refused()
    drain(app)

    assert ("May: 1 dead", 6) == (seen[-1], len(seen))


@pytest.mark.parametrize("place", ["outside", "handler"])
def test_of_two_enqueues_at_once_one_is_refused(app: App, place: str):
    """As of two in sequence: the first one is on its way to the database."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    errors: list[object] = []

    async def both() -> None:
        ends = await asyncio.gather(
            batch.aenqueue(report, "May"), batch.aenqueue(report, "May"), return_exceptions=True
        )
        errors.extend(each for each in ends if isinstance(each, BaseException))

    if place == "outside":
        asyncio.run(both())
    else:
        app.task(both, name="begin").enqueue()
    drain(app)

    assert [ConfigurationError] == [type(each) for each in errors]
    assert "was enqueued before" in str(errors[0])
    assert ("May: 1 dead", 6) == (seen[-1], len(seen))


def test_of_enqueues_in_threads_one_passes(app: App):
    """The others are refused, whichever is the first."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    barrier = threading.Barrier(4)

    def enqueue(_: int) -> str:
        barrier.wait()
        try:
            batch.enqueue(report, "May")
        except ConfigurationError as error:
            return str(error)
        return "enqueued"

    with ThreadPoolExecutor(4) as pool:
        ends = sorted(pool.map(enqueue, range(4)), key=len)
    drain(app)

    assert ["enqueued", True] == [ends[0], all("was enqueued before" in each for each in ends[1:])]
    assert ("May: 1 dead", 6) == (seen[-1], len(seen))


def test_a_batch_that_was_not_stored_can_be_enqueued_again(app: App, monkeypatch: pytest.MonkeyPatch):
    """An enqueue that fails leaves nothing, and does not count."""
    seen: list[str] = []
    batch, report = filled(app, seen)
    with monkeypatch.context() as patch:
        patch.setattr("redrive.app.tasks.batch.run", mock.Mock(side_effect=StoreBusy("later")))
        with pytest.raises(StoreBusy):
            batch.enqueue(report, "May")
    batch.enqueue(report, "June")
    drain(app)

    assert "June: 1 dead" == seen[-1]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_of_a_handler_is_enqueued_once(app: App, is_async: bool):
    """Its attempt would write it twice."""
    seen: list[str] = []
    batch, report = filled(app, seen)

    async def abegin() -> None:
        await batch.aenqueue(report, "May")
        with pytest.raises(ConfigurationError, match="was enqueued before"):
            await batch.aenqueue(report, "June")

    def begin() -> None:
        batch.enqueue(report, "May")
        with pytest.raises(ConfigurationError, match="was enqueued before"):
            batch.enqueue(report, "June")

    app.task(abegin if is_async else begin, name="begin").enqueue()
    drain(app)

    assert ("May: 1 dead", 6) == (seen[-1], len(seen))


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_of_a_workflow_is_written_once_in_its_transaction(app: App, fails: bool):
    """A transaction that fails leaves no batch, and a replay of one that has committed enqueues no other."""
    seen: list[str] = []
    _, report = filled(app, seen)

    def begin(connection: sqlite3.Connection) -> int:
        then = another(app).enqueue(report, "May", using=connection)
        if fails:
            raise OSError("no")
        return then.id

    @app.workflow()
    async def monthly(flow: Flow) -> int:
        number = await flow.transaction(begin)
        await flow.sleep("1h")
        return number

    run = monthly.start()
    drain(app)

    assert (("dead", []) if fails else ("succeeded", ["May: 1 dead"])) == (run.state, seen[-1:])
    assert (0 if fails else 6) == len(seen)


def test_tasks_of_other_apps_are_refused(app: App):
    """They would be stored in a database whose workers do not have them; nothing is added."""
    batch, report = filled(app, [])
    other = App("memory://", clock=VirtualClock())

    @other.task
    def foreign(number: int) -> None:
        """Do nothing."""

    loose = Tasks()

    @loose.task
    def homeless(number: int) -> None:
        """Do nothing."""

    for refused in (
        lambda: batch.add(foreign, 1),
        lambda: batch.add_many(foreign.options(priority=3), [1]),
        lambda: batch.enqueue(foreign, 1),
        lambda: asyncio.run(batch.aenqueue(foreign, 1)),
    ):
        with pytest.raises(ConfigurationError, match="'foreign' is a task of another app"):
            refused()
    with pytest.raises(ConfigurationError, match="include it"):
        batch.add(homeless, 1)
    early = homeless.options(priority=3)
    app.include(loose)
    batch.add(early, 1)
    batch.enqueue(report, "May")

    assert (5, 6, ()) == (len(batch), len(app.jobs.select()), other.jobs.select())
    other.close()


class Carrier:
    """A sink that keeps a trace with each enqueue, and the events that it hears."""

    carries = True

    def __init__(self) -> None:
        self.events: list[observe.Event] = []

    def __call__(self, event: observe.Event) -> AbstractContextManager[str] | None:
        """Hear an event."""
        self.events.append(event)
        return nullcontext("the trace") if isinstance(event, observe.JobsEnqueuing) else None

    def of(self, kind: type) -> list[Any]:
        """Return the events of a class."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "handler", "ahandler", "using"])
def test_sinks_see_a_batch_as_they_see_an_enqueue(app: App, tmp_path: Path, way: str):
    """One event is around all, one follows for each job, and the first attempts have the trace of the enqueue."""
    seen: list[str] = []
    batch, report = filled(app, seen)

    async def abegin() -> None:
        await batch.aenqueue(report, "May")

    def begin() -> None:
        batch.enqueue(report, "May")

    app.open()
    with observe.only(sink := Carrier()):
        if way == "using":
            with sqlite3.connect(tmp_path / "jobs.db") as connection:
                batch.enqueue(report, "May", using=connection)
            connection.close()
        elif way.endswith("enqueue"):
            asyncio.run(batch.aenqueue(report, "May")) if way == "aenqueue" else batch.enqueue(report, "May")
        else:
            app.task(abegin if way == "ahandler" else begin, name="begin").enqueue()
        drain(app)
    around = sink.of(observe.JobsEnqueuing)[-1]
    enqueued, started = sink.of(observe.JobEnqueued)[-5:], sink.of(observe.JobStarted)
    last = enqueued[-1]

    assert ("report", 5, 1 + ("handler" in way)) == (around.task, around.count, len(sink.of(observe.JobsEnqueuing)))
    assert [*["charge"] * 3, "remind", "report"] == [each.task for each in enqueued]
    assert {f"batch:job/{last.job_id}"} == {each.origin for each in enqueued[:-1]}
    assert (None, "task", timedelta(0)) == (last.origin, last.kind, last.delay)
    assert {way == "using"} == {each.in_transaction for each in enqueued}
    assert {"the trace"} == {each.trace for each in started if each.attempt == 1}
