"""The parts of an App: each method in both colours."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Filter
from redrive.errors import JobNotFound, NotTracked
from redrive.stores.operations import schedules, workers
from redrive.testing import drain

PARTS = ["jobs", "queues", "schedules", "refreshes", "workers", "database"]


@pytest.fixture
def fail(app: App):
    """Return a task that fails."""

    @app.task(retry="0")
    def fail(number: int = 0) -> None:
        raise ValueError(number)

    return fail


@pytest.fixture
def nightly(app: App):
    """Return a cron that a worker has declared."""

    @app.cron("0 3 * * *")
    def nightly() -> None: ...

    app.store.run(schedules.declare([nightly.definition], now=app.now()))
    return nightly


@pytest.fixture
def table(app: App):
    """Return a refresh with one tracked item."""

    @app.refresh("Refresh every 2 hours; allow 10 minutes")
    def table(key: str) -> None: ...

    table.track("k", "k")
    return table


@pytest.mark.parametrize("part", PARTS)
def test_each_method_has_a_sync_and_an_async_form(app: App, part: str):
    """Methods of the parts that run store operations have an asynchronous form with the same parameters."""
    methods = {
        name: method for name, method in inspect.getmembers(getattr(app, part), inspect.ismethod) if name[0] != "_"
    }
    signatures = {name: inspect.signature(method) for name, method in methods.items() if name != "declare"}
    # What both forms run is neither.
    coloured = {
        name: signature
        for name, signature in signatures.items()
        if not str(signature.return_annotation).startswith(("Procedure[", "Operation["))
    }
    plain = {name: signature for name, signature in coloured.items() if not inspect.iscoroutinefunction(methods[name])}

    assert plain
    assert {f"a{name}": signature for name, signature in plain.items()} == {
        name: signature for name, signature in coloured.items() if name not in plain
    }


def test_jobs_are_read_by_coroutines(app: App, fail):
    """Coroutines read and count the same jobs."""
    job = fail.enqueue()
    drain(app)

    async def read() -> tuple[Any, ...]:
        return (
            await app.jobs.aselect(),
            await app.jobs.aselect(Filter(task="other")),
            await app.jobs.astats(task="fail"),
            await app.jobs.aidempotency_key(job.id),
        )

    key = app.jobs.idempotency_key(job.id)
    assert (app.jobs.select(), (), app.jobs.stats(task="fail"), key) == asyncio.run(read())
    with pytest.raises(JobNotFound):
        asyncio.run(app.jobs.aidempotency_key(99))


def test_jobs_are_changed_by_coroutines(app: App, fail):
    """Coroutines redrive, give policies to, and cancel the jobs that match, with a line in the audit log for each."""
    dead, waiting = fail.enqueue(), fail.options(retry="9 1h", delay="1h").enqueue()
    drain(app, within="0s")

    async def change() -> tuple[Any, ...]:
        return (
            (await app.jobs.aredrive(Filter(task="fail"), dry_run=True)).ids,
            (await app.jobs.aredrive(Filter(task="fail"), actor="ann")).ids,
            (await app.jobs.arepolicy(Filter(ids=(waiting.id,)), actor="bob")).ids,
            await app.jobs.acancel(Filter(all=True), why="enough", actor="eve"),
            [(line.actor, line.action) for line in await app.database.aaudit(limit=3)],
        )

    both = (dead.id, waiting.id)
    lines = [("eve", "cancel"), ("bob", "repolicy"), ("ann", "redrive")]
    assert ((dead.id,), (dead.id,), (waiting.id,), both, lines) == asyncio.run(change())
    assert ("cancelled", "enough") == (dead.refresh().state, dead.record.note)


def test_a_handle_is_read_by_coroutines(app: App, fail):
    """Coroutines read the closed attempts and the progress of a job."""
    job = fail.enqueue()
    drain(app)

    async def read() -> tuple[Any, ...]:
        return await job.aattempts(), await job.aprogress()

    assert (job.attempts, None) == asyncio.run(read())
    assert 1 == len(job.attempts)


def test_queues_workers_and_invariants_are_read_by_coroutines(app: App):
    """Coroutines read the settings of queues, the workers, and the violations of invariants."""
    app.queue("mail").limit(concurrency=2)
    app.store.run(workers.register("w", concurrency=3, lease_for=timedelta(days=1), now=app.now()))

    async def read() -> tuple[Any, ...]:
        return (
            [(each.name, each.concurrency) for each in await app.queues.aselect()],
            [(each.name, each.concurrency) for each in await app.workers.aselect()],
            await app.database.averify(),
        )

    assert ([("mail", 2)], [("w", 3)], ()) == asyncio.run(read())


def test_schedules_are_acted_on_by_name(app: App, nightly):
    """Coroutines pause, resume, trigger and backfill a cron by its name, and read what became of it."""
    start = datetime(2025, 12, 30, tzinfo=UTC)

    async def act() -> tuple[Any, ...]:
        paused = await app.schedules.apause("nightly", actor="ann")
        resumed = await app.schedules.aresume("nightly")
        made = await app.schedules.atrigger("nightly")
        filled = await app.schedules.abackfill("nightly", start, start + timedelta(days=1))
        return paused, resumed, made, filled, await app.schedules.aoccurrences("nightly", limit=5)

    paused, resumed, made, filled, past = asyncio.run(act())

    assert paused.paused_at is not None
    assert resumed.paused_at is None
    assert {made.job_id, *(each.job_id for each in filled)} == {each.job_id for each in past}
    assert (nightly.state, ("nightly",)) == (
        asyncio.run(app.schedules.aget("nightly")),
        tuple(each.name for each in asyncio.run(app.schedules.aselect())),
    )


def test_items_are_acted_on_by_name_and_key(app: App, table):
    """Coroutines pause, resume, trigger, update and untrack an item by the name of its refresh and its key."""

    async def act() -> tuple[Any, ...]:
        await app.refreshes.apause("table", "k")
        paused = (await app.refreshes.aget("table", "k")).paused
        await app.refreshes.aresume("table", "k")
        started = await app.refreshes.atrigger("table", "k")
        updated = await app.refreshes.aupdate("table", "k", actor="ann")
        counted, page = await app.refreshes.acounts(), await app.refreshes.aselect("table")
        return paused, started.job_id, updated.job_id, counted, page, await app.refreshes.auntrack("table", "k")

    paused, started, updated, counted, page, untracked = asyncio.run(act())

    assert paused
    assert untracked
    assert started < updated
    assert (["table"], ["k"]) == ([each.schedule for each in counted], [each.key for each in page])
    assert "update" == app.database.audit()[0].action
    with pytest.raises(NotTracked):
        app.refreshes.get("table", "k")
