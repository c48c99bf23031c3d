"""The random numbers of the dashboard."""

from __future__ import annotations

import secrets


def salt() -> bytes:
    """Return the random part of a stored password."""
    return secrets.token_bytes(16)


def token() -> str:
    """Return a text that cannot be guessed, for a link or a session key."""
    return secrets.token_urlsafe(32)


def request_id() -> str:
    """Return the name of a request that has none."""
    return secrets.token_hex(8)
