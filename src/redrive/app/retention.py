"""How long ended jobs are kept, as users write it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from redrive.errors import ConfigurationError
from redrive.policy import parse_duration

__all__ = ["FOREVER", "keep"]

FOREVER = "forever"
"""What one writes where jobs are never deleted."""


def keep(value: Any, where: str) -> timedelta | None:  # noqa: ANN401 - a span, or "forever"
    """Read how long jobs are kept.

    Args:
        value: a ``timedelta``, seconds, text such as ``"7d"``, or ``"forever"``.
        where: the setting, for messages.

    Returns:
        The span; None for ever.

    Raises:
        ConfigurationError: it cannot be read, or is not positive.
    """
    if value == FOREVER:
        return None
    span = parse_duration(value)
    if span <= timedelta(0):
        message = f"{where} must be longer than nothing, got {value!r}; {FOREVER!r} keeps all"
        raise ConfigurationError(message)
    return span
