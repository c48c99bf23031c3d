"""A background duty that detects that the clock of this machine was set.

It matters to databases that read this clock, which are SQLite and Turso. The time of the database goes on without the
step; when the change has lasted, the database follows it (`redrive.engine.anchor`). The state is in the database, so
any worker may detect the change first.
"""

from __future__ import annotations

from datetime import timedelta

from redrive.app.app import App
from redrive.engine.anchor import HOLD, TOLERANCE
from redrive.observe.logs import logger
from redrive.runtime.supervision import Duty
from redrive.stores.operations.clock import keep

log = logger("redrive.worker")

# Seconds between two comparisons.
LOOK = 5.0

_NEARLY = timedelta(microseconds=TOLERANCE)
_NONE = timedelta(0)


class Timekeeper:
    """The background duty that detects changes of the clock."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known = _NONE

    @property
    def duty(self) -> Duty:
        """Compare every five seconds."""
        return Duty("checking the clock", self.look, shortest=LOOK)

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
