"""A rate that follows the target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.policy.overload import AdaptiveRate, Cubic


def test_before_the_first_refusal_there_is_no_limit():
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


def test_waiting_callers_get_the_same_wait():
    """Asking takes no token: a hundred waiting callers get the same wait, and then one of them may send."""
    rate = AdaptiveRate(rate=0.5)

    assert {1.9} == {round(rate.acquire(0.1), 9) for _ in range(100)}
    assert 0.0 == rate.acquire(2.1)
    assert rate.acquire(2.1) > 0


@given(st.floats(0.1, 1000), st.floats(0, 1000))
def test_the_rate_recovers_to_the_refused_rate(most, at):
    """After a refusal the curve begins at a part of the refused rate and is back at that rate after its window."""
    curve = Cubic().throttled(most, at)

    assert pytest.approx(0.7 * most, rel=1e-6) == curve.rate(at)
    assert pytest.approx(most, rel=1e-6) == curve.rate(at + curve.window)


@pytest.mark.case("adaptive.cubic.04")
def test_the_way_back_to_ten_takes_two_seconds():
    """After a refusal at 10 requests a second the curve is back there after 1.957 s."""
    curve = Cubic().throttled(10, 100)

    assert pytest.approx(1.9574338205844317) == curve.window
    assert pytest.approx(10) == curve.rate(101.9574338205844317)


@pytest.mark.case("adaptive.cubic.05")
def test_a_refusal_at_eight_requests_a_second():
    """After a refusal at 8 requests a second, in second 1, the rate is 5.6, and 8 again after 1.817 s."""
    curve = Cubic().throttled(8, 1)

    assert (8, 1) == (curve.most, curve.failed_at)
    assert pytest.approx(5.6) == curve.rate(1)
    assert pytest.approx(1.8171205928321397) == curve.window


def test_a_client_starts_its_curve_at_the_rate_that_was_refused():
    """After a refusal the curve of a client begins at its measured rate, of which it keeps 0.7."""
    rate = AdaptiveRate()
    for tick in range(1, 101):
        rate.report(tick / 8 - 0.01, throttled=False)
    measured = rate.measured
    rate.report(12.49, throttled=True)

    assert pytest.approx(8, abs=0.1) == measured
    assert (measured, 12.49) == (rate.cubic.most, rate.cubic.failed_at)
    assert pytest.approx(0.7 * measured) == rate.rate


@given(st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60))
def test_the_bucket_is_never_negative(steps):
    """Whatever is reported and asked, there are never fewer tokens than none, and the rate never falls to nothing."""
    rate, now = AdaptiveRate(), 0.0
    for wait, throttled in steps:
        now += wait
        rate.acquire(now)
        rate.report(now, throttled=throttled)
        assert rate.tokens(now) >= 0
        assert rate.rate >= 0.5
