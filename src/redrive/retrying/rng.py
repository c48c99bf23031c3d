"""The dice of calls in this process: the sample for jitter, and names that are unlike any other."""

from __future__ import annotations

import random

__all__ = ["roll", "unique"]

roll = random.random
"""A sample from [0, 1) for `Policy.decide`. (`random` seeds itself anew in a forked child.)"""


def unique() -> str:
    """32 hexadecimal digits that nobody else has."""
    return f"{random.getrandbits(128):032x}"
