"""Stopping a worker: its jobs are released, no attempt is spent, and no job is left behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive.app.attempts.context import Context
from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, Hold
from redrive.runtime.attempts import Attempts
from redrive.runtime.worker import Worker
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import ManualWorker, boom

PATIENCE = 90
"""Seconds until a test gives up on a worker."""


@pytest.mark.case("D11")
@pytest.mark.parametrize(("signals", "patience"), [(2, 3600), (1, 0)], ids=["second signal", "time is up"])
def test_an_interrupted_attempt_is_not_spent(app, clock, signals, patience):
    """Handlers that the stop interrupts in attempt 3 of 3 spend nothing, and another worker runs the job as attempt
    3; the history marks the attempt as interrupted."""
    ran = []
    began = asyncio.Event()

    @app.task(retry="2 1s")
    async def work(context: Context) -> None:
        """Fail twice, then never end, then succeed."""
        ran.append(context.attempt)
        if context.attempt < 3:
            raise RuntimeError("boom")
        if len(ran) == 3:
            began.set()
            await asyncio.Event().wait()

    async def stop_in_the_middle() -> None:
        """Run a worker until the handler never ends, and stop it."""
        worker = Worker(app, concurrency=1, shutdown_timeout=timedelta(seconds=patience))
        running = asyncio.create_task(worker.run())
        await began.wait()
        for _ in range(signals):
            worker.stop()
        await running

    job = work.enqueue()
    drain(app, within="2s")
    history = job.attempts
    clock.advance("2s")
    asyncio.run(asyncio.wait_for(stop_in_the_middle(), PATIENCE))
    record = job.refresh().record

    assert (State.READY, Hold.RELEASE, clock.now()) == (record.state, record.hold, record.scheduled_at)
    assert (2, 2, history) == (record.attempt, record.failures, job.attempts[:-1])
    assert (AttemptOutcome.RELEASED, None) == (job.attempts[-1].outcome, job.attempts[-1].error)

    drain(app)

    assert ([1, 2, 3, 3], State.SUCCEEDED) == (ran, job.refresh().state)


@pytest.mark.case("D11")
def test_a_worker_that_leaves_spends_nothing(app, clock, manual_worker):
    """Workers that sign off during attempt 3 of 3 give it back unspent, and another worker claims it at once."""

    @app.task(retry="2 1s")
    def work() -> None: ...

    job = work.enqueue()
    for span in ("1s", "2s"):
        manual_worker.end(manual_worker.take(), boom())
        clock.advance(span)
    history = job.attempts
    held = manual_worker.take()

    assert [job.id] == manual_worker.leave()

    record = job.refresh().record

    assert (State.READY, Hold.RELEASE, clock.now()) == (record.state, record.hold, record.scheduled_at)
    assert (2, 2, history) == (record.attempt, record.failures, job.attempts)
    assert (3, 3) == (held.attempt, ManualWorker(app, "B").take().attempt)


@pytest.fixture
def batch(app):
    """Enqueue ten due jobs; return them and the list of the numbers that ran."""
    ran = []

    @app.task
    async def work(number: int) -> None:
        """Record that it ran."""
        ran.append(number)

    return work.enqueue_many(range(10)), ran


@pytest.mark.case("D28")
def test_a_stop_between_claim_and_dispatch_strands_nothing(app, monkeypatch, batch):
    """Batches of 5 that are claimed while the stop arrives are given back unspent, and the next worker does all 10."""
    jobs, ran = batch
    worker = Worker(app, concurrency=5)
    claimed = []
    stopped = asyncio.Event()
    real_arun, real_close = app.store.arun, Attempts.close

    async def arun(operation):
        """Run the operation; after a claim, stop the worker before it receives the reply."""
        answer = await real_arun(operation)
        if operation.name == "claim" and answer.claims:
            claimed.extend(answer.claims)
            worker.stop()
            await stopped.wait()
        return answer

    def close(attempts: Attempts) -> None:
        real_close(attempts)
        stopped.set()

    monkeypatch.setattr(app.store, "arun", arun)
    monkeypatch.setattr(Attempts, "close", close)
    asyncio.run(asyncio.wait_for(worker.run(), PATIENCE))

    assert (5, []) == (len(claimed), ran)
    assert [(State.READY, 0, ())] * 10 == [(job.refresh().state, job.record.attempt, job.attempts) for job in jobs]
    assert () == app.workers.select()

    drain(app)

    assert (list(range(10)), [(State.SUCCEEDED, 1)] * 10) == (sorted(ran), _ends(jobs))


@pytest.mark.case("D28")
def test_a_stop_in_the_middle_of_a_dispatch_strands_nothing(app, monkeypatch, batch):
    """Batches of 5 whose attempts have been started when the stop arrives are finished; another worker does the rest.

    No handler has had its first turn at this moment.
    """
    jobs, ran = batch
    worker = Worker(app, concurrency=5)
    start = Attempts.start

    def start_and_stop(attempts: Attempts, claims, runs):
        back = start(attempts, claims, runs)
        worker.stop()
        return back

    monkeypatch.setattr(Attempts, "start", start_and_stop)
    asyncio.run(asyncio.wait_for(worker.run(), PATIENCE))

    assert ([0, 1, 2, 3, 4], (5, 0, 5)) == (ran, _counts(app))

    drain(app)

    assert (list(range(10)), [(State.SUCCEEDED, 1)] * 10) == (ran, _ends(jobs))


def _counts(app) -> tuple[int, int, int]:
    stats = app.jobs.stats()
    return stats.due, stats.running, stats.succeeded


def _ends(jobs) -> list[tuple[State, int]]:
    return [(job.refresh().state, job.record.attempt) for job in jobs]
