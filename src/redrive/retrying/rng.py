"""The random number generator of calls in this process."""

from __future__ import annotations

import random

# Return a sample from [0, 1) for `Policy.decide`. (`random` seeds itself anew in a forked child.)
roll = random.random


def unique() -> str:
    """Return 32 random hexadecimal digits."""
    return f"{random.getrandbits(128):032x}"
