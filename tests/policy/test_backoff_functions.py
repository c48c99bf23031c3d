"""Backoffs that are functions of the user."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Rule
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Failure, History, Policy, Retry
from redrive.testing import VirtualClock, drain, using

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def squares(retry: int) -> float:
    """Return the square of the number of the retry."""
    return float(retry**2)


def minutes(retry: int) -> timedelta:
    """Return so many minutes."""
    return timedelta(minutes=retry)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (squares, [1, 4, 9]),
        (minutes, [60, 120, 180]),
        (lambda retry: 0, [0, 0, 0]),
        (Backoff.calling(squares).cap(5), [1, 4, 5]),
        (Backoff.constant(7).take(1) >> Backoff.calling(squares), [7, 1, 4]),
        (lambda retry: 10.0**400 if retry < 0 else 2.0 ** (retry * 2000), [31_557_600_000.0] * 3),
    ],
)
def test_a_function_is_a_backoff(backoff: Any, delays: list[float]):
    """A policy and a rule take a function, which can be combined as other backoffs are."""
    policy = Policy(on=OSError, attempts=5, backoff=backoff, jitter="none", deadline=None)
    rule = Rule(OSError, backoff=backoff)

    assert delays == policy.delays(3)
    assert rule.backoff is not None
    assert delays == rule.backoff.delays(3)
    decision = policy.decide(History(2, NOW), Failure(("builtins.OSError",)), NOW, 0.5)
    assert isinstance(decision, Retry)
    assert min(delays[1], 31_557_600_000.0) == decision.delay.total_seconds()


def test_two_policies_with_one_function_are_equal():
    """A function is a value of the policy."""
    assert Policy(backoff=squares) == Policy(backoff=Backoff.calling(squares)) != Policy(backoff=minutes)
    assert hash(Policy(backoff=squares)) == hash(Policy(backoff=squares))


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), None, "5s", True, timedelta(seconds=-1)])
def test_a_result_that_is_no_delay_is_refused(value: Any):
    """The message has the function, the number of the retry, and what is a delay."""

    def mine(retry: int) -> Any:
        return 1 if retry == 1 else value

    with pytest.raises(PolicyValueError, match=r"mine.* gave .* for retry 2, which is no delay: it returns seconds"):
        Policy(on=OSError, backoff=mine).delays(2)


def test_a_function_that_raises_is_named():
    """Its error is the cause of the one that names it."""

    def mine(retry: int) -> float:
        return {1: 1.0}[retry]

    with pytest.raises(PolicyValueError, match=r"mine raised KeyError for retry 2: 2") as found:
        Policy(backoff=mine).delays(2)
    assert isinstance(found.value.__cause__, KeyError)


async def _later(_: int) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (7, "is not a Backoff"),
        (int, "is not a Backoff"),
        (_later, "coroutine function"),
        (lambda: 1.0, "raised TypeError for retry 1"),
        (lambda _: "1s", "no delay"),
    ],
)
def test_what_cannot_be_called_is_refused_at_once(given: Any, why: str):
    """A policy is refused when it is made, not after the first failure."""
    with pytest.raises(PolicyValueError, match=why):
        Policy(backoff=given)
    with pytest.raises(PolicyValueError, match=why):
        Rule(OSError, backoff=given)


@pytest.mark.parametrize("given", [7, int])
def test_calling_takes_a_function(given: Any):
    """The method refuses other values, and so do the operators."""
    with pytest.raises(PolicyValueError, match="give a function"):
        Backoff.calling(given)
    with pytest.raises(PolicyValueError, match=r"Backoff\.calling\(function\)"):
        Backoff.constant(1) & given


@pytest.mark.parametrize(
    "policy",
    [
        Policy(backoff=squares),
        Policy(backoff=Backoff.calling(squares).cap(5)),
        Policy(rules=[Rule(OSError, backoff=squares)]),
    ],
)
def test_a_task_names_its_function(policy: Policy):
    """A job stores its policy: a function without a name is refused where the task is declared."""
    app = App("memory://")
    with pytest.raises(PolicyValueError, match=r"squares cannot be stored: Backoff\.register"):
        app.task(name="charge", retry=policy)(squares)
    with pytest.raises(PolicyValueError, match=r"squares cannot be stored: Backoff\.register"):
        policy.to_dict()


def test_a_registered_function_is_stored():
    """The way that the message names works."""
    Backoff.register("squares of the test", squares)
    app, calls = App("memory://", clock=VirtualClock()), []

    @app.task(retry=Policy(attempts=3, backoff=Backoff.named("squares of the test"), jitter="none"))
    def charge() -> None:
        calls.append(app.clock.monotonic())
        raise OSError

    charge.enqueue()
    drain(app)
    app.close()

    assert [1, 4] == [round(later - earlier) for earlier, later in itertools.pairwise(calls)]


def test_a_call_waits_as_long_as_the_function_says():
    """Calls in this process use it."""
    clock = VirtualClock()
    begun = []

    def fetch() -> None:
        begun.append(clock.monotonic())
        raise OSError

    with using(clock=clock), pytest.raises(OSError):
        Policy(on=OSError, backoff=squares, jitter="none").call(fetch)

    assert [1, 4] == [later - earlier for earlier, later in itertools.pairwise(begun)]
