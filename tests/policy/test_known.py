"""Tests of `redrive.policy.known`."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import httpx
import pytest
from redis import exceptions as redis

from redrive.errors import GiveUp, RetryAfter
from redrive.policy import Backoff, Failure, History, Policy, Retry, Rule, Stage
from redrive.policy import GiveUp as GaveUp
from redrive.policy.failure import Lasting
from redrive.policy.known import describe, reader_of
from redrive.seams import FAILURE_READERS, Seam
from tests.policy.test_hints import NOW

WRONG, LOADING = redis.ResponseError("WRONGTYPE key"), redis.BusyLoadingError("Redis is loading")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error with a cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("name", FAILURE_READERS)
def test_every_library_has_a_reader(name: str):
    """Each reader exists, and describes nothing of another library."""
    assert FAILURE_READERS[name]()(ValueError("mine")) is None


def test_a_class_has_the_reader_of_its_library():
    """A subclass of a library's exception belongs to the library, other classes to none."""
    mine = type("Mine", (redis.RedisError,), {"__module__": "shop"})

    assert reader_of(mine) is reader_of(redis.RedisError) is FAILURE_READERS["redis"]()
    assert reader_of(ValueError) is None


def test_a_missing_library_has_no_reader():
    """A module of the program may have the name of a library that is not installed."""
    kind = type("Mine", (Exception,), {"__module__": "nolib.errors"})
    with patch.dict(FAILURE_READERS, {"nolib": Seam("redrive.no_module:failure_of")}):
        assert reader_of(kind) is None


@pytest.mark.parametrize(
    ("error", "reason", "lasting"),
    [
        (WRONG, "REDIS_WRONGTYPE", Lasting()),
        (LOADING, "REDIS_LOADING", None),
        (caused(ValueError("mine"), WRONG), "REDIS_WRONGTYPE", Lasting()),
        (caused(ValueError("mine"), caused(KeyError("mine"), WRONG)), "REDIS_WRONGTYPE", Lasting()),
        (caused(redis.DataError("no failure of the server"), LOADING), "REDIS_LOADING", None),
        (ValueError("mine"), "ERROR", None),
        (caused(ValueError("mine"), KeyError("mine")), "ERROR", None),
        (caused(WRONG.__class__("WRONGTYPE"), GiveUp("enough")), "GAVE_UP", None),
        (caused(WRONG.__class__("WRONGTYPE"), RetryAfter(5)), "RETRY_AFTER", None),
    ],
)
def test_an_exception_has_what_its_library_says(error: BaseException, reason: str, lasting: Lasting | None):
    """The reason and the verdict are those of the first known exception in the chain; a signal comes first."""
    found, plain = describe(error), Failure.of(error)

    assert (reason, lasting) == (found.reason, found.lasting)
    assert (plain.types, plain.message, plain.permanent) == (found.types, found.message, found.permanent)


def test_what_is_given_is_kept():
    """A reason and a stage that are given, and the longer hint, stay."""
    error = caused(ValueError("mine"), redis.ConnectionError("lost"))
    error.retry_after = 9  # type: ignore[attr-defined]
    found = describe(error, reason="MINE", stage=Stage.NOT_SENT)

    assert ("MINE", Stage.NOT_SENT, timedelta(seconds=9)) == (found.reason, found.stage, found.hint)
    assert Stage.IN_FLIGHT is describe(error).stage


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (caused(TimeoutError("late"), httpx.ConnectError("refused")), Stage.IN_FLIGHT),
        (caused(ValueError("mine"), caused(ConnectionResetError(), httpx.ConnectError("refused"))), Stage.IN_FLIGHT),
        (caused(ValueError("mine"), httpx.ConnectError("refused")), Stage.NOT_SENT),
        (caused(httpx.ConnectError("refused"), TimeoutError("inside of the library")), Stage.NOT_SENT),
        (caused(httpx.ReadError("lost"), KeyError()), Stage.IN_FLIGHT),
    ],
)
def test_a_cause_does_not_take_back_what_was_in_flight(error: BaseException, stage: Stage):
    """What the exceptions around a known cause prove stays; what the library has inside of its own is its business."""
    assert stage is describe(error).stage
    assert Stage.NOT_SENT is describe(error, stage=Stage.NOT_SENT).stage


def test_a_group_is_described_by_its_leaves():
    """The leaves of a group are described, too."""
    found = describe(ExceptionGroup("several", [WRONG, ExceptionGroup("more", [LOADING])]))

    assert ["REDIS_WRONGTYPE", "REDIS_LOADING"] == [leaf.reason for leaf in found.leaves]


def test_a_reader_that_raises_is_not_heard():
    """An exception that an integration cannot read is an ordinary one."""
    broken = type("Broken", (Exception,), {"__module__": "broken"})("x")

    def read(_: BaseException) -> Failure | None:
        raise RuntimeError

    with patch.dict(FAILURE_READERS, {"broken": lambda: read}):
        assert Failure.of(broken) == describe(broken)


def test_a_circle_of_causes_ends():
    """Causes may form a circle."""
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first

    assert "ERROR" == describe(first).reason


# ------------------------------------------------------------------------------------------------------- its decisions


def decided(failure: Failure, **fields: object) -> tuple[str, str]:
    """Return the kind of a decision and its rule."""
    policy = Policy(attempts=2, backoff=Backoff.constant(1), **fields)  # type: ignore[arg-type]
    decision = policy.durable().decide(History(1, NOW), failure, NOW, 0.0)
    assert isinstance(decision, Retry | GaveUp)
    return type(decision).__name__, decision.rule


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("GiveUp", "not_matched")),
        ({"rules": [Rule(redis.ResponseError)]}, ("GiveUp", "not_matched")),
        ({"rules": [Rule("REDIS_WRONGTYPE")]}, ("Retry", "rule 1 (REDIS_WRONGTYPE)")),
        ({"on": "REDIS_WRONGTYPE"}, ("Retry", "backoff")),
        ({"on": redis.ResponseError}, ("Retry", "backoff")),
        ({"on": Exception}, ("Retry", "backoff")),
        ({"on": OSError}, ("GiveUp", "not_matched")),
        ({"on": OSError, "rules": [Rule("REDIS_WRONGTYPE")]}, ("GiveUp", "not_matched")),
    ],
)
def test_a_lasting_failure_is_retried_if_it_is_named(fields: dict[str, object], expected: tuple[str, str]):
    """A policy without names leaves a lasting failure, unless a rule names its reason; one that names it retries it."""
    assert expected == decided(describe(WRONG), **fields)


@pytest.mark.parametrize(("idempotent", "expected"), [(True, "backoff"), (False, "not_idempotent")])
def test_a_named_failure_has_the_stage_of_its_verdict(idempotent: bool, expected: str):
    """A lasting failure whose repetition may have an effect needs a policy that allows repetitions."""
    failure = Failure.of(WRONG)._replace(lasting=Lasting(stage=Stage.IN_FLIGHT))

    assert expected == decided(failure, on=redis.ResponseError, idempotent=idempotent)[1]


def test_a_refusal_says_why():
    """A refusal has the sentence of a verdict, also of a leaf, or the reason of the failure."""
    policy, history = Policy(), History(1, NOW)
    told = Failure.of(WRONG)._replace(lasting=Lasting("ask another server"))
    group = Failure.of(ExceptionGroup("several", [WRONG]))._replace(leaves=(told,))
    reasons = [policy.decide(history, each, NOW, 0.0) for each in (told, group, describe(WRONG))]

    assert "ask another server" == getattr(reasons[0], "why", "") == getattr(reasons[1], "why", "")
    assert getattr(reasons[2], "why", "").startswith("REDIS_WRONGTYPE (redis.exceptions.ResponseError) is not one of")
