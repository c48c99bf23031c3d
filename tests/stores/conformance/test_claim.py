"""Claim: the due jobs in order, never early, each to one worker."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lease import UNKNOWN_TASK_DELAY
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Lost, Released, Snoozed
from redrive.engine.queue import QueueChange
from redrive.engine.records import Claim, Hold, NewJob
from redrive.policy import Policy
from redrive.stores.operations import jobs, leases, queues
from tests.engine.helpers import claim
from tests.stores.helpers import FATAL, LONG, T0, Harness, failed, new, seconds

UNREADABLE = NewJob("send", "default", -9, b"{}", FrozenPolicy(Policy(), '{"version": 2}', "f00d"))
"""A job with a policy that was written by a newer redrive."""


def tasks(claims: tuple[Claim, ...]) -> list[str]:
    """Return the names of the tasks that were claimed."""
    return [claim.task for claim in claims]


# ---------------------------------------------------------------------------------------------------- order


def test_smaller_priorities_first(store: Harness):
    """Of the due jobs, the one with the smallest priority is first; priorities may be negative."""
    store.enqueue(new("c", priority=5), new("a", priority=-1), new("b", priority=0))

    assert ["a", "b", "c"] == tasks(store.claim(3))


def test_within_a_priority_the_earlier_due_time_first(store: Harness):
    """Within a priority the job with the earliest due time is first."""
    store.enqueue(new("c", delay=30), new("a", delay=10), new("b", delay=20))
    store.wait(60)

    assert ["a", "b", "c"] == tasks(store.claim(3))


def test_within_an_instant_the_smaller_id_first(store: Harness):
    """Jobs with the same due time are in the order of their ids."""
    store.enqueue(*[new(f"task{n}") for n in range(6)])

    assert [f"task{n}" for n in range(6)] == tasks(store.claim(6))


def test_priority_outranks_the_due_time_and_the_queue(store: Harness):
    """Across queues the order is the same: priority, due time, id."""
    store.enqueue(
        new("d", queue="a", priority=1),
        new("b", queue="z", priority=0, delay=5),
        new("a", queue="m", priority=0, delay=1),
        new("c", queue="a", priority=0, delay=9),
    )
    store.wait(10)

    assert ["a", "b", "c", "d"] == tasks(store.claim(4))


@pytest.mark.parametrize("seed", range(4))
def test_a_claim_takes_the_first_jobs_of_all_queues_and_priorities(store: Harness, seed: int):
    """Claims of any size return the due jobs of all queues and priorities in one common order."""
    mixed = [7919 * (n + 31 * seed) % 1009 for n in range(50)]
    store.enqueue(*[new(queue="abcd"[n % 4], priority=n % 5 - 2, delay=n % 7) for n in mixed])
    store.wait(5)
    due = [job for job in store.jobs() if job.scheduled_at <= store.now]
    expected = [job.id for job in sorted(due, key=lambda job: (job.priority, job.scheduled_at, job.id))]

    actual: list[int] = []
    for size in itertools.cycle([3, 1, 7, 2]):
        claims = store.claim(size)
        actual += [claim.id for claim in claims]
        if not claims:
            break

    assert expected == actual


def test_claims_are_in_the_order_in_which_they_start(store: Harness):
    """Claims of one batch are ordered by priority, due time and id, and each has a lease of its own."""
    store.enqueue(new(priority=2), new(priority=1), new(priority=3), new(priority=1))
    claims = store.claim(4)

    assert [2, 4, 1, 3] == [claim.id for claim in claims]
    assert 4 == len({claim.lease_id for claim in claims})


# ---------------------------------------------------------------------------------------------------- queues


def test_a_claim_takes_from_the_named_queues_only(store: Harness):
    """Workers that serve some queues claim no job of another one."""
    store.enqueue(new("a", queue="mail"), new("b", queue="pay"), new("c", queue="mail"), new("d", queue="slow"))

    assert ["a", "b", "c"] == tasks(store.claim(9, queues=["mail", "pay"]))
    assert [] == tasks(store.claim(9, queues=["mail", "pay"]))
    assert ["d"] == tasks(store.claim(9))


@pytest.mark.parametrize("queues", [[], ["nobody's"]])
def test_a_claim_from_empty_queues_returns_nothing(store: Harness, queues: list[str]):
    """Claims of no queue, or of queues without jobs, return no job and no due time."""
    store.put()

    assert leases.Claimed((), None) == store.claimed(1, queues=queues)


def test_queues_are_compared_by_their_whole_name(store: Harness):
    """Queues are distinct if a name is a prefix of another, or contains characters of SQL or JSON."""
    names = ["mail", "mail2", "Mail", "a%b", 'a"b', "a'b", "ünï", "[]"]
    store.enqueue(*[new(name, queue=name) for name in names])

    for name in names:
        assert [name] == tasks(store.claim(9, queues=[name]))


# ---------------------------------------------------------------------------------------------------- when


@pytest.mark.parametrize("delay", [0.001, 1, 90, 86_400 * 400])
def test_no_job_is_due_early(store: Harness, delay: float):
    """Jobs cannot be claimed a millisecond before their due time, and can be at it."""
    store.put(new(delay=delay))
    store.now += seconds(delay) - timedelta(milliseconds=1)
    early = store.claimed()
    store.now += timedelta(milliseconds=1)

    assert leases.Claimed((), timedelta(milliseconds=1)) == early
    assert 1 == len(store.claim())


@pytest.mark.parametrize("lane", [{}, {"queue": "other"}, {"priority": -1}], ids=["same lane", "queue", "priority"])
def test_a_claim_of_due_jobs_takes_no_early_one(store: Harness, lane: dict[str, object]):
    """Claims of due jobs take none that is due a millisecond later, in any lane."""
    store.enqueue(new("now", delay=1), new("later", delay=1.001, **lane))
    store.wait(1)

    assert ["now"] == tasks(store.claim(9))
    store.wait(0.001)
    assert ["later"] == tasks(store.claim(9))


def test_an_early_job_hides_no_due_one(store: Harness):
    """Jobs that are not due yet are skipped, however small their priority."""
    store.enqueue(new("later", priority=-5, delay=60), new("now"), new("later", delay=60))

    assert ["now"] == tasks(store.claim(9))


def test_a_claim_returns_the_time_until_the_next_due_job(store: Harness):
    """If no job is due, a worker may pause until the next due time in its queues."""
    store.enqueue(new(), new(delay=60), new(queue="other", delay=10))

    assert 1 == len(store.claimed(5).claims)
    assert seconds(10) == store.claimed(5).rest_for
    assert seconds(60) == store.claimed(5, queues=["default"]).rest_for


def test_the_next_due_time_is_read_without_a_claim(store: Harness):
    """The earliest due time of the tasks is returned with the instant, for plain and for limited queues."""
    store.enqueue(new(delay=60), new("other", delay=10), new(queue="limited", delay=30))
    store.do(queues.change("limited", QueueChange(concurrency=1), now=store.now))

    found = store.do(leases.upcoming(["send"], now=store.now))

    assert leases.NextDue(store.now, T0 + seconds(60), T0 + seconds(30)) == found


def test_a_claim_that_took_jobs_returns_no_pause(store: Harness):
    """Claims that took jobs return no pause: the next claim determines it while these jobs run."""
    store.enqueue(new(), new())

    assert [timedelta(0)] * 2 == [store.claimed(1).rest_for, store.claimed(5).rest_for]


def test_without_waiting_jobs_there_is_no_next_due_time(store: Harness):
    """If no job waits, a claim returns no next due time."""
    assert leases.Claimed((), None) == store.claimed()
    store.put()
    store.claimed(5)
    assert leases.Claimed((), None) == store.claimed(5)


# ---------------------------------------------------------------------------------------------------- what


def test_a_claim_holds_all_that_its_attempt_needs(store: Harness):
    """Claims contain the whole job: names, counters, instants, arguments and policy."""
    number = store.put(new("send", retry="5 1s", queue="mail", priority=3, payload=b"[1]"))
    store.wait(7)
    claim = store.take()
    expected = Claim(
        id=number,
        lease_id=claim.lease_id,
        task="send",
        queue="mail",
        priority=3,
        worker_id=store.me,
        attempt=1,
        failures=0,
        crashes=0,
        snoozes=0,
        by_rule=(),
        last_delay=None,
        started_at=T0 + seconds(7),
        claimed_at=T0 + seconds(7),
        parent_id=None,
        partition=None,
        key=None,
        key_until=None,
        payload=b"[1]",
        policy=Policy.parse("5 1s").durable(),
        scheduled_at=T0,
        salt=store.do(jobs.salt(number)),
    )

    assert expected == claim


def test_a_claimed_job_names_its_worker(store: Harness):
    """Claimed jobs are running, and have a lease, a worker and the start of their attempt."""
    store.put()
    store.wait(9)
    claim = store.take()
    row = store.job(claim.id)

    assert (State.RUNNING, claim.lease_id, store.me, store.now) == (
        row.state, row.lease_id, row.worker_id, row.claimed_at,
    )  # fmt: skip
    assert (1, None) == (row.attempt, row.hold)


def test_a_later_attempt_remembers_the_first(store: Harness):
    """Claiming a job again continues its count, and keeps the start of the first attempt for deadlines."""
    first = store.take(new(retry="5 1s"))
    store.end(first, failed())
    store.wait(1)
    second = store.take()

    assert (2, 1, seconds(1)) == (second.attempt, second.failures, second.last_delay)
    assert (T0, T0 + seconds(1)) == (second.started_at, second.claimed_at)


def test_a_running_job_cannot_be_claimed(store: Harness):
    """Jobs held by one worker are not claimed by another."""
    store.take(new())

    assert () == store.claim(worker=store.worker())


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled"])
def test_an_ended_job_cannot_be_claimed(store: Harness, state: str):
    """Final jobs are never claimed."""
    number = store.dead() if state == "dead" else store.put()
    if state == "succeeded":
        store.end(store.take())
    if state == "cancelled":
        store.cancel(number)
    store.wait(10_000)

    assert state == store.job(number).state
    assert () == store.claim(9)


# ---------------------------------------------------------------------------------------------------- leases


def test_a_lease_is_never_repeated(store: Harness):
    """Whatever ended the attempt before, the next lease of a job is larger than all leases before it."""
    claim = store.take(new(retry="9 1s"))
    seen = [claim.lease_id]
    for outcome in (failed(), Snoozed(seconds(1)), Released("shutdown"), Lost("gone"), FATAL):
        if State.DEAD == store.end(claim, outcome).state:
            store.retry(claim.id)
        store.wait(600)
        claim = store.take()
        seen.append(claim.lease_id)

    assert 6 == len(seen)
    assert sorted(set(seen)) == seen


def test_leases_are_unique_across_jobs_and_workers(store: Harness):
    """No two claims of any jobs by any workers share a lease."""
    store.enqueue(*[new() for _ in range(12)])
    other = store.worker()
    seen = [claim.lease_id for n in range(6) for claim in store.claim(2, worker=other if n % 2 else None)]

    assert 12 == len(set(seen))
    assert sorted(seen) == seen


def test_one_of_eight_concurrent_claims_gets_the_due_retry(store: Harness):
    """In each of up to 200 trials, exactly one of eight simultaneous claims gets the one due retry."""
    trials = store.trials(200)
    store.end(store.take(new(retry="999 1s", payload=None)), failed())
    rivals = [store.worker(f"rival:{n}", lease_for=LONG) for n in range(8)]
    winners = []
    for _ in range(trials):
        store.wait(4000)
        answers = store.at_once([leases.claim(rival, 1, lease_for=LONG, now=store.now) for rival in rivals])
        claims = [claim for answer in answers for claim in answer.claims]
        winners.append(len(claims))
        store.end(claims[0], failed())

    assert [1] * trials == winners
    assert trials + 1 == len(store.history(1))


def test_concurrent_claims_share_a_batch_without_overlap(store: Harness):
    """Eight simultaneous claims for more jobs than are due take each job once, and leave none."""
    ids = store.enqueue(*[new(queue=f"q{n % 3}", priority=n % 2) for n in range(40)])
    rivals = [store.worker(f"rival:{n}") for n in range(8)]
    answers = store.at_once([leases.claim(rival, 7, lease_for=seconds(15), now=store.now) for rival in rivals])

    assert ids == sorted(claim.id for answer in answers for claim in answer.claims)


# ---------------------------------------------------------------------------------------------------- workers


@pytest.mark.parametrize("places", [None, 9], ids=["plain", "limited"])
@pytest.mark.parametrize("gone", ["never", "left", "struck off"])
def test_a_worker_that_is_not_registered_gets_nothing(store: Harness, gone: str, places: int | None):
    """Claims by a worker that is not registered, or no longer, return no job and report that, for each queue."""
    if places is not None:
        store.do(queues.change("default", QueueChange(concurrency=places), now=store.now))
    worker = 404 if gone == "never" else store.worker()
    if gone == "left":
        store.leave(worker)
    if gone == "struck off":
        store.wait(15)
        store.sweep()
    store.put()

    assert leases.Claimed((), None, known=False) == store.claimed(worker=worker)
    assert State.READY == store.job(1).state


def test_a_claim_is_a_heartbeat(store: Harness):
    """Claiming extends the worker's lease, so that the next sweep does not take the claimed jobs."""
    worker = store.worker()
    store.wait(14)
    claim = store.take(new(), worker=worker)
    store.wait(14)

    assert () == store.sweep()
    assert claim.lease_id == store.job(claim.id).lease_id


# ---------------------------------------------------------------------------------------------------- crashes


def test_a_policy_that_cannot_be_read_stops_no_other_job(store: Harness):
    """Jobs with an unreadable policy are released unspent with a visible hold; the others are claimed."""
    odd, good = store.enqueue(UNREADABLE, new())
    claims = store.claim(2)
    row = store.job(odd)

    assert [good] == [claim.id for claim in claims]
    assert (State.READY, Hold.BAD_POLICY, 0) == (row.state, row.hold, row.attempt)
    assert T0 + UNKNOWN_TASK_DELAY == row.scheduled_at
    assert row.note is not None
    assert row.note.startswith("its policy cannot be read: PolicyValueError: ")
    assert () == store.history(odd)


def test_an_unreadable_policy_is_read_again(store: Harness):
    """Claims that met only unreadable jobs return no pause, since readable ones may follow."""
    store.enqueue(UNREADABLE, new())

    claimed = store.claimed(1)

    assert ((), timedelta(0)) == (claimed.claims, claimed.rest_for)
    assert 1 == len(store.claim(1))


def test_a_policy_that_cannot_be_read_can_be_listed_and_cancelled(store: Harness):
    """Jobs with an unreadable policy can be listed and cancelled."""
    number = store.put(UNREADABLE)

    assert [number] == [job.id for job in store.jobs()]
    assert store.cancel(number)
    assert State.CANCELLED == store.job(number).state


# -------------------------------------------------------------------------------------------------------- floors


@pytest.mark.parametrize("seed", range(2))
def test_claims_with_floors_take_the_same_in_the_same_order(store: Harness, seed: int):
    """Claims that continue from the last position return jobs of all lanes in the same order."""
    mixed = [7919 * (n + 31 * seed) % 1009 for n in range(60)]
    store.enqueue(*[new(queue="abcd"[n % 4], priority=n % 5 - 2, delay=n % 7) for n in mixed])
    store.wait(5)
    due = [job for job in store.jobs() if job.scheduled_at <= store.now]
    expected = [job.id for job in sorted(due, key=lambda job: (job.priority, job.scheduled_at, job.id))]

    actual: list[int] = []
    known: tuple[leases.LaneCursor, ...] = ()
    for size in itertools.cycle([3, 1, 7, 2]):
        claims = store.claimed(size, cursors=known).claims
        known = leases.advanced(known, claims)
        actual += [claim.id for claim in claims]
        if not claims:
            break

    assert expected == actual


def test_claims_with_floors_find_every_new_job(store: Harness):
    """New, retried and released jobs, and jobs of unknown lanes, are taken by the next claim with floors."""
    first = store.take(new("a", queue="m"))
    again, given = store.take(new("b", queue="m")), store.take(new("c", queue="m"))
    known = leases.advanced(leases.advanced((), [first]), [again, given])
    store.settle((again, failed()), (given, Released("not now", seconds(1))))
    store.enqueue(new("d", queue="m", delay=1), new("e", queue="c", delay=1), new("f", queue="z", priority=1, delay=1))
    rest = store.claimed(9, cursors=known).rest_for
    store.wait(1)

    assert seconds(1) == rest
    assert {"b", "c", "d", "e", "f"} == set(tasks(store.claimed(9, cursors=known).claims))


def test_a_late_commit_below_a_floor_is_found_by_a_claim_without_floors(store: Harness):
    """Jobs due before the floor but committed after it are taken by the next claim without floors."""
    store.wait(5)
    known = leases.advanced((), [store.take(new("punctual"))])
    store.wait(-3)
    store.enqueue(new("late"))
    store.wait(4)
    seen = store.claimed(5, cursors=known).claims

    assert ["late"] == tasks(seen + store.claim(5))


def test_floors_belong_to_the_most_recent_queues_and_priorities():
    """Claims return only as many floors as needed: those of the lanes that were used last."""
    known: tuple[leases.LaneCursor, ...] = ()
    for number in range(leases.LANES + 3):
        known = leases.advanced(known, [claim(id=number, queue=f"q{number}", scheduled_at=T0)])
    known = leases.advanced(known, [claim(id=99, queue="q3", scheduled_at=T0)])

    assert [*range(4, leases.LANES + 3), 99] == [floor.id for floor in known]
