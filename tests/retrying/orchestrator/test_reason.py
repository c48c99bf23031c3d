"""The reasons of RFC 0049, and how they are read."""

from __future__ import annotations

import pytest

from redrive.errors import PolicyValueError
from redrive.orchestrator import TERMINAL, RetryReason
from redrive.orchestrator.reason import _RFC_0049
from redrive.policy import Reason

ALWAYS = {"KV_NOT_MY_VBUCKET", "KV_COLLECTION_OUTDATED", "VIEWS_NO_ACTIVE_PARTITION"}
CAREFUL = {"UNKNOWN", "SOCKET_CLOSED_WHILE_IN_FLIGHT"}


def test_a_send_that_failed_may_have_left():
    """Requests that failed with HTTP_SEND_REQUEST_FAILED are repeated only if they are idempotent."""
    assert RetryReason("HTTP_SEND_REQUEST_FAILED") == RetryReason.parse("HttpSendRequestFailed")


def test_all_twenty_reasons_of_the_rfc_exist():
    """RFC 0049 has twenty reasons, and each is an attribute."""
    assert 20 == len(_RFC_0049)
    assert _RFC_0049 == tuple(getattr(RetryReason, name).name for name in _RFC_0049)


@pytest.mark.parametrize("name", _RFC_0049)
def test_flags(name):
    """Three reasons are always retried, two allow nothing that is not idempotent, the others are in between."""
    assert RetryReason(name, name not in CAREFUL, name in ALWAYS) == getattr(RetryReason, name)


def test_a_reason_equals_that_of_the_policy():
    """Reasons of the orchestrator and of policies are the same values."""
    assert Reason.of("KV_LOCKED") == RetryReason.KV_LOCKED
    assert {Reason.of("KV_LOCKED")} == {RetryReason.KV_LOCKED}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CHANNEL_CLOSED_WHILE_IN_FLIGHT", "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
        ("ENDPOINT_CIRCUIT_OPEN", "CIRCUIT_BREAKER_OPEN"),
        ("ENDPOINT_TEMPORARILY_NOT_AVAILABLE", "ENDPOINT_TEMPORARILY_NOT_AVAILABLE"),
        ("KV_ERROR_MAP_INDICATED", "KV_ERROR_MAP_RETRY_INDICATED"),
        ("QUERY_TRANSACTION_BUFFER_FULL", "QUERY_TRANSACTION_BUFFER_FULL"),
    ],
)
def test_the_names_of_the_jvm_sdk_are_read(text, name):
    """The names of the JVM SDK that differ from those of the RFC are read."""
    assert name == RetryReason.parse(text).name


@pytest.mark.parametrize("text", ["KV_LOCKED", "kv_locked", "KvLocked", "key_value_locked", "KeyValueLocked"])
def test_all_spellings_are_read(text):
    """All five spellings of the SDKs are read."""
    assert RetryReason.KV_LOCKED is not RetryReason.parse(text)
    assert RetryReason.KV_LOCKED == RetryReason.parse(text)


@pytest.mark.parametrize("name", [*_RFC_0049, *TERMINAL])
def test_each_reason_is_read_from_each_case(name):
    """Upper case, lower case and camel case lead to the same reason, for all that are known."""
    camel = name.title().replace("_", "")
    assert [name] * 3 == [RetryReason.parse(text).name for text in (name, name.lower(), camel)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("KvNotMyVBucket", "KV_NOT_MY_VBUCKET"),
        ("KV_SYNC_RE_COMMIT_IN_PROGRESS", "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"),
        ("KV_SYNC_WRITE_RECOMMIT_IN_PROGRESS", "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"),
        ("KV_ERROR_MAP_INDICATED", "KV_ERROR_MAP_RETRY_INDICATED"),
        ("socket_close_in_flight", "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
        ("something_new", "UNKNOWN"),
        ("", "UNKNOWN"),
    ],
)
def test_other_names_are_read(text, name):
    """Other words for the same reason are known; what is none is unknown."""
    assert name == RetryReason.parse(text).name


def test_reasons_can_be_added():
    """Registered reasons are read like the others and have their flags; other flags for the same name are refused."""
    added = RetryReason.register("TEST_SHARD_MOVED", always_retry=True)
    assert (added, True) == (RetryReason.parse("TestShardMoved"), added.allows_non_idempotent_retry)
    with pytest.raises(PolicyValueError, match="TEST_SHARD_MOVED"):
        RetryReason.register("TEST_SHARD_MOVED")


def test_a_reason_that_others_have_registered_is_read():
    """Exact names are found in the registry of policies."""
    added = Reason.register("TEST_OF_OTHERS", allows_non_idempotent_retry=True)
    assert added == RetryReason.parse("TEST_OF_OTHERS")
