"""The random numbers of statements: where a parameter is `redrive.stores.query.DRAWN`, a driver sends one of these."""

from __future__ import annotations

import random

__all__ = ["number"]

_BITS = 53


def number() -> int:
    """Return a random number from 0 to 2**53 - 1."""
    return random.getrandbits(_BITS)
