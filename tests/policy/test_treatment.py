"""Tests of `redrive.policy.treatment`."""

from __future__ import annotations

from datetime import timedelta

from redrive.policy import Backoff, GiveUp
from redrive.policy.treatment import Track

EXPONENTIAL = Backoff.exponential(1, 60).floor(0.5)


def test_a_wait_has_all_that_a_draw_needs():
    """Looking up a retry gives its delay in seconds, its floor, and the delay as a span."""
    assert (4, 0.5, timedelta(seconds=4)) == Track("backoff", EXPONENTIAL, 3, fixed=False).look_up(3)


def test_without_jitter_there_is_nothing_to_draw():
    """Without jitter the lower bound is the delay, so that no sample is drawn, unless the backoff draws."""
    drawing = Backoff.decorrelated(1, 9)

    assert (4, 4, timedelta(seconds=4)) == Track("backoff", EXPONENTIAL, 3, fixed=True).look_up(3)
    assert (3, 0, timedelta(seconds=3)) == Track("backoff", drawing, 3, fixed=True).look_up(1)


def test_only_the_first_retries_are_remembered():
    """Treatments keep the delays of the first retries only."""
    track = Track("backoff", EXPONENTIAL, None, fixed=False)
    for retry in range(1, 1000):
        track.look_up(retry)

    assert 64 == len(track.waits)
    assert track.look_up(5) == track.waits[5]


def test_an_end_is_not_remembered():
    """Schedules that have ended have no wait, and the decision has their number of retries."""
    track = Track("backoff", Backoff.constant(1).take(2), 9, fixed=False)

    assert track.look_up(3) is None
    assert {} == track.waits
    assert GiveUp("all 2 retries of the backoff are used", "backoff") == track.ended()


def test_used_attempts_are_said_with_their_owner():
    """Used attempts are the policy's, or those that a rule allows."""
    policy = Track("rule 1 (OSError)", EXPONENTIAL, 3, fixed=True)
    rule = Track("rule 1 (OSError)", EXPONENTIAL, 3, own_limit=True, fixed=True)

    assert GiveUp("3 of 3 attempts failed", "attempts") == policy.used_up(3)
    assert GiveUp("3 of 3 attempts failed that rule 1 (OSError) allows", "rule 1 (OSError)") == rule.used_up(3)
