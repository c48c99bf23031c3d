"""Workers: registration, heartbeats and departure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim, Hold, Process, WorkerRecord
from redrive.stores.drivers.postgres.settings import parse_url
from redrive.stores.operations import checks, counters, leases, retention, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.workers import Pulse
from redrive.stores.query import Query, Statements, writes
from tests import postgres
from tests.stores.helpers import FATAL, T0, Harness, failed, new, seconds


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


def test_builds_are_kept_with_their_first_start(store: Harness):
    """A build is that of the first worker that has it; later ones, and workers without a build, change nothing."""
    for build in ("1.0", None, "2.0", "1.0"):
        store.do(workers.register("host:77", concurrency=1, lease_for=seconds(15), build=build, now=store.now))
        store.wait(10)

    assert ["1.0", None, "2.0", "1.0"] == [each.build for each in all_of(store)]
    assert [("2.0", T0 + seconds(20)), ("1.0", T0)] == [
        (each.build, each.first_at) for each in store.do(workers.builds(T0))
    ]
    assert ["2.0"] == [each.build for each in store.do(workers.builds(T0 + seconds(1)))]


def test_workers_with_a_build_are_read_after_they_have_left(store: Harness):
    """The latest start comes first; a worker without a build is left out."""
    numbers = []
    for build in ("1.0", None, "2.0"):
        tasks = {"send"} if build == "2.0" else None
        numbers.append(
            store.do(
                workers.register("w", concurrency=1, lease_for=seconds(15), build=build, tasks=tasks, now=store.now)
            )
        )
        store.wait(10)
    store.leave(numbers[0])

    assert [
        (numbers[2], "2.0", ("send",), T0 + seconds(20), T0 + seconds(35), True),
        (numbers[0], "1.0", None, T0, store.now, False),
    ] == [
        (each.id, each.build, each.tasks, each.started_at, each.ended_at, each.is_present)
        for each in store.do(workers.begun())
    ]


def test_builds_that_no_worker_has_are_forgotten_with_the_counters(store: Harness):
    """As long as a worker is listed, its build is."""
    first, second = (
        store.do(workers.register(name, concurrency=1, lease_for=seconds(15), build=name, now=store.now))
        for name in ("1.0", "2.0")
    )
    store.leave(first)
    store.wait(1)
    store.do(retention.forget_workers(left_for=seconds(0), now=store.now))
    store.do(counters.forget_counters(now=T0 + timedelta(days=4000)))

    assert ["2.0"] == [each.build for each in store.do(workers.builds(T0))]
    assert [second] == [each.id for each in all_of(store)]


def test_a_heartbeat_writes_the_lag_of_the_event_loop(store: Harness):
    """The last measure counts; a worker that could not measure has none."""
    number = store.worker()
    lags = []
    for lag in (seconds(25), seconds(0.5), None):
        store.do(workers.beat(number, seconds(15), loop_lag_for=lag, now=store.now))
        lags.append(all_of(store)[0].loop_lag_for)

    assert [seconds(25), seconds(0.5), None] == lags


def test_workers_are_listed_with_their_oldest_attempt(store: Harness):
    """Without feeders, which run as long as their subscription, and without jobs that have ended."""
    first, idle = store.worker(), store.worker()
    feeder = replace(new(), origin="topic:pay/log@0")
    delivery = replace(new(), origin="topic:pay/log#7")
    store.take(feeder, worker=first)
    store.wait(5)
    oldest = store.take(delivery, worker=first)
    store.wait(5)
    store.take(new(), worker=first)

    found = {each.id: (each.oldest_id, each.oldest_at, each.running) for each in all_of(store)}
    assert {first: (oldest.id, T0 + seconds(5), 3), idle: (None, None, 0)} == found


def test_handlers_that_go_on_are_counted(store: Harness):
    """Those of ended attempts of a worker, each with its job, until they have stopped."""
    first, second = store.worker(), store.worker()
    claim = store.take(new(), worker=first)
    store.do(leases.settle([Ending(claim, FATAL, 0.0, unstopped=True)], now=store.now))

    assert {first: 1, second: 0} == {each.id: each.unstopped for each in all_of(store)}
    assert ((claim.id,), ()) == (store.do(workers.unstopped(first)), store.do(workers.unstopped(second)))


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


def born(store: Harness, birth: str, **options: object) -> int:
    """Register a worker in a process with this birth."""
    process = Process("host", 7, birth)
    return store.do(workers.register("w", concurrency=4, lease_for=seconds(15), process=process, now=T0, **options))


def beaten(store: Harness, worker: int, birth: str) -> bool:
    """Send a heartbeat from a process; return True if the worker is registered."""
    return store.do(workers.beat(worker, seconds(60), birth=birth, now=store.now)).alive


def test_only_the_process_of_a_worker_extends_its_lease(store: Harness):
    """Refuse the heartbeat of another process with the same id, which a sequence that goes back hands out twice."""
    worker = born(store, "first")
    answers = [beaten(store, worker, each) for each in ("second", "first")]

    assert [False, True] == answers
    assert [T0 + seconds(60)] == [each.expires_at for each in all_of(store)]


def test_only_the_process_of_a_worker_signs_it_off(store: Harness):
    """Give back nothing, and keep the row, if another process with the same id leaves."""
    worker = born(store, "first")
    claim = store.take(new(), worker=worker)
    given = [store.do(workers.leave(worker, birth=each, now=store.now)) for each in ("second", "first")]

    assert [[], [claim.id]] == given
    assert () == all_of(store)


def again(store: Harness, *ids: int, birth: str = "first", kept: Sequence[Claim] = ()) -> workers.Renewed:
    """Register a worker with these ids again."""
    given = workers.Registrant("w", 4, seconds(15), process=Process("host", 7, birth), lock_id=3)
    leases = {claim.lease_id: claim.id for claim in kept}
    return store.do(workers.renew(ids, given, leases, salt=5, now=store.now))


def test_a_worker_that_registers_again_gives_back_what_it_does_not_keep(store: Harness):
    """Give back leases with no attempt spent, those of lost ends too; move the kept ones to an id with random bits."""
    worker = born(store, "first")
    held, ended, kept = (store.take(new(), worker=worker) for _ in range(3))
    renewed = again(store, worker, kept=[kept])
    (row,) = all_of(store)

    assert (5, True, renewed.id) == (renewed.id & (2**workers.SALT_BITS - 1), renewed.id > 2**32, row.id)
    assert {held.lease_id, ended.lease_id, kept.lease_id} == renewed.leases
    assert [(State.READY, 0, 0), (State.READY, 0, 0), (State.RUNNING, 1, 0)] == [
        (job.state, job.attempt, job.crashes) for job in (store.job(each.id) for each in (held, ended, kept))
    ]
    assert {kept.lease_id} == store.do(workers.held(renewed.id))
    assert State.SUCCEEDED is store.end(kept).state
    assert () == store.do(checks.check()).findings


def test_a_worker_that_registers_again_may_keep_everything(store: Harness):
    """Move its only lease to the new id."""
    worker = born(store, "first")
    kept = store.take(new(), worker=worker)
    renewed = again(store, worker, kept=[kept])

    assert {kept.lease_id} == renewed.leases == store.do(workers.held(renewed.id))


@writes
def stopped(worker: int) -> Statements[None]:
    """Write that a worker has left, and leave its leases."""
    yield Query("worker_stop", {"id": worker, "birth": "first", "now": T0})


def test_what_a_worker_has_under_any_of_its_ids_is_given_back_or_kept(store: Harness):
    """A second server has the worker under an earlier id, which others took for dead; a third one under a later id."""
    first, second, unknown = (born(store, "first") for _ in range(3))
    early, kept, late, far = (store.take(new(), worker=each) for each in (first, first, second, unknown))
    store.do(workers.leave(unknown, birth="other", now=store.now))
    store.do(stopped(first))
    renewed = again(store, first, second, kept=[kept, far])

    assert {each.lease_id for each in (early, kept, late, far)} == renewed.leases
    assert {kept.lease_id, far.lease_id} == store.do(workers.held(renewed.id))
    assert [State.READY, State.READY] == [store.job(each.id).state for each in (early, late)]
    assert {unknown, renewed.id} == {each.id for each in all_of(store)}


def test_a_lease_that_another_job_has_by_now_is_not_kept(store: Harness):
    """Leave the job of another worker alone that has got the number of a lost lease."""
    worker, other = born(store, "first"), born(store, "second")
    lost, taken = store.take(new(), worker=worker), store.take(new(), worker=other)
    renewed = again(store, worker, kept=[replace(lost, lease_id=taken.lease_id)])

    assert ({lost.lease_id}, {taken.lease_id}) == (renewed.leases, store.do(workers.held(other)))


def test_leases_under_an_id_that_another_process_has_are_left_alone(store: Harness):
    """Keep what goes on; the other process gives back the rest, as leases that it does not have. Its row stays."""
    worker = born(store, "second")
    kept, other = (store.take(new(), worker=worker) for _ in range(2))
    renewed = again(store, worker, kept=[kept])

    assert ({kept.lease_id}, {worker, renewed.id}) == (renewed.leases, {each.id for each in all_of(store)})
    assert {other.lease_id} == store.do(workers.held(worker))


def test_a_missing_lock_is_no_sign_in_another_life_of_the_server():
    """A lock counts as missing only in the life of the server in which the worker was seen to hold it."""
    with postgres.lent() as url, postgres.connect() as connection:
        store = Harness(url, "sync")
        worker = born(store, "first", lock_id=41)
        at_first = [each.locked for each in all_of(store)]
        schema = parse_url(url).schema
        connection.execute(f'SET search_path = "{schema}"')
        connection.execute("UPDATE redrive_workers SET locked_in = locked_in - interval '1 s'")
        restarted = [each.locked for each in all_of(store)]
        beaten(store, worker, "first")
        without = [each.locked for each in all_of(store)]
        connection.execute("SELECT pg_advisory_lock('redrive_meta'::regclass::oid::integer, 41)")
        beaten(store, worker, "first")
        held = [each.locked for each in all_of(store)]
        store.close()

    assert [[False], [None], [None], [True]] == [at_first, restarted, without, held]
