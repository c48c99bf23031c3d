"""The only module that rolls dice: the sample that jitter is drawn from."""

from __future__ import annotations

import random

__all__ = ["roll"]


def roll() -> float:
    """A random number in [0, 1)."""
    return random.random()
