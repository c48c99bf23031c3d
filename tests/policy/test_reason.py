"""Tests of `redrive.policy.reason`."""

from __future__ import annotations

import pytest

from redrive.errors import PolicyValueError
from redrive.policy import Policy, Reason, Rule
from redrive.policy.reason import GRPC_REASONS, is_reason_name


@pytest.mark.parametrize(
    ("name", "repeat", "always"),
    [
        ("ERROR", False, False),
        ("TIMEOUT", False, False),
        ("UNKNOWN", False, False),
        ("SOCKET_CLOSED_WHILE_IN_FLIGHT", False, False),
        ("KV_LOCKED", True, False),
        ("CIRCUIT_BREAKER_OPEN", True, False),
        ("KV_NOT_MY_VBUCKET", True, True),
        ("VIEWS_NO_ACTIVE_PARTITION", True, True),
    ],
)
def test_reasons_have_their_flags(name: str, repeat: bool, always: bool):
    """Reasons of redrive and of RFC 0049 have the flags of its table."""
    assert Reason(name, repeat, always) == Reason.of(name)


def test_an_unknown_reason_has_conservative_flags():
    """Names that are not registered allow no repetition."""
    assert Reason("SOMETHING_ELSE", allows_non_idempotent_retry=False, always_retry=False) == Reason.of(
        "SOMETHING_ELSE"
    )


def test_reasons_can_be_added():
    """Registered reasons are known afterwards; always_retry includes the other flag."""
    Reason.register("TEST_ADDED", always_retry=True)

    assert Reason("TEST_ADDED", allows_non_idempotent_retry=True, always_retry=True) == Reason.of("TEST_ADDED")


def test_a_reason_can_be_registered_twice_if_it_is_the_same():
    """Registering twice is fine with the same flags and refused with others."""
    first = Reason.register("TEST_TWICE", allows_non_idempotent_retry=True)

    assert first == Reason.register("TEST_TWICE", allows_non_idempotent_retry=True)
    with pytest.raises(PolicyValueError, match="TEST_TWICE is already registered with other flags"):
        Reason.register("TEST_TWICE")


@pytest.mark.parametrize("name", ["", "timeout", "Time", "A-B", "A.B", "1A", "_A", "ÄRGER"])
def test_other_forms_are_no_names(name: str):
    """Names of reasons have upper-case letters, digits and underscores, and start with a letter."""
    assert not is_reason_name(name)
    with pytest.raises(PolicyValueError, match="is not the name of a reason"):
        Reason.register(name)


@pytest.mark.parametrize("name", ["A", "TIMEOUT", "HTTP_503"])
def test_the_form_of_names(name: str):
    """Letters, digits and underscores make a name."""
    assert is_reason_name(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("GRPC_UNAVAILBLE", "GRPC_UNAVAILABLE"),
        ("GRPC_DEADLINE", "GRPC_DEADLINE_EXCEEDED"),
        ("GRPC_", "GRPC_UNAVAILABLE"),
    ],
)
def test_names_of_grpc_that_no_failure_has_are_refused(name: str, near: str):
    """A misspelt code, and OK, which is no failure, are errors that name a code."""
    with pytest.raises(PolicyValueError, match=f"on: {name} names no failure of gRPC: .* such as {near}$"):
        Policy(on=name)
    with pytest.raises(PolicyValueError, match=f"{name} names no failure of gRPC"):
        Rule(name)


def test_reasons_of_grpc_are_accepted():
    """Each code of a failure, and each registered reason, can be named."""
    mine = Reason.register("GRPC_OF_THIS_TEST").name

    assert {mine, *GRPC_REASONS} == set(Policy(on=(mine, *GRPC_REASONS)).on or ())
