"""Zombies: workers that still settle jobs they have lost. Their outcomes are refused and change nothing."""

from __future__ import annotations

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Released, Snoozed, Succeeded
from redrive.engine.records import AttemptOutcome
from redrive.errors import Snooze
from redrive.policy import parse_duration
from tests.conformance.scenarios.manual_workers import ManualWorker, boom, everything, sweep

OUTCOMES = {
    "complete": Succeeded(b'"old"'),
    "fail": boom(),
    "snooze": Snoozed(parse_duration("1m")),
    "release": Released("shutdown"),
    "cancel": Cancelled("no longer wanted"),
}
"""The outcomes that a zombie can report."""

each_outcome = pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)


@pytest.fixture
def work(app):
    """Return a task with retries."""

    @app.task(retry="3 1s")
    def work() -> str:
        return "new"

    return work


@pytest.fixture
def zombies(app, clock, work):
    """Return a function that gives the claims of a silent worker A and those of a worker B that now has the jobs."""

    def claim(count: int):
        work.enqueue_many([()] * count)
        silent = ManualWorker(app, "A", lease_for="1s")
        lost = silent.claim(count)
        clock.advance("2s")

        assert count == len(sweep(app))

        living = ManualWorker(app, "B")
        return silent, lost, living, living.claim(count)

    return claim


@pytest.mark.case("D15")
@each_outcome
def test_a_zombie_changes_nothing(app, clock, zombies, outcome):
    """Every outcome of A after its lease expired is refused and no row changes; B's completion is the only one."""
    silent, (old,), living, (new,) = zombies(1)
    before = everything(app)
    settled = silent.settle((old, outcome))

    assert ((), {old.lease_id}) == (settled.moved, settled.lost)
    assert before == everything(app)

    living.end(new, living.work(new))
    job = app.job(new.id)

    assert "new" == job.result()
    assert [(1, AttemptOutcome.LOST), (2, AttemptOutcome.SUCCEEDED)] == [
        (each.number, each.outcome) for each in job.attempts
    ]

    clock.advance("1h")

    assert () == living.claim()


@pytest.mark.case("D15")
@each_outcome
def test_a_zombie_comes_too_late(app, zombies, outcome):
    """Every outcome of A after B has completed the job is refused too, and the result stays B's."""
    silent, (old,), living, (new,) = zombies(1)
    living.end(new, living.work(new))
    before = everything(app)

    assert {old.lease_id} == silent.settle((old, outcome)).lost
    assert before == everything(app)
    assert "new" == app.job(new.id).result()


@pytest.mark.case("queue-01")
def test_a_zombie_can_neither_finish_nor_fail_a_job(app, zombies):
    """Workers that lost a job to another can neither complete it nor fail it, and the new holder can complete it."""
    silent, (old,), living, (new,) = zombies(1)

    assert {old.lease_id} == silent.settle((old, Succeeded())).lost
    assert {old.lease_id} == silent.settle((old, boom())).lost
    assert State.SUCCEEDED is living.end(new).state


@pytest.mark.case("queue-01")
def test_a_worker_can_be_its_own_zombie(app, clock, work):
    """Workers that lost a job and claimed it again are refused under their old lease, though they hold the job."""
    job = work.enqueue()
    silent = ManualWorker(app, "A", lease_for="1s")
    keeper = ManualWorker(app, "B", lease_for="1h")
    old = silent.take()
    clock.advance("2s")
    sweep(app)
    first = keeper.take()
    keeper.end(first, Released("shutdown"))
    second = keeper.take()

    assert keeper.id == second.worker_id == job.refresh().record.worker_id
    assert {old.lease_id, first.lease_id} == keeper.settle((old, Succeeded()), (first, Succeeded())).lost
    assert State.SUCCEEDED is keeper.end(second).state


@pytest.mark.case("queue-02")
def test_a_batch_of_a_zombie_is_refused(app, zombies):
    """Batches of a zombie, of completions or of failures, are refused job by job; the new holder's is accepted."""
    silent, old, living, new = zombies(2)
    leases = {claim.lease_id for claim in old}

    assert leases == silent.settle(*((claim, Succeeded()) for claim in old)).lost
    assert leases == silent.settle(*((claim, boom()) for claim in old)).lost

    settled = living.settle(*((claim, Succeeded()) for claim in new))

    assert ([State.SUCCEEDED] * 2, frozenset()) == ([each.state for each in settled.moved], settled.lost)


@pytest.mark.case("queue-02")
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=["first", "last"])
def test_a_stale_completion_does_not_affect_the_rest_of_a_batch(app, zombies, order):
    """Of a stale and a current completion of one job in one batch only the current one is taken, in any order."""
    _, (old, _), living, (new, other) = zombies(2)
    endings = [(old, Succeeded(b'"old"')), (new, Succeeded(b'"new"')), (other, Succeeded(b'"other"'))]
    settled = living.settle(*(endings[index] for index in order))

    assert {old.lease_id} == settled.lost
    assert [new.lease_id, other.lease_id] == [each.lease_id for each in settled.moved]
    assert ["new", "other"] == [app.job(claim.id).result() for claim in (new, other)]


@pytest.mark.case("D10")
def test_a_snooze_spends_nothing_and_fences_the_old_lease(app, clock, manual_worker):
    """Snoozed jobs wait without an error, run again as the same attempt, and refuse their earlier lease."""

    @app.task
    def work() -> None:
        raise Snooze("30m")

    job = work.enqueue()
    first = manual_worker.take()
    manual_worker.end(first, manual_worker.work(first))
    record = job.refresh().record

    assert (State.READY, clock.now() + parse_duration("30m")) == (record.state, record.scheduled_at)
    assert (1, 0, None, None) == (record.snoozes, record.failures, record.error, record.reason)

    clock.advance("30m")
    second = manual_worker.take()

    assert (1, 1) == (first.attempt, second.attempt)
    assert {first.lease_id} == manual_worker.settle((first, Succeeded())).lost
    assert State.RUNNING == job.refresh().state

    manual_worker.end(second)

    assert (State.SUCCEEDED, 1) == (job.refresh().state, job.record.attempt)
