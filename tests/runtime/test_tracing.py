"""Attempts with sinks: managers that sinks put around them, and proof that sinks change no outcome."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive import App, observe
from redrive.errors import StoreUnreachable
from redrive.runtime.tracing import kept
from redrive.stores.operations import jobs, leases, workers
from tests.runtime.helpers import PATIENCE, app_on, came, ended, until, working


class Watch:
    """A sink that records the events that it receives, and the managers that it puts around handlers.

    Attributes:
        events: the received events.
        lines: ``enter``, ``exit`` and the raised exceptions.
        traces: the traces of the jobs."""

    carries = True

    def __init__(self) -> None:
        self.events: list[observe.Event] = []
        self.lines: list[str] = []
        self.traces: list[str | None] = []

    def __call__(self, event: observe.Event):
        """Hear it."""
        self.events.append(event)
        return self.around(event) if isinstance(event, observe.JobStarted | observe.JobsEnqueuing) else None

    @contextmanager
    def around(self, event: observe.JobStarted | observe.JobsEnqueuing):
        """Surround an enqueue or a handler."""
        if isinstance(event, observe.JobsEnqueuing):
            yield "enqueued"
            return
        self.traces.append(event.trace)
        self.lines.append("enter")
        try:
            yield f"attempt {event.attempt}"
        except BaseException as error:
            self.lines.append(f"{type(error).__name__}")
            raise
        else:
            self.lines.append("exit")

    def of_kind(self, kind: type) -> list:
        """Return the events of a class."""
        return [event for event in self.events if isinstance(event, kind)]


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function as a test."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@pytest.fixture
def watch():
    """Return a sink that receives all events."""
    sink = Watch()
    with observe.only(sink):
        yield sink


@on_a_loop
async def test_a_handler_runs_inside_the_managers_of_sinks(filed: App, watch: Watch):
    """Entered before, exited once after, with what the handler raised; in a thread as on the event loop."""

    @filed.task
    async def quick() -> None:
        watch.lines.append("runs")

    @filed.task
    def threaded() -> None:
        watch.lines.append("runs")
        raise ValueError

    async with working(filed, concurrency=1):
        await ended(quick.enqueue())
        await ended(threaded.enqueue())

    assert ["enter", "runs", "exit", "enter", "runs", "ValueError"] == watch.lines


@on_a_loop
async def test_the_trace_of_a_sink_reaches_the_next_attempt(filed: App, watch: Watch):
    """Each attempt receives the trace of the one before it, the first one that of the enqueue."""

    @filed.task(retry="3 1ms")
    async def work() -> None:
        if len(watch.traces) < 3:
            raise ValueError

    async with working(filed):
        await ended(work.enqueue())

    assert ["enqueued", "attempt 1", "attempt 2"] == watch.traces


@on_a_loop
async def test_an_interrupted_attempt_is_exited_once_and_given_back(filed: App, watch: Watch):
    """If a worker is stopped during an attempt, the manager sees the cancellation once, and the job is released."""
    runs = asyncio.Event()

    @filed.task
    async def work() -> None:
        runs.set()
        await asyncio.Event().wait()

    async with working(filed):
        job = work.enqueue()
        await asyncio.wait_for(runs.wait(), PATIENCE)

    assert ["enter", "CancelledError"] == watch.lines
    assert ["release"] == [event.hold for event in watch.of_kind(observe.JobReleased)]
    assert "attempt 1" == filed.store.run(jobs.trace(job.id))


@on_a_loop
async def test_a_manager_receives_the_timeout(filed: App, watch: Watch):
    """Attempts that are cancelled at their timeout have failed, also for their sinks."""

    @filed.task(timeout="1ms")
    async def work() -> None:
        await asyncio.Event().wait()

    async with working(filed):
        await ended(work.enqueue())

    assert ["enter", "AttemptTimeout"] == watch.lines
    assert ["TIMEOUT"] == [event.reason for event in watch.of_kind(observe.JobDied)]


@on_a_loop
async def test_a_worker_emits_its_start_and_stop(filed: App, watch: Watch):
    """Show its slots and its queues at the start, and the number of abandoned handlers at the stop."""
    async with working(filed, concurrency=3, queues=["mail"]) as worker:
        await until(lambda: bool(watch.of_kind(observe.WorkerStarted)))
    (started,) = watch.of_kind(observe.WorkerStarted)
    (stopped,) = watch.of_kind(observe.WorkerStopped)

    assert (3, ("mail",)) == (started.concurrency, started.queues)
    assert (started.worker_id, ("mail",), 0) == (stopped.worker_id, stopped.queues, worker.abandoned)


@on_a_loop
async def test_an_attempt_of_a_cancelled_job_is_reported_as_lost(filed: App, watch: Watch):
    """After a cancel its caller emits the cancel, the worker the lost lease, and no success is emitted."""
    runs = asyncio.Event()

    @filed.task
    async def work() -> None:
        runs.set()
        await asyncio.Event().wait()

    async with working(filed):
        job = work.enqueue()
        await asyncio.wait_for(runs.wait(), PATIENCE)
        await job.acancel("enough")
        await until(lambda: bool(watch.of_kind(observe.JobLeaseLost)))

    assert [job.id] == [event.job_id for event in watch.of_kind(observe.JobLeaseLost)]
    assert ["enough"] == [event.why for event in watch.of_kind(observe.JobCancelled)]
    assert [] == watch.of_kind(observe.JobSucceeded)


@on_a_loop
async def test_an_outcome_that_comes_too_late_is_reported_as_lost(filed: App, watch: Watch):
    """If a `def` handler returns after its job was cancelled, no state changes, and one event is emitted."""
    runs, goes_on = threading.Event(), threading.Event()

    @filed.task
    def work() -> None:
        runs.set()
        goes_on.wait(PATIENCE)

    async with working(filed):
        job = work.enqueue()
        await came(runs)
        await job.acancel()
        goes_on.set()
        await until(lambda: bool(watch.of_kind(observe.JobLeaseLost)))

    assert [job.id] == [event.job_id for event in watch.of_kind(observe.JobLeaseLost)]


@on_a_loop
async def test_a_rescue_is_reported_by_the_worker_that_sweeps(tmp_path: Path, watch: Watch):
    """After its worker fell silent the job runs again; the event names the dead worker."""
    app = app_on(tmp_path)

    @app.task
    async def work() -> None:
        """Return at once."""

    job = work.enqueue()
    silent = app.store.run(workers.register("gone:1", concurrency=1, lease_for=app.terms.heartbeat_every))
    app.store.run(leases.claim(silent, 1, lease_for=app.terms.heartbeat_every))
    async with working(app):
        await ended(job)
    app.close()
    (rescued,) = watch.of_kind(observe.JobRescued)

    assert (job.id, silent, "WORKER_LOST", 1) == (rescued.job_id, rescued.worker_id, rescued.reason, rescued.attempt)


@on_a_loop
async def test_a_sink_that_fails_breaks_no_job(filed: App):
    """If a sink raises in its call, enter or exit, the jobs succeed all the same."""

    class Broken:
        carries = True

        def __call__(self, event):
            if isinstance(event, observe.JobStarted) and event.job_id != 1:
                return self
            raise ValueError

        def __enter__(self):
            if entered:
                raise ValueError
            entered.append(1)

        def __exit__(self, *_):
            raise ValueError

    @filed.task
    async def work() -> None:
        """Return at once."""

    entered: list[int] = []
    with observe.only(Broken()):
        jobs = work.enqueue_many([()] * 3)
        async with working(filed, concurrency=1):
            await ended(*jobs)

    assert ["succeeded"] * 3 == [str(job.refresh().state) for job in jobs]


@on_a_loop
async def test_an_attempt_with_an_unreadable_trace_runs_without_it(filed: App, watch: Watch, monkeypatch):
    """While the database is unreachable, the link to the trace is lost, but the attempt runs."""

    def away(*_: object) -> None:
        raise StoreUnreachable("away")

    @filed.task
    async def work() -> None:
        """Return at once."""

    monkeypatch.setattr(jobs, "trace", away)
    job = work.enqueue()
    async with working(filed):
        await ended(job)

    assert ([None], ["enter", "exit"]) == (watch.traces, watch.lines)


def test_outside_of_an_attempt_there_is_no_trace():
    """Return the trace of an attempt only in its own task."""
    assert None is kept()
