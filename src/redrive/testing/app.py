"""A clock that advances instead of sleeping, and an app of a program under test on it and on another database."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from redrive.app.app import App
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


# What an App has of its database and its time; all other attributes describe the code.
_EXCHANGED = ("url", "clock", "_store", "_uid")


@contextmanager
def using_app(app: App, *, url: str = "memory://", clock: VirtualClock | None = None) -> Iterator[VirtualClock]:
    """Give an app an empty database in memory and a virtual clock inside a ``with`` block, and restore both after it.

    For an app of a module, such as the one that workers import: its tasks stay as they are, and its own database is
    neither opened nor closed nor written. Works in async tests, too. The change applies to the whole process, so tests
    that run in parallel threads cannot share an app. Calls that are retried in process keep their clock; see `using`.

    Args:
        app: the app; blocks for the same app may be nested.
        url: another database, such as one for tests on PostgreSQL. A database that is not in memory keeps its jobs.
        clock: the clock, if the time of its start matters.

    Returns:
        The clock, as the value of ``with ... as clock``.

    Raises:
        TypeError: ``app`` is not an App.
    """
    if not isinstance(app, App):
        raise TypeError(
            f"using_app() takes the App of the program, got {app!r}: import it, as in `from shop import app`"
        )
    present = clock or VirtualClock()
    before = {name: getattr(app, name) for name in _EXCHANGED}
    _set(app, {"url": url, "clock": present, "_store": None, "_uid": None})
    try:
        yield present
    finally:
        try:
            app.close()
        finally:
            _set(app, before)


def _set(app: App, values: dict[str, object]) -> None:
    for name, value in values.items():
        setattr(app, name, value)
