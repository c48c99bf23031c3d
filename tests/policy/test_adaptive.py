"""A rate that follows the target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.policy.adaptive import AdaptiveRate, Cubic


def test_nothing_is_limited_before_the_first_refusal():
    """Until the target throttles, everything may be sent at once."""
    rate = AdaptiveRate()
    rate.report(1, throttled=False)

    assert 0.0 == rate.acquire(1, 1000)


def test_a_refusal_limits():
    """After a refusal the rate is a part of what was measured."""
    rate = AdaptiveRate()
    for tick in range(1, 41):
        rate.report(tick / 10, throttled=False)
    before = rate.measured
    rate.report(4.05, throttled=True)

    assert pytest.approx(0.7 * before) == rate.rate
    assert rate.acquire(4.05, 1000) > 0


def test_those_who_wait_are_told_the_same():
    """Asking takes nothing, so a hundred who wait have the same wait, and then one of them may send."""
    rate = AdaptiveRate(rate=0.5)

    assert {1.9} == {round(rate.acquire(0.1), 9) for _ in range(100)}
    assert 0.0 == rate.acquire(2.1)
    assert rate.acquire(2.1) > 0


@given(st.floats(0.1, 1000), st.floats(0, 1000))
def test_the_curve_comes_back_to_the_rate_that_was_too_much(most, at):
    """The curve begins at a part of the refused rate and is back at it after its window."""
    curve = Cubic().throttled(most, at)

    assert pytest.approx(0.7 * most, rel=1e-6) == curve.rate(at)
    assert pytest.approx(most, rel=1e-6) == curve.rate(at + curve.window)


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60))
def test_the_bucket_never_owes(steps):
    """Whatever is reported and asked, there are never fewer tokens than none, and the rate never falls to nothing."""
    rate, now = AdaptiveRate(), 0.0
    for wait, throttled in steps:
        now += wait
        rate.acquire(now)
        rate.report(now, throttled=throttled)
        assert rate.tokens(now) >= 0
        assert rate.rate >= 0.5
