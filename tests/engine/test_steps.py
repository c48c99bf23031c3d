"""The rows of steps that end, and the decision about a step that failed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine.runs import StepError, StepHistory, StepKind, StepOutcome, StepRecord, StepTry
from redrive.engine.steps import FailedTry, NewStep, resolve
from redrive.policy import Backoff, Failure, Policy, Rule
from tests.engine.helpers import NOW, failure, policy, seconds

ERROR = StepError(("builtins.ValueError",), "boom", "ERROR")


def failed(directive: str = "3 1s", **changes: Any) -> FailedTry:
    """Return the first failed try of a step with this policy."""
    first = FailedTry("2", StepKind.STEP, "charge", seconds(1), 1, failure(), ERROR, policy(directive), 0.5, digest=9)
    return replace(first, **changes) if changes else first


def written(end: NewStep | FailedTry) -> StepRecord:
    """Return the row that is written for the end of a step."""
    return resolve(end, 7, 41, NOW)


def again(row: StepRecord, of: FailedTry) -> FailedTry:
    """Return the next failed try after a row."""
    return replace(of, tries=row.tries + 1, history=row.history)


def test_a_row_has_the_time_of_its_transaction():
    """Rows have the run, the lease and the instant of the transaction that writes them."""
    row = written(NewStep("1", StepKind.STEP, "charge", took=seconds(3), tries=1, digest=5, result=b"1", ref=4))

    assert (
        StepRecord(7, "1", StepKind.STEP, "charge", StepOutcome.OK, 41, NOW, seconds(3), 1, None, 5, b"1", ref=4) == row
    )


@pytest.mark.parametrize(
    ("end", "due"),
    [
        (NewStep("1", StepKind.SLEEP, "1h", delay=timedelta(hours=1)), NOW + timedelta(hours=1)),
        (NewStep("1", StepKind.SLEEP, "until", due_at=NOW + timedelta(days=2)), NOW + timedelta(days=2)),
        (NewStep("1", StepKind.WAIT, "shipped", StepOutcome.WAITING), None),
    ],
)
def test_delays_count_from_the_transaction(end: NewStep, due: object):
    """Sleeps and waits are due after their delay by the clock of the database, or at the instant that was given."""
    assert due == written(end).due_at


def test_a_step_that_failed_waits_for_its_next_try():
    """Steps that fail for now are due after the delay of their policy, with the try and its error."""
    row = written(failed(policy=policy("3 2s", jitter="none")))

    assert (StepOutcome.WAITING, NOW + seconds(2), 1, ERROR, 9) == (
        row.outcome, row.due_at, row.tries, row.error, row.digest
    )  # fmt: skip
    tried = StepTry(NOW, seconds(1), ERROR, seconds(2), "backoff")
    assert StepHistory(NOW - seconds(1), seconds(2), (), (tried,)) == row.history


def test_a_step_fails_for_good_when_its_tries_are_used_up():
    """Steps fail for good after the last try of their policy, with all their errors."""
    of = failed("2 1s")
    first = written(of)
    second = written(again(first, of))
    third = written(again(second, of))

    assert ["waiting", "waiting", "failed"] == [first.outcome, second.outcome, third.outcome]
    assert (None, 3) == (third.due_at, third.tries)
    assert third.history is not None
    assert [seconds(1), seconds(2), None] == [each.delay for each in third.history.tries]
    assert NOW - seconds(1) == third.history.started_at


def test_a_permanent_error_fails_a_step_at_once():
    """Permanent errors fail a step without another try."""
    row = written(failed("9 1s", failure=failure(permanent="no such card")))

    assert (StepOutcome.FAILED, None, 1) == (row.outcome, row.due_at, row.tries)


def test_the_rules_of_a_policy_count_for_steps():
    """Rules of a policy count their failures over the tries of a step."""
    rules = Policy(attempts=9, backoff=Backoff.constant("1s"), rules=(Rule("BUSY", attempts=2),)).durable()
    of = failed(policy=rules, failure=Failure((), "busy", "BUSY"))
    first = written(of)

    assert ["waiting", "failed"] == [first.outcome, written(again(first, of)).outcome]


@pytest.mark.parametrize(("over", "outcome"), [("give_up", "failed"), ("defer", "waiting"), ("truncate", "failed")])
def test_the_deadline_of_a_step_counts_from_its_first_try(over: str, outcome: str):
    """Deadlines of steps count from the start of the first try; a delay that ends there is not followed by a try."""
    late = Policy(
        attempts=9, backoff=Backoff.constant("1m"), jitter="none", deadline="50s", over_deadline=over
    ).durable()

    assert outcome == written(failed(policy=late)).outcome


FAULTS: list[BaseException] = []
"""What the backoff of these tests raises, if anything."""


@pytest.fixture(autouse=True)
def no_faults() -> None:
    """Let the backoff work while policies are made."""
    FAULTS.clear()


def faulty(retry: int) -> float:
    """Return a delay, or raise the fault of the test."""
    for fault in FAULTS:
        raise fault
    return retry


Backoff.register("tests.steps.faulty", faulty)


def test_a_policy_that_raises_fails_the_step():
    """Policies with a backoff function that raises fail their step for good, and the row names the error."""
    of = failed(policy=Policy(attempts=3, backoff=Backoff.named("tests.steps.faulty"), jitter="none").durable())
    FAULTS.append(LookupError("no table"))
    row = written(of)

    assert StepOutcome.FAILED is row.outcome
    assert row.history is not None
    assert "bad policy: LookupError: no table" == row.history.tries[0].rule


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_is_no_decision(error: type[BaseException]):
    """Interrupts during a decision pass through."""
    of = failed(policy=Policy(attempts=3, backoff=Backoff.named("tests.steps.faulty"), jitter="none").durable())
    FAULTS.append(error())

    with pytest.raises(error):
        written(of)


@given(st.integers(0, 6), st.floats(0, 1, exclude_max=True), st.none() | st.timedeltas(timedelta(0), timedelta(days=3)))
def test_a_retry_is_never_due_before_its_failure_or_its_hint(retries: int, sample: float, hint: timedelta | None):
    """Rows that wait are due no earlier than their failure and the hint of the other side."""
    of = failed(
        policy=policy(f"{retries} 1s 1m" if retries else "0", jitter="full"), failure=failure(hint=hint), sample=sample
    )
    row = written(of)

    assert (row.outcome is StepOutcome.WAITING) == (retries > 0) == (row.due_at is not None)
    assert row.due_at is None or row.due_at >= NOW + (hint or timedelta(0))
