"""The random numbers of the worker: samples for jitter, and the number of a database lock."""

from __future__ import annotations

import random


def sample() -> float:
    """Return a random number in [0, 1)."""
    return random.random()


def salt(bits: int) -> int:
    """Return a random number of so many bits."""
    return random.getrandbits(bits)


def lock_number() -> int:
    """Return a random positive number of 31 bits."""
    return random.randrange(1, 2**31)
