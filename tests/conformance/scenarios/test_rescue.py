"""The sweep after dead workers: which leases it takes, the history it writes, and how much one pass may do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive.app.app import App
from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome
from redrive.stores.statements import loader
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import ManualWorker, execute, sweep

MANY = 5_000
"""Expired leases. The case has 100,000; the test shows that the rows of a pass do not depend on this number."""

MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def work(app):
    """Return a task for workers that fall silent."""

    @app.task
    def work() -> None: ...

    return work


def worker_row(app: App, worker_id: int) -> tuple[datetime, bool]:
    """Return the instant when a worker's lease ends, and whether the worker counts as dead."""
    statement = "SELECT expires_at, stopped_at IS NOT NULL FROM redrive_workers WHERE id = :id"
    ((expires_at, is_struck_off),) = execute(app, statement, id=worker_id)
    return datetime.fromtimestamp(0, UTC) + expires_at * MICROSECOND, bool(is_struck_off)


@pytest.mark.case("D14")
def test_an_expired_lease_goes_to_another_worker(app, clock, work):
    """Five minutes after A fell silent B gets attempt 2 under a new lease, and A's attempt counts as lost."""
    began = clock.now()
    job = work.enqueue()
    silent = ManualWorker(app, "A", lease_for="30s")
    lost = silent.take()
    clock.advance("5m")
    living = ManualWorker(app, "B", lease_for="45s")
    sweep(app)
    claim = living.take()

    assert (2, living.id, True) == (claim.attempt, claim.worker_id, claim.lease_id > lost.lease_id)
    assert (began + timedelta(minutes=5, seconds=45), False) == worker_row(app, living.id)

    (attempt,) = job.attempts

    assert (1, silent.id, lost.lease_id, began) == (
        attempt.number,
        attempt.worker_id,
        attempt.lease_id,
        attempt.started_at,
    )
    assert (AttemptOutcome.LOST, "WORKER_LOST", "in_flight") == (attempt.outcome, attempt.reason, attempt.stage)
    assert (began + timedelta(seconds=30), True) == worker_row(app, silent.id)


@pytest.mark.case("D21")
def test_a_sweep_keeps_to_its_budget(app, clock, work):
    """Of 5 jobs of a dead worker one is swept with budget 1, three after budget 2 more, and all in the end."""
    jobs = work.enqueue_many([()] * 5)
    ManualWorker(app, "A", lease_for="1s").claim(5)
    clock.advance("10s")

    def closed() -> int:
        return sum(len(job.attempts) for job in jobs)

    assert (1, 1) == (len(sweep(app, 1)), closed())
    assert (2, 3) == (len(sweep(app, 2)), closed())
    assert (2, 5) == (len(sweep(app, 3)), closed())
    assert () == sweep(app, 3)

    drain(app)

    assert [(State.SUCCEEDED, 2)] * 5 == [(job.refresh().state, job.record.attempt) for job in jobs]


@pytest.mark.case("D21")
def test_the_work_of_a_pass_depends_on_its_budget_only(app, clock, work):
    """With 5,000 expired leases a pass of 100 writes 100 jobs and 100 lines of history; claims come in between."""
    work.enqueue_many([()] * MANY)
    ManualWorker(app, "A", lease_for="1s").claim(MANY)
    clock.advance("10s")
    living = ManualWorker(app, "B")
    sweep(app, 1)  # strikes the worker off, once
    changes = []
    for _ in range(3):
        ((before,),) = execute(app, "SELECT total_changes()")
        sweep(app, 100)
        ((after,),) = execute(app, "SELECT total_changes()")
        changes.append(after - before)

        assert 2 == living.take().attempt

    assert [200] * 3 == changes
    assert MANY - 301 == app.jobs.stats().running - 3


@pytest.mark.case("D21")
def test_a_pass_reads_no_further_than_its_budget(app):
    """Sweeps read an index in its order, without sorting, so that they can stop at their budget."""
    plan = execute(
        app,
        f"EXPLAIN QUERY PLAN {loader.statements('sqlite')['lost']}",
        now=0,
        limit_for=0,
        grace=0,
        every=None,
        budget=100,
    )

    assert ["SCAN job USING INDEX redrive_jobs_running"] == [step[3] for step in plan if " job " in step[3]]
    assert [] == [step[3] for step in plan if "TEMP B-TREE" in step[3]]


@pytest.mark.case("queue-07")
def test_a_worker_that_was_silent_for_an_hour_is_removed(app, other_app, clock, work):
    """Workers with leases of 60 s count as dead an hour after their last beat; a sweep from any connection
    marks them dead and releases their job, with its attempt still counted."""
    job = work.enqueue()
    silent = ManualWorker(app, "A", lease_for="60s")
    silent.take()
    clock.advance("1h")
    zombies = [worker.id for worker in other_app.workers.select() if worker.expires_at <= clock.now()]

    assert [silent.id] == zombies
    assert [job.id] == [swept.job_id for swept in sweep(other_app)]

    record = job.refresh().record

    assert (State.READY, None, 1) == (record.state, record.worker_id, record.attempt)
    assert (True, ()) == (worker_row(app, silent.id)[1], app.workers.select())
    assert not silent.beat().alive
