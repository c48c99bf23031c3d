"""Tests of `redrive.policy.jitter`."""

from __future__ import annotations

from datetime import timedelta
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy import Backoff, Failure, History, Jitter, Policy, Retry
from tests.policy.strategies import START, jitters, lengths, samples


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        (Jitter.none, [8, 8, 8]),
        (Jitter.full, [0, 4, 7.92]),
        (Jitter.equal, [4, 6, 7.96]),
        (Jitter.plus(0.5), [8, 10, 11.96]),
        (Jitter.added("2s"), [8, 9, 9.98]),
    ],
)
def test_each_kind_has_its_formula(jitter: Jitter, expected: list[float]):
    """Delays of 8 s are drawn from the range of their kind."""
    assert pytest.approx(expected) == [jitter.apply(8, sample) for sample in (0, 0.5, 0.99)]


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [(Jitter.none, [8, 8]), (Jitter.full, [6, 7]), (Jitter.equal, [6, 7]), (Jitter.plus(0.5), [8, 10])],
)
def test_a_floor_is_respected(jitter: Jitter, expected: list[float]):
    """No kind draws below the floor of the backoff."""
    assert expected == [jitter.apply(8, sample, floor=6) for sample in (0, 0.5)]


@given(jitters, lengths, lengths, samples)
def test_draws_stay_between_the_floor_and_the_highest(jitter: Jitter, a: float, b: float, sample: float):
    """Drawn delays are never below the floor and never above the highest that the jitter admits."""
    floor, nominal = sorted((a, b))
    drawn = jitter.apply(nominal, sample, floor)

    assert floor * (1 - 1e-12) <= drawn <= jitter.highest(nominal) * (1 + 1e-12)


@given(st.sampled_from([Jitter.full, Jitter.equal, Jitter.none]), lengths)
def test_only_plus_goes_above_the_nominal_delay(jitter: Jitter, nominal: float):
    """Full and equal jitter never wait longer than the backoff."""
    assert nominal == jitter.highest(nominal)


@given(jitters, lengths)
def test_the_mean_is_the_middle_of_the_range(jitter: Jitter, nominal: float):
    """Over evenly spaced samples the mean is the middle of the range."""
    drawn = [jitter.apply(nominal, (place + 0.5) / 100) for place in range(100)]
    middle = (jitter.apply(nominal, 0) + jitter.apply(nominal, 1)) / 2

    assert pytest.approx(middle) == sum(drawn) / 100


@given(jitters, samples)
def test_a_zero_delay_stays_zero(jitter: Jitter, sample: float):
    """Delays of zero stay zero, except with added jitter."""
    assert sample * jitter.span == jitter.apply(0, sample)


def test_names_are_checked():
    """Unknown kinds are refused, with a list of those that exist."""
    with pytest.raises(PolicyValueError, match="there is no jitter 'some': use none, full, equal, plus"):
        Jitter("some")


@pytest.mark.parametrize("fraction", [-0.1, nan, inf, True, "0.5", None])
def test_fractions_are_checked(fraction: object):
    """Fractions are finite numbers, zero or more."""
    with pytest.raises(PolicyValueError, match="plus takes a number, zero or more"):
        Jitter.plus(fraction)


def test_only_plus_has_a_fraction():
    """Fractions with another kind are refused."""
    with pytest.raises(PolicyValueError, match="no fraction for the jitter 'full'"):
        Jitter("full", 0.5)


def test_added_jitter_spreads_what_has_no_length():
    """Added jitter also applies to delays of zero, and to those at their floor."""
    policy = Policy(jitter=Jitter.added(2), backoff=Backoff.constant(0))
    floored = Policy(jitter=Jitter.plus(0.5), backoff=Backoff.constant(8).floor(8))

    assert 1.0 == decided(policy)
    assert 10.0 == decided(floored)


def test_jitter_that_is_added_is_added_to_hints():
    """Clients with the same hint are spread by upward jitter."""
    policy = Policy(jitter=Jitter.added(2), backoff=Backoff.constant(0), deadline=None)

    assert 31.0 == decided(policy, hint=timedelta(seconds=30))


def decided(policy: Policy, hint: timedelta | None = None) -> float:
    """Return the delay before the first retry in seconds, for a sample in the middle."""
    decision = policy.decide(
        History(1, START), Failure(("builtins.OSError", "builtins.Exception"), hint=hint), START, 0.5
    )
    assert isinstance(decision, Retry)
    return decision.delay.total_seconds()


@pytest.mark.parametrize(("kind", "span"), [("plus", 1), ("full", "1s"), ("added", -1), ("added", "soon")])
def test_only_added_takes_a_span(kind: str, span: object):
    """Spans belong to added jitter, and are durations."""
    with pytest.raises(PolicyError):
        Jitter(kind, span=span)


def test_a_span_is_shown_where_there_is_one():
    """Only added jitter shows a span."""
    assert "Jitter(kind='plus', fraction=0.5)" == repr(Jitter.plus(0.5))
    assert "Jitter(kind='added', fraction=0.0, span=2.0)" == repr(Jitter.added("2s"))


@given(st.floats(0, 3), lengths, lengths, lengths, samples)
def test_no_delay_is_longer_than_the_limit_of_the_jitter(
    fraction: float, a: float, b: float, nominal: float, sample: float
):
    """Upward jitter with a limit never draws a longer delay, and is stored with its limit."""
    added, limit = sorted((a, b))
    for jitter in (Jitter.added(added, within=limit), Jitter.plus(fraction, within=limit)):
        assert jitter.apply(nominal, sample) <= jitter.highest(nominal) <= limit
        assert jitter == Policy.from_dict(Policy(jitter=jitter).to_dict()).jitter


def test_late_delays_are_spread_below_the_limit():
    """Delays without room for their jitter are lowered, so that draws do not pile up at the limit."""
    capped = Jitter.added("1s", within="5s")

    assert [4.0, 4.5, 2.5] == [capped.apply(5, 0), capped.apply(5, 0.5), capped.apply(2, 0.5)]
    assert pytest.approx([4.0, 4.5]) == [Jitter.plus(0.25, within=5).apply(9, sample) for sample in (0, 0.5)]


def test_a_limit_of_jitter_does_not_shorten_hints():
    """Hints are lower bounds, also above the limit of the jitter."""
    policy = Policy(jitter=Jitter.added(2, within=5), backoff=Backoff.constant(0), deadline=None)

    assert 31.0 == decided(policy, hint=timedelta(seconds=30))


def test_a_limit_of_jitter_is_explained():
    """The explanation of a policy and the `repr` of a jitter name the limit."""
    jitter = Jitter.added("1s", within="5s")

    assert "with up to 1s on top, at most 5s" in str(Policy(on=OSError, jitter=jitter).explain())
    assert "Jitter(kind='added', fraction=0.0, span=1.0, within=5.0)" == repr(jitter)


@pytest.mark.parametrize(("kind", "span"), [("full", 0), ("none", 0), ("added", 6)])
def test_limits_of_jitter_are_checked(kind: str, span: int):
    """Only jitter that goes above the delay takes a limit, and a span must fit into it."""
    with pytest.raises(PolicyValueError, match="within=5"):
        Jitter(kind, span=span, within=5)


@given(jitters)
def test_jitter_is_stored_and_read_back(jitter: Jitter):
    """Every jitter survives being written as data."""
    assert jitter == Policy.from_dict(Policy(jitter=jitter).to_dict()).jitter
