"""Tests of `redrive.policy.decider`."""

from __future__ import annotations

from datetime import timedelta

from redrive.policy import Backoff, GiveUp
from redrive.policy.decider import Treatment

EXPONENTIAL = Backoff.exponential(1, 60).floor(0.5)


def test_a_wait_has_all_values_for_a_draw():
    """Looking up a retry gives its delay in seconds, its floor, and the delay as a span."""
    assert (4, 0.5, timedelta(seconds=4)) == Treatment("backoff", EXPONENTIAL, 3, unchanged=False).delay(3)


def test_without_jitter_there_is_nothing_to_draw():
    """Without jitter the lower bound is the delay, so that no sample is drawn, unless the backoff draws."""
    drawing = Backoff.decorrelated(1, 9)

    assert (4, 4, timedelta(seconds=4)) == Treatment("backoff", EXPONENTIAL, 3, unchanged=True).delay(3)
    assert (3, 0, timedelta(seconds=3)) == Treatment("backoff", drawing, 3, unchanged=True).delay(1)


def test_a_schedule_that_has_ended_has_no_delay():
    """Schedules that have ended have no wait, and the decision has their number of retries."""
    treatment = Treatment("backoff", Backoff.constant(1).take(2), 9, unchanged=False)

    assert treatment.delay(3) is None
    assert GiveUp("all 2 retries of the backoff are used", "backoff") == treatment.ended()


def test_used_attempts_are_those_of_the_policy_or_the_rule():
    """Used attempts are the policy's, or those that a rule allows."""
    policy = Treatment("rule 1 (OSError)", EXPONENTIAL, 3, unchanged=True)
    rule = Treatment("rule 1 (OSError)", EXPONENTIAL, 3, own_limit=True, unchanged=True)

    assert GiveUp("3 of 3 attempts failed", "attempts") == policy.used_up(3)
    assert GiveUp("3 of 3 attempts failed that rule 1 (OSError) allows", "rule 1 (OSError)") == rule.used_up(3)
