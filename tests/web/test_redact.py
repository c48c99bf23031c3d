"""Removal of secret values."""

from __future__ import annotations

import pytest

from redrive.web.redact import REDACTED, decoded, is_secret, redacted, secrets_of, texts_of, without


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "Passwd",
        "api_key",
        "apiKey",
        "X-Auth-Token",
        "client_secret",
        "card",
        "cardNumber",
        "cvv",
        "iban",
        "Cookie",
    ],
)
def test_secret_keys_are_found(key: str):
    """Separators and case do not matter."""
    assert is_secret(key)


@pytest.mark.parametrize("key", ["order", "cardinal", "discard", "pinned", "keyboard", "passage", "name", "panel"])
def test_other_keys_are_not(key: str):
    """Words that only contain a part of a secret word stay."""
    assert not is_secret(key)


def test_nested_values_are_replaced():
    """Secret values are replaced at any depth, and all others stay."""
    value = {"a": [{"password": "hunter22", "n": 1}], "card": {"number": 4242424242}, "b": None}

    assert {"a": [{"password": REDACTED, "n": 1}], "card": REDACTED, "b": None} == redacted(value)
    assert {"hunter22", "4242424242"} == secrets_of(value)


def test_secret_values_are_removed_from_texts():
    """Error texts that repeat an argument show it as little as the argument itself."""
    text = without("login of ann with hunter22 and hunter2244 failed", {"hunter22", "hunter2244"})

    assert f"login of ann with {REDACTED} and {REDACTED} failed" == text


def test_short_and_logical_values_stay_in_texts():
    """Values of three letters stay: they would be removed from words by chance."""
    assert frozenset() == secrets_of({"password": "abc", "token": True, "secret": None})


def test_hidden_sites_remove_all_texts():
    """All texts and numbers of the arguments count as secret."""
    assert {"order", "12345"} == texts_of({"a": "order", "b": [12345, {"c": "no"}]})


@pytest.mark.parametrize(
    ("raw", "value"), [(None, None), (b"", None), (b"[1]", [1]), (b"\xff", "\N{REPLACEMENT CHARACTER}"), (b"{", "{")]
)
def test_documents_are_decoded(raw: bytes | None, value: object):
    """Values that are no JSON are shown as text."""
    assert value == decoded(raw)
