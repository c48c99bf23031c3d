"""Tests of `redrive.retrying.plan`: the waits that a plan keeps are those of `Policy.decide`."""

from __future__ import annotations

import errno
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import RetryAfter
from redrive.policy import Backoff, Failure, History, Policy, Retry, Rule
from redrive.retrying.plan import CLASSES_KEPT, WAITS_KEPT, Plan
from tests.policy.strategies import START, policies, samples, spans

SECOND = timedelta(seconds=1)
PLAIN = Policy(on=OSError, attempts=6, backoff=Backoff.exponential(1, 60), jitter="none")


class HintedError(OSError):
    """An exception of a user that may have a hint."""

    def __init__(self, text: str):
        super().__init__(text)
        self.hint: timedelta | None = None


class DeclaredError(OSError):
    """An exception of a user with a hint of its class."""

    hint: timedelta | None = None


def _half() -> float:
    """Return the same sample always."""
    return 0.5


errors = st.sampled_from([OSError, ValueError, TypeError, KeyboardInterrupt, HintedError, DeclaredError]).map(
    lambda kind: kind("x")
)


@st.composite
def telling_errors(draw: st.DrawFn) -> BaseException:
    """Exceptions, some of them with a hint, a cause, in a group, or a signal."""
    error = draw(errors)
    how = draw(st.sampled_from(["plain", "plain", "hint", "later", "cause", "group", "signal"]))
    match how:
        case "hint":
            error = draw(st.sampled_from([HintedError, DeclaredError]))("x")
            error.hint = draw(spans)
        case "later":
            error.retry_after = 5
        case "cause":
            error.__cause__ = RetryAfter(3)
        case "group":
            error = BaseExceptionGroup("several", [error])
        case "signal":
            error = RetryAfter(3)
    return error


@given(
    policies(), st.sampled_from(["none", "full"]), telling_errors(), st.integers(1, 9), st.integers(0, 10**6), samples
)
def test_the_precomputed_answer_equals_the_decision(  # the arguments of `quick`, and a jitter that it is made for
    policy: Policy, jitter: str, error: BaseException, attempts: int, elapsed: int, sample: float
):
    """Quick answers are those of `decide`, to the microsecond."""
    rules = policy.rules[:0] if elapsed % 4 else policy.rules
    # What a plan refuses is left out: a catch task, and candidates that are not named.
    wanted = policy.with_(jitter=jitter, rules=rules, on=Exception if policy.on is None else policy.on)
    if wanted.catch is not None:
        wanted = wanted.with_(catch=None, attempts=wanted.attempts or 9)
    plan = Plan(wanted, "call")
    quick = plan.quick(error, attempts, elapsed, lambda: sample)
    if quick is not None:
        history = History(attempts, START)
        decision = plan.policy.decide(history, Failure.of(error), START + elapsed * SECOND, sample)
        assert isinstance(decision, Retry)
        assert decision.rule == "backoff"
        assert pytest.approx(quick, abs=1e-6) == decision.delay.total_seconds()


@pytest.mark.parametrize(
    ("policy", "quick"),
    [
        (PLAIN, 2.0),
        (PLAIN.with_(jitter="full"), 1.0),
        (PLAIN.with_(deadline=10), 2.0),
        (PLAIN.with_(deadline=3), None),
        (PLAIN.with_(attempts=2), None),
        (PLAIN.with_(backoff=Backoff.constant(1).take(1)), None),
        (PLAIN.with_(attempts=None, deadline="1h"), 2.0),
        (PLAIN.with_(on=ValueError), None),
        (PLAIN.with_(jitter="equal"), None),
        (PLAIN.with_(backoff=Backoff.decorrelated(1, 9)), None),
        pytest.param(PLAIN.with_(on=lambda error: True), None, id="classifier"),
        (PLAIN.with_(rules=[Rule(OSError)]), None),
    ],
    ids=str,
)
def test_plain_failures_have_a_precomputed_answer(policy: Policy, quick: float | None):
    """Plain failures of a plain policy have a quick answer, at the second attempt after one second."""
    assert quick == Plan(policy, "call").quick(OSError(), 2, 1.0, _half)
    assert quick == Plan(policy, "call").quick(OSError(), 2, 1.0, _half)


def test_only_the_waits_of_the_first_attempts_are_kept():
    """Plans keep the waits of 64 attempts, and compute equal waits for the others."""
    plan = Plan(Policy(on=OSError, attempts=None, deadline="1h", backoff=Backoff.constant(1), jitter="none"), "call")
    for attempts in range(1, 100):
        assert 1.0 == plan.quick(OSError(), attempts, 0.0, _half)

    assert [WAITS_KEPT] == [len(waits) for waits in plan._waits.values()]


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_precomputed_answers_do_not_depend_on_earlier_calls(kind: type[Exception]):
    """At any attempt, near or far, asked once or again, there is a quick answer if and only if there is a retry."""
    policy = Policy(on=OSError, attempts=100, deadline=None, backoff=Backoff.linear(1, 1), jitter="none")
    plan = Plan(policy, "call")
    for attempts in (1, 2, 99, 100, 101, 1):
        delay = float(attempts) if kind is OSError and attempts < 100 else None
        assert delay == plan.quick(kind(), attempts, 0.0, _half)


def test_the_number_of_a_bare_os_error_is_read_each_time():
    """A lost network is decided on with all details, before and after errors that are none."""
    plan = Plan(PLAIN, "call")
    lost, local = OSError(errno.EHOSTUNREACH, "No route to host"), OSError(errno.ENOSPC, "No space left")

    assert [None, 2.0, None, 2.0] == [plan.quick(error, 2, 1.0, _half) for error in (lost, local, lost, local)]


def test_dynamically_created_classes_do_not_fill_the_cache():
    """Only so many classes of failures are remembered."""
    plan = Plan(Policy(on=OSError, jitter="none"), "call")
    for number in range(CLASSES_KEPT + 5):
        kind = type(f"Made{number}", (OSError,), {})
        assert 0.1 == plan.quick(kind(), 1, 0.0, _half)

    assert len(plan._waits) <= CLASSES_KEPT


def test_an_attribute_without_a_value_is_no_reason_for_a_decision_in_full():
    """An exception whose own `hint` is None has a quick answer; one whose class declares it is decided on in full."""
    plan = Plan(PLAIN, "call")

    assert [1.0, None] == [plan.quick(kind("x"), 1, 0.0, _half) for kind in (HintedError, DeclaredError)]
