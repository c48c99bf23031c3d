"""Tests of `redrive.policy.decision`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import PolicyValueError
from redrive.policy import Defer, GiveUp, History, Retry
from redrive.policy.decision import past_deadline
from redrive.policy.value import check_attempts
from tests.policy.strategies import START

SECOND = timedelta(seconds=1)
WAIT = Retry(20 * SECOND, 16 * SECOND, "backoff")
HINTED = Retry(20 * SECOND, 16 * SECOND, "hint")


@pytest.mark.parametrize(
    "value",
    [History(1, START), Retry(timedelta(0), timedelta(0), "backoff"), Defer(START, "hint"), GiveUp("why", "attempts")],
)
def test_decisions_are_frozen(value: object):
    """Neither a history nor a decision can be changed."""
    with pytest.raises(AttributeError):
        value.rule = "other"


def test_a_first_failure_has_an_empty_history():
    """Histories need only the number of attempts and the start."""
    assert (1, START, None, ()) == History(attempts=1, started_at=START)


@pytest.mark.parametrize("attempts", [None, 1, 3, 2**31])
def test_attempts_count_from_one(attempts: int | None):
    """Numbers of attempts are kept, and None for no limit."""
    assert attempts == check_attempts(attempts, "attempts")


@pytest.mark.parametrize("attempts", [0, -1, 2.5, True, "3"])
def test_other_numbers_of_attempts_are_refused(attempts: object):
    """Less than one attempt, or what is no whole number, is refused with the field."""
    with pytest.raises(PolicyValueError, match="^Rule.attempts=.*from 1 up"):
        check_attempts(attempts, "Rule.attempts")


def test_give_up_names_the_wait_past_the_deadline():
    """Giving up before the deadline has a reason with the length of the wait and its source."""
    deadline = 90 * SECOND

    assert GiveUp("the next wait, 20s, would pass the deadline of 1m30s (1m20s gone)", "deadline") == past_deadline(
        WAIT, START, 80 * SECOND, deadline, "give_up"
    )
    assert GiveUp(
        "the wait that was asked for, 20s, would pass the deadline of 1m30s (1m20s gone)", "deadline"
    ) == past_deadline(HINTED, START, 80 * SECOND, deadline, "give_up")


@pytest.mark.parametrize("mode", ["give_up", "truncate"])
def test_a_deadline_that_has_passed_is_final(mode: str):
    """At the deadline and after it there is nothing left to truncate."""
    decision = past_deadline(WAIT, START, 90 * SECOND, 90 * SECOND, mode)

    assert GiveUp("the deadline of 1m30s has passed (1m30s since the start)", "deadline") == decision


def test_truncate_waits_to_the_deadline():
    """Truncating waits for the rest, and the rule is ``deadline``: no call follows."""
    assert Retry(10 * SECOND, 16 * SECOND, "deadline") == past_deadline(
        WAIT, START, 80 * SECOND, 90 * SECOND, "truncate"
    )


@pytest.mark.parametrize("elapsed", [80 * SECOND, 100 * SECOND])
def test_defer_leaves_the_retry_to_the_caller(elapsed: timedelta):
    """Deferring keeps the wait, beyond the deadline too."""
    assert Defer(START + 20 * SECOND, "hint") == past_deadline(HINTED, START, elapsed, 90 * SECOND, "defer")
