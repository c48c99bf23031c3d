"""Tests of `redrive.policy.compose`: the laws of schedules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Backoff
from redrive.policy.backoff import NEVER_MORE
from redrive.policy.backoff_kinds import Decorrelated
from redrive.policy.compose import EnvelopeBackoff, GiveUpOver, UpTo
from tests.policy.strategies import backoffs, lengths

EVER = Backoff.constant(0)
NEVER = Backoff.constant(0).take(0)


def same(a: Backoff, b: Backoff) -> bool:
    """Return True if two schedules have the same first delays and floors."""
    looked = range(1, 25)
    return [a.delay(n) for n in looked] == [b.delay(n) for n in looked]


@given(backoffs, backoffs, backoffs)
def test_operators_are_associative(a: Backoff, b: Backoff, c: Backoff):
    """Brackets make no difference to any of the three operators."""
    assert same((a & b) & c, a & (b & c))
    assert same((a | b) | c, a | (b | c))
    assert same((a >> b) >> c, a >> (b >> c))


@given(backoffs, backoffs)
def test_and_and_or_are_commutative(a: Backoff, b: Backoff):
    """`&` and `|` give the same schedule for either order of the parts."""
    assert same(a & b, b & a)
    assert same(a | b, b | a)


@given(backoffs)
def test_and_and_or_are_idempotent(a: Backoff):
    """Combined with itself, a schedule is unchanged."""
    assert same(a, a & a)
    assert same(a, a | a)


@given(backoffs)
def test_each_operator_has_its_identity(a: Backoff):
    """No delay for ever changes nothing by `&`, no retries change nothing by `|` and `>>`."""
    assert same(a, a & EVER)
    assert same(a, a | NEVER)
    assert same(a, a >> NEVER)
    assert same(a, NEVER >> a)


@given(backoffs, backoffs)
def test_and_and_or_absorb_each_other(a: Backoff, b: Backoff):
    """Each of `&` and `|` absorbs the other."""
    assert same(a, a & (a | b))
    assert same(a, a | (a & b))


@given(backoffs, backoffs, backoffs)
def test_and_and_or_distribute(a: Backoff, b: Backoff, c: Backoff):
    """Each of `&` and `|` distributes over the other."""
    assert same(a & (b | c), (a & b) | (a & c))
    assert same(a | (b & c), (a | b) & (a | c))


@given(backoffs, lengths)
def test_a_cap_keeps_the_end(a: Backoff, cap: float):
    """Caps shorten delays and keep the end."""
    capped = a.cap(cap)

    assert a.length == capped.length
    assert [min(delay, cap) for delay in a.delays(20)] == capped.delays(20)


@given(backoffs, backoffs, lengths)
def test_a_cap_distributes(a: Backoff, b: Backoff, cap: float):
    """For a combination, a cap has the same effect as a cap for each part."""
    assert same((a & b).cap(cap), a.cap(cap) & b.cap(cap))
    assert same((a | b).cap(cap), a.cap(cap) | b.cap(cap))
    assert same((a >> b).cap(cap), a.cap(cap) >> b.cap(cap))


@given(backoffs, lengths)
def test_a_floor_lengthens_delays(a: Backoff, floor: float):
    """Floors lengthen delays, keep the end, and are lower bounds of jitter."""
    floored = a.floor(floor)

    assert [max(delay, floor) for delay in a.delays(20)] == floored.delays(20)
    assert all(floored.lowest(retry) >= floor for retry in range(1, len(floored.delays(20)) + 1))


@given(backoffs, st.integers(0, 20), st.integers(0, 20))
def test_take_limits_the_retries(a: Backoff, n: int, m: int):
    """Taking n retries gives the first n delays; taking twice is taking the smaller number."""
    assert a.delays(n) == a.take(n).delays(50)
    assert same(a.take(min(n, m)), a.take(n).take(m))


@given(backoffs, lengths)
def test_up_to_limits_the_total(a: Backoff, total: float):
    """Delays up to a total are as many as fit below it, within it, or past it by the last one."""
    for end, fits in FITS.items():
        taken = UpTo(a, total, end=end).delays(20)
        assert a.delays(len(taken)) == taken
        assert all(fits(taken[:count], total) for count in range(1, len(taken) + 1))
        more = a.delays(20)[: len(taken) + 1]
        assert len(more) == len(taken) or not fits(more, total)


FITS: dict[str, Callable[[list[float], float], bool]] = {
    "below": lambda delays, total: in_order(delays) < total,
    "within": lambda delays, total: in_order(delays) <= total,
    "past": lambda delays, total: in_order(delays[:-1]) < total,
}


def in_order(delays: list[float]) -> float:
    """Return a sum with the roundings of one addition after the other; the built-in one has others."""
    total = 0.0
    for delay in delays:
        total += delay
    return total


def test_give_up_over_ends_at_the_first_long_delay():
    """Giving up over a delay ends at the first that is longer, for good."""
    assert [1, 2] == Backoff.listed([1, 2, 3, 1]).give_up_over(2).delays(9)
    assert 2 == Backoff.listed([1, 2, 3, 1]).give_up_over(2).length


def test_a_limit_that_is_never_reached_does_not_end():
    """Limits that a schedule never reaches leave its length unchanged."""
    assert Backoff.constant(1).give_up_over(1).length is None
    assert Backoff.constant(0).up_to(1).length is None
    assert 3 == Backoff.constant(0).take(3).up_to(1).length
    assert 3 == GiveUpOver(Backoff.constant(0).take(3), 1).length


@pytest.mark.parametrize(("end", "length"), [("below", 86_399), ("within", 86_400), ("past", 86_400)])
def test_a_limit_may_be_far_away(end: str, length: int):
    """Limits of sums and of delays may be reached after any number of retries."""
    assert length == Backoff.constant(1).up_to("1d", end=end).length
    assert 10_000 == Backoff.constant(1).up_to(10_000, end=end).length + (end == "below")
    assert 50_000 == Backoff.constant(1).take(50_000).up_to("1d", end=end).length
    assert 86_401 == Backoff.linear(0, 1).give_up_over("1d").length
    assert 50_000 == Backoff.linear(0, 1).take(50_000).give_up_over("1d").length


def test_jitter_keeps_to_the_floors_of_the_parts():
    """Floors of composed schedules are those of the part that gives the delay, or lower."""
    a, b = Backoff.constant(5).floor(2), Backoff.constant(7).floor(3)

    assert (3, 2) == ((a & b).lowest(1), (a | b).lowest(1))
    assert [2, 2, 3] == [(a.take(2) >> b).lowest(retry) for retry in (1, 2, 3)]
    assert (2, 3) == ((a >> b).lowest(9), (b >> a).lowest(9))
    assert [1, 2, 2, 2] == [x.lowest(1) for x in (a.cap(1), a.cap(3), a.take(1), a.up_to(9))]
    assert [2, 6] == [x.lowest(1) for x in (a.floor(1), b.floor(6))]


@pytest.mark.parametrize("n", [-1, 1.5, True, "3", None])
def test_take_requires_a_whole_number(n: object):
    """`take` needs a whole number, zero or more."""
    with pytest.raises(PolicyValueError, match="the number of retries is a whole number, zero or more"):
        EVER.take(n)


def test_up_to_has_three_ends():
    """Unknown words for the end of `up_to` are refused."""
    with pytest.raises(PolicyValueError, match="end='at'"):
        EVER.up_to(1, end="at")


@pytest.mark.parametrize("operator", [Backoff.__and__, Backoff.__or__, Backoff.__rshift__])
def test_only_schedules_combine(operator: Callable[[object, object], object]):
    """Combining a schedule with any other value is refused."""
    with pytest.raises(PolicyValueError, match="5 is not a Backoff"):
        operator(EVER, 5)


def test_a_random_schedule_cannot_be_combined():
    """Schedules that draw cannot be combined, but their envelopes can."""
    drawing = Decorrelated(1, 20)

    with pytest.raises(PolicyValueError, match=r"a decorrelated backoff draws .*\.envelope can"):
        drawing.take(2)
    assert [3, 9] == drawing.envelope.take(2).delays(5)
    assert EnvelopeBackoff(drawing) == drawing.envelope


@given(backoffs, backoffs)
def test_a_sum_adds_delays_until_one_part_ends(a: Backoff, b: Backoff):
    """`+` adds the delays and the floors of its parts and ends with the first; its length is where it ends."""
    whole = a + b
    both = [(a.delay(n), b.delay(n), whole.delay(n)) for n in range(1, 25)]

    assert same(whole, b + a)
    assert same(a, a + EVER)
    assert all((x is None or y is None) == (z is None) for x, y, z in both)
    assert all(x + y == z for x, y, z in both if x is not None and y is not None and x + y < NEVER_MORE)
    assert min(a.lowest(1) + b.lowest(1), NEVER_MORE) == whole.lowest(1)
    assert whole.length is None or (whole.delay(whole.length + 1) is None and len(whole.delays(99)) == whole.length)
