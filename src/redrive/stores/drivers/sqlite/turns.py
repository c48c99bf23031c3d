"""Turns at writing to one file, for the threads and asyncio tasks of one process.

SQLite lets one connection write at a time. A connection that waits for another one in ``BEGIN IMMEDIATE`` costs a
thread, looks at the lock again every 100 ms, and may be overtaken for ever. So the connections of a process wait here
instead, in the order in which they asked, and only the one whose turn it is asks SQLite.

redrive's own writer (heartbeats, claims, settles, enqueues) takes turns with the lent transactions: it comes next after
the transaction that is open now, however many handlers wait, and after it comes one of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future

from redrive.clock import SystemClock
from redrive.stores.drivers.sqlite.errors import locked
from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["Turns"]


class Turns:
    """A fair lock for writing.

    Waiting ends with `StoreBusy` when the same holder has had its turn for the busy timeout. It lasts longer as long as
    the queue moves.

    Args:
        settings: which database.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._held = False
        self._since = 0.0
        """When the present holder got its turn."""
        self._own_before = False
        """The present holder is redrive's own writer."""
        self._own: deque[Future[None]] = deque()
        self._lent: deque[Future[None]] = deque()

    def take(self, *, own: bool = False, timeout: float | None = None) -> None:
        """Wait in a thread for the turn.

        Args:
            own: ask for redrive's own writer.
            timeout: the longest wait in seconds; None means the busy timeout.

        Raises:
            StoreBusy: the holder has not ended its turn in time.
        """
        asked, begun = self._ask(own=own), self._clock.monotonic()
        try:
            while not asked.done():
                left = self._left(begun, timeout)
                try:
                    asked.result(left)
                except TimeoutError:
                    self._refuse_late(begun, timeout)
        except BaseException:
            self._withdraw(asked)
            raise

    async def atake(self) -> None:
        """Wait in an asyncio task for the turn of a lent transaction; see `take`."""
        asked, begun = self._ask(own=False), self._clock.monotonic()
        try:
            waiting = asyncio.wrap_future(asked)
            while not asked.done():
                await asyncio.wait([waiting], timeout=self._left(begun))
                if not asked.done():
                    self._refuse_late(begun)
        except BaseException:
            self._withdraw(asked)
            raise

    def release(self) -> None:
        """End the turn; the next one in the queue gets it."""
        with self._lock:
            self._hand_on()

    def _ask(self, *, own: bool) -> Future[None]:
        asked: Future[None] = Future()
        with self._lock:
            (self._own if own else self._lent).append(asked)
            if not self._held:
                self._hand_on()
        return asked

    def _hand_on(self) -> None:
        first, second = (self._lent, self._own) if self._own_before else (self._own, self._lent)
        queue = first or second
        self._held = bool(queue)
        if queue:
            self._own_before = queue is self._own
            self._since = self._clock.monotonic()
            queue.popleft().set_result(None)

    def _left(self, begun: float, timeout: float | None = None) -> float:
        """Return the seconds until the wait is too long."""
        if timeout is not None:
            return begun + timeout - self._clock.monotonic()
        patience = self._settings.busy_timeout.total_seconds()
        return max(begun, self._since) + patience - self._clock.monotonic()

    def _refuse_late(self, begun: float, timeout: float | None = None) -> None:
        if self._left(begun, timeout) <= 0:
            raise locked(self._settings)

    def _withdraw(self, asked: Future[None]) -> None:
        """Leave the queue, or end the turn if it has come meanwhile."""
        with self._lock:
            if asked.done():
                self._hand_on()
                return
            for queue in (self._own, self._lent):
                if asked in queue:
                    queue.remove(asked)
