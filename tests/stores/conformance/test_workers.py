"""Workers: registration, heartbeats and departure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Hold, WorkerRecord
from redrive.stores.operations import workers
from redrive.stores.operations.workers import Pulse
from tests.stores.helpers import T0, Harness, failed, new, seconds


def all_of(store: Harness) -> tuple[WorkerRecord, ...]:
    """Return the workers that have not left."""
    return store.do(workers.workers())


def test_a_worker_is_listed_as_it_registered(store: Harness):
    """Registered workers are listed with their name, slots, queues and instants."""
    number = store.do(workers.register("host:77", concurrency=8, lease_for=seconds(15), queues=["mail", "pay"], now=T0))
    end = T0 + seconds(15)
    expected = WorkerRecord(
        number, "host:77", None, None, None, None, 8, ("mail", "pay"), None, T0, T0, end, None, None
    )

    assert (expected,) == all_of(store)


def test_a_worker_is_listed_with_its_version(store: Harness):
    """Registered workers are listed with the version of their redrive."""
    store.do(workers.register("host:77", concurrency=1, lease_for=seconds(15), version="1.2.3", now=T0))

    assert ["1.2.3"] == [each.version for each in all_of(store)]


def test_busy_workers_are_counted(store: Harness):
    """Workers are listed with the number of the attempts that they run, without those that have ended."""
    first, second, idle = (store.worker(f"host:{n}") for n in range(3))
    store.enqueue(*[new()] * 4)
    ended, *_ = store.claim(3, worker=first)
    store.claim(worker=second)
    store.end(ended)

    assert {first: 2, second: 1, idle: 0} == {each.id: each.running for each in store.do(workers.workers())}


def test_without_queues_a_worker_serves_all(store: Harness):
    """Workers that named no queues serve all queues, which differs from an empty list."""
    store.worker()
    store.do(workers.register("idle:1", concurrency=1, lease_for=seconds(15), queues=[], now=T0))

    assert [None, ()] == [each.queues for each in all_of(store)]


def test_worker_ids_are_never_repeated(store: Harness):
    """Each registration has a new id, even under the same name and after other workers have left."""
    first = store.worker()
    store.leave(first)
    seen = [first, store.worker(), store.worker()]

    assert sorted(set(seen)) == seen


def test_workers_are_listed_oldest_first(store: Harness):
    """Workers are listed in the order of registration, without those that left."""
    a, b, c = (store.worker(f"host:{n}") for n in range(3))
    store.leave(b)

    assert [a, c] == [each.id for each in all_of(store)]


def test_a_heartbeat_extends_a_lease(store: Harness):
    """Heartbeats store their time and the new end of the worker's lease."""
    worker = store.worker()
    store.wait(10)
    pulse = store.beat(worker)
    (row,) = all_of(store)

    assert Pulse(alive=True, leases=frozenset()) == pulse
    assert (T0, T0 + seconds(10), T0 + seconds(25)) == (row.started_at, row.heartbeat_at, row.expires_at)


def test_a_heartbeat_never_shortens_a_lease(store: Harness):
    """Heartbeats with a shorter extension than an earlier one do not shorten the lease."""
    worker = store.worker(lease_for=seconds(60))
    store.wait(1)
    store.beat(worker, seconds(5))

    assert T0 + seconds(60) == all_of(store)[0].expires_at


@pytest.mark.parametrize("life", [timedelta(0), seconds(-1)], ids=str)
def test_a_heartbeat_with_a_zero_extension_is_refused(store: Harness, life: timedelta):
    """Heartbeats that extend by no time are refused and change nothing."""
    worker = store.worker()
    before = all_of(store)
    with pytest.raises(ValueError, match="a heartbeat must extend the lease by more than nothing"):
        store.beat(worker, life)

    assert before == all_of(store)


def test_a_heartbeat_answers_what_the_worker_holds(store: Harness):
    """Heartbeats return the leases that the worker holds, so that it can stop lost attempts."""
    worker, other = store.worker(), store.worker()
    store.enqueue(*[new() for _ in range(4)])
    a, b, c = store.claim(3, worker=worker)
    store.claim(1, worker=other)
    store.end(a, Succeeded())
    store.cancel(b.id)

    assert Pulse(alive=True, leases=frozenset({c.lease_id})) == store.beat(worker)


def test_an_unknown_worker_is_not_alive(store: Harness):
    """Heartbeats of an unknown worker report that, and register no worker."""
    assert Pulse(alive=False, leases=frozenset()) == store.beat(404)
    assert () == all_of(store)


def test_a_worker_that_leaves_gives_back_what_it_holds(store: Harness):
    """Jobs of a leaving worker are due at once, unspent and without a history line."""
    store.end(store.take(new(retry="5 1s")), failed("boom"))
    store.wait(1)
    worker = store.worker()
    claim = store.take(worker=worker)
    given = store.leave(worker)
    row = store.job(claim.id)

    assert [claim.id] == given
    assert (State.READY, Hold.RELEASE, store.now) == (row.state, row.hold, row.scheduled_at)
    assert (1, 1, 0, "boom") == (row.attempt, row.failures, row.crashes, row.error)
    assert f"worker {worker} shut down" == row.note
    assert 1 == len(store.history(claim.id))
    assert (seconds(1), 2) == ((again := store.take()).last_delay, again.attempt)


def test_a_worker_that_left_holds_nothing(store: Harness):
    """Settlements by a worker that left are refused."""
    worker = store.worker()
    claim = store.take(new(), worker=worker)
    store.leave(worker)

    assert frozenset({claim.lease_id}) == store.settle((claim, Succeeded())).lost
    assert Pulse(alive=False, leases=frozenset()) == store.beat(worker)


def test_leaving_twice_changes_nothing(store: Harness):
    """Leaving a second time, or as an unknown worker, changes nothing."""
    worker = store.worker()
    store.leave(worker)
    store.take(new())

    assert ([], []) == (store.leave(worker), store.leave(404))
    assert State.RUNNING == store.job(1).state


def test_a_leaving_worker_releases_only_its_own_jobs(store: Harness):
    """Only the jobs of the leaving worker are released."""
    worker = store.worker()
    mine = store.take(new())
    theirs = store.take(new(), worker=worker)

    assert [theirs.id] == store.leave(worker)
    assert State.RUNNING == store.job(mine.id).state


def test_working_sessions_are_not_stuck(store: Harness):
    """If all processes finish their statements, no session is ended and nothing changes."""
    held = store.take(new())

    assert 0 == store.do(workers.end_stuck(seconds(0)))
    assert State.RUNNING == store.job(held.id).state
