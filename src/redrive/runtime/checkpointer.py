"""Keeps the log of a database file small, and warns where a long transaction prevents that.

Only SQLite in a file has such a log (`redrive.stores.drivers.sqlite.log`); for other stores there is nothing to do.
Every worker looks: the size of a file costs nothing, and what one worker has emptied is small for the next one.
"""

from __future__ import annotations

from redrive.app.app import App
from redrive.clock import Clock
from redrive.observe.logs import logger
from redrive.runtime.supervision import Duty

__all__ = ["Checkpointer"]

log = logger("redrive.worker")

EVERY = 10.0
"""Seconds between two looks."""

WARNINGS = 60.0
"""Seconds between two warnings."""

MEGABYTE = 1_000_000


class Checkpointer:
    """Empties a log that is too large.

    Args:
        app: whose store.
        clock: says when a warning is to be repeated.
    """

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._warned = float("-inf")

    @property
    def duty(self) -> Duty:
        """Look every ten seconds."""
        return Duty("emptying the log of the database", self.look, shortest=EVERY)

    async def look(self) -> float:
        """Empty the log if it is too large.

        Returns:
            Seconds until the next look.

        Raises:
            StoreError: the database refused.
        """
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
