"""Removal of secret values from what a page shows."""

from __future__ import annotations

from redrive.engine.secrets import REDACTED
from redrive.operate.shown import redacted


def test_nested_values_are_replaced():
    """Secret values are replaced at any depth, and all others stay."""
    value = {"a": [{"password": "hunter22", "n": 1}], "card": {"number": 4242424242}, "b": None}

    assert {"a": [{"password": REDACTED, "n": 1}], "card": REDACTED, "b": None} == redacted(value)
