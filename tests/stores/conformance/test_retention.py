"""Retention: which jobs, policies and workers are deleted, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import KeyUntil
from redrive.errors import JobNotFound
from redrive.stores.operations import checks, retention
from redrive.stores.operations.retention import RetentionTimes, Survey
from tests.stores.helpers import LEASE, Harness, failed, new, seconds

WEEK = RetentionTimes(seconds(7), None)
"""A short retention: ended jobs are kept for seven seconds, dead ones for ever."""


def survey(store: Harness, keep: RetentionTimes = WEEK, **options: int) -> Survey:
    """Survey the deletable jobs, beginning with the first one."""
    return store.do(retention.survey(options.pop("after_id", 0), keep, now=store.now, **options))


def prune(store: Harness, keep: RetentionTimes = WEEK) -> int:
    """Run one pass."""
    return store.do(retention.prune(survey(store, keep)))


def succeeded(store: Harness) -> int:
    """Return a succeeded job."""
    claim = store.take(new())
    store.end(claim)
    return claim.id


def test_ended_jobs_are_deleted_after_their_retention(store: Harness):
    """Succeeded and cancelled jobs are deleted after their retention time, and not before."""
    ended = succeeded(store)
    gone = store.put()
    store.cancel(gone)
    store.wait(6)

    assert 0 == prune(store)
    store.wait(1)
    assert (ended, gone) == survey(store).ids
    assert (2, ()) == (prune(store), store.jobs())
    assert ((), None) == (store.history(ended), store.result(ended))
    with pytest.raises(JobNotFound):
        store.job(ended)


def test_a_store_can_be_emptied(store: Harness):
    """Jobs in every state go with all their rows, and their ids are not used again; workers and policies stay."""
    parent = store.dead(new(retry="1 1s catch rescue"))
    store.end(store.take(new()), failed())
    running = store.take(new())
    keyed = replace(new(delay=9), key="k", key_until=KeyUntil.END)
    waiting = store.put(keyed)
    store.do(retention.empty())

    assert ((), ()) == (store.jobs(), store.history(parent))
    assert () == store.do(checks.check(0)).findings
    assert frozenset({running.lease_id}) == store.settle((running, Succeeded())).lost
    assert max(running.id, waiting) < store.put(keyed)


def test_unfinished_jobs_are_never_deleted(store: Harness):
    """Due, retrying, running, and uncaught dead jobs are never deleted."""
    store.dead()
    store.end(store.take(new()), failed())
    store.take(new())
    store.put(new(delay=1))
    store.wait(10**6)

    assert 0 == prune(store, RetentionTimes(seconds(1), None))
    assert 4 == len(store.jobs())


def test_dead_jobs_are_deleted_if_the_app_declares_so(store: Harness):
    """Uncaught dead jobs are deleted only if a retention time for them is set."""
    store.dead()
    store.wait(10)

    assert (0, 0, 1) == tuple(prune(store, RetentionTimes(None, span)) for span in (None, seconds(11), seconds(10)))


def test_a_task_may_have_its_own_retention(store: Harness):
    """Retention times of a task take precedence over those of the pruner, even an unlimited one."""
    store.enqueue(new("short"), new("long"), new("always"), new("other"))
    for claim in store.claim(4):
        store.end(claim)
    keeps = {
        "short": RetentionTimes(seconds(1), None),
        "long": RetentionTimes(seconds(60), None),
        "always": RetentionTimes(None, None),
    }
    store.do(retention.declare(keeps))
    store.do(retention.declare({"always": RetentionTimes(None, seconds(1))}))
    store.wait(30)

    assert 2 == prune(store)
    assert ["long", "always"] == [job.task for job in store.jobs()]


def test_a_parent_goes_after_its_children(store: Harness):
    """Caught jobs are kept until their catch job is deleted; their retention time counts from the catch."""
    parent = store.dead(new(retry="0 catch mend"))
    store.wait(5)
    store.end(store.take())
    child = parent + 1
    store.wait(3)

    assert () == survey(store).ids
    store.wait(4)
    assert (child,) == survey(store).ids
    assert (1, 1, 0) == (prune(store), prune(store), prune(store))
    assert () == store.jobs()


def test_a_dead_parent_outlives_its_cancelled_catch_job(store: Harness):
    """If a catch job was cancelled, only that job is deleted, and the dead job stays."""
    parent = store.dead(new(retry="0 catch mend"))
    store.cancel(parent + 1)
    store.wait(10)

    assert (1, [parent]) == (prune(store), [job.id for job in store.jobs()])


def test_a_job_that_was_started_again_is_not_deleted(store: Harness):
    """Cancelled jobs that are redriven between the read and the deletion stay, even if they died again."""
    number = store.put()
    store.cancel(number)
    store.wait(10)
    found = survey(store)
    store.redrive()

    assert 0 == store.do(retention.prune(found))
    store.wait(1)
    store.cancel(number)
    assert 0 == store.do(retention.prune(found))
    assert [number] == [job.id for job in store.jobs()]


def test_an_idempotency_key_is_free_when_its_job_is_deleted(store: Harness):
    """Requests create a new job after their former job was deleted."""
    request = replace(new(), idempotency_key="k")
    first = store.put(request)
    store.end(store.take())

    assert first == store.put(request)
    store.wait(10)
    prune(store)
    assert first < store.put(request)


def test_a_survey_reads_in_batches(store: Harness):
    """Surveys read a limited range of ids and return the next start id, or the end of the table."""
    numbers = [succeeded(store) for _ in range(5)]
    store.wait(10)
    first = survey(store, stride=2)
    last = survey(store, after_id=numbers[3], stride=2)

    assert (tuple(numbers[:2]), numbers[1], None) == (first.ids, first.last_id, last.last_id)
    assert 1 == len(first.policies)
    assert Survey(store.now, (), frozenset(), None) == survey(store, after_id=numbers[-1])


def test_a_survey_knows_whether_jobs_behind_it_can_be_deleted(store: Harness):
    """They are too young if the shortest retention time of any task has not passed since their enqueue."""
    for _ in range(4):
        succeeded(store)
    found = survey(store, stride=2)

    def is_young() -> bool:
        return store.do(retention.is_young(replace(found, at=store.now), WEEK, stride=2))

    assert (2, 2) == (found.last_id, found.left)
    assert is_young()
    store.wait(5)
    assert is_young()
    store.do(retention.declare({"other": RetentionTimes(seconds(4), None), "kept": RetentionTimes(None, None)}))
    assert not is_young()


def forget(store: Harness, digest: str) -> frozenset[str]:
    """Forget a policy if no job has it; return those that may still be forgotten."""
    store.do(retention.forget_policy(digest, now=store.now))
    return store.do(retention.policies(now=store.now))


def test_a_policy_goes_a_day_after_it_was_seen_that_no_job_has_it(store: Harness):
    """Policies without jobs are retired, and deleted a day later; those with a job stay."""
    number = store.put(new(retry="9 1s"))
    (digest,) = store.do(retention.policies(now=store.now))
    assert {digest} == forget(store, digest)

    store.cancel(number)
    store.wait(10)
    prune(store)
    assert frozenset() == forget(store, digest)
    store.wait(86_399)
    assert frozenset() == forget(store, digest)
    store.wait(1)
    assert {digest} == store.do(retention.policies(now=store.now))
    assert frozenset() == forget(store, digest)
    store.wait(10**6)
    assert frozenset() == forget(store, digest)
    assert 10 == store.job(store.put(new(retry="9 1s"))).policy.attempts


def test_a_retired_policy_that_is_used_again_stays(store: Harness):
    """Retired policies that a job uses again are not deleted."""
    store.cancel(store.put(new(retry="9 1s")))
    store.wait(10)
    prune(store)
    (digest,) = store.do(retention.policies(now=store.now))
    forget(store, digest)
    number = store.put(new(retry="9 1s"))
    store.wait(86_400)
    forget(store, digest)

    assert {digest} == forget(store, digest)
    assert 10 == store.job(number).policy.attempts


def test_workers_that_left_long_ago_are_forgotten(store: Harness):
    """Workers that left are deleted after a while; live workers and unswept ones are not."""
    gone, alive = store.worker("gone"), store.worker("alive", lease_for=timedelta(days=2))
    store.leave(gone)
    store.wait(100)
    store.do(retention.forget_workers(left_for=seconds(100), now=store.now))
    holder = store.worker("silent", lease_for=LEASE)
    claim = store.take(new(), worker=holder)

    assert not store.beat(gone).alive
    assert store.beat(alive).alive
    assert State.RUNNING is store.job(claim.id).state


def test_cancelled_jobs_have_a_time_of_their_own(store: Harness):
    """Cancelled jobs are kept for their own time, of the caller or of the task, and by default as long as others."""
    store.enqueue(new(), new("other"))
    store.cancel(1)
    store.cancel(2)
    store.end(store.take(new()))
    store.do(retention.declare({"other": RetentionTimes(seconds(1), None, None)}))
    store.wait(10)

    def found(keep: RetentionTimes) -> tuple[int, ...]:
        return store.do(retention.survey(0, keep, now=store.now)).ids

    assert (1,) == found(RetentionTimes(seconds(60), None, seconds(10)))
    assert (3,) == found(RetentionTimes(seconds(1), None, None))
    assert (1, 3) == found(RetentionTimes(seconds(1), None))
