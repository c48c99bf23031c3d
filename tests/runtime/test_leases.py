"""Leases of running handlers: kept while the worker lives, and their loss stops the handler."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import App
from redrive.engine.outcome import Settlement
from redrive.runtime.dead_workers import Rescuer
from redrive.stores.operations import leases, workers
from tests.runtime.helpers import PATIENCE, app_on, until, working


def test_a_cancelled_job_stops_its_handler(filed: App):
    """After a cancel the next heartbeat finds the lease gone; the slot is freed, and the job stays cancelled."""

    async def run() -> tuple[str, str]:
        """Run it on an event loop."""
        started, stopped = asyncio.Event(), asyncio.Event()

        @filed.task
        async def send(number: int) -> str:
            """Wait to be stopped, at first."""
            if number == 2:
                return "next"
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return "never"

        job = send.enqueue(1)
        async with working(filed, concurrency=1), asyncio.timeout(PATIENCE):
            await started.wait()
            await job.acancel()
            await stopped.wait()
            result = await (await send.aenqueue(2)).aresult(timeout=PATIENCE)
        return result, (await job.arefresh()).state

    assert ("next", "cancelled") == asyncio.run(run())
    assert ["cancelled"] == [each.outcome for each in filed.job(1).attempts]


def test_the_result_of_a_stopped_handler_is_ignored(filed: App, caplog):
    """If a handler ignores the stop and returns, its cancelled job stays cancelled (conformance D30)."""

    async def run() -> None:
        """Run it on an event loop."""
        started = asyncio.Event()

        @filed.task
        async def send() -> str:
            """Finish in spite of the stop."""
            started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "late"

        job = send.enqueue()
        async with working(filed), asyncio.timeout(PATIENCE):
            await started.wait()
            await job.acancel("ordered twice")
            await until(
                lambda: any(message.startswith("job 1 (send): it was cancelled") for message in caplog.messages)
            )

    asyncio.run(run())

    assert ("cancelled", "ordered twice") == (filed.job(1).state, filed.job(1).record.note)


@pytest.mark.case("probe-15")
def test_a_blocked_event_loop_costs_no_lease(tmp_path: Path):
    """Handlers that block the event loop beyond the lease keep it: the heartbeat has its own thread (D22)."""
    # On a busy machine a thread can wait for the processor longer than the lease of the other tests, 200 ms.
    filed, observer = (app_on(tmp_path, lease_for="1s") for _ in range(2))
    started, go, swept = threading.Event(), threading.Event(), []

    def watch() -> None:
        """Release the handler after three leases of its worker, and sweep all the time, as other workers do."""
        assert started.wait(PATIENCE)
        first = observer.workers.select()[0].heartbeat_at
        while observer.workers.select()[0].heartbeat_at < first + 3 * observer.terms.lease_for:
            swept.extend(observer.store.run(leases.sweep(100)))
        go.set()

    @filed.task
    async def hog() -> str:
        """Block the event loop."""
        started.set()
        return "done" if go.wait(PATIENCE) else "abandoned"

    @filed.task
    async def neighbour() -> str:
        """Wait for its turn on the loop that is blocked."""
        await asyncio.to_thread(go.wait, PATIENCE)
        return "done"

    async def run() -> list[str]:
        """Run it on an event loop."""
        jobs = [neighbour.enqueue(), hog.enqueue()]
        watching = threading.Thread(target=watch)
        watching.start()
        async with working(filed):
            results = [await job.aresult(timeout=PATIENCE) for job in jobs]
        await asyncio.to_thread(watching.join)
        return results

    results = asyncio.run(run())
    attempts = [len(filed.job(number).attempts) for number in (1, 2)]
    observer.close()
    filed.close()

    assert (["done", "done"], []) == (results, swept)
    assert [1, 1] == attempts


def test_a_worker_finishes_the_jobs_of_a_dead_one(filed: App):
    """Sweep the jobs when the lease of the dead worker has expired, and run them as a second execution."""
    task = filed.task(name="send")(lambda: "done")
    job = task.enqueue()
    dead = filed.store.run(workers.register("dead:1", concurrency=1, lease_for=timedelta(milliseconds=50)))
    filed.store.run(leases.claim(dead, 1, lease_for=timedelta(milliseconds=50)))

    async def run() -> str:
        """Run it on an event loop."""
        async with working(filed):
            return await job.aresult(timeout=PATIENCE)

    assert "done" == asyncio.run(run())
    assert [("lost", dead), ("succeeded", dead + 1)] == [(each.outcome, each.worker_id) for each in job.attempts]


def test_a_worker_whose_row_was_deleted_continues(filed: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After a deletion of its row the worker registers under a new number, and gives its running jobs back."""

    async def nothing(_: Rescuer) -> Sequence[Settlement]:
        return ()

    # A sweep that comes first takes the jobs of a worker without a row as lost.
    monkeypatch.setattr(Rescuer, "_sweep", nothing)
    second = asyncio.Event()

    @filed.task
    async def send() -> str:
        """Wait to be lost, at first."""
        if started.is_set():
            return "second"
        started.set()
        await second.wait()
        return "first"

    started = asyncio.Event()

    def forget() -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
            connection.execute("DELETE FROM redrive_workers")
        connection.close()

    async def run() -> str:
        """Run it on an event loop."""
        job = send.enqueue()
        async with working(filed), asyncio.timeout(PATIENCE):
            await started.wait()
            await asyncio.to_thread(forget)
            return await job.aresult(timeout=PATIENCE)

    assert "second" == asyncio.run(run())
    # Its jobs are given back, so that no attempt is spent. The number has random bits: no other worker has got it.
    (succeeded,) = filed.job(1).attempts
    assert ("succeeded", 1) == (succeeded.outcome, succeeded.number)
    assert succeeded.worker_id >> workers.SALT_BITS > 1


def test_an_attempt_in_a_hanging_thread_fails_at_its_timeout(filed: App):
    """At its timeout the attempt fails, while the thread hangs on: the retry runs beside it."""
    go, calls = threading.Event(), []

    @filed.task(retry="1 0s 0s", timeout="200ms")
    def send() -> str:
        """Hang, at first."""
        calls.append(None)
        if len(calls) == 1:
            go.wait(PATIENCE)
        return "second"

    async def run() -> str:
        """Run it on an event loop."""
        job = send.enqueue()
        async with working(filed):
            result = await job.aresult(timeout=PATIENCE)
        go.set()
        return result

    assert "second" == asyncio.run(run())
    assert ["TIMEOUT", None] == [each.reason for each in filed.job(1).attempts]
