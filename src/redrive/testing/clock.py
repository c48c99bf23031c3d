"""A clock for tests that advances instead of sleeping."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from redrive.clock import in_trio
from redrive.policy import parse_duration


class VirtualClock:
    """A clock that advances only by `advance`, or by its own `sleep`; raise `ValueError` if ``start`` is not aware."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if not isinstance(start, datetime) or start.tzinfo is None:
            raise ValueError(f"a clock needs an aware instant, got {start!r}")
        self._start = start.astimezone(UTC)
        self._now = self._start

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds since the start."""
        return (self._now - self._start).total_seconds()

    def advance(self, by: timedelta | float | str) -> datetime:
        """Advance the clock by a ``timedelta``, seconds, or text such as ``"5m"``, and return the new instant.

        Raise `PolicyError` if the span cannot be read or is negative.
        """
        self._now += parse_duration(by)
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance by this many seconds."""
        self.advance(max(0.0, seconds))

    async def asleep(self, seconds: float) -> None:
        """Advance by this many seconds after other tasks have run; under asyncio or trio."""
        if in_trio():
            await sys.modules["trio"].lowlevel.checkpoint()
        else:
            await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets other tasks run
        self.advance(max(0.0, seconds))
