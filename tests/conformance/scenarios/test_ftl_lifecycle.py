"""FTL's life cycle of an async call, for redrive's jobs; where redrive differs, the test asserts its behaviour."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from redrive.app.attempts.context import Context
from redrive.app.tasks.catch import CatchRequest
from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, Filter, Hold
from redrive.stores.operations.leases import Claimed
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import ManualWorker, boom, sweep

TRIALS = 20
"""How often two acquirers race."""


def seconds(count: float) -> timedelta:
    """Return a span of so many seconds."""
    return timedelta(seconds=count)


@pytest.fixture
def charge(app):
    """Return a task without a retry directive."""

    @app.task
    def charge(amount: int) -> int:
        return amount

    return charge


@pytest.mark.case("ftl.async_call_lifecycle: nothing to acquire")
def test_a_claim_that_finds_nothing_is_empty(manual_worker, charge):
    """Claims with nothing due are no error but an empty batch, with the time until a job will be due."""
    assert Claimed((), None) == manual_worker.look()

    charge.options(delay="5s").enqueue(1)

    assert Claimed((), seconds(5)) == manual_worker.look()


@pytest.mark.case(
    "ftl.async_call_lifecycle: acquire sets state executing, creates lease /system/async_call/<id> with ttl 5s"
)
def test_a_claimed_job_runs_under_a_new_lease(app, clock, charge):
    """Claimed jobs run under a new lease id, which is valid as long as their worker beats."""
    manual_worker = ManualWorker(app, "A", lease_for="5s")
    job, later = charge.enqueue(1), charge.enqueue(2)

    claim = manual_worker.take()
    record = job.refresh().record

    assert (State.RUNNING, claim.lease_id, manual_worker.id) == (record.state, record.lease_id, record.worker_id)
    assert [clock.now() + seconds(5)] == [worker.expires_at for worker in app.workers.select()]

    clock.advance("3s")
    manual_worker.beat()
    second = manual_worker.take()

    assert [clock.now() + seconds(5)] == [worker.expires_at for worker in app.workers.select()]
    assert claim.lease_id == job.refresh().record.lease_id
    assert (later.id, True) == (second.id, second.lease_id > claim.lease_id)


@pytest.mark.case("ftl.async_call_lifecycle: failure with retries left")
def test_a_retry_is_the_same_job_once_more(app, clock, manual_worker):
    """With 2 retries left, backoff 2 s and a maximum of 3 s the same job row waits 2 s, then 3 s, with its history."""

    @app.task(retry="2 2s 3s")
    def charge(amount: int) -> None: ...

    job = charge.enqueue(1)
    first = manual_worker.take()
    manual_worker.end(first, boom("E1"))
    record = job.refresh().record

    assert (State.READY, Hold.RETRY, clock.now() + seconds(2)) == (record.state, record.hold, record.scheduled_at)
    assert [(job.id, 1, AttemptOutcome.FAILED, "E1")] == [
        (a.job_id, a.number, a.outcome, a.error) for a in job.attempts
    ]

    clock.advance("2s")
    second = manual_worker.take()

    assert (first.id, first.payload, first.policy) == (second.id, second.payload, second.policy)

    manual_worker.end(second, boom("E2"))

    assert clock.now() + seconds(3) == job.refresh().record.scheduled_at
    assert ["E1", "E2"] == [attempt.error for attempt in job.attempts]
    assert [job.id] == [each.id for each in app.jobs.select()]


@pytest.mark.case("ftl.async_call_lifecycle: catch verb fails")
def test_a_failing_catch_is_tried_again_without_limit(app):
    """Retry a failing catch task beyond all retries with the original error: after 4 s, and later once it is stuck."""
    received = []

    @app.task(retry="2 1s catch recover")
    def charge(amount: int) -> None:
        raise RuntimeError("E1")

    @app.task
    def recover(request: CatchRequest, context: Context) -> None:
        received.append(request.error)
        if context.attempt <= 20:
            raise RuntimeError("E2")

    job = charge.enqueue(1)
    drain(app, within="10s")
    (catching,) = app.jobs.select(Filter(task="recover"))

    assert (State.READY, "E2") == (catching.state, catching.error)
    assert (State.DEAD, None) == (job.refresh().state, job.caught_at)

    drain(app)

    assert ["E1"] * 21 == received
    # It is stuck after five failures, and then waits twice as long each time, up to an hour.
    waits = [seconds(4)] * 5 + [seconds(min(4 * 2**more, 3600)) for more in range(1, 16)]
    assert waits == [attempt.delay for attempt in app.job(catching.id).attempts[:-1]]
    assert (State.SUCCEEDED, True) == (app.job(catching.id).state, job.refresh().caught_at is not None)


@pytest.mark.case("ftl.async_call_lifecycle: controller dies while a call is executing")
def test_a_crash_spends_no_retry(app, clock, manual_worker):
    """After its worker died a job runs again by itself, as its second attempt, and still has its one retry."""

    @app.task(retry="1 5s")
    def charge(amount: int) -> None:
        raise RuntimeError("no")

    job = charge.enqueue(1)
    manual_worker.take()
    clock.advance("16s")
    sweep(app)
    record = job.refresh().record

    assert (State.READY, Hold.LOST, clock.now()) == (record.state, record.hold, record.scheduled_at)
    assert (1, 0, "WORKER_LOST") == (record.attempt, record.failures, record.reason)

    drain(app)

    assert [AttemptOutcome.LOST, AttemptOutcome.FAILED, AttemptOutcome.FAILED] == [
        attempt.outcome for attempt in job.attempts
    ]
    assert [None, seconds(5), None] == [attempt.delay for attempt in job.attempts]
    assert (State.DEAD, 2) == (job.refresh().state, job.record.failures)


@pytest.mark.case("ftl.async_call_lifecycle: verb cannot be called at all (module not deployed yet, RPC error)")
def test_a_job_of_an_unknown_task_waits(app, charge):
    """Jobs of a task that no worker has wait visibly, spend nothing, block no other, and run once it is deployed."""

    @app.task
    def ship(order: int) -> None: ...

    job, other = charge.enqueue(1), ship.enqueue(2)
    code = app.tasks.pop("charge")
    drain(app, within="1m")
    record = job.refresh().record

    assert (State.READY, None) == (record.state, record.hold)
    assert "due since 0ms, no worker is alive" == job.why  # drain() is none
    assert (0, 0, ()) == (record.attempt, record.failures, job.attempts)
    assert State.SUCCEEDED == other.state

    app.tasks["charge"] = code
    drain(app)

    assert (State.SUCCEEDED, 1) == (job.refresh().state, job.record.attempt)


@pytest.mark.case("ftl.async_call_lifecycle: acquisition order")
def test_jobs_are_claimed_by_priority_then_due_time(clock, manual_worker, charge):
    """Jobs that are due first are claimed first, even if created later; a smaller priority comes before that."""
    old = charge.options(delay="4s").enqueue(1)
    clock.advance("1s")
    young = charge.options(delay="1s").enqueue(2)
    urgent = charge.options(delay="3s", priority=-1).enqueue(3)
    clock.advance("4s")

    assert [urgent.id, young.id, old.id] == [manual_worker.take().id for _ in range(3)]


@pytest.mark.case("ftl.async_call_lifecycle: two acquirers at once")
def test_two_acquirers_at_once_get_different_jobs(app, other_app, charge):
    """Of two workers that claim one job each at the same moment, each gets one, and never the same."""
    manual_workers = [ManualWorker(app, "A"), ManualWorker(other_app, "B")]
    start = threading.Barrier(2)

    def take(manual_worker: ManualWorker) -> int:
        start.wait()
        return manual_worker.take().id

    with ThreadPoolExecutor(2) as threads:
        for _ in range(TRIALS):
            wanted = {job.id for job in charge.enqueue_many([1, 2])}

            assert wanted == set(threads.map(take, manual_workers))


@pytest.mark.case("ftl.async_call_lifecycle: retry count 0 or no directive: crash mid-call")
@pytest.mark.parametrize("retry", [None, "0 1s catch recover"], ids=["no directive", "count 0"])
def test_a_job_without_retries_survives_a_crash(app, clock, manual_worker, retry):
    """Jobs without any retry still run again after a crash, because a crash is no failure of the handler."""
    caught = []

    @app.task(retry=retry)
    def charge(amount: int) -> int:
        return amount

    @app.task
    def recover(request: CatchRequest) -> None:
        caught.append(request)

    job = charge.enqueue(7)
    manual_worker.take()
    clock.advance("16s")
    sweep(app)
    drain(app)

    assert (7, 2, []) == (job.result(), job.record.attempt, caught)


@pytest.mark.case("ftl.async_call_lifecycle: retry count 0 or no directive: crash mid-call")
def test_a_job_that_is_not_idempotent_dies_of_a_crash(app, clock, manual_worker):
    """Tasks declared idempotent=False are not repeated after a crash; the job is dead and its catch runs."""
    ran, caught = [], []

    @app.task(retry="0 catch recover", idempotent=False)
    def charge(amount: int) -> None:
        ran.append(amount)

    @app.task
    def recover(request: CatchRequest) -> None:
        caught.append((request.request, request.attempts[-1].reason))

    job = charge.enqueue(7)
    manual_worker.take()
    clock.advance("16s")
    sweep(app)
    drain(app)

    assert (State.DEAD, "LOST_IN_FLIGHT") == (job.state, job.record.reason)
    assert ([], [(7, "LOST_IN_FLIGHT")]) == (ran, caught)
