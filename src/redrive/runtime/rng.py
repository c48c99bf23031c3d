"""The only module that rolls dice: the sample that jitter is drawn from, and the number of a lock."""

from __future__ import annotations

import random

__all__ = ["number", "roll"]


def roll() -> float:
    """A random number in [0, 1)."""
    return random.random()


def number() -> int:
    """A positive number of 31 bits."""
    return random.randrange(1, 2**31)
