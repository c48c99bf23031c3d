"""Expiry: a job that has not started in time is cancelled, and no claim starts it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.queue import QueueChange
from redrive.engine.records import Filter, JobRecord, KeyUntil, NewJob
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
