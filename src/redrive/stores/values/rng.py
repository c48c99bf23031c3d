"""Random numbers for the parameters of statements that are `redrive.stores.query.DRAWN`."""

from __future__ import annotations

import random

_BITS = 53


def number() -> int:
    """Return a random number from 0 to 2**53 - 1."""
    return random.getrandbits(_BITS)
