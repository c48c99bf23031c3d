"""Cancelling: before the start, twice, too late, and while a handler runs.

Case D30 is about running jobs; its part about the steps of a workflow waits for workflows.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from redrive.app.attempts.context import Context, Pending
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.errors import GiveUp, JobNotFound
from redrive.runtime.worker import Worker
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import boom

PATIENCE = 90
"""Seconds until a test gives up on a worker."""


@pytest.mark.case("D29")
def test_only_unfinished_jobs_can_be_cancelled(app, clock, manual_worker):
    """Ready, retrying and waiting jobs are cancelled once and never run; ended jobs stay, and are no error."""
    ran = []

    @app.task(retry="5 1h")
    def work(kind: str) -> Pending | None:
        """Act according to its kind."""
        ran.append(kind)
        match kind:
            case "retrying":
                raise ValueError("boom")
            case "waiting":
                return Pending("1h")
            case "dead":
                raise GiveUp("no")
        return None

    jobs = {kind: work.enqueue(kind) for kind in ("retrying", "waiting", "completed", "dead")}
    drain(app, within="1s")
    jobs["ready"] = work.options(delay="1h").enqueue("ready")
    before = {kind: job.refresh().record for kind, job in jobs.items()}
    ran.clear()
    first = {kind: job.cancel() for kind, job in jobs.items()}
    finished = {kind: job.refresh().record.finished_at for kind, job in jobs.items()}
    clock.advance("1m")
    second = {kind: job.cancel() for kind, job in jobs.items()}

    assert {"ready": True, "retrying": True, "waiting": True, "completed": False, "dead": False} == first
    assert dict.fromkeys(jobs, False) == second
    assert finished == {kind: job.refresh().record.finished_at for kind, job in jobs.items()}
    assert [before[kind] for kind in ("completed", "dead")] == [jobs[kind].record for kind in ("completed", "dead")]

    clock.advance("2h")
    drain(app)

    assert ([], {State.CANCELLED}) == (ran, {jobs[kind].refresh().state for kind in ("ready", "retrying", "waiting")})

    with pytest.raises(JobNotFound):
        app.job(4711).cancel()


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_a_running_handler_is_stopped_by_a_cancel(app, other_app, monkeypatch, colour):
    """Async handlers are stopped, polling ones see `should_stop`; the job stays cancelled in both cases (D30)."""
    from redrive.runtime import heartbeat

    monkeypatch.setattr(heartbeat, "LOOK", 0.005)
    started, stopping = threading.Event(), threading.Event()

    @app.task(name="work")
    async def awork() -> str:
        """Wait for ever, and return a result all the same."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopping.set()
        return "late"

    @app.task(name="poll")
    def work(context: Context) -> str:
        """Work until it should stop, and return a result all the same."""
        started.set()
        while not context.should_stop:
            pass
        stopping.set()
        return "late"

    job = (awork if colour == "async" else work).enqueue()

    async def run() -> None:
        """Run it on an event loop."""
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        assert await asyncio.to_thread(started.wait, PATIENCE)
        await asyncio.to_thread(other_app.job(job.id).cancel)
        assert await asyncio.to_thread(stopping.wait, PATIENCE)
        worker.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), PATIENCE))

    assert (State.CANCELLED, ["cancelled"]) == (job.refresh().state, [each.outcome for each in job.attempts])


@pytest.mark.case("D32")
@pytest.mark.parametrize("outcome", [Succeeded(b"1"), boom()], ids=["succeeds", "fails"])
def test_a_cancelled_handler_frees_its_slot_when_it_stops(app, manual_worker, outcome):
    """In a queue of one, J2 starts when the handler of the cancelled J1 has stopped; J1 stays cancelled."""

    @app.task(queue="narrow")
    def work() -> None: ...

    app.queue("narrow").limit(concurrency=1)
    first, second, third = work.enqueue_many([()] * 3)
    held = manual_worker.take()

    assert (first.id, ()) == (held.id, manual_worker.claim(2))

    first.cancel()

    assert ((), State.CANCELLED) == (manual_worker.claim(2), first.refresh().state)
    assert {held.lease_id} == manual_worker.settle((held, outcome)).lost

    (next_one,) = manual_worker.claim(2)

    assert (second.id, State.CANCELLED) == (next_one.id, first.refresh().state)

    manual_worker.end(next_one)

    assert (third.id, ()) == (manual_worker.take().id, manual_worker.claim(2))
