"""Delays: controlled, exponential, from the delay before; and what a strategy makes of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyError, PolicyValueError
from redrive.orchestrator import (
    BestEffort,
    RandomJitter,
    Request,
    RetryAction,
    RetryReason,
    controlled_backoff,
    exponential_backoff,
    previous_backoff,
)
from redrive.policy import Backoff, Jitter
from redrive.retrying.context import using


def millis(delay):
    """Return a delay in milliseconds; None stays None."""
    return None if delay is None else delay / timedelta(milliseconds=1)


def request_after(*delays):
    """Return a request with retries after these delays, in milliseconds."""
    request = Request()
    for delay in delays:
        request.record_retry(RetryReason.KV_LOCKED, timedelta(milliseconds=delay))
        request.begin_next()
    return request


def test_controlled_backoff():
    """1, 10, 50, 100, 500, and 1000 ms from then on, however long."""
    assert [1, 10, 50, 100, 500, 1000, 1000, 1000] == [millis(controlled_backoff(n)) for n in (*range(7), 2**40)]


def test_best_effort_by_default():
    """1, 2, 4 ... 256, and 500 ms from then on."""
    delays = [millis(BestEffort().delay(request_after(*[1] * n))) for n in range(11)]
    assert [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500] == delays


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"minimum": 0}, "minimum"),
        ({"minimum": "2s"}, "maximum"),
        ({"factor": 0.5}, "factor"),
        ({"minimum": -1}, "minimum=-1"),
        ({"maximum": -1}, "maximum=-1"),
    ],
)
@pytest.mark.parametrize("make", [exponential_backoff, previous_backoff])
def test_invalid_bounds_are_refused(make, arguments, name):
    """Invalid bounds are refused by name: a minimum of zero, a maximum below it and a factor below one."""
    with pytest.raises(PolicyError, match=name):
        make(**arguments)


def test_delays_without_a_maximum_grow_for_ever():
    """Without a maximum nothing overflows."""
    assert exponential_backoff(maximum=None).delay(10) < exponential_backoff(maximum=None).delay(100_000)


def test_delays_from_the_one_before_may_have_no_maximum():
    """Without a maximum the next delay is a multiple of the last one, however long that was."""
    assert 8_000_000 == millis(BestEffort(previous_backoff(maximum=None, factor=8)).delay(request_after(1_000_000)))


def test_delays_may_grow_from_the_one_before():
    """Each delay is a multiple of the last one, whatever its origin."""
    strategy = BestEffort(previous_backoff())
    assert [1, 2, 14, 500] == [millis(strategy.delay(request_after(*each))) for each in ([], [1], [1, 7], [400])]


def test_a_calculator_may_be_a_function():
    """Functions as calculators get the number of retries so far and return any kind of duration."""
    strategy = BestEffort(lambda retries: f"{retries}s")
    assert [0, 2000] == [millis(strategy.delay(request_after(*each))) for each in ([], [1, 1])]


def test_a_backoff_that_ends_ends_the_retrying():
    """After its two retries a backoff gives no third."""
    strategy = BestEffort(Backoff.constant("5ms").take(2))
    assert [5, 5, None] == [millis(strategy.delay(request_after(*[5] * n))) for n in range(3)]


@pytest.mark.parametrize(
    ("jitter", "expected"), [("none", 1), ("full", 0.25), ("equal", 0.625), (Jitter.plus(1), 1.25)]
)
def test_delays_may_be_drawn(jitter, expected):
    """Delays may be drawn with the jitters of policies."""
    with using(sample=0.25):
        assert expected == millis(BestEffort(jitter=jitter).delay(Request()))


def test_a_floor_holds_under_jitter():
    """No delay is drawn below the floor of the backoff."""
    with using(sample=0.0):
        assert 3 == millis(BestEffort(Backoff.constant("9ms").floor("3ms"), jitter="full").delay(Request()))


class TestRandomJitter:
    """A jitter to both sides of the delay, within the bounds of the backoff."""

    def test_jitter_moves_a_delay_in_both_directions(self):
        """With the lowest sample the delay is reduced by its fraction; with the middle one it is unchanged."""
        jitter = RandomJitter(0.5)
        assert [0.25, 0.5] == [jitter.apply(0.5, sample) for sample in (0.0, 0.5)]

    def test_jitter_stays_within_the_bounds(self):
        """Neither side goes past the minimum or the maximum."""
        jitter = RandomJitter(0.5, "300ms", "550ms")
        assert (0.3, 0.55) == jitter.bounds(0.5, 10.0**12)

    def test_a_zero_fraction_keeps_the_delay(self):
        """With a fraction of zero the delay is the delay."""
        assert 0.064 == RandomJitter(0, "1ms", "500ms").apply(0.064, 0.9)

    @pytest.mark.parametrize("fraction", [1.1, -0.1])
    def test_a_fraction_is_a_fraction(self, fraction):
        """More than all of the delay, or less than nothing, is refused."""
        with pytest.raises(PolicyValueError, match="fraction"):
            RandomJitter(fraction)

    def test_a_delay_above_its_maximum_is_refused(self):
        """Backoffs and jitters with different maxima are refused."""
        with pytest.raises(PolicyValueError, match="longer than"):
            RandomJitter(0.5, maximum="200ms").apply(0.201, 0.5)

    def test_a_delay_below_its_minimum_is_refused(self):
        """Delays below the minimum are refused."""
        with pytest.raises(PolicyValueError, match="shorter than"):
            RandomJitter(0.5, minimum="200ms").apply(0.199, 0.5)

    def test_bounds_that_cross_are_refused(self):
        """Bounds that cross are refused when the jitter is built."""
        with pytest.raises(PolicyValueError, match="maximum='1ms' is shorter than minimum='2ms'"):
            RandomJitter(0.5, "2ms", "1ms")

    @given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
    def test_law_no_delay_is_below_the_minimum(self, minimum, nominal, fraction, sample):
        """Whatever is drawn is at least the minimum, or the configuration is refused."""
        jitter = RandomJitter(fraction, minimum)
        bottom = jitter.minimum.total_seconds()
        if nominal < bottom:
            with pytest.raises(PolicyValueError):
                jitter.apply(nominal, sample)
        else:
            assert bottom <= jitter.apply(nominal, sample)

    @given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
    def test_law_jitter_stays_around_the_delay(self, nominal, fraction, sample, floor):
        """Drawn delays lie within the fraction of the nominal one, or at the floor."""
        drawn = RandomJitter(fraction, maximum=1).apply(nominal, sample, floor)
        assert drawn == floor or nominal * (1 - fraction) - 1e-9 <= drawn <= min(1, nominal * (1 + fraction)) + 1e-9


class TestAction:
    """What a strategy answers."""

    @pytest.mark.parametrize("duration", ["50ms", 0.05, timedelta(milliseconds=50)])
    def test_a_duration_is_given_in_any_form(self, duration):
        """Text, seconds and spans are the same duration."""
        assert timedelta(milliseconds=50) == RetryAction(duration).duration

    def test_zero_is_a_delay(self):
        """Zero is not the same as no retry."""
        assert (timedelta(0), None) == (RetryAction(0).duration, RetryAction.no_retry().duration)

    def test_a_negative_delay_is_refused(self):
        """Negative delays are refused."""
        with pytest.raises(PolicyValueError, match="-1"):
            RetryAction(-1)
