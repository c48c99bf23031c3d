"""Tests of `redrive.policy.backoff`: what all schedules share."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Backoff
from redrive.policy.backoff import KINDS, NEVER_MORE, function_named
from tests.policy.strategies import backoffs


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff.constant("1m"), [60, 60, 60]),
        (Backoff.exponential("5s", "1m"), [5, 10, 20, 40, 60, 60]),
        (Backoff.exponential(1, factor=3), [1, 3, 9]),
        (Backoff.listed([0, "1m", "5m"]), [0, 60, 300, 300]),
        (Backoff.listed([0, "1m"], end="stop"), [0, 60]),
        (Backoff.linear(1, 2), [1, 3, 5]),
        (Backoff.linear(1, 2, 4), [1, 3, 4, 4]),
        (Backoff.decorrelated(1, 20), [3, 9, 20, 20]),
        (Backoff.named("fibonacci", base=0.5), [0.5, 0.5, 1, 1.5, 2.5]),
        (Backoff.constant(1) & Backoff.linear(0, 1), [1, 1, 2, 3]),
        (Backoff.constant(1) | Backoff.linear(0, 1), [0, 1, 1]),
        (Backoff.constant(1).take(2) >> Backoff.linear(7, 1), [1, 1, 7, 8]),
        (Backoff.constant(1).up_to(3), [1, 1]),
        (Backoff.linear(1, 1).cap(2), [1, 2, 2]),
        (Backoff.linear(1, 1).floor(2), [2, 2, 3]),
        (Backoff.linear(1, 1).give_up_over(2), [1, 2]),
    ],
)
def test_each_schedule_has_its_delays(backoff: Backoff, expected: list[float]):
    """Each builder and operator gives the delays that its name describes."""
    ended = 1 if backoff.length is not None else 0

    assert expected == backoff.delays(len(expected) + ended)


@given(backoffs, st.integers(1, 20))
def test_delays_are_never_negative_and_never_below_the_floor(backoff: Backoff, retry: int):
    """Delays are at least their floor, which is at least zero."""
    delay = backoff.delay(retry)

    assert delay is None or 0 <= backoff.lowest(retry) <= delay


@given(backoffs, st.integers(1, 20))
def test_the_length_is_where_the_delays_end(backoff: Backoff, retry: int):
    """Schedules have a delay exactly for the retries up to their length."""
    assert (backoff.length is None or retry <= backoff.length) == (backoff.delay(retry) is not None)


@given(backoffs)
def test_far_retries_do_not_overflow(backoff: Backoff):
    """Schedules answer for any number of retries, and give the same first delays afterwards."""
    far = [backoff.delay(retry) for retry in (10_000, 1_000_000, 10**9)]

    assert all(delay is None or delay <= NEVER_MORE for delay in far)


@given(backoffs)
def test_the_envelope_of_a_deterministic_schedule_is_the_schedule(backoff: Backoff):
    """Schedules that do not draw are their own envelope."""
    assert not backoff.draws
    assert backoff is backoff.envelope


def test_a_schedule_must_define_its_delay():
    """`Backoff` itself has no delay and draws none."""
    with pytest.raises(NotImplementedError):
        Backoff().delay(1)
    with pytest.raises(NotImplementedError):
        Backoff().draw(1, None, 0.5)


def test_a_schedule_without_a_kind_takes_no_arguments():
    """An error names a method that makes one."""
    message = r'^Backoff\(\) takes no arguments: write Backoff.exponential\("1s", "10m"\), or another of its methods$'
    for arguments, options in ((("1s",), {}), ((), {"maximum": "10m"})):
        with pytest.raises(PolicyValueError, match=message):
            Backoff(*arguments, **options)


def test_kinds_have_different_names():
    """Registering a second kind under a name is refused, because stored policies could not distinguish the two."""
    with pytest.raises(PolicyValueError, match="the kind 'constant' of backoff is taken by Constant"):
        type("Other", (Backoff,), {"kind": "constant"})

    assert "Constant" == KINDS["constant"].__name__


def test_a_class_without_a_kind_is_not_registered():
    """Common base classes of several kinds have no name of their own."""
    before = dict(KINDS)
    type("Base", (Backoff,), {})

    assert before == KINDS


def test_functions_can_be_registered():
    """Registered functions are schedules; the same registration may be repeated, another function is refused."""

    def squares(retry: int) -> float:
        return retry**2

    Backoff.register("test squares", squares)
    Backoff.register("test squares", squares)

    assert [1, 4, 9] == Backoff.named("test squares").delays(3)
    assert (squares, False) == function_named("test squares")
    with pytest.raises(PolicyValueError, match="already registered as 'test squares'"):
        Backoff.register("test squares", lambda retry: retry)
    with pytest.raises(PolicyValueError, match="already registered as 'test squares'"):
        Backoff.register("test squares", squares, draws=True)


def test_unknown_functions_are_refused():
    """Names that are not registered are refused, with a list of those that are."""
    with pytest.raises(
        PolicyValueError, match="no backoff function 'cubes' is registered; there are .*decay.*fibonacci"
    ):
        function_named("cubes")


@given(st.just(0) | st.floats(1e-3, 1e6), st.integers(1, 20), st.floats(1, 5))
def test_filling_fills_the_window(window: float, attempts: int, factor: float):
    """`filling` gives delays that add up to the window; with a single attempt the first delay is the window."""
    backoff = Backoff.filling(window, attempts, factor)

    assert pytest.approx(window) == sum(backoff.delays(max(1, attempts - 1)))


def test_an_empty_window_is_refused():
    """So many doublings that the first delay vanishes are refused; a window of no time has no delays of any length."""
    with pytest.raises(PolicyValueError, match="with 5000 attempts and factor=2.0 the first delay would be nothing"):
        Backoff.filling(60, 5000, 2.0)

    assert [0.0, 0.0] == Backoff.filling(0, 5000, 2.0).delays(2)


@pytest.mark.parametrize("attempts", [0, True, 1.5])
def test_filling_needs_a_number_of_attempts(attempts: object):
    """`filling` takes a whole number of attempts."""
    with pytest.raises(PolicyValueError, match="a whole number from 1 up"):
        Backoff.filling(60, attempts)


@pytest.mark.parametrize(
    "code",
    [
        "Backoff.constant(1).take(2)",
        "Policy(deadline=None) & Policy(deadline=None)",
        "Policy.from_dict(Policy().to_dict())",
        "Policy().explain()",
        "Policy.parse('2 1s').directive()",
        "a = Policy(backoff=Backoff.constant(1).cap(9)); Policy.from_dict((a >> a).to_dict())",
    ],
)
def test_a_fresh_interpreter_imports_what_it_needs(code: str):
    """In a fresh interpreter, each operation imports its modules at the first use."""
    subprocess.run([sys.executable, "-c", f"from redrive.policy import Backoff, Policy; {code}"], check=True)
