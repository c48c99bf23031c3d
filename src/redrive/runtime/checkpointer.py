"""A background duty that truncates the write-ahead log of a SQLite file, and warns if a long transaction prevents that.

Other stores have no such log. Every worker does this: reading the size of a file costs nothing.
"""

from __future__ import annotations

from redrive.app.app import App
from redrive.clock import Clock
from redrive.observe.logs import logger
from redrive.runtime.supervision import Duty

log = logger("redrive.worker")

# Seconds between two checks.
EVERY = 10.0

# Seconds between two warnings.
WARNINGS = 60.0

MEGABYTE = 1_000_000


class Checkpointer:
    """The background duty that truncates the log; ``clock`` spaces its warnings."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._warned = float("-inf")

    @property
    def duty(self) -> Duty:
        """Check every ten seconds."""
        return Duty("emptying the log of the database", self.look, shortest=EVERY)

    async def look(self) -> float:
        """Truncate the log if it is too large, and return the seconds until the next check."""
        left = await self._app.store.trim_log()
        if left:
            self._warn(left)
        return EVERY

    def _warn(self, left: int) -> None:
        now = self._clock.monotonic()
        if now - self._warned >= WARNINGS:
            self._warned = now
            log.warning(
                "the log of the database has %d MB and grows, because some connection has had a transaction open for "
                "long: end it, such as a backup, an open cursor or a forgotten BEGIN",
                left // MEGABYTE,
            )
