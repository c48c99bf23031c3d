"""A policy is played by the moves that it would make."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from redrive.errors import ScheduleError
from redrive.schedule import RefreshOutcome, RefreshPolicy
from redrive.schedule.dry_run import MOST, AttemptEnd, SimulatedAnswer, dry_run

T0 = datetime(2025, 1, 1, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_answers_are_given_one_after_the_other():
    """Each attempt of a dry run has its start, its end and its outcome: after a failure, a timeout and a success."""
    policy = RefreshPolicy.parse("every 2 hours; allow 30 minutes; retry immediately, then after 10 minutes")
    answers = [
        SimulatedAnswer(AttemptEnd.FAILURE, 5 * MINUTE),
        SimulatedAnswer(AttemptEnd.SUCCESS, 40 * MINUTE),
        SimulatedAnswer(AttemptEnd.SUCCESS, MINUTE),
    ]
    played = dry_run(policy, answers, start=T0)

    assert [
        (1, True, T0, T0 + 5 * MINUTE, AttemptEnd.FAILURE, RefreshOutcome.RETRY_SCHEDULED),
        (2, False, T0 + 5 * MINUTE, T0 + 35 * MINUTE, AttemptEnd.TIMEOUT, RefreshOutcome.RETRY_SCHEDULED),
        (3, False, T0 + 45 * MINUTE, T0 + 46 * MINUTE, AttemptEnd.SUCCESS, RefreshOutcome.SUCCEEDED),
    ] == [(each.number, each.is_planned, each.began, each.ended, each.ending, each.outcome) for each in played.attempts]
    assert (T0, T0 + 120 * MINUTE) == played.slots
    assert T0 + 120 * MINUTE == played.state.refresh_at


def test_a_dry_run_ends_when_the_refresh_ends():
    """Given up, come to the end of the schedule, or too long without success at a start."""
    timeouts = itertools.repeat(SimulatedAnswer(AttemptEnd.TIMEOUT))
    given_up = dry_run(RefreshPolicy.parse("Retry 2 times"), timeouts, start=T0)
    ended = dry_run(RefreshPolicy.parse('by rule "FREQ=DAILY;COUNT=1"'), timeouts, start=T0)
    too_long = dry_run(
        RefreshPolicy.parse("Retry immediately, then after 2 hours; give up after 1 hour"),
        [SimulatedAnswer(AttemptEnd.FAILURE)] * 9,
        start=T0,
    )

    assert ([1, 2, 3], ()) == ([each.number for each in given_up.attempts], given_up.slots)
    assert given_up.state.disabled_until_update
    assert ((), ()) == (ended.attempts, ended.slots)
    assert (2, True) == (len(too_long.attempts), too_long.state.disabled_until_update)


def test_a_schedule_that_ends_has_no_more_occurrences():
    """Occurrences are listed up to the end of the schedule, although the attempts go on."""
    policy = RefreshPolicy.parse('by rule "FREQ=HOURLY;COUNT=2" starting "2025-01-01T08:00:00"; retry after 5 hours')

    assert (T0, T0 + 60 * MINUTE) == dry_run(
        policy, [SimulatedAnswer(AttemptEnd.SUCCESS), SimulatedAnswer(AttemptEnd.FAILURE)], start=T0
    ).slots


def test_occurrences_are_listed_up_to_a_limit():
    """Occurrences are listed up to a limit, even if a schedule of seconds has more."""
    policy = RefreshPolicy.parse("every second; allow 10 hours")

    assert MOST + 1 == len(dry_run(policy, [SimulatedAnswer(AttemptEnd.TIMEOUT)], start=T0).slots)


def test_an_ending_may_be_a_text():
    """It is converted; what is no ending is refused."""
    assert AttemptEnd.TIMEOUT is SimulatedAnswer("timeout").ending  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="ending is 'success', 'failure', 'timeout', not 'ok'"):
        SimulatedAnswer("ok")  # type: ignore[arg-type]


def test_a_dry_run_goes_on_from_a_state():
    """With the state of an item the attempts are those that it has left, and an overdue one starts at the beginning."""
    policy = RefreshPolicy.parse("every day at 8 AM; allow 10 minutes; retry after 20 minutes and 1 hour; then give up")
    timeouts = [SimulatedAnswer(AttemptEnd.TIMEOUT)] * 5
    first = dry_run(policy, timeouts[:1], start=T0).state
    rest = dry_run(policy, timeouts, start=T0 + 40 * MINUTE, state=first)

    assert T0 + 30 * MINUTE == first.refresh_at
    assert [(2, T0 + 40 * MINUTE), (3, T0 + 110 * MINUTE)] == [(each.number, each.began) for each in rest.attempts]
    assert rest.state.disabled_until_update
