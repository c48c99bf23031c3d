"""Workers that are stopped: the jobs that they hold are finished or given back."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, CatchRequest, Context
from redrive.runtime import worker as module
from redrive.runtime.settler import Settler
from redrive.runtime.worker import Worker
from tests.runtime.helpers import PATIENCE, came, until, working


def test_the_first_stop_drains(filed: App):
    """Running handlers finish, no new one starts, and the worker deregisters."""

    async def run() -> None:
        """Run it on an event loop."""
        started, go = asyncio.Event(), asyncio.Event()

        @filed.task
        async def send(number: int) -> str:
            """Wait for the event, and finish."""
            started.set()
            await go.wait()
            return "finished"

        first = send.enqueue(1)
        worker = Worker(filed, concurrency=5)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await started.wait()
            worker.stop()
            later = send.enqueue(2)
            go.set()
            await running
        await first.arefresh()
        await later.arefresh()

    asyncio.run(run())

    assert ["succeeded", "ready"] == [filed.job(1).state, filed.job(2).state]
    assert ("finished", 0, ()) == (filed.job(1).result(), filed.job(2).record.attempt, filed.workers.select())


def test_a_stop_in_the_middle_of_a_claim_strands_nothing(filed: App, monkeypatch: pytest.MonkeyPatch):
    """Ten jobs are claimed and the stop comes before they start: none runs, none stays claimed (conformance D28)."""
    ran: list[int] = []
    filed.task(name="send")(lambda number: ran.extend([number])).enqueue_many(range(10))
    worker = Worker(filed)
    arun = filed.store.arun

    async def claim_slowly(operation):
        """Let the stop come while the claim is on its way back."""
        result = await arun(operation)
        if operation.name == "claim":
            worker.stop()
        return result

    monkeypatch.setattr(filed.store, "arun", claim_slowly)
    asyncio.run(asyncio.wait_for(worker.run(), PATIENCE))
    jobs = filed.jobs.select()

    assert ([], {("ready", 0, "worker 1 shut down")}) == (ran, {(job.state, job.attempt, job.note) for job in jobs})

    monkeypatch.undo()
    asyncio.run(_work_off(filed, 10))

    ended = {(job.state, job.attempt) for job in filed.jobs.select()}
    assert (list(range(10)), {("succeeded", 1)}) == (sorted(ran), ended)


async def _work_off(app: App, count: int) -> None:
    """Let another worker finish this number of jobs."""
    async with working(app):
        await until(lambda: app.jobs.stats().succeeded == count)


def stop_in_the_middle(app: App, stops: int, *, idempotent: bool | None = None, **options) -> None:
    """Run a worker until a handler runs that never ends by itself, and stop it this number of times."""

    async def run() -> None:
        """Run it on an event loop."""
        started = asyncio.Event()
        app.tasks.pop("send")

        @app.task(idempotent=idempotent)
        async def send() -> None:
            """Never end."""
            started.set()
            await asyncio.Event().wait()

        worker = Worker(app, **options)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await started.wait()
            for _ in range(stops):
                worker.stop()
            await running

    asyncio.run(run())


@pytest.mark.parametrize(("stops", "options"), [(2, {}), (1, {"shutdown_timeout": timedelta(0)})])
def test_an_interrupted_job_is_given_back_without_an_attempt(filed: App, stops, options):
    """After a second stop or the drain timeout the job is ready at once, with no attempt spent and no error;
    its history records the interruption."""
    filed.task(name="send")(lambda: None).enqueue()
    stop_in_the_middle(filed, stops, **options)
    record = filed.job(1).record

    assert ("ready", "release", 0, 0, 0) == (record.state, record.hold, record.attempt, record.failures, record.crashes)
    assert ("worker 1 shut down", None) == (record.note, record.error)
    assert [("released", 1, "cut off: worker 1 shut down")] == [
        (each.outcome, each.number, each.verdict) for each in filed.job(1).attempts
    ]
    assert True is (record.scheduled_at <= record.claimed_at + timedelta(seconds=PATIENCE))


@pytest.mark.parametrize(("stops", "options"), [(2, {}), (1, {"shutdown_timeout": timedelta(0)})])
def test_an_interrupted_job_of_a_task_that_is_not_idempotent_is_dead(filed: App, stops, options):
    """Record the attempt as lost in flight, since it may have had its effect, and run the catch task."""
    filed.task(name="recover")(_recover)
    filed.task(name="send", idempotent=False, retry="5 1s catch recover")(lambda: None).enqueue()
    stop_in_the_middle(filed, stops, idempotent=False, **options)
    catch = filed.job(2).record

    assert ("dead", "LOST_IN_FLIGHT") == (filed.job(1).state, filed.job(1).record.reason)
    assert [("lost", "LOST_IN_FLIGHT")] == [(each.outcome, each.reason) for each in filed.job(1).attempts]
    assert ("recover", 1, "ready") == (catch.task, catch.parent_id, catch.state)


def _recover(request: CatchRequest[Any]) -> None:
    """Take what was lost."""


def test_a_job_that_was_given_back_runs_under_the_same_number(filed: App):
    """If the third attempt of three is interrupted, the next worker runs it as the third (conformance D11)."""
    attempts: list[int] = []

    @filed.task(retry="2 0s 0s")
    async def send(context: Context) -> str:
        """Fail twice, then wait to be interrupted, then succeed."""
        attempts.append(context.attempt)
        if len(attempts) < 3:
            raise ConnectionError("no route")
        if len(attempts) == 3:
            third.set()
            await asyncio.Event().wait()
        return "done"

    third = asyncio.Event()

    async def run() -> str:
        """Run it on an event loop."""
        job = send.enqueue()
        async with working(filed), asyncio.timeout(PATIENCE):
            await third.wait()
        between = await job.arefresh()
        assert ("ready", 2, 3) == (between.state, between.record.attempt, len(job.attempts))
        async with working(filed):
            return await job.aresult(timeout=PATIENCE)

    assert "done" == asyncio.run(run())
    assert ([1, 2, 3, 3], [1, 2, 3, 3]) == (attempts, [each.number for each in filed.job(1).attempts])
    assert ["failed", "failed", "released", "succeeded"] == [each.outcome for each in filed.job(1).attempts]


def test_a_thread_cannot_be_interrupted_but_its_job_can(filed: App):
    """Jobs in threads are given back at once; later effects of the thread change nothing in redrive."""
    started, go = threading.Event(), threading.Event()

    @filed.task
    def send() -> None:
        """Block."""
        started.set()
        go.wait(PATIENCE)

    async def run() -> None:
        """Run it on an event loop."""
        send.enqueue()
        async with working(filed):
            await came(started)

    asyncio.run(run())
    go.set()

    assert ("ready", 0) == (filed.job(1).state, filed.job(1).record.attempt)


@pytest.mark.parametrize(("idempotent", "expected"), [(None, ("ready", 0, "released")), (False, ("dead", 1, "lost"))])
def test_a_handler_that_ignores_the_stop_does_not_hold_the_worker(
    filed: App, monkeypatch: pytest.MonkeyPatch, idempotent, expected
):
    """After a last wait the job is given back, or recorded as lost in flight if it may not be repeated, and the worker
    logs that it has left a handler behind."""
    monkeypatch.setattr(module, "LAST_WAIT", timedelta(milliseconds=1))

    async def run() -> int:
        """Run it on an event loop."""
        started, go = asyncio.Event(), asyncio.Event()

        @filed.task(idempotent=idempotent)
        async def send() -> None:
            """Ignore cancellations."""
            started.set()
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue

        send.enqueue()
        worker = Worker(filed)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await started.wait()
            worker.stop()
            worker.stop()
            await running
        go.set()
        return worker.abandoned

    assert 1 == asyncio.run(run())
    job = filed.job(1)
    assert expected == (job.state, job.record.attempt, *(each.outcome for each in job.attempts))
    assert () == filed.workers.select()


def test_an_unwritten_outcome_is_written_after_the_stop(filed: App, monkeypatch: pytest.MonkeyPatch):
    """If a handler has returned before the stop and its outcome is not written yet, the job succeeds."""

    async def write_nothing(_: Settler) -> float:
        """Wait, like a store that stays busy."""
        await asyncio.Event().wait()

    @filed.task(idempotent=False)
    async def send() -> str:
        """Return at once."""
        return "sent"

    async def run() -> None:
        """Run it on an event loop."""
        send.enqueue()
        worker = Worker(filed, shutdown_timeout=timedelta(milliseconds=10))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(PATIENCE):
            await until(lambda: bool(worker._attempts and worker._attempts.settler.unwritten))
            worker.stop()
            await running

    monkeypatch.setattr(Settler, "_step", write_nothing)
    monkeypatch.setattr(module, "LAST_WAIT", timedelta(milliseconds=10))
    asyncio.run(run())

    job = filed.job(1)
    assert ("succeeded", "sent") == (job.state, job.result())
    assert ["succeeded"] == [each.outcome for each in job.attempts]
