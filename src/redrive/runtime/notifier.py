"""Sees that the database has changed, and wakes the claimer.

On SQLite the only news that crosses processes is the file itself: ``PRAGMA data_version`` differs when any connection
has committed. Looking costs microseconds, so it looks two hundred times a second: an idle worker spends 2 or 3 % of a
core on it, and a job is picked up after 5 ms at the median (DESIGN, Cost).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from redrive.app.app import App
from redrive.clock import Clock
from redrive.errors import StoreError
from redrive.runtime.rests import rest

__all__ = ["Notifier"]

log = logging.getLogger("redrive.worker")

EVERY = 0.005
"""Seconds between two looks."""


class Notifier:
    """Watches the version of a store.

    Args:
        app: whose store.
        clock: to rest by.
        changed: called when there was a change.
    """

    def __init__(self, app: App, clock: Clock, changed: Callable[[], None]) -> None:
        self._app = app
        self._clock = clock
        self._changed = changed

    async def run(self) -> None:
        """Watch until cancelled."""
        seen, failures = -1, 0
        while True:
            try:
                version = self._app.store.version()
            except StoreError as error:
                failures += 1
                log.warning("watching waits: %s", error)
            else:
                failures = 0
                if version != seen:
                    seen = version
                    self._changed()
            await self._clock.asleep(rest(failures) if failures else EVERY)
