"""Sweep: jobs of dead workers run again, and live workers keep theirs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.engine.lease import ATTEMPT_LIMIT, GRACE
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Lost, Succeeded
from redrive.engine.records import AttemptOutcome, Hold
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Settled
from tests.stores.helpers import FATAL, LONG, Harness, new, seconds

MILLISECOND = timedelta(milliseconds=1)


def test_the_jobs_of_a_silent_worker_run_again(store: Harness):
    """Jobs of a worker with an expired lease are due at once, unspent, with a reason in the history."""
    worker = store.worker()
    claim = store.take(new(), worker=worker)
    store.wait(15)
    (moved,) = store.sweep()
    row = store.job(claim.id)
    (line,) = store.history(claim.id)

    assert moved.job_id == claim.id
    assert (State.READY, store.now, Hold.LOST) == (row.state, row.scheduled_at, row.hold)
    assert (1, 0, 1) == (row.attempt, row.failures, row.crashes)
    assert (AttemptOutcome.LOST, "WORKER_LOST", worker, 1) == (line.outcome, line.reason, line.worker_id, line.number)
    assert f"worker {worker} fell silent during attempt 1" == line.error


def test_a_lease_is_valid_until_its_last_millisecond(store: Harness):
    """Silent workers lose nothing until a millisecond before their lease expires."""
    store.take(new(), worker=store.worker())
    store.now += seconds(15) - MILLISECOND

    assert () == store.sweep()
    store.now += MILLISECOND
    assert 1 == len(store.sweep())


def test_a_worker_with_heartbeats_is_never_swept(store: Harness):
    """Long attempts are never taken from a worker that sends heartbeats."""
    worker = store.worker()
    claim = store.take(new(), worker=worker)
    for _ in range(50):
        store.wait(10)
        store.beat(worker)
        assert () == store.sweep()

    assert 1 == len(store.settle((claim, Succeeded())).moved)


def test_a_dead_worker_loses_only_its_own_jobs(store: Harness):
    """If one worker stops its heartbeats, the others keep their jobs."""
    dead, alive = store.worker("a:1"), store.worker("b:1", lease_for=LONG)
    lost, kept = store.take(new(), worker=dead), store.take(new(), worker=alive)
    store.wait(15)

    assert [lost.id] == [each.job_id for each in store.sweep()]
    assert kept.lease_id == store.job(kept.id).lease_id


def test_the_work_of_a_sweep_is_bounded(store: Harness):
    """Sweeps take at most as many leases as their budget, worker by worker, and the next one continues."""
    worker = store.worker(lease_for=LONG)
    store.enqueue(*[new() for _ in range(7)])
    claims = [*store.claim(3, worker=worker), *store.claim(4, worker=worker)]
    store.now += LONG
    swept = [[each.job_id for each in store.sweep(3)] for _ in range(4)]

    assert [3, 3, 1, 0] == [len(each) for each in swept]
    assert [claim.id for claim in claims] == [number for each in swept for number in each]


def test_a_sweep_without_dead_workers_changes_nothing(store: Harness):
    """If no worker is dead, a sweep returns an empty result and changes nothing."""
    store.enqueue(new(), new(delay=60))
    store.take()
    before = store.everything()

    assert () == store.sweep()
    assert before == store.everything()


# ---------------------------------------------------------------------------------------------------- absences

BEAT = seconds(5)
"""The heartbeat, and the time between two sweeps."""


def sweeps(store: Harness, *after: float) -> list[int]:
    """Sweep at intervals of this many seconds, and return the number of leases that each sweep took."""
    taken = []
    for each in after:
        store.wait(each)
        taken.append(len(store.sweep(every=BEAT)))
    return taken


def test_regular_sweeps_find_a_dead_worker_as_soon_as_its_lease_has_run_out(store: Harness):
    """With a sweep per heartbeat, a stopped worker loses its job between 15 and 20 s after its last one."""
    store.take(new(), worker=store.worker())

    assert [0, 0, 0, 1] == sweeps(store, 4.9, 5, 5, 5)


def test_an_outage_of_the_database_is_no_silence_of_a_worker(store: Harness):
    """After 38 s without a sweep, a worker has time for a heartbeat, and keeps its job."""
    worker = store.worker()
    claim = store.take(new(), worker=worker)
    before = sweeps(store, 4, 38, 5, 4)
    store.beat(worker)
    after = sweeps(store, 1, 5)

    assert [0] * 6 == before + after
    assert 1 == len(store.settle((claim, Succeeded())).moved)


def test_a_worker_that_died_in_an_outage_is_found_soon_after(store: Harness):
    """Dead workers get no more than the outage: two heartbeats after the first sweep the job runs again."""
    store.take(new(), worker=store.worker())

    assert [0, 0, 0, 1] == sweeps(store, 4, 3600, 5, 5)


@pytest.mark.parametrize("away", [20, 3600])
def test_repeated_outages_do_not_protect_a_dead_worker(store: Harness, away: float):
    """Each sweep counts as one missed heartbeat, however long the outage before it was."""
    store.take(new(), worker=store.worker())

    assert [0, 0, 1] == sweeps(store, away, away, away)


def test_a_live_worker_survives_repeated_outages(store: Harness):
    """Between two outages of the database, one heartbeat is enough for a worker to survive."""
    worker = store.worker()
    store.take(new(), worker=worker)
    taken = []
    for _ in range(5):
        taken += sweeps(store, 30, 5)
        store.beat(worker)

    assert [0] * 10 == taken


def test_an_outage_extends_leases_once(store: Harness):
    """Outages extend the worker's row once: the second sweep after one adds nothing."""
    store.take(new(), worker=store.worker())

    assert [0, 0, 0, 0, 0, 1] == sweeps(store, 40, 0, 0, 5, 4.9, 0.1)


def test_a_clock_that_jumps_ahead_takes_no_lease(store: Harness):
    """Sweeps treat a forward step of the database's clock as an outage."""
    worker = store.worker()
    store.take(new(), worker=worker)

    assert [0, 0] == sweeps(store, 1, 3600)
    store.beat(worker)
    assert [0, 0] == sweeps(store, 1, 4)


def test_after_a_clock_was_set_back_nothing_is_taken_early(store: Harness):
    """Silence is never negative: the lease ends at its stored time."""
    store.take(new(), worker=store.worker())

    assert [0, 0, 0] == sweeps(store, 5, -60, 60)
    assert [0, 0, 1] == sweeps(store, 5, 4.9, 0.1)


def test_an_attempt_that_ended_in_an_outage_can_be_settled(store: Harness):
    """Workers get time after an outage to settle attempts that outlived their timeouts during it."""
    worker = store.worker()
    claim = store.take(new(attempt_timeout="10s"), worker=worker)
    absent = sweeps(store, 1, 38)
    store.beat(worker)
    present = sweeps(store, 0.1)

    assert [0, 0, 0] == absent + present
    assert 1 == len(store.settle((claim, Succeeded())).moved)


def test_an_attempt_that_hangs_after_an_outage_is_swept(store: Harness):
    """After the grace following an outage, the hard timeout applies again."""
    worker = store.worker()
    store.take(new(attempt_timeout="10s"), worker=worker)
    store.wait(38)
    store.beat(worker)
    taken = []
    for _ in range(3):
        taken += sweeps(store, 4)
        store.beat(worker)

    assert [0, 0, 1] == taken


# ---------------------------------------------------------------------------------------------------- hard timeouts


def test_an_attempt_that_outlives_its_timeout_is_taken_from_the_living(store: Harness):
    """Attempts beyond their timeout and the grace are taken even from a worker with heartbeats."""
    claim = store.take(new(attempt_timeout="30s"))
    store.now += seconds(30) + GRACE - MILLISECOND
    early = store.sweep()
    store.now += MILLISECOND

    assert () == early
    assert [claim.id] == [each.job_id for each in store.sweep()]


def test_the_grace_is_an_argument(store: Harness):
    """Sweeps take the grace as an argument."""
    store.take(new(attempt_timeout="30s"))
    store.wait(31)

    assert () == store.sweep(grace=seconds(2))
    assert 1 == len(store.sweep(grace=seconds(1)))


def test_the_timeout_counts_from_the_present_attempt(store: Harness):
    """Hard timeouts of a second attempt count from its own start."""
    store.end(store.take(new(attempt_timeout="30s")), Lost("gone"))
    store.wait(100)
    store.take()
    store.wait(39)

    assert () == store.sweep()


def test_a_catch_job_has_no_timeout_of_its_parent_s(store: Harness):
    """Attempt timeouts of the parent do not apply to its catch job."""
    store.end(store.take(new(retry="2 1s catch mend", attempt_timeout="30s")), FATAL)
    store.take()
    store.wait(3600)

    assert () == store.sweep()


# ---------------------------------------------------------------------------------------------------- ends


def test_the_third_crash_is_poison(store: Harness):
    """Jobs that crash three workers in a row are dead and have a catch job."""
    store.put(new(retry="9 1s catch mend"))
    for n in range(3):
        store.take(worker=store.worker(f"victim:{n}"))
        store.wait(15)
        store.sweep()
    parent, child = store.jobs()

    assert (State.DEAD, "POISON", 3) == (parent.state, parent.reason, parent.crashes)
    assert [AttemptOutcome.LOST] * 3 == [attempt.outcome for attempt in store.history(parent.id)]
    assert ("mend", parent.id) == (child.task, child.parent_id)


def test_a_task_that_may_not_be_repeated_is_dead_after_one_crash(store: Harness):
    """Lost attempts of a task that is not idempotent are final, since it runs at most once."""
    store.take(new(retry="9 1s catch mend", idempotent=False), worker=store.worker())
    store.wait(15)
    store.sweep()

    assert (State.DEAD, "LOST_IN_FLIGHT") == (store.job(1).state, store.job(1).reason)
    assert "mend" == store.job(2).task


def test_a_rescued_job_keeps_its_priority(store: Harness):
    """Rescued jobs with a small priority are claimed before new ones with a larger one."""
    urgent = store.take(new(priority=-1), worker=store.worker())
    store.wait(15)
    store.sweep()
    store.put(new())

    assert urgent.id == store.take().id


# ---------------------------------------------------------------------------------------------------- zombies


def test_a_zombie_settles_nothing(store: Harness):
    """Settlements by a swept worker change nothing, even before its job is claimed again."""
    claim = store.take(new(), worker=store.worker())
    store.wait(15)
    store.sweep()
    before = store.everything()

    assert Settled((), frozenset({claim.lease_id})) == store.settle((claim, Succeeded(b'"old"')))
    assert before == store.everything()


def test_a_worker_that_is_late_but_not_swept_may_settle(store: Harness):
    """Expired leases that were not swept are still current, and their results are stored."""
    claim = store.take(new(), worker=store.worker())
    store.wait(3600)

    assert 1 == len(store.settle((claim, Succeeded(b"1"))).moved)
    assert () == store.sweep()


def test_a_swept_worker_is_removed(store: Harness):
    """Workers with an expired lease are removed, and their next heartbeat reports it."""
    worker = store.worker()
    store.wait(15)
    store.sweep()

    assert not store.beat(worker).alive


def test_jobs_of_an_unregistered_worker_are_swept(store: Harness):
    """Jobs of a worker that is not registered are swept, whatever the cause."""
    worker = store.worker()
    claim = store.take(new(), worker=worker)
    store.wait(15)
    store.sweep(0)

    assert [claim.id] == [each.job_id for each in store.sweep()]


def test_concurrent_sweeps_take_a_job_once(store: Harness):
    """Of simultaneous sweeps, one takes each lost job."""
    worker = store.worker()
    store.enqueue(*[new() for _ in range(10)])
    ids = [claim.id for claim in store.claim(10, worker=worker)]
    store.wait(15)
    answers = store.at_once([leases.sweep(100, now=store.now) for _ in range(6)])

    assert ids == sorted(each.job_id for answer in answers for each in answer)
    assert [1] * 10 == [store.job(number).crashes for number in ids]


@pytest.mark.parametrize("budget", [1, 100])
def test_a_sweep_without_workers(store: Harness, budget: int):
    """Stores without workers can be swept."""
    assert () == store.sweep(budget)


def test_an_attempt_without_a_timeout_is_taken_after_an_hour(store: Harness):
    """Attempts are swept even from a worker with heartbeats, since its event loop may hang."""
    worker = store.worker(lease_for=LONG)
    store.take(new(), worker=worker)
    store.now += ATTEMPT_LIMIT + GRACE - MILLISECOND
    before = store.sweep()
    store.now += MILLISECOND

    assert ((), 1) == (before, len(store.sweep()))
