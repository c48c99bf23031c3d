"""A background duty that waits for changes of the database and wakes the claimer.

On SQLite it polls the file, on PostgreSQL a connection listens. That connection also holds a lock, by which other
workers see that this process has died. The lock is taken before the worker registers, so that no worker is ever seen
without it. A lost connection has to be back before other workers take this one for dead: hence the short rests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from redrive.app.app import App
from redrive.clock import Clock, SystemClock
from redrive.runtime import rng
from redrive.runtime.supervision import Duty

# The longest rest after a failure, in seconds.
LONGEST = 0.4


class Notifier:
    """The duty.

    Attributes:
        lock_id: the number of the lock that is held while the store is watched; None if the store has no such locks.
        since: the instant of the monotonic clock at which it began to watch again; minus infinity if it never stopped.
    """

    def __init__(
        self,
        app: App,
        clock: Clock,
        changed: Callable[[], None],
        *,
        idle: asyncio.Event | None = None,
        again: Callable[[], bool] | None = None,
    ) -> None:
        self._idle = idle
        self._again = again
        self.lock_id: int | None = None
        self.since: float = float("-inf")
        self._app = app
        self._clock = clock
        self._changed = changed
        self._news: AsyncGenerator[None, None] | None = None
        self.duty: Duty = Duty("watching", self._step, longest=LONGEST)

    async def open(self) -> None:
        """Start to watch; when this returns the lock is held. Raise `StoreError` if the database is unreachable."""
        self.lock_id = rng.lock_number() if self._app.store.lasting else None
        self._news = self._watch()
        await anext(self._news)

    async def close(self) -> None:
        """Stop watching and release the lock."""
        if self._news is not None:
            await self._news.aclose()

    async def _step(self) -> float:
        """Wait for one change."""
        news = self._news = self._news or self._watch()
        try:
            await anext(news, None)
        except BaseException:
            self._news = None
            self.since = float("inf")
            await news.aclose()
            raise
        if self.since == float("inf"):
            self.since = SystemClock.monotonic()
        self._changed()
        return 0.0

    def _watch(self) -> AsyncGenerator[None, None]:
        return self._app.store.watch(self._clock, lock_id=self.lock_id, idle=self._idle, again=self._again)
