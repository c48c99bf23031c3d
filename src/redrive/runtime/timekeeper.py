"""Two background duties for databases that are files: SQLite and Turso.

The time of such a database goes on when the clock of the machine is set; when the change has lasted, the database
follows it (`redrive.engine.anchor`). The state is in the database, so any worker may detect the change first.
"""

from __future__ import annotations

from datetime import timedelta

from redrive.app.app import App
from redrive.clock import Clock
from redrive.engine.anchor import HOLD, TOLERANCE
from redrive.runtime import log
from redrive.runtime.supervision import Duty
from redrive.stores.operations.clock import keep

# Seconds between two comparisons.
LOOK = 5.0

_NEARLY = timedelta(microseconds=TOLERANCE)
_NONE = timedelta(0)


class Timekeeper:
    """The background duty that detects changes of the clock."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known = _NONE
        self.duty: Duty = Duty("checking the clock", self.look, shortest=LOOK)

    async def look(self) -> float:
        """Compare the clock of this machine with the time of the database; return the seconds until the next time."""
        if not self._app.store.local or self._app.now() is not None:
            return LOOK
        kept = await self._app.store.arun(keep())
        if kept.followed:
            log.warning("the clock was set, and that has lasted: the database follows it by %s", _signed(kept.followed))
        elif kept.difference and abs(kept.difference - self._known) > _NEARLY:
            log.warning(
                "the clock of this machine was set by %s; the database goes on without it, and follows if that lasts "
                "for %d minutes",
                _signed(kept.difference),
                HOLD // 60_000_000,
            )
        elif self._known and not kept.difference:
            log.warning("the clock of this machine was set right again")
        self._known = kept.difference
        return LOOK


def _signed(span: timedelta) -> str:
    return f"{span.total_seconds():+.3f} s"


# Seconds between two checks.
EVERY = 10.0

# Seconds between two warnings.
WARNINGS = 60.0

MEGABYTE = 1_000_000


class Checkpointer:
    """The background duty that truncates the write-ahead log; ``clock`` spaces its warnings."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._warned = float("-inf")
        self.duty: Duty = Duty("emptying the log of the database", self.look, shortest=EVERY)

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
