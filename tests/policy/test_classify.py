"""Tests of `redrive.policy.classify`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from datetime import UTC, datetime, timedelta

import pytest
import trio
from hypothesis import given

from redrive.errors import GiveUp, PolicyValueError
from redrive.policy import Backoff, Failure, History, Policy, Retry
from redrive.policy.classify import is_control_flow, matches, names_of, reading
from redrive.policy.failure import Lasting, qualified_name
from tests.policy.strategies import failures


class UserError(ConnectionError):
    """An error of a user."""


def group(*leaves: BaseException) -> Failure:
    """Return a group of exceptions as a failure."""
    return Failure.of(BaseExceptionGroup("several", list(leaves)))


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (OSError, ("builtins.OSError",)),
        ("OSError", ("builtins.OSError",)),
        ("httpx.ReadTimeout", ("httpx.ReadTimeout",)),
        ("TIMEOUT", ("TIMEOUT",)),
        ((ValueError, "TIMEOUT", OSError, ValueError), ("TIMEOUT", "builtins.OSError", "builtins.ValueError")),
        ([UserError], (f"{__name__}.UserError",)),
        ({"A.b.C"}, ("A.b.C",)),
        (["HTTP_404", "HTTP_1_1_REQUIRED", "HTTP_2_GOAWAY"], ("HTTP_1_1_REQUIRED", "HTTP_2_GOAWAY", "HTTP_404")),
    ],
)
def test_types_and_reasons_become_names(on: object, expected: tuple[str, ...]):
    """Exception types and reasons become sorted, unique names."""
    assert expected == names_of(on, "on")


@pytest.mark.parametrize("on", [int, "timeout", "NoSuchError", "", None, 5, (OSError, 5), [int]])
def test_values_that_name_neither_are_refused(on: object):
    """Values that name neither an exception nor a reason are refused, with the field."""
    with pytest.raises(PolicyValueError, match="^Rule.on"):
        names_of(on, "Rule.on")


def test_an_empty_selection_is_refused():
    """Empty lists of names are refused, with the remedy."""
    with pytest.raises(PolicyValueError, match="on is empty.*for no retries use attempts=1"):
        names_of((), "on")


def test_errors_of_the_iterable_are_its_own():
    """Errors of type TypeError inside a user's generator are raised unchanged."""

    def broken():
        """Go wrong half way."""
        yield OSError
        yield len(5)

    with pytest.raises(TypeError, match="has no len"):
        names_of(broken(), "on")


CONTROL_FLOW = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, concurrent.futures.CancelledError]


@pytest.mark.parametrize("kind", CONTROL_FLOW, ids=qualified_name)
def test_control_flow_is_recognized(kind: type[BaseException]):
    """Exceptions that end a program or a task are control flow, as are their subclasses and groups with them."""
    assert is_control_flow(Failure.of(kind()))
    assert is_control_flow(Failure.of(type("Own", (kind,), {})()))
    assert is_control_flow(group(ValueError(), kind()))


def test_the_cancellation_of_trio_is_recognized():
    """Trio's Cancelled is known by name."""
    caught = []

    async def cancelled():
        """Catch a cancellation and let it go on."""
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except BaseException as error:
                caught.append(error)
                raise

    trio.run(cancelled)

    assert [trio.Cancelled] == [type(error) for error in caught]
    assert is_control_flow(Failure.of(caught[0]))


@pytest.mark.parametrize("error", [ValueError(), OSError(), TimeoutError(), ExceptionGroup("several", [OSError()])])
def test_failures_are_no_control_flow(error: BaseException):
    """Ordinary exceptions are not control flow."""
    assert not is_control_flow(Failure.of(error))


def matching(on: object, failure: Failure, groups: str = "all") -> bool:
    """Return True if a failure matches the names of a user."""
    return matches(None if on is None else frozenset(names_of(on, "on")), groups, failure)


@pytest.mark.parametrize(
    "on", [None, Exception, BaseException, OSError, ConnectionError, UserError, "ERROR", (KeyError, UserError)]
)
def test_a_subclass_matches(on: object):
    """Failures match by their class, by any base class, and by their reason."""
    assert matching(on, Failure.of(UserError()))


@pytest.mark.parametrize("on", [ValueError, TimeoutError, "TIMEOUT"])
def test_another_class_does_not_match(on: object):
    """Failures do not match by a class that is not a base of their own, nor by another reason."""
    assert not matching(on, Failure.of(UserError()))


def test_other_base_exceptions_match_by_name_or_base_exception():
    """Instances of BaseException that are not an Exception match only by their own name or BaseException."""
    halt = Failure.of(type("Halt", (BaseException,), {})())

    assert not matching(None, halt)
    assert not matching(Exception, halt)
    assert matching(BaseException, halt)


def test_a_failure_without_an_exception_matches_by_reason():
    """Failures without an exception match if no name is given, or by their reason."""
    lost = Failure((), "the worker died", "WORKER_LOST")

    assert matching(None, lost)
    assert matching("WORKER_LOST", lost)
    assert not matching(Exception, lost)


@pytest.mark.parametrize(
    ("groups", "leaves", "expected"),
    [
        ("all", (ValueError(), ValueError()), True),
        ("all", (ValueError(), OSError()), False),
        ("any", (ValueError(), OSError()), True),
        ("any", (KeyError(), OSError()), False),
        ("never", (ValueError(), ValueError()), False),
    ],
)
def test_a_group_is_classified_by_its_leaves(groups: str, leaves: tuple[BaseException, ...], expected: bool):
    """Groups match according to ``groups`` and their leaves."""
    assert expected == matching(ValueError, group(*leaves), groups)


@pytest.mark.parametrize("groups", ["all", "any"])
@pytest.mark.parametrize("on", [None, Exception, BaseException])
def test_any_exception_matches_any_leaf(on: object, groups: str):
    """Groups match if any exception does."""
    assert matching(on, group(ValueError(), OSError()), groups)
    assert not matching(on, group(ValueError(), OSError()), "never")


@pytest.mark.parametrize("groups", ["all", "any", "never"])
def test_a_group_can_be_named_itself(groups: str):
    """Groups match by their own type, whatever their leaves."""
    assert matching((ExceptionGroup, KeyError), Failure.of(ExceptionGroup("several", [OSError()])), groups)


@given(failures)
def test_no_names_match_all_exceptions(failure: Failure):
    """Without names each ordinary failure matches, except a group where groups never do."""
    leaves = failure.leaves or (failure,)
    ordinary = all("builtins.Exception" in leaf.types and leaf.lasting is None for leaf in leaves)

    assert ordinary == matches(None, "all", failure)
    assert (ordinary and not failure.leaves) == matches(None, "never", failure)


DESCRIBED = Failure(("app.Answer", "builtins.Exception"), "busy", "HTTP_503")


@pytest.mark.parametrize(
    ("on", "described", "candidate"),
    [
        ("HTTP_503", DESCRIBED, True),
        (("HTTP_429", "app.Answer"), DESCRIBED, True),
        ("HTTP_429", DESCRIBED, False),
        (None, DESCRIBED, True),
        ("HTTP_503", DESCRIBED._replace(candidate=False), False),
        ("HTTP_429", DESCRIBED._replace(candidate=True), True),
        ("HTTP_503", DESCRIBED._replace(lasting=Lasting()), True),
        (("HTTP_429", "app.Answer"), DESCRIBED._replace(lasting=Lasting()), False),
        (None, DESCRIBED._replace(lasting=Lasting()), False),
    ],
)
def test_a_described_failure_is_a_candidate_by_name(on: object, described: Failure, candidate: bool):
    """Failures are retried by name, unless the description has settled it."""
    assert described._replace(candidate=candidate) == reading(lambda _: described, on)(UserError())


def test_an_undescribed_exception_is_not_retried():
    """Exceptions that the function does not describe have no description."""
    assert None is reading(lambda _: None, None)(UserError())


def test_a_classifier_has_no_names():
    """Two functions cannot both settle what is retried, and nothing but names can be named."""
    with pytest.raises(PolicyValueError, match="is a classifier already: give names"):
        reading(lambda _: None, lambda _: True)
    with pytest.raises(PolicyValueError, match="is empty"):
        reading(lambda _: None, ())


@pytest.mark.parametrize(
    ("answer", "seconds"), [(0, 0), (3, 3), (0.5, 0.5), (timedelta(minutes=2), 120), (True, 10), ("TIMEOUT", 10)]
)
def test_a_classifier_can_return_the_delay(answer: object, seconds: float):
    """Numbers and timedeltas that a classifier returns replace the backoff."""
    policy = Policy(on=lambda _: answer, deadline=None, backoff=Backoff.constant(10), jitter="none")
    now = datetime(2026, 1, 1, tzinfo=UTC)

    decision = policy.decide(History(1, now), policy.classify(UserError()), now, 0.5)

    assert isinstance(decision, Retry)
    assert timedelta(seconds=seconds) == decision.delay


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), timedelta(-1)])
def test_a_delay_that_is_none_is_refused(answer: object):
    """Delays that no call can wait for are errors of the classifier."""
    with pytest.raises(PolicyValueError, match=r"on: a classifier returned .* is not a duration"):
        Policy(on=lambda _: answer).classify(UserError())


def test_a_delay_does_not_overrule_the_function():
    """Functions that have given up are not retried, whatever delay the classifier returns."""
    policy, now = Policy(on=lambda _: 3), datetime(2026, 1, 1, tzinfo=UTC)

    assert not isinstance(policy.decide(History(1, now), policy.classify(GiveUp("over")), now, 0.5), Retry)
