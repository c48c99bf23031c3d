"""The pruner: which worker prunes, how far one pass goes, and what it leaves."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from redrive import App
from redrive.errors import StoreBusy
from redrive.runtime import pruner
from redrive.runtime.pruner import BETWEEN_PASSES, Pruner
from redrive.stores.operations import retention
from redrive.testing import VirtualClock, drain
from tests.runtime.helpers import PATIENCE, Registered, register, repeat


@pytest.fixture
def app():
    """Return an app with ended jobs, of a task that keeps them for a day and one that keeps them for ever."""
    app = App("memory://", clock=VirtualClock(), keep_for="1d")

    @app.task
    def work() -> None: ...

    @app.task(keep_for="forever")
    def keep() -> None: ...

    work.enqueue_many([()] * 3)
    keep.enqueue()
    work.options(retry="7 1s").enqueue()
    drain(app)
    yield app
    app.close()


def passes(app: App, worker: int, seconds: float = BETWEEN_PASSES, *, clock: VirtualClock | None = None) -> None:
    """Run the pruner of a worker until it has rested for this long."""
    clock = clock or VirtualClock()

    async def run() -> None:
        """Run it on an event loop."""
        running = asyncio.create_task(repeat(Pruner(app, clock, Registered(app, worker)).duty, clock))
        async with asyncio.timeout(PATIENCE):
            while clock.monotonic() < seconds:
                await VirtualClock().asleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def tasks(app: App) -> list[str]:
    """Return the tasks of the stored jobs."""
    return [job.task for job in app.jobs.select()]


def test_a_pass_deletes_what_was_kept_long_enough(app: App):
    """Jobs are deleted after the retention of their task; the next pass deletes policies without jobs."""
    worker = register(app)
    app.clock.advance("23h")
    passes(app, worker)
    assert 5 == len(tasks(app))

    app.clock.advance("1h")
    passes(app, worker)
    assert (["keep"], 2) == (tasks(app), len(app.store.run(retention.policies(now=app.now()))))
    passes(app, worker)
    assert 1 == len(app.store.run(retention.policies(now=app.now())))
    app.clock.advance("1d")
    assert 2 == len(app.store.run(retention.policies(now=app.now())))
    passes(app, worker)
    assert 1 == len(app.store.run(retention.policies(now=app.now())))


def test_a_pass_continues_until_no_row_is_left(app: App, monkeypatch: pytest.MonkeyPatch):
    """Delete many jobs in several transactions, and rest between ranges without a deletion."""
    monkeypatch.setattr(retention, "BATCH", 2)
    worker = register(app)
    app.clock.advance("2d")
    passes(app, worker)

    assert ["keep"] == tasks(app)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a stride be one job, and a pass that leaves more than one job be long; return the ids where surveys begin."""
    asked, survey, is_young = list[int](), retention.survey, retention.is_young
    monkeypatch.setattr(pruner, "LONG", 1)
    monkeypatch.setattr(retention, "is_young", lambda *args: is_young(*args, stride=1))

    def one(after: int, *args: object, **options: object):
        asked.append(after)
        return survey(after, *args, stride=1, **options)

    monkeypatch.setattr(retention, "survey", one)
    return asked


def test_a_pass_ends_at_jobs_that_are_too_young(app: App, read: list[int]):
    """It deletes the old ones, reads the others seldom, and keeps the policies of jobs that it has not read."""
    worker = register(app)
    app.clock.advance("1d")
    app.named("work").enqueue_many([()] * 5)
    drain(app)
    passes(app, worker)

    # The job that is kept for ever is old, so the pass goes on behind it, up to the first young one.
    assert ["work"] * 5 + ["keep"] == tasks(app)
    assert 5 == max(read)
    assert 2 == len(app.store.run(retention.policies(now=app.now())))


def test_now_and_then_a_pass_reads_all_jobs(app: App, read: list[int]):
    """Jobs may be older than those before them, and policies without jobs go; the next such pass comes days later."""
    worker, clock = register(app), VirtualClock()
    clock.advance(1.0)
    app.named("work").enqueue_many([()] * 5)
    drain(app)
    passes(app, worker, pruner.FIRST_WHOLE + 200, clock=clock)
    whole = [at for at, (before, after) in enumerate(pairwise(read)) if after < before and before == 9]

    assert {0} == set(read[:20])
    assert 1 == len(whole)


def test_a_rest_follows_each_batch(app: App, monkeypatch: pytest.MonkeyPatch):
    """After a batch that took a second, the pruner leaves the database to others for a multiple of that."""
    monkeypatch.setattr(retention, "BATCH", 2)
    clock, ends, prune = VirtualClock(), list[float](), retention.prune

    def slow(found: retention.Survey):
        clock.advance(1.0)
        ends.append(clock.monotonic())
        return prune(found)

    monkeypatch.setattr(retention, "prune", slow)
    app.clock.advance("2d")
    passes(app, register(app), clock=clock)

    assert ["keep"] == tasks(app)
    assert [1 + pruner.REST] == [later - earlier for earlier, later in pairwise(ends)]


def test_completed_instances_are_deleted_if_their_machine_sets_a_time(app: App):
    """Completed instances of a machine with a retention go after it; those of other machines are kept."""
    for name, options in {"kept": {}, "pruned": {"keep_completed_for": "2h"}}.items():
        machine = app.machine(name, **options)

        @machine.start(name="done")
        def done(event: timedelta) -> None: ...

        machine.send("a", timedelta(0))
    drain(app)
    worker = register(app)
    app.clock.advance("1h")
    passes(app, worker)
    assert 2 == len(app.machines.counts())
    app.clock.advance("1h")
    passes(app, worker)

    assert ["kept"] == [each.machine for each in app.machines.counts()]


def test_only_one_worker_prunes(app: App):
    """Only the longest-running worker prunes; when it has left, the next one does."""
    first, second = register(app), register(app)
    app.clock.advance("2d")
    passes(app, second)
    assert 5 == len(tasks(app))

    passes(app, first)
    assert ["keep"] == tasks(app)


def test_a_pruner_continues_after_an_error_of_the_store(app: App, monkeypatch: pytest.MonkeyPatch):
    """While the database is busy the pruner rests and tries again."""
    refusals = [StoreBusy(), StoreBusy()]
    survey = retention.survey

    def refuse(*args: object, **options: object) -> object:
        if refusals:
            raise refusals.pop()
        return survey(*args, **options)

    monkeypatch.setattr(pruner.retention, "survey", refuse)
    worker = register(app)
    app.clock.advance("2d")
    passes(app, worker)

    assert ([], ["keep"]) == (refusals, tasks(app))


def test_workers_that_left_are_forgotten_after_a_day(app: App):
    """Workers that have left are deleted after a day."""
    worker = register(app)
    app.clock.advance(timedelta(days=1))
    passes(app, worker)
    rows = app.store.script(lambda cursor: cursor.execute("SELECT id FROM redrive_workers").fetchall())

    assert [(worker,)] == rows


def test_jobs_are_archived_before_they_are_deleted(app: App, tmp_path: Path):
    """With an archive, each job that a pass deletes is a line there; if it cannot be written, the jobs stay."""
    app.archive = tmp_path / "none" / "jobs.jsonl"
    worker = register(app)
    app.clock.advance("2d")
    passes(app, worker)
    assert 5 == len(tasks(app))

    app.archive.parent.mkdir()
    passes(app, worker)
    assert ["keep"] == tasks(app)
    lines = [json.loads(line) for line in app.archive.read_text().splitlines()]
    assert 4 == len(lines) == len({line["id"] for line in lines})
    assert {"succeeded"} == {line["state"] for line in lines}
