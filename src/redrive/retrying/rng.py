"""The random numbers of calls in this process.

They come from `random`, which seeds itself anew in a forked child. It is loaded at the first failure, so that a program
that only decorates functions starts sooner.
"""

from __future__ import annotations


def roll() -> float:
    """Return a sample from [0, 1) for `Policy.decide`; 0.0 when the interpreter ends and loads nothing any more."""
    try:
        import random
    except ImportError:
        return 0.0
    # Read from the module, it costs the next failures nothing.
    globals()["roll"] = random.random
    return random.random()


def unique() -> str:
    """Return 32 random hexadecimal digits."""
    import random

    return f"{random.getrandbits(128):032x}"
