"""Sees that the database has changed, and wakes the claimer.

How it sees that is the store's business (`redrive.stores.store.Store.watch`): on SQLite somebody has to look at the
file, on PostgreSQL a connection listens. That connection also holds a lock, by which other workers see within a few
seconds that this process has died; it is held before the worker registers, so that nobody ever misses it. When the
connection is lost, it has to be back sooner than the others give the worker up: hence the short rests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from redrive.app.app import App
from redrive.clock import Clock
from redrive.runtime import rng
from redrive.runtime.supervision import Duty

__all__ = ["Notifier"]

LONGEST = 0.4
"""The longest rest after a failure, in seconds."""


class Notifier:
    """Watches a store.

    Args:
        app: whose store.
        clock: to rest by.
        changed: called when there was a change, and after every interruption in which there may have been one.
        idle: set while the worker waits for news; None: always.

    Attributes:
        lock_id: the number of the lock that is held while the store is watched; None where it has no such locks.
    """

    def __init__(self, app: App, clock: Clock, changed: Callable[[], None], idle: asyncio.Event | None = None) -> None:
        self._idle = idle
        self.lock_id: int | None = None
        self._app = app
        self._clock = clock
        self._changed = changed
        self._news: AsyncGenerator[None, None] | None = None

    async def open(self) -> None:
        """Begin to watch; when this returns the lock is held.

        Raises:
            StoreError: the store is away.
        """
        self.lock_id = rng.number() if self._app.store.lasting else None
        self._news = self._watch()
        await anext(self._news)

    async def close(self) -> None:
        """Watch no more, and let go of the lock."""
        if self._news is not None:
            await self._news.aclose()

    @property
    def duty(self) -> Duty:
        """Watch all the time."""
        return Duty("watching", self._step, longest=LONGEST)

    async def _step(self) -> float:
        """Wait for one change."""
        news = self._news = self._news or self._watch()
        try:
            await anext(news, None)
        except BaseException:
            self._news = None
            await news.aclose()
            raise
        self._changed()
        return 0.0

    def _watch(self) -> AsyncGenerator[None, None]:
        return self._app.store.watch(self._clock, lock_id=self.lock_id, idle=self._idle)
