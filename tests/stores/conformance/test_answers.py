"""Attempts that wait for an external answer: no worker runs them, and only their own answer ends them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Released, Settlement, Snoozed, Succeeded, Suspended
from redrive.engine.records import AttemptOutcome, Claim, Hold, JobRecord
from redrive.errors import JobNotFound, LeaseLost
from redrive.stores.operations import admin, attempts, jobs
from redrive.stores.operations.leases import Settled
from tests.stores.helpers import FATAL, Harness, failed, new, seconds


def held(job: JobRecord) -> tuple[object, ...]:
    """Return the row of a job and its open attempt."""
    return job.state, job.lease_id, job.worker_id, job.attempt, job.failures, job.crashes


def test_a_suspended_attempt_stays_open(store: Harness):
    """Suspended jobs keep their lease until the end of the wait and get no history line."""
    claim = store.take(new())
    moved = store.end(claim, Suspended(seconds(60)))
    job = store.job(claim.id)

    assert State.WAITING is moved.state
    assert (State.WAITING, claim.lease_id, store.me, 1, 0, 0) == held(job)
    assert (store.now + seconds(60), None) == (job.scheduled_at, job.hold)
    assert "waits for an answer from outside, 1m at most" == job.note
    assert ((), 1) == (store.history(claim.id), store.jobs()[0].attempt)


def test_waiting_attempts_are_not_claimed_swept_or_given_back(store: Harness):
    """Neither a claim, nor the death of the worker that started it, nor its departure affects a waiting attempt."""
    worker = store.worker()
    claim = store.take(new(), worker=worker)
    store.end(claim, Suspended(seconds(3600)))
    before = store.everything()
    gone = store.leave(worker)
    store.wait(3000)

    assert ([], (), (), ()) == (gone, store.claim(), store.sweep(), store.lapse())
    assert before == store.everything()


def test_crashes_before_a_wait_are_forgiven(store: Harness):
    """Suspending a handler resets the crash count."""
    worker = store.worker(lease_for=seconds(1))
    store.take(new(), worker=worker)
    store.wait(20)
    store.sweep()
    claim = store.take()
    store.end(claim, Suspended(seconds(60)))

    assert (1, 0) == (claim.crashes, store.job(claim.id).crashes)


def test_a_wait_that_is_settled_twice_began_once(store: Harness):
    """Settling a suspension again after a lost reply keeps the end of the first wait."""
    claim = store.wait_for_answer()
    before = store.everything()
    store.wait(1)

    assert frozenset() == store.settle((claim, Suspended(seconds(60)))).lost
    assert before == store.everything()


@pytest.mark.parametrize(
    "outcome",
    [Succeeded(b"1"), failed(), Released("shutdown"), Snoozed(seconds(1))],
    ids=lambda each: type(each).__name__,
)
def test_a_worker_does_not_end_a_waiting_attempt(store: Harness, outcome):
    """Suspended attempts no longer belong to their worker."""
    claim = store.wait_for_answer()
    before = store.everything()

    assert Settled((), frozenset({claim.lease_id})) == store.settle((claim, outcome))
    assert before == store.everything()


# -------------------------------------------------------------------------------------------------------------- answers


def test_a_completion_ends_the_attempt(store: Harness):
    """Completing an attempt sets the result and adds one history line under the lease of the attempt."""
    claim = store.wait_for_answer()
    store.wait(10)

    assert True is store.answer(claim, Succeeded(b'"paid"'))
    assert (State.SUCCEEDED, None, None, 1, 0, 0) == held(store.job(claim.id))
    assert b'"paid"' == store.result(claim.id)
    (line,) = store.history(claim.id)
    assert (AttemptOutcome.SUCCEEDED, claim.lease_id, store.me) == (line.outcome, line.lease_id, line.worker_id)
    assert (claim.claimed_at, store.now) == (line.started_at, line.finished_at)


def test_a_failure_is_decided_by_the_policy(store: Harness):
    """Failed attempts are retried after their backoff; after the last one the job is dead."""
    claim = store.wait_for_answer(new(retry="1 5s"))
    store.answer(claim, failed("card declined"))
    job = store.job(claim.id)

    assert (State.READY, Hold.RETRY, store.now + seconds(5)) == (job.state, job.hold, job.scheduled_at)
    assert (1, 1, "card declined") == (job.attempt, job.failures, job.error)

    store.wait(5)
    again = store.take()
    store.end(again, Suspended(seconds(60)))
    store.answer(again, failed("card declined"))

    assert (State.DEAD, 2) == (store.job(claim.id).state, store.job(claim.id).failures)


def test_a_permanent_failure_calls_the_catch(store: Harness):
    """Permanent failures in an answer are as final as those of a handler."""
    claim = store.wait_for_answer(new(retry="5 1s catch mend"))
    store.answer(claim, FATAL)

    assert [("send", State.DEAD), ("mend", State.READY)] == [(job.task, job.state) for job in store.jobs()]


def test_a_catch_job_may_wait_too(store: Harness):
    """Completing a suspended catch job marks its dead parent as caught."""
    parent = store.dead(new(retry="0 catch mend"))
    catch = store.take()
    store.end(catch, Suspended(seconds(60)))
    store.answer(catch)

    assert (State.SUCCEEDED, store.now) == (store.job(catch.id).state, store.job(parent).caught_at)


@pytest.mark.parametrize("outcome", [Succeeded(b"1"), Succeeded(), failed()], ids=["result", "nothing", "failure"])
def test_an_answer_may_come_before_the_wait_begins(store: Harness, outcome):
    """Answers that arrive before the suspension end the attempt, and the suspension is not lost."""
    claim = store.take(new())
    answered = store.answer(claim, outcome)
    before = store.everything()
    settled = store.settle((claim, Suspended(seconds(60))))

    assert (True, frozenset()) == (answered, settled.lost)
    assert before == store.everything()


@pytest.mark.parametrize("outcome", [Succeeded(b"1"), Succeeded(), failed()], ids=["result", "nothing", "failure"])
def test_the_same_answer_twice_counts_once(store: Harness, outcome):
    """Repeated answers, for example after a lost reply, have no effect and are not refused."""
    claim = store.wait_for_answer(new(retry="3 1s catch mend"))
    first = store.answer(claim, outcome)
    before = store.everything()

    assert (True, False) == (first, store.answer(claim, outcome))
    assert before == store.everything()


def other_answer(store: Harness, claim: Claim) -> str:
    """Answer the attempt differently, and return the expected error."""
    store.answer(claim, Succeeded(b"2"))
    return f"attempt {claim.id}.{claim.lease_id} has ended before: succeeded, with another result"


def failure_before(store: Harness, claim: Claim) -> str:
    """Fail the attempt, and return the expected error."""
    store.answer(claim, failed("boom"))
    return f"attempt {claim.id}.{claim.lease_id} has ended before: failed: boom \\(ERROR\\)"


def cancelled(store: Harness, claim: Claim) -> str:
    """Cancel the job, and return the expected error."""
    store.cancel(claim.id, "ordered twice")
    return f"attempt {claim.id}.{claim.lease_id} has ended before: cancelled: ordered twice"


def too_late(store: Harness, claim: Claim) -> str:
    """Let the wait end, and return the expected error."""
    store.wait(60)
    store.lapse()
    return f"attempt {claim.id}.{claim.lease_id} has ended before: failed: no answer came in time \\(TIMEOUT\\)"


def runs_again(store: Harness, claim: Claim) -> str:
    """Open a later attempt, and return the expected error."""
    store.answer(claim, failed("boom"))
    store.wait(1)
    store.end(store.take(), Suspended(seconds(60)))
    return "failed: boom"


@pytest.mark.parametrize("happened", [other_answer, failure_before, cancelled, too_late, runs_again])
def test_a_stale_answer_changes_nothing(store: Harness, happened: Callable[[Harness, Claim], str]):
    """Answers to an ended attempt are refused, and the refusal names what ended it."""
    claim = store.wait_for_answer()
    why = happened(store, claim)
    before = store.everything()

    with pytest.raises(LeaseLost, match=why):
        store.answer(claim, Succeeded(b"1"))
    with pytest.raises(LeaseLost):
        store.answer(claim, failed("another"))
    assert before == store.everything()


def test_an_answer_to_a_released_attempt_is_refused(store: Harness):
    """Answers to a released attempt are refused: it has no history line, and the job runs under another one."""
    claim = store.take(new())
    store.end(claim, Released("shutdown"))
    again = store.take()

    with pytest.raises(
        LeaseLost,
        match=rf"{claim.id}\.{claim.lease_id} names no open attempt: job {claim.id} is running under another ",
    ):
        store.answer(claim)
    assert again.lease_id == store.job(claim.id).lease_id


def test_an_answer_to_no_job_is_an_error(store: Harness):
    """Answering a missing job raises an error."""
    with pytest.raises(JobNotFound, match="no job 4711"):
        store.do(attempts.complete(4711, 1, Succeeded(), 0.0, now=store.now))


# ------------------------------------------------------------------------------------------------------ end of the wait


def test_an_expired_wait_has_failed(store: Harness):
    """At the end of the wait, and not before, the attempt has failed with the reason TIMEOUT."""
    claim = store.wait_for_answer(new(retry="1 5s"))
    store.wait(59.999)
    early = store.lapse()
    store.wait(0.001)
    (moved,) = store.lapse()
    job = store.job(claim.id)

    assert ((), claim.id) == (early, moved.job_id)
    assert (State.READY, Hold.RETRY, 1, "TIMEOUT") == (job.state, job.hold, job.failures, job.reason)
    assert store.now + seconds(5) == job.scheduled_at
    (line,) = store.history(claim.id)
    assert (AttemptOutcome.FAILED, "TIMEOUT", "in_flight") == (line.outcome, line.reason, line.stage)


@pytest.mark.parametrize("outcome", [Succeeded(b"1"), failed()], ids=["result", "failure"])
def test_an_answer_after_the_end_of_the_wait_is_refused(store: Harness, outcome):
    """Answers after the end of the wait are refused by the database's clock, even before a worker ends it."""
    claim = store.wait_for_answer()
    store.wait(60)
    before = store.everything()

    with pytest.raises(LeaseLost, match=rf"the wait of attempt {claim.id}\.{claim.lease_id} was over at .*12:01:00"):
        store.answer(claim, outcome)
    assert before == store.everything()
    assert ["TIMEOUT"] == [moved.reason for moved in store.lapse()]


def test_an_answer_in_the_last_moment_counts(store: Harness):
    """Answers a millisecond before the end of the wait count."""
    claim = store.wait_for_answer()
    store.wait(59.999)

    assert True is store.answer(claim, Succeeded(b"1"))


def test_the_time_until_the_next_wait_ends(store: Harness):
    """Return the time until the earliest wait ends; zero while an expired wait is not ended."""

    def left():
        return store.do(attempts.until_expiry(now=store.now))

    store.take(new())
    nothing = left()
    store.wait_for_answer(seconds_at_most=90)
    store.wait_for_answer(seconds_at_most=60)
    first = left()
    store.wait(61)
    over = left()
    store.lapse()

    assert (None, seconds(60), seconds(-1), seconds(29)) == (nothing, first, over, left())


def test_a_job_that_is_not_idempotent_dies_at_the_end_of_its_wait(store: Harness):
    """Jobs that must not be repeated are dead at the end of their wait: the external effect is unknown."""
    claim = store.wait_for_answer(new(retry="5 1s", idempotent=False))
    store.wait(60)
    store.lapse()

    assert (State.DEAD, "TIMEOUT") == (store.job(claim.id).state, store.job(claim.id).reason)
    assert "not_idempotent" == store.history(claim.id)[0].rule


def test_waits_end_in_batches_and_in_order(store: Harness):
    """Passes end as many waits as their budget allows, the earliest first."""
    claims = [store.wait_for_answer(new(), seconds_at_most=60 - number) for number in range(3)]
    store.wait(60)

    assert [claims[2].id, claims[1].id] == [moved.job_id for moved in store.lapse(2)]
    assert [claims[0].id] == [moved.job_id for moved in store.lapse(2)]
    assert () == store.lapse(2)


def test_jitter_separates_waits_that_end_together(store: Harness):
    """Each job has a random number of its own."""
    for _ in range(2):
        store.wait_for_answer(new(retry="1 10s", jitter="full"))
    store.wait(60)
    store.do(attempts.expire_waits(2, [0.25, 0.5], now=store.now))

    assert [2.5, 5.0] == sorted((job.scheduled_at - store.now).total_seconds() for job in store.jobs())


# --------------------------------------------------------------------------------------------------------------- others


def test_a_waiting_job_can_be_cancelled(store: Harness):
    """Cancelling closes the attempt as cancelled, and a second call does not change the time."""
    claim = store.wait_for_answer()
    first = store.cancel(claim.id)
    at = store.now
    store.wait(1)

    assert (True, False) == (first, store.cancel(claim.id))
    assert (State.CANCELLED, at, None) == (
        store.job(claim.id).state,
        store.job(claim.id).finished_at,
        store.job(claim.id).lease_id,
    )
    assert [AttemptOutcome.CANCELLED] == [line.outcome for line in store.history(claim.id)]


def test_concurrent_answers_end_an_attempt_once(store: Harness):
    """Of eight different answers at the same moment one is accepted."""
    claim = store.wait_for_answer()
    answers = [Succeeded(str(number).encode()) for number in range(8)]
    results = store.at_once([attempts.complete(claim.id, claim.lease_id, each, 0.0, now=store.now) for each in answers])
    (taken,) = [each for each in results if isinstance(each, Settlement)]

    assert 7 == sum(isinstance(each, LeaseLost) for each in results)
    assert taken.result == store.result(claim.id)
    assert 1 == len(store.history(claim.id))


def test_stats_count_waiting_attempts(store: Harness):
    """Suspended jobs are counted as neither due, running nor finished."""
    store.wait_for_answer()

    stats = store.do(admin.stats(now=store.now))

    assert (0, 0, 1, 1) == (stats.due, stats.running, stats.waiting, stats.unfinished)


# --------------------------------------------------------------------------------------------------- several results


def test_the_ends_of_several_jobs_are_read_at_once(store: Harness):
    """Reading several jobs returns those that have ended, with their results."""
    store.end(store.take(new()), Succeeded(b"1"))
    store.end(store.take(new()))
    store.dead()
    store.put(new(delay=9))

    found = store.do(jobs.ends([(number, None) for number in (1, 2, 3, 4)]))
    assert [(1, "succeeded", b"1"), (2, "succeeded", None), (3, "dead", None)] == sorted(
        (end.id, str(end.state), raw) for end, raw in found
    )
    assert "no such user" == next(end.error for end, _ in found if end.id == 3)
    with pytest.raises(JobNotFound, match="there is no job 5"):
        store.do(jobs.ends([(1, None), (5, None)]))
    with pytest.raises(JobNotFound, match="its enqueue was rolled back"):
        store.do(jobs.ends([(4, store.now - seconds(1))]))
