"""Operators' methods, and the lines that they write to the audit log."""

from __future__ import annotations

import asyncio
import getpass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive import App, CatchRequest, Filter
from redrive.app.operators import database, jobs
from redrive.engine.frozen import freeze
from redrive.engine.outcome import Failed
from redrive.engine.records import Hold
from redrive.errors import ConfigurationError, IllegalMove
from redrive.policy import Failure
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import Ending
from redrive.testing import drain


@pytest.fixture
def fail(app: App):
    """Return a task that fails."""

    @app.task(retry="2 1m")
    def fail(number: int = 0) -> None:
        raise ValueError(number)

    return fail


def lines(app: App) -> list[tuple[str, str, object]]:
    """Return the audit log, newest line first: actor, action, jobs."""
    return [(line.actor, line.action, msgspec.json.decode(line.details).get("ids")) for line in app.database.audit()]


def test_each_action_is_audited_with_its_actor(app: App, fail):
    """Cancels, retries, skips and redrives are logged with their actor, user@host by default."""
    one, two = fail.enqueue(), fail.options(retry="0").enqueue()
    one.retry()
    one.cancel("enough", actor="ann")
    asyncio.run(one.acancel(actor="nobody"))
    drain(app)
    asyncio.run(two.askip(actor="bob"))
    assert not two.skip()
    asyncio.run(two.aretry())
    app.jobs.redrive(Filter(ids=(one.id,)), actor="eve")
    me = app.default_actor

    assert "@" in me
    assert [
        ("eve", "redrive", [one.id]),
        (me, "retry", [two.id]),
        ("bob", "skip", [two.id]),
        ("ann", "cancel", [one.id]),
        (me, "retry", [one.id]),
    ] == lines(app)
    newest, second, *_ = app.database.audit()
    assert (second,) == app.database.audit(before_id=newest.id, limit=1)


def test_only_dead_jobs_can_be_skipped(fail):
    """Jobs that are not dead cannot be skipped."""
    with pytest.raises(IllegalMove, match="a ready job cannot be skipped"):
        fail.enqueue().skip()


def test_an_actor_without_a_user_name_is_a_number(monkeypatch: pytest.MonkeyPatch):
    """If the user of the process has no name, the actor is a number."""
    database.default_actor.cache_clear()

    def nameless() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert database.default_actor().startswith("uid ")
    database.default_actor.cache_clear()


def test_many_are_done_in_batches(app: App, fail, monkeypatch: pytest.MonkeyPatch):
    """Methods for many jobs use several transactions, keep the limit, and space over all jobs."""
    monkeypatch.setattr(jobs, "BATCH", 2)
    fail.options(retry="0").enqueue_many(range(7))
    drain(app)
    now = app.now()
    done = app.jobs.redrive(Filter(all=True, limit=5), rate="2/s")
    rows = app.jobs.select(Filter(hold=Hold.REDRIVE, oldest_first=True))

    assert ((1, 2, 3, 4, 5), 5) == (done.ids, done.last_id)
    assert [now + timedelta(milliseconds=500) * n for n in range(5)] == [row.scheduled_at for row in rows]
    assert 3 == len(lines(app))
    assert (1, 2, 3, 4, 5) == app.jobs.cancel(Filter(hold=Hold.REDRIVE, limit=6))
    assert (1, 2, 3, 4, 5, 6, 7) == app.jobs.redrive(Filter(all=True)).ids


@pytest.fixture
def many(app: App) -> Filter:
    """Return a filter without a limit, and enqueue more jobs for it than one that reads has."""

    @app.task
    def many(number: int) -> None:
        raise ValueError(number)

    many.options(retry="0", delay="1h", tags=["spring"]).enqueue_many(range(730))
    return Filter(tag="spring")


def test_a_filter_without_a_limit_changes_all(app: App, many: Filter):
    """A page that is read has 100 jobs, and each change reaches all, in batches; a limit is obeyed."""
    assert (100, 730) == (len(app.jobs.select(many)), app.jobs.count(many))
    assert 3 == app.jobs.count(Filter(tag="spring", limit=3))
    assert 730 == app.operations.preview("cancel", many).changes
    assert 730 == len(app.jobs.repolicy(many, dry_run=True).ids) == len(app.jobs.repolicy(many).ids)
    assert 730 == len(app.jobs.delete(many, dry_run=True).ids)
    assert 5 == len(app.jobs.cancel(Filter(tag="spring", limit=5)))
    assert 725 == len(app.jobs.cancel(many))
    assert 730 == len(app.jobs.redrive(many, dry_run=True).ids)
    assert 730 == len(app.jobs.redrive(many, rate="100/s").ids)
    assert 730 == len(app.jobs.cancel(Filter(all=True)))
    assert 730 == len(app.jobs.delete(many).ids)
    assert 0 == app.jobs.count(many)


def test_the_asynchronous_forms_change_all(app: App, many: Filter):
    """They are the same procedures."""

    async def steps() -> list[int]:
        counts = [await app.jobs.acount(many), len(await app.jobs.acancel(many))]
        counts += [len((await app.jobs.aredrive(many)).ids), len((await app.jobs.adelete(many)).ids)]
        return counts

    assert [730] * 4 == asyncio.run(steps())


def test_an_operation_without_a_limit_changes_all(app: App, many: Filter):
    """It is carried out in batches, and can be undone."""
    begun = app.operations.start(app.operations.preview("cancel", many))
    assert 730 == app.operations.finish(begun.id).done
    undone = app.operations.undo(begun.id)
    assert 730 == app.operations.finish(undone.id).done
    assert 730 == app.jobs.count(Filter(state="ready"))


def test_jobs_that_are_enqueued_meanwhile_do_not_keep_a_call_going(
    app: App, many: Filter, fail, monkeypatch: pytest.MonkeyPatch
):
    """A call ends although new jobs that match are made during each batch."""
    seen: list[int] = []
    run = app.store.run

    def racing(operation: Any, **options: Any) -> Any:
        if operation.name == "cancel_all":
            seen.extend(job.id for job in fail.options(tags=["spring"], delay="1h").enqueue_many(range(500)))
        return run(operation, **options)

    monkeypatch.setattr(app.store, "run", racing)
    assert 730 == len(app.jobs.cancel(many))
    assert 1000 == len(seen)


@pytest.mark.parametrize("rate", ["fast", "0/s", "5/0s"])
def test_an_invalid_rate_is_refused(app: App, rate: str):
    """Invalid rates are refused, also in a dry run."""
    with pytest.raises(ConfigurationError, match="is not a rate"):
        app.jobs.redrive(Filter(all=True), rate=rate, dry_run=True)


def test_jobs_get_the_present_policy(app: App, fail):
    """Waiting jobs get the policy of their task as it is now; due times stay; the rest is kept, with the reason."""
    old = fail.options(retry="9 1h", delay="1h").enqueue()
    present, ended = fail.enqueue(), fail.enqueue()
    ended.cancel()
    strange = app.task(name="strange")(lambda: None).enqueue()
    del app._registry.tasks["strange"]
    due = old.record.scheduled_at
    dry = app.jobs.repolicy(Filter(all=True), dry_run=True)
    assert 10 == old.refresh().record.policy.attempts
    done = app.jobs.repolicy(Filter(all=True), actor="ann")

    assert dry == done
    assert ((old.id,), ("ann", "repolicy", [old.id])) == (done.ids, lines(app)[0])
    assert ((ended.id, "is cancelled"), (strange.id, "has the task strange, which is not in this app")) == done.kept
    assert (fail.policy, due) == (old.refresh().record.policy, old.record.scheduled_at)
    assert () == app.jobs.repolicy(Filter(all=True)).ids
    assert present.id not in done.ids


def test_a_running_job_keeps_its_policy(app: App):
    """Running jobs keep their policy until the attempt has ended."""
    kept = []

    @app.task(retry="0 catch mend")
    def work(number: int) -> None:
        kept.extend(app.jobs.repolicy(Filter(all=True)).kept)
        raise ValueError(number)

    @app.task
    def mend(request: CatchRequest[Any]) -> None: ...

    job = work.enqueue(1)
    drain(app, within="0s")

    assert (job.id, "runs: it keeps its policy until this attempt has ended") == kept[0]


def test_a_catch_job_uses_the_policy_of_its_parent(app: App):
    """Catch jobs do not get the policy of the catch task."""
    worker = app.store.run(workers.register("w", concurrency=1, lease_for=timedelta(days=1), now=app.now()))

    @app.task(retry="0 catch mend")
    def work() -> None: ...

    @app.task(retry="9 1h")
    def mend(request: CatchRequest[Any]) -> None: ...

    job = work.enqueue()
    (claim,) = app.store.run(leases.claim(worker, 1, lease_for=timedelta(days=1), now=app.now())).claims
    app.store.run(leases.settle([Ending(claim, Failed(Failure.of(ValueError())), 0.0)], now=app.now()))

    assert ((job.id + 1, f"is a catch job: it goes by the policy of job {job.id}"),) == app.jobs.repolicy(
        Filter(task="mend")
    ).kept


def test_the_policies_of_tasks_are_frozen(app: App, fail):
    """``App.policies()`` returns the present policy of each task as it would be frozen into a job."""
    assert {"fail": freeze(fail.policy)} == app.policies()


def test_verify_finds_damage_and_nothing_in_a_healthy_database(app: App, fail):
    """``verify()`` finds nothing after ordinary work, finds damage, and stops at its limit."""
    fail.enqueue_many(range(3))
    drain(app)
    assert () == app.database.verify()

    app.store.script(lambda cursor: cursor.execute("DELETE FROM redrive_attempts"))
    assert [*["failures"] * 3, *["attempts"] * 3] == [each.rule for each in app.database.verify()]
    assert ["failures"] * 2 == [each.rule for each in app.database.verify(limit=2)]


@pytest.mark.parametrize("wrong", [{"keep_for": 0}, {"keep_dead_for": "0s"}])
def test_jobs_are_kept_for_their_retention_time(wrong: dict[str, object]):
    """Retention times of zero are refused, and the message names the value for keeping all jobs."""
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))} must be positive"):
        App("memory://", **wrong)


def test_the_retention_of_a_task_defaults_to_that_of_its_app(app: App):
    """Tasks have the retention time of their app, or their own."""

    @app.task
    def ordinary() -> None: ...

    @app.task(keep_for="30d")
    def long() -> None: ...

    @app.task(keep_for="forever")
    def always() -> None: ...

    spans = {name: keep.ended for name, keep in app.keeps().items()}
    assert {"ordinary": timedelta(days=7), "long": timedelta(days=30), "always": None} == spans
    assert {None} == {keep.dead for keep in app.keeps().values()}


def test_a_filter_with_a_task_that_nothing_has_is_logged(app: App, caplog: pytest.LogCaptureFixture):
    """The name may be misspelled; a task of the app, and one of stored jobs alone, are known."""
    app.task(name="work")(lambda: None)
    app.named("old").enqueue()
    for name in ("work", "old"):
        app.jobs.cancel(Filter(task=name))
    assert [] == caplog.messages
    app.jobs.redrive(Filter(task="wrok"))
    app.jobs.count(Filter(task="wrok", limit=3))

    assert ["no task and no job is named wrok; tasks: work"] * 2 == caplog.messages
