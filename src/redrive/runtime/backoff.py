"""How long a duty rests while the store is away."""

from __future__ import annotations

from redrive.policy import Backoff

__all__ = ["rest"]

_RESTS = Backoff.exponential("100ms", "5s")
_LONGEST = 10
"""Failures in a row after which rests do not grow any more."""


def rest(failures: int) -> float:
    """How long to rest before the next try.

    Args:
        failures: tries in a row that have failed, at least 1.

    Returns:
        Seconds: 0.1, 0.2, 0.4 ... 5.
    """
    return _RESTS.delay(min(failures, _LONGEST)) or 0.0
