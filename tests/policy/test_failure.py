"""Tests of `redrive.policy.failure`."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given

from redrive.errors import Cancel, GiveUp, PolicySyntaxError, PolicyValueError, RetryAfter, Snooze
from redrive.policy import Failure, Stage
from redrive.policy.failure import forbid_repetition, names_of_class
from tests.policy.strategies import failures


class BusyError(ConnectionError):
    """An error of a user."""


class Halt(BaseException):
    """Something of a user's that is no ordinary exception."""


class UnprintableError(Exception):
    """An error with a text that cannot be made."""

    def __str__(self) -> str:
        return str(1 // 0)


def chained(error: BaseException, cause: BaseException | None) -> BaseException:
    """Return an exception raised from another."""
    error.__cause__ = cause
    return error


def with_attributes(error: BaseException, **attributes: object) -> BaseException:
    """Return an exception with attributes."""
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def test_an_exception_becomes_names():
    """Exceptions become the qualified names of their class and its bases, most specific first, and their text."""
    own = f"{__name__}.BusyError"

    assert Failure(
        (own, "builtins.ConnectionError", "builtins.OSError", "builtins.Exception"), "come back later"
    ) == Failure.of(BusyError("come back later"))
    assert own == Failure.of(BusyError()).error_type


def test_other_base_exceptions_have_base_exception_among_their_names():
    """Instances of BaseException that are not an Exception have BaseException among their names."""
    assert (f"{__name__}.Halt", "builtins.BaseException") == Failure.of(Halt()).types


def test_a_failure_without_an_exception_has_no_type():
    """Failures without an exception have an empty type."""
    assert "" == Failure((), "the worker died", "WORKER_LOST").error_type


def test_reason_and_stage_are_the_caller_s():
    """Callers give the reason and the stage."""
    failure = Failure.of(OSError("x"), reason="TIMEOUT", stage=Stage.IN_FLIGHT)

    assert ("TIMEOUT", Stage.IN_FLIGHT) == (failure.reason, failure.stage)
    assert ("ERROR", Stage.ANSWERED) == (Failure.of(OSError("x")).reason, Failure.of(OSError("x")).stage)


@pytest.mark.parametrize("stage", Stage)
def test_a_given_stage_leaves_the_word_of_the_callee(stage: Stage):
    """The function that an exception in flight has left is named, whichever way the stage was found."""
    error = OSError("x")
    forbid_repetition(error, "bank.charge", 0.0)

    assert ("bank.charge" if stage is Stage.IN_FLIGHT else None) == Failure.of(error, stage=stage).once


@pytest.mark.parametrize("attribute", ["hint", "retry_after"])
@pytest.mark.parametrize("value", [timedelta(seconds=30), 30, 30.0])
def test_an_exception_may_carry_a_hint(attribute: str, value: object):
    """Attributes `hint` and `retry_after` with a span or seconds are hints."""
    assert timedelta(seconds=30) == Failure.of(with_attributes(OSError(), **{attribute: value})).hint


@pytest.mark.parametrize("value", ["Perhaps you meant another column.", "30s", -1, float("nan"), True, object()])
def test_other_attributes_with_that_name_are_ignored(value: object):
    """Attributes `hint` with another value are ignored, such as the advice of a database."""
    assert Failure.of(with_attributes(OSError(), hint=value)).hint is None


def test_headers_that_raise_do_not_hide_the_result():
    """A result whose headers cannot be read has no hint."""

    class Headers(dict[str, str]):
        """Headers of a response that is closed."""

        def get(self, *_: object) -> str:
            raise KeyError("closed")

    assert Failure.of_result(SimpleNamespace(headers=Headers())).hint is None
    assert timedelta(seconds=1) == Failure.of_result(SimpleNamespace(headers=Headers(), hint=1)).hint


def test_a_broken_text_does_not_hide_the_failure():
    """Exceptions without a readable text are described nevertheless."""
    text = "<no message: ZeroDivisionError in UnprintableError.__str__>"

    assert text == Failure.of(UnprintableError()).message
    assert text == Failure.of(chained(UnprintableError(), OSError())).message


def test_give_up_is_permanent():
    """`GiveUp` makes a failure permanent, with its reason."""
    failure = Failure.of(GiveUp("stolen card"))

    assert ("stolen card", "GAVE_UP") == (failure.permanent, failure.reason)
    assert "gave up" == Failure.of(GiveUp("")).permanent


def test_retry_after_is_a_candidate_with_a_hint():
    """`RetryAfter` makes a failure a candidate with a hint, whatever the policy names."""
    failure = Failure.of(RetryAfter("15m", "busy"))

    assert (True, timedelta(minutes=15), "RETRY_AFTER") == (failure.candidate, failure.hint, failure.reason)


@pytest.mark.parametrize("signal", [Snooze("1m"), Cancel()])
def test_signals_that_are_no_failures_are_no_candidates(signal: Exception):
    """Snooze and Cancel are never retried."""
    assert Failure.of(signal).candidate is False


def test_a_given_reason_outlives_a_signal():
    """Reasons that the caller gives are not replaced by those of a signal."""
    assert "TIMEOUT" == Failure.of(GiveUp("x"), reason="TIMEOUT").reason
    assert "TIMEOUT" == Failure.of(RetryAfter(1), reason="TIMEOUT").reason


def test_signals_count_as_explicit_causes():
    """Signals count anywhere in the chain of explicit causes; the first one decides."""
    error = chained(ValueError("declined"), chained(OSError(), chained(GiveUp("stolen"), RetryAfter(5))))
    failure = Failure.of(error)

    assert ("builtins.ValueError", "stolen") == (failure.error_type, failure.permanent)


def test_a_cause_without_a_signal_changes_nothing():
    """Ordinary causes change nothing."""
    assert Failure.of(ValueError("x")) == Failure.of(chained(ValueError("x"), OSError("y")))


def test_a_cycle_of_causes_ends():
    """Two exceptions that are each other's cause are described without end-less walking."""
    first, second = ValueError("x"), OSError("y")
    chained(first, second)
    chained(second, first)

    assert "builtins.ValueError" == Failure.of(first).error_type


def test_an_implicit_context_is_no_cause():
    """Implicit contexts are not causes."""
    error = ValueError("x")
    error.__context__ = GiveUp("y")

    assert Failure.of(error).permanent is None


def test_a_group_keeps_its_leaves():
    """Groups have their leaves, flattened and in order."""
    group = ExceptionGroup("several", [ExceptionGroup("inner", [OSError("a"), ValueError("b")]), BusyError("c")])

    assert ["a", "b", "c"] == [leaf.message for leaf in Failure.of(group).leaves]
    assert "builtins.ExceptionGroup" == Failure.of(group).error_type


def test_a_group_is_as_final_as_its_most_final_leaf():
    """Groups with a GiveUp among their leaves are permanent."""
    group = ExceptionGroup("several", [OSError(), GiveUp("stolen"), GiveUp("later")])

    assert "stolen" == Failure.of(group).permanent


def test_a_group_waits_for_the_longest_hint():
    """Groups have the longest hint of their leaves, or their own."""
    group = ExceptionGroup("several", [RetryAfter(5), OSError(), RetryAfter(60)])
    own = with_attributes(ExceptionGroup("several", [OSError()]), hint=7)

    assert timedelta(seconds=60) == Failure.of(group).hint
    assert timedelta(seconds=7) == Failure.of(own).hint


def test_a_result_is_a_failure_too():
    """Results that count as failures are candidates with the reason RESULT, with a shortened text."""
    failure = Failure.of_result({"state": "pending"})

    assert ("RESULT", True, "result {'state': 'pending'}") == (failure.reason, failure.candidate, failure.message)
    assert len(Failure.of_result(["x" * 1000] * 1000).message) < 300


def test_a_signal_with_a_wrong_delay_is_a_mistake():
    """Signals with an invalid delay raise an error that names it."""
    with pytest.raises(PolicySyntaxError, match="the number 15 has no unit"):
        Failure.of(RetryAfter("15"))


def test_dynamically_created_classes_do_not_fill_the_cache():
    """Only so many classes are remembered; those forgotten are described all the same."""
    for number in range(1029):
        name = f"Made{number}"
        kind = type(name, (OSError,), {})
        assert Failure.of(kind()).error_type.endswith(name)

    assert 1024 == names_of_class.cache_info().currsize


@given(failures)
def test_failures_are_plain_data(failure: Failure):
    """Failures are written as JSON and read back unchanged."""
    assert failure == msgspec.json.decode(msgspec.json.encode(failure), type=Failure)


def test_a_stage_may_be_a_text():
    """It is converted; what is no stage is refused, instead of being taken for one that allows a retry."""
    assert Stage.IN_FLIGHT is Failure.of(ValueError("x"), stage="in_flight").stage  # type: ignore[arg-type]
    with pytest.raises(PolicyValueError, match="stage='sent': it can be not_sent, in_flight, answered"):
        Failure.of(ValueError("x"), stage="sent")  # type: ignore[arg-type]
