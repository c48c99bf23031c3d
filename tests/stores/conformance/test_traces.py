"""Trace contexts that link the attempts of a job."""

from __future__ import annotations

from typing import Any

import msgspec

from redrive.engine.outcome import Outcome, Snoozed, Succeeded, Suspended
from redrive.engine.records import Claim
from redrive.stores.operations import jobs, leases, retention
from redrive.stores.operations.leases import Ending
from redrive.stores.operations.retention import RetentionTimes
from tests.stores.helpers import FATAL, Harness, failed, new, seconds


def put(store: Harness, trace: str | None, **options: Any) -> int:
    """Enqueue a job with a trace."""
    (number,) = store.do(jobs.enqueue([new(**options)], trace=trace, now=store.now)).ids
    return number


def end(store: Harness, claim: Claim, outcome: Outcome, trace: str | None) -> None:
    """Settle an attempt that has left a trace."""
    store.do(leases.settle([Ending(claim, outcome, 0.0, trace)], now=store.now))


def test_a_trace_is_kept_from_the_enqueue_on(store: Harness):
    """All new jobs of an enqueue have its trace; a job that was enqueued without one has none."""
    together = store.do(jobs.enqueue([new(), new()], trace="a", now=store.now)).ids
    alone = put(store, None)

    assert ["a", "a", None] == [store.do(jobs.trace(number)) for number in (*together, alone)]


def test_a_failed_attempt_leaves_its_trace_for_the_next(store: Harness):
    """Transitions to another attempt replace the trace if the attempt has one; no other operation does."""
    number = put(store, "a")
    end(store, store.take(), failed(), "b")
    after_failure = store.do(jobs.trace(number))
    store.wait(5)
    end(store, store.take(), Snoozed(seconds(0)), None)
    after_snooze = store.do(jobs.trace(number))
    end(store, store.take(), Suspended(seconds(9)), "c")

    assert ("b", "b", "c") == (after_failure, after_snooze, store.do(jobs.trace(number)))


def test_a_success_leaves_no_trace(store: Harness):
    """Successes have no next attempt that would need the trace."""
    number = put(store, "a")
    end(store, store.take(), Succeeded(), "b")

    assert "a" == store.do(jobs.trace(number))


def test_an_attempt_without_a_lease_leaves_no_trace(store: Harness):
    """Attempts without a lease write neither their ending nor their trace."""
    number = put(store, "a")
    lost = msgspec.structs.replace(store.take(), lease_id=999)
    end(store, lost, failed(), "b")

    assert "a" == store.do(jobs.trace(number))


def test_a_catch_job_has_the_trace_of_the_job_that_it_catches(store: Harness):
    """Catch jobs have the parent's trace until they have one of their own."""
    number = put(store, "a", retry="1 1s catch recover")
    end(store, store.take(), FATAL, "b")
    catch = store.take()
    inherited = store.do(jobs.trace(catch.id, catch.parent_id))
    end(store, catch, failed(), "c")

    assert ("b", "c") == (inherited, store.do(jobs.trace(catch.id, number)))


def test_an_enqueue_that_finds_its_job_leaves_that_jobs_trace(store: Harness):
    """Enqueues that return an existing job keep that job's trace."""
    keyed = msgspec.structs.replace(new(), idempotency_key="once")
    (first,) = store.do(jobs.enqueue([keyed], trace="a", now=store.now)).ids
    (second,) = store.do(jobs.enqueue([keyed], trace="b", now=store.now)).ids

    assert (first, "a") == (second, store.do(jobs.trace(first)))


def test_a_pruned_job_takes_its_trace_with_it(store: Harness):
    """Deleting a job deletes its trace."""
    number = put(store, "a")
    store.end(store.take())
    store.wait(10)
    store.do(retention.prune(store.do(retention.survey(0, RetentionTimes(seconds(1), None), now=store.now))))

    assert None is store.do(jobs.trace(number))


def test_all_that_belongs_to_a_job_is_read_at_once(store: Harness):
    """Details have the tags, the trace, the progress, the latest actions and the dead jobs alike, of this job only."""
    wanted = msgspec.structs.replace(new(), tags=("b", "a"))
    (number,) = store.do(jobs.enqueue([wanted], trace="a", now=store.now)).ids
    claim = store.take()
    store.report((claim, "[1]"))
    store.end(claim, FATAL)
    store.dead()
    store.retry(number)
    store.wait(1)
    store.cancel(number)
    found = store.do(jobs.details(number, acts=1, most=1))
    other = store.do(jobs.details(number + 1, acts=5, most=5))

    assert (store.job(number), store.history(number)) == (found.job, found.attempts)
    assert (("a", "b"), "a", store.progress(number)) == (found.tags, found.trace, found.progress)
    assert [("cancel", store.now)] == [(each.action, each.at) for each in found.acts]
    assert ((), None, None, ()) == (other.tags, other.trace, other.progress, other.acts)
    assert (1, 1) == (found.alike, other.alike)
    assert ["cancel", "retry"] == [each.action for each in store.do(jobs.details(number, acts=5, most=5)).acts]
