"""Claims of more jobs than can start at once, and jobs that are given back before they start."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.queue import QueueChange, Rate
from redrive.engine.records import Hold, KeyUntil
from redrive.errors import DuplicateJob
from redrive.stores.operations import queues
from tests.stores.helpers import Harness, new, seconds


def test_a_claim_takes_jobs_ahead(store: Harness):
    """Claims take the jobs of plain queues that can start, and as many more as are asked for."""
    store.enqueue(*[new()] * 5)
    claimed = store.claimed(1, ahead=2)

    assert ([1, 2, 3], False) == ([each.id for each in claimed.claims], claimed.scarce)
    assert [4, 5] == [each.id for each in store.claim(0, ahead=9)]


LIMITS = {
    "concurrency": QueueChange(concurrency=5),
    "per_partition": QueueChange(per_partition=5),
    "rate": QueueChange(rate=Rate(5, seconds(60))),
    "ordered": QueueChange(ordered=True),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_jobs_of_a_limited_queue_are_not_claimed_ahead(store: Harness, limit: str):
    """While a job of a limited queue can start, no job is claimed ahead, and the claim reports it."""
    store.do(queues.change("default", LIMITS[limit], now=store.now))
    store.enqueue(*(replace(new(), partition=f"p{number}") for number in range(4)), *[new(queue="plain")] * 4)
    none, one = store.claimed(0, ahead=9), store.claimed(1, ahead=9)

    assert ((), True) == (none.claims, none.scarce)
    assert (1, True) == (len(one.claims), one.scarce)


def test_a_full_queue_does_not_keep_other_jobs_from_being_claimed_ahead(store: Harness):
    """Jobs of plain queues are claimed ahead while a limited queue has due jobs that cannot start."""
    store.do(queues.change("default", QueueChange(concurrency=1), now=store.now))
    store.enqueue(new(), new())
    store.claim(1)
    store.enqueue(*[new(queue="plain")] * 3)
    claimed = store.claimed(0, ahead=2)

    assert (2, False) == (len(claimed.claims), claimed.scarce)


def test_a_paused_queue_is_not_claimed_ahead(store: Harness):
    """Claims ahead leave paused queues alone."""
    store.put()
    store.do(queues.change("default", QueueChange(paused=True), now=store.now))

    assert () == store.claim(0, ahead=9)


def test_a_job_that_is_given_back_spends_no_attempt(store: Harness):
    """Given back before its start, a job is due again in its place, without an attempt or a crash."""
    store.enqueue(new(), new())
    first, second = store.claim(2)
    store.wait(5)

    assert [first.id] == store.give_back(first)
    record = store.job(first.id)
    assert (State.READY, Hold.RELEASE, 0, 0, 0) == (
        record.state,
        record.hold,
        record.attempt,
        record.failures,
        record.crashes,
    )
    assert ("late", None, first.scheduled_at) == (record.note, record.started_at, record.scheduled_at)
    assert State.RUNNING == store.job(second.id).state


def test_a_retry_that_is_given_back_keeps_its_first_start(store: Harness):
    """The first start of a job counts for its deadline also after it was given back."""
    started = store.take(new()).started_at
    store.leave(store.me)
    store._me = None
    again = store.take()
    store.wait(5)
    store.give_back(again)

    assert store.job(again.id).started_at in (started, None)


def test_a_job_that_is_given_back_may_still_expire(store: Harness):
    """Jobs that expire before their first start do so after they were given back."""
    store.enqueue(replace(new(), expires=seconds(10)))
    store.give_back(*store.claim(1))
    store.wait(11)

    assert () == store.claim(1)


def test_a_job_that_is_given_back_has_its_key_again(store: Harness):
    """Keys that are held until the start of their job are held again after the job was given back."""
    keyed = replace(new(), key="k", key_until=KeyUntil.START)
    number = store.put(keyed)
    store.give_back(*store.claim(1))
    with pytest.raises(DuplicateJob) as refused:
        store.put(keyed)

    assert number == refused.value.job_id


def test_a_lost_lease_is_not_given_back(store: Harness):
    """Jobs that were cancelled after their claim stay cancelled."""
    claim = store.take(new())
    store.cancel(claim.id)

    assert ([], State.CANCELLED) == (store.give_back(claim), store.job(claim.id).state)
