"""Removal of secret values from what a page shows. PURE."""

from __future__ import annotations

from redrive.engine.secrets import REDACTED, is_secret


def redacted(value: object) -> object:
    """Return a value of JSON with all secret values replaced."""
    if isinstance(value, dict):
        return {key: REDACTED if is_secret(str(key)) else redacted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [redacted(each) for each in value]
    return value
