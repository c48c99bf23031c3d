"""Policies frozen into jobs."""

from __future__ import annotations

import base64
import json
import pickle
from unittest.mock import Mock

import msgspec
import pytest

from redrive.engine import frozen
from redrive.engine.frozen import freeze, thaw
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Policy, Rule
from tests.engine.helpers import policy

POLICIES = [
    Policy(),
    policy("5 1s catch mend"),
    policy("1 1s", idempotent=False, attempt_timeout="30s"),
    Policy(
        on=[OSError, "TIMEOUT"],
        attempts=7,
        deadline="90s",
        backoff=Backoff.linear("1s", "30s"),
        jitter="equal",
        rules=[Rule(on=[ConnectionError], attempts=2)],
    ),
]


@pytest.mark.parametrize("value", POLICIES, ids=str)
def test_a_policy_survives_freezing(value: Policy):
    """Thawing a frozen policy returns an equal one."""
    assert value == thaw(freeze(value).document)


@pytest.mark.parametrize("value", POLICIES, ids=str)
def test_the_digest_is_that_of_the_document(value: Policy):
    """Digests are 96 bits in base64, and a thawed policy freezes to the same text and digest."""
    frozen = freeze(value)
    again = freeze(thaw(frozen.document))

    assert (frozen.document, frozen.digest) == (again.document, again.digest)
    assert 16 == len(frozen.digest)
    assert 12 == len(base64.urlsafe_b64decode(frozen.digest))


def test_equal_policies_share_their_digest():
    """Two policies that were built apart but are equal have one digest, so a store keeps them once."""
    assert freeze(Policy.parse("5 1s 1m")).digest == freeze(Policy.parse("5 1000ms 60s")).digest


def test_different_policies_differ_in_their_digests():
    """Policies that differ in one field have different digests."""
    digests = {freeze(value).digest for value in POLICIES}

    assert len(POLICIES) == len(digests)


def test_the_keys_of_a_document_are_sorted():
    """Texts of policies do not depend on the order in which their fields were written."""
    document = freeze(POLICIES[-1]).document

    assert json.dumps(json.loads(document), sort_keys=True, separators=(",", ":")) == document


def test_functions_are_not_frozen():
    """Policies are encoded without their predicates and hooks, which the policy itself keeps."""
    whole = Policy(on=ValueError, on_result=bool, on_retry=print, on_give_up=print)

    assert Policy(on=ValueError) == thaw(freeze(whole).document)
    assert Policy() == thaw(freeze(Policy(on=len)).document)
    assert Policy(on="RESULT") == thaw(freeze(Policy(on=(), on_result=bool)).document)
    assert whole == freeze(whole).policy
    assert whole == thaw(freeze(whole).document).with_functions(whole)


def test_functions_are_not_pickled():
    """A frozen policy is pickled as it is stored, whatever its functions are."""
    whole = freeze(policy("5 1s", on=lambda error: isinstance(error, OSError), on_retry=lambda details: None))
    again = pickle.loads(pickle.dumps(whole))

    assert (whole.document, whole.digest) == (again.document, again.digest)
    assert whole.policy.without_functions() == again.policy


def test_functions_of_combinations_are_not_frozen():
    """The parts of a combination are encoded without functions and completed one by one."""
    whole = Policy(on_result=bool, attempts=2) >> Policy(on=OSError, on_retry=print)
    stored = thaw(freeze(whole).document)

    assert Policy(attempts=2) >> Policy(on=OSError) == stored
    assert whole == stored.with_functions(whole)
    assert stored == stored.with_functions(Policy(on_retry=print))
    assert Policy() == Policy().with_functions(whole)
    assert stored == stored.without_functions()


def test_an_object_without_a_key_cannot_be_frozen():
    """Policies with a budget that has no key cannot be encoded, and the error names the field."""
    with pytest.raises(PolicyValueError, match="budget"):
        freeze(Policy(on=ValueError, budget=object()))


@pytest.mark.parametrize("document", ["{}", '{"version": 99}', "[]"])
def test_a_text_that_is_no_policy_is_refused(document: str):
    """JSON that is not that of a policy of a known version is refused."""
    with pytest.raises(PolicyValueError):
        thaw(document)


def test_a_text_that_is_no_json_is_refused():
    """Text that is not JSON is refused."""
    with pytest.raises(msgspec.DecodeError):
        thaw("{")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_exceptions_that_end_the_process_are_raised_while_reading_a_policy(error, monkeypatch: pytest.MonkeyPatch):
    """MemoryError and KeyboardInterrupt while reading a policy are raised; the policy is not reported as unreadable."""
    monkeypatch.setattr(frozen, "thaw", Mock(side_effect=error))

    with pytest.raises(error):
        frozen.read("{}")
