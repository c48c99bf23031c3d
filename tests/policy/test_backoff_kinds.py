"""Tests of `redrive.policy.backoff_kinds`."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy
from redrive.policy.backoff import NEVER_MORE
from redrive.policy.backoff_kinds import Decorrelated, Exponential, Listed, Named, Smooth
from tests.policy.strategies import lengths, open_ranges, ranges, samples

factors = st.floats(1, 100)


@given(open_ranges, factors)
def test_exponential_delays_never_shrink(range_: tuple[float, float | None], factor: float):
    """Without jitter, an exponential backoff is monotone, also at the point where it saturates."""
    delays = Exponential(*range_, factor).delays(70)

    assert sorted(delays) == delays


@given(ranges, factors, st.integers(1, 10**9))
def test_exponential_delays_stay_within_the_maximum(range_: tuple[float, float], factor: float, retry: int):
    """No delay is longer than the maximum, at any retry."""
    assert 0 <= Exponential(*range_, factor).delay(retry) <= range_[1]


@given(st.floats(1e-3, 1e3), st.floats(1, 4), st.integers(1, 20))
def test_exponential_delays_have_their_formula(initial: float, factor: float, retry: int):
    """Below the maximum the delay is the initial one times the power of the factor."""
    expected = min(initial * factor ** (retry - 1), 1e6)

    assert pytest.approx(expected) == Exponential(initial, 1e6, factor).delay(retry)


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Exponential(1, 40), 40),
        (Exponential(1), NEVER_MORE),
        (Exponential(2, 2), 2),
        (Exponential(0, 0), 0),
        (Exponential(0, 5), 0),
        (Exponential(0, 5, 1e300), 0),
        (Exponential(5e-324, 1e300), NEVER_MORE),
        (Exponential(1e-300, NEVER_MORE, 1e10), NEVER_MORE),
        (Exponential(3, 60, 1), 3),
        (Exponential(1e-100, 1e-100), 1e-100),
    ],
)
def test_exponential_delays_saturate(backoff: Exponential, expected: float):
    """At retry 10,000 an exponential backoff is at its end: the maximum, or where it stands still."""
    assert expected == backoff.delay(10_000)


@pytest.mark.parametrize("factor", [0, 0.5, -1, nan, inf, True, "2", None])
def test_factors_are_checked(factor: object):
    """Factors of a backoff are finite numbers of at least 1."""
    with pytest.raises(PolicyValueError, match="a backoff grows by a finite factor of at least 1"):
        Exponential(1, 2, factor)


def test_a_list_is_checked():
    """Listed backoffs need a delay, refuse a text, and end in one of two ways."""
    with pytest.raises(PolicyValueError, match="at least one delay"):
        Listed([])
    with pytest.raises(PolicyValueError, match="not the text '1m'"):
        Listed("1m")
    with pytest.raises(PolicyValueError, match="end='cycle': after the last delay a list can 'repeat' it or 'stop'"):
        Listed([1], end="cycle")


@given(st.lists(lengths, min_size=1, max_size=5), st.integers(1, 100))
def test_a_list_repeats_its_last_delay_or_stops(values: list[float], beyond: int):
    """After its end a list repeats its last delay, or has no more."""
    retry = len(values) + beyond

    assert values[-1] == Listed(values).delay(retry)
    assert Listed(values, end="stop").delay(retry) is None
    assert len(values) == Listed(values, end="stop").length


@given(ranges, st.none() | lengths, samples, st.integers(1, 50))
def test_decorrelated_draws_stay_within_their_range(
    range_: tuple[float, float], previous: float | None, sample: float, retry: int
):
    """Draws lie between the initial delay and the maximum."""
    drawn = Decorrelated(*range_).draw(retry, previous, sample)

    assert range_[0] <= drawn <= range_[1]


def test_decorrelated_draws_follow_the_previous_delay():
    """Draws reach from the initial delay to three times the previous one, or to the maximum."""
    backoff = Decorrelated(1, 20)

    assert [2, 8, 10.5] == [backoff.draw(1, previous, 0.5) for previous in (None, 5, 100)]


def test_decorrelated_draws_do_not_pile_up_at_the_maximum():
    """Under the maximum all draws differ, since the draw comes after the cap."""
    backoff = Decorrelated(0.1, 5)
    drawn = [backoff.draw(9, 5.0, place / 1000) for place in range(1000)]

    assert 1000 == len(set(drawn))


def test_decorrelated_has_an_envelope():
    """Its nominal delay is the longest that can be drawn, and its envelope has no random part."""
    backoff = Decorrelated(1, 20)

    assert backoff.draws
    assert not backoff.envelope.draws
    assert [3, 9, 20] == backoff.delays(3) == backoff.envelope.delays(3)


@given(st.integers(1, 2000), samples, st.none() | samples, st.integers(0, 100), st.none() | st.just(100))
def test_smooth_delays_are_drawn_below_the_maximum(
    retry: int, sample: float, before: float | None, initial: int, maximum: int | None
):
    """Smooth delays are never negative, never above the nominal delay, and never above the maximum."""
    backoff = Smooth(initial, maximum)
    delay = backoff.draw(retry, None, sample, before)

    assert 0 <= delay <= backoff.delay(retry) * (1 + 1e-9) <= backoff.longest * (1 + 1e-9)


def test_smooth_draws_do_not_pile_up_at_the_maximum():
    """Late delays spread from nothing to the maximum, about half of it in the mean."""
    backoff = Smooth(1, 30)
    drawn = [backoff.draw(50, None, place / 100, before / 100) for place in range(100) for before in range(100)]

    assert (0, 30) == (pytest.approx(backoff.draw(50, None, 0.0, 1.0)), pytest.approx(backoff.draw(50, None, 1.0, 0.0)))
    assert pytest.approx(30 * 0.481, rel=0.01) == sum(drawn) / len(drawn)
    assert 9_000 < len(set(drawn))
    assert NEVER_MORE == Smooth(1).delay(5000) == Smooth(1).longest


@given(st.lists(samples, min_size=2, max_size=9))
def test_smooth_places_do_not_depend_on_the_places_before(numbers: list[float]):
    """Each retry's instant, counted from the start of the waiting, depends on its own sample alone."""
    backoff = Smooth(1)
    last = len(numbers)
    delays = [
        backoff.draw(retry, None, numbers[retry - 1], ([0.0, *numbers])[retry - 1]) for retry in range(1, last + 1)
    ]
    other = [backoff.draw(retry, None, numbers[-1], numbers[-1]) for retry in range(1, last + 1)]

    assert pytest.approx(sum(other)) == sum(delays)


def test_a_smooth_schedule_is_stored_and_read_back():
    """Smooth backoffs are stored and read back, and cannot be part of another schedule."""
    for policy in (Policy(backoff=Backoff.smooth("1s", "1m")), Policy(backoff=Backoff.smooth(0.3))):
        assert policy == Policy.from_dict(policy.to_dict())
    with pytest.raises(PolicyValueError, match=r"a smooth backoff draws its delays .* its \.envelope can"):
        Backoff.smooth(1).cap(5)


def test_functions_may_draw():
    """Functions that draw get the previous delay and the sample; for the nominal delay, None and 1."""
    Backoff.register("test sample", lambda retry, previous, sample, base: base * sample + (previous or 0), draws=True)
    backoff = Named("test sample", {"base": 10.0})

    assert backoff.draws
    assert (7.0, 10.0) == (backoff.draw(1, 2.0, 0.5), backoff.delay(1))


@pytest.mark.parametrize("value", [nan, inf, -inf, -1.0, "5", None, True])
def test_the_result_of_a_function_is_checked_at_once(value: object):
    """Functions that return an invalid delay are refused when they are named, not at the first retry."""
    Backoff.register(f"test bad {value!r}", lambda retry: value)

    with pytest.raises(PolicyValueError, match="gave .* for retry 1, which is no delay"):
        Named(f"test bad {value!r}")


def test_a_later_result_of_a_function_is_checked():
    """Functions that return an invalid delay later are refused at that retry."""
    Backoff.register("test later", lambda retry: 1.0 if retry < 3 else nan)

    with pytest.raises(PolicyValueError, match="'test later' gave nan for retry 3"):
        Named("test later").delay(3)


def test_a_function_may_overflow():
    """Functions that overflow return the longest delay."""
    Backoff.register("test power", lambda retry: 10.0**retry)

    assert NEVER_MORE == Named("test power").delay(10_000)
    assert NEVER_MORE == Named("test power").delay(300)


@pytest.mark.parametrize(("options", "message"), [({"bass": 1.0}, "bass=1.0"), ({"base": "1"}, "base='1'")])
def test_options_are_checked_at_once(options: dict[str, object], message: str):
    """Options that a function does not take are refused where it is named."""
    with pytest.raises(PolicyValueError, match=f"the backoff function 'fibonacci' .*{message}|gave '1'"):
        Named("fibonacci", options)


def test_missing_options_are_named():
    """Functions called without a required option raise an error that names it."""
    Backoff.register("test needs", lambda retry, base: base)

    with pytest.raises(PolicyValueError, match="cannot be called with no options: .*'base'"):
        Named("test needs")


def test_options_have_no_order():
    """Options in another order give an equal schedule."""
    assert Named("decay", {"initial": 1.0, "rate": 2.0}) == Named("decay", {"rate": 2.0, "initial": 1.0})
