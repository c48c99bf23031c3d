"""The low-level gate: one winner for each due step, on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.runs import RESULT_LIMIT, StepOutcome
from redrive.errors import (
    ConfigurationError,
    IllegalMove,
    JobNotFound,
    LeaseLost,
    ResultTooLarge,
    StepBusy,
    StepExhausted,
    StepNotReady,
)
from redrive.stores.operations.runs import gate
from redrive.stores.operations.runs.gate import Acquired
from tests.stores.helpers import T0, Harness, new, seconds
from tests.stores.runs import tried

MINUTE = timedelta(minutes=1)


def acquire(store: Harness, job: int, name: str = "charge") -> Acquired:
    """Ask the gate for a step."""
    return store.do(gate.acquire(job, name, lease_for=MINUTE, now=store.now))


def fail(store: Harness, given: Acquired, *, retry: str = "3 1s") -> StepOutcome:
    """Report a failed try."""
    step = given.step
    end = replace(tried(step.path, tries=step.tries + 1, retry=retry, last=step), name=step.name)
    return store.do(gate.fail(step, end, now=store.now)).outcome


def succeed(store: Harness, given: Acquired, result: bytes | None = b"1") -> None:
    """Report a result."""
    store.do(gate.succeed(given.step, result, now=store.now))


def test_a_new_step_is_given_to_its_caller(store: Harness):
    """New steps are executed by the caller, under a lease of their own."""
    job = store.put()
    given, other = acquire(store, job), acquire(store, job, "ship")

    assert (True, StepOutcome.RUNNING, 0, T0 + MINUTE) == (
        given.execute, given.step.outcome, given.step.tries, given.step.due_at
    )  # fmt: skip
    assert given.step.lease_id != other.step.lease_id


def test_a_result_is_returned_instead_of_another_execution(store: Harness):
    """Steps that succeeded return their result, and are executed once."""
    job = store.put()
    given = acquire(store, job)
    store.wait(2)
    succeed(store, given, b'{"a":1}')
    again = acquire(store, job)

    assert (False, b'{"a":1}', 1, seconds(2)) == (again.execute, again.step.result, again.step.tries, again.step.took)


def test_a_failed_step_is_not_ready_before_its_next_try(store: Harness):
    """Steps that failed are refused until their next try is due, with its time and the number of retries."""
    job = store.put()
    fail(store, acquire(store, job))

    with pytest.raises(
        StepNotReady, match="step 'charge' of job 1 is tried again at .*, after 1 failed: boom"
    ) as early:
        acquire(store, job)
    store.wait(1)
    again = acquire(store, job)

    assert (T0 + seconds(1), 1) == (early.value.retry_at, early.value.retry_count)
    assert (True, 1) == (again.execute, again.step.tries)


def test_a_step_is_ready_when_its_job_is_retried(store: Harness):
    """Steps that wait for their next try are given out at once after an operator has retried their job."""
    job = store.put()
    fail(store, acquire(store, job))
    store.retry(job)

    assert acquire(store, job).execute


def test_a_step_is_exhausted_when_its_policy_gives_up(store: Harness):
    """Steps fail for good after the last try of their policy, with the number of tries and the last error."""
    job = store.put()
    outcomes = []
    for _ in range(3):
        outcomes.append(fail(store, acquire(store, job), retry="2 1s"))
        store.wait(10)

    with pytest.raises(StepExhausted, match="step 'charge' of job 1 failed for good after 3 tries: boom") as caught:
        acquire(store, job)
    assert ["waiting", "waiting", "failed"] == outcomes
    assert (3, "boom") == (caught.value.tries, caught.value.error)


@pytest.mark.case("probe-02")
def test_a_step_in_execution_is_busy_until_its_lease_ends(store: Harness):
    """Steps that another caller executes are refused until its lease has ended; then the next caller has them."""
    job = store.put()
    slow = acquire(store, job)

    with pytest.raises(StepBusy, match="step 'charge' of job 1 is executed by another caller, until 2026-01-01 12:01"):
        acquire(store, job)
    store.wait(60)
    fast = acquire(store, job)
    with pytest.raises(LeaseLost, match="step 'charge' of job 1 belongs to another caller now"):
        succeed(store, slow, b"1")
    with pytest.raises(LeaseLost):
        fail(store, slow)
    succeed(store, fast, b"2")
    assert b"2" == acquire(store, job).step.result


def test_a_lease_can_be_extended(store: Harness):
    """Callers that need longer extend their lease, unless they have lost it."""
    job = store.put()
    slow = acquire(store, job)
    store.wait(30)
    longer = store.do(gate.extend(slow.step, MINUTE, now=store.now))
    store.wait(45)

    assert T0 + seconds(90) == longer.due_at
    with pytest.raises(StepBusy):
        acquire(store, job)
    store.wait(60)
    acquire(store, job)
    with pytest.raises(LeaseLost):
        store.do(gate.extend(slow.step, MINUTE, now=store.now))


def test_a_repeated_report_changes_nothing(store: Harness):
    """Reports can be repeated after a lost reply; a different one is refused."""
    job = store.put()
    given = acquire(store, job)
    succeed(store, given, b"1")
    succeed(store, given, b"1")

    with pytest.raises(LeaseLost):
        succeed(store, given, b"2")


@pytest.mark.parametrize("name", ["", "3", "u3", None])
def test_a_step_needs_a_name(store: Harness, name: str):
    """Names that are empty, or could be paths of a workflow, are refused."""
    with pytest.raises(ConfigurationError, match="step"):
        acquire(store, store.put(), name)


def test_a_step_needs_a_job_that_goes_on(store: Harness):
    """Steps of unknown and of ended jobs are refused; results of ended jobs can still be read."""
    claim = store.take(new())
    succeed(store, acquire(store, claim.id))
    store.end(claim)

    assert b"1" == acquire(store, claim.id).step.result
    with pytest.raises(IllegalMove, match=f"job {claim.id} is succeeded: it takes no step any more"):
        acquire(store, claim.id, "ship")
    with pytest.raises(JobNotFound):
        acquire(store, 99)


def test_a_result_over_the_limit_is_refused(store: Harness):
    """Results over the limit are refused, and the step is still the caller's."""
    job = store.put()
    given = acquire(store, job)

    with pytest.raises(ResultTooLarge, match="the result of step 'charge' of job 1 has 1,048,577 bytes"):
        succeed(store, given, b"x" * (RESULT_LIMIT + 1))
    succeed(store, given)


CONTENDERS = 8


@pytest.mark.case("probe-01")
@pytest.mark.case("probe-17")
def test_one_of_eight_contenders_wins_each_race(store: Harness):
    """Of eight callers at the same instant one executes the due step, in each of up to 200 trials."""
    job = store.put()
    for trial in range(store.trials(200)):
        if trial % 2 == 0:
            fail(store, acquire(store, job, f"step of trial {trial}"))
            store.wait(1)
        name = f"step of trial {trial}"
        answers = store.at_once([gate.acquire(job, name, lease_for=MINUTE, now=store.now) for _ in range(CONTENDERS)])
        winners = [each for each in answers if isinstance(each, Acquired)]
        losers = [each for each in answers if isinstance(each, StepBusy)]

        assert (1, CONTENDERS - 1) == (len(winners), len(losers)), answers
