"""Expiry: a job that has not started in time is cancelled, and no claim starts it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Held, Outcome, Released, Snoozed, Unreadable
from redrive.engine.queue import QueueChange
from redrive.engine.records import Filter, Hold, JobRecord, KeyUntil, NewJob
from redrive.stores.operations import attempts, queues
from tests.stores.helpers import T0, Harness, failed, new, seconds


def expiring(after: float, **options) -> NewJob:
    """Return a job that expires so many seconds after its enqueue."""
    return replace(new(**options), expires=seconds(after))


def expire(store: Harness, budget: int = 100) -> tuple[JobRecord, ...]:
    """Cancel the expired jobs."""
    return store.do(attempts.expire(budget, now=store.now))


def test_a_job_that_expired_is_never_claimed(store: Harness):
    """Expired jobs stay where they are until they are cancelled, and later jobs run."""
    late, _, good = store.enqueue(expiring(5), expiring(6, priority=1), new())
    store.wait(6)

    assert [good] == [claim.id for claim in store.claim(3)]
    assert () == store.claim(3)
    assert State.READY is store.job(late).state


@pytest.mark.parametrize("exact", [False, True])
def test_an_expired_job_is_cancelled_with_its_reason(store: Harness, *, exact: bool):
    """Jobs that have not started by their expiry end cancelled, without an attempt and without a catch job."""
    job = replace(new(retry="3 1s catch mend"), expires=T0 + seconds(5) if exact else seconds(5))
    number = store.put(job)
    store.wait(4.999)
    assert () == expire(store)
    store.wait(0.001)

    assert [number] == [job.id for job in expire(store)]
    row = store.job(number)
    assert (State.CANCELLED, "EXPIRED", "it had not started when it expired") == (row.state, row.reason, row.note)
    assert (store.now, store.now, 0) == (row.finished_at, row.expires_at, row.attempt)
    assert [row] == list(store.jobs())
    assert () == store.history(number)
    assert () == expire(store)


def test_a_job_that_has_started_does_not_expire(store: Harness):
    """Jobs that started in time are retried as their policies demand, also after the expiry."""
    claim = store.take(expiring(5, retry="5 10s"))
    store.end(claim, failed())
    store.wait(10)

    assert () == expire(store)
    assert claim.id == store.take().id


def test_a_job_may_expire_before_it_is_due(store: Harness):
    """Delayed jobs expire at their expiry, not at their due time."""
    number = store.put(expiring(5, delay=60))
    store.wait(5)

    assert [number] == [job.id for job in expire(store)]


def test_the_expiry_ends_jobs_in_batches(store: Harness):
    """Budgets limit the jobs of one transaction; the first to expire are the first to end."""
    store.enqueue(*(expiring(9 - number) for number in range(5)))
    store.wait(60)

    assert {5, 4} == {job.id for job in expire(store, 2)}
    assert {3, 2} == {job.id for job in expire(store, 2)}
    assert [1] == [job.id for job in expire(store, 2)]


def test_an_expired_job_releases_its_key(store: Harness):
    """After the expiry another job can take the key."""
    job = replace(expiring(5), key="k", key_until=KeyUntil.END)
    store.put(job)
    store.wait(5)
    expire(store)

    assert 2 == store.put(job)


def test_an_expired_job_of_a_limited_queue_is_not_started(store: Harness):
    """Claims of limited queues take no expired job."""
    store.do(queues.change("default", QueueChange(concurrency=1), now=store.now))
    store.enqueue(expiring(5), new())
    store.wait(5)
    expire(store)

    assert [2] == [claim.id for claim in store.claim(2)]


def test_a_limited_queue_leaves_expired_jobs_until_they_are_cancelled(store: Harness):
    """Claims of limited queues start no expired job, also before its expiry is written."""
    store.do(queues.change("default", QueueChange(concurrency=5), now=store.now))
    store.enqueue(expiring(5), new())
    store.wait(5)

    assert [2] == [claim.id for claim in store.claim(2)]


def test_redriven_jobs_do_not_expire(store: Harness):
    """Redriving an expired job removes its expiry, so that it runs."""
    number = store.put(expiring(5))
    store.wait(5)
    expire(store)
    store.redrive(Filter(ids=(number,)))

    assert None is store.job(number).expires_at
    assert number == store.take().id


def test_a_retry_by_hand_starts_a_job_that_has_just_expired(store: Harness):
    """Retries by hand remove an expiry in the past, and keep one in the future."""
    late, early = store.enqueue(expiring(5), expiring(60, delay=30))
    store.wait(5)
    store.retry(late)
    store.retry(early)

    assert (None, T0 + seconds(60)) == (store.job(late).expires_at, store.job(early).expires_at)
    assert {late, early} == {claim.id for claim in store.claim(2)}


GIVEN_BACK = [
    Unreadable("no number"),
    Unreadable("no key", encoded=True),
    Unreadable("another version", policy=True),
    Released("no such task", seconds(60), Hold.UNKNOWN_TASK),
    Released("the breaker is open", seconds(60), Hold.BREAKER),
    Released("the worker shut down"),
    Held("this worker has another version", began=False),
]
"""How an attempt ends whose handler has not begun."""

BEGUN = [
    Released("cut off", started=True),
    Released("the database has lost a step", began=True),
    Held("the code fits no more"),
    Snoozed(seconds(1)),
]
"""How an attempt ends that is no failure, and whose handler has begun."""


def ids(outcome: Outcome) -> str:
    """Return the reason of an outcome."""
    return str(getattr(outcome, "why", "snoozed")) or "snoozed"


@pytest.mark.parametrize("outcome", GIVEN_BACK, ids=ids)
def test_a_job_that_was_given_back_before_it_began_expires(store: Harness, outcome: Outcome):
    """It waits for another worker, and not longer than until its expiry; nothing was tried."""
    claim = store.take(expiring(5))
    store.end(claim, outcome)
    assert None is store.job(claim.id).started_at
    assert seconds(5) == store.do(attempts.until_expiry(now=store.now))
    store.wait(5)

    assert () == store.claim(1)
    assert [claim.id] == [job.id for job in expire(store)]
    row = store.job(claim.id)
    assert (State.CANCELLED, "EXPIRED", None, 0) == (row.state, row.reason, row.hold, row.attempt)


@pytest.mark.parametrize("outcome", GIVEN_BACK, ids=ids)
def test_a_job_that_was_given_back_after_its_expiry_expires(store: Harness, outcome: Outcome):
    """A worker may claim it in time and find too late that it cannot run it."""
    claim = store.take(expiring(5))
    store.wait(6)
    store.end(claim, outcome)

    assert [claim.id] == [job.id for job in expire(store)]


@pytest.mark.parametrize("outcome", BEGUN, ids=ids)
def test_a_job_that_was_given_back_after_it_began_does_not_expire(store: Harness, outcome: Outcome):
    """What its handler has done may have had its effect."""
    claim = store.take(expiring(5))
    store.end(claim, outcome)
    store.wait(5)

    assert () == expire(store)
    assert State.READY is store.job(claim.id).state


@pytest.mark.parametrize("outcome", GIVEN_BACK, ids=ids)
def test_a_job_that_is_given_back_at_its_second_attempt_does_not_expire(store: Harness, outcome: Outcome):
    """It has begun at the first one."""
    claim = store.take(expiring(50, retry="5 10s"))
    store.end(claim, failed())
    store.wait(10)
    store.end(store.take(), outcome)
    store.wait(50)

    assert () == expire(store)


@pytest.mark.parametrize("earlier", [failed(), Snoozed(seconds(0))], ids=["failed", "snoozed"])
def test_a_job_that_is_given_back_at_the_instant_of_its_first_attempt_does_not_expire(store: Harness, earlier: Outcome):
    """In virtual time both attempts begin at the same instant."""
    claim = store.take(expiring(5, retry="5 0s"))
    store.end(claim, earlier)
    store.end(store.take(), Released("the breaker is open", seconds(60), Hold.BREAKER))
    store.wait(5)

    assert () == expire(store)
    assert claim.claimed_at == store.job(claim.id).started_at


@pytest.mark.parametrize("outcome", GIVEN_BACK[:5], ids=ids)
def test_the_deadline_of_a_job_without_expiry_counts_from_its_first_claim(store: Harness, outcome: Outcome):
    """It waits for another worker no longer than its policy says."""
    claim = store.take(new())
    store.end(claim, outcome)

    assert claim.claimed_at == store.job(claim.id).started_at


def test_a_job_of_a_paused_queue_expires(store: Harness):
    """A pause does not hold its expiry."""
    number = store.put(expiring(5))
    store.do(queues.change("default", QueueChange(paused=True), now=store.now))
    store.wait(5)

    assert [number] == [job.id for job in expire(store)]


def test_the_first_expiry_is_known(store: Harness):
    """The time until the next wait counts expiries of jobs that have not started."""

    def left() -> timedelta | None:
        return store.do(attempts.until_expiry(now=store.now))

    assert None is left()
    store.enqueue(expiring(50), expiring(20), new())
    assert seconds(20) == left()
    store.wait_for_answer(seconds_at_most=10)
    assert seconds(10) == left()
    store.claim(5)
    store.wait(60)
    assert seconds(-50) == left()
