"""A queue for the write lock of one file, for the threads and asyncio tasks of one process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future

from redrive.clock import SystemClock
from redrive.stores.drivers.sqlite.errors import locked
from redrive.stores.drivers.sqlite.settings import SQLiteSettings


# A connection that waits in ``BEGIN IMMEDIATE`` costs a thread, polls the lock every 100 ms, and may be overtaken
# forever. So the connections of a process wait here, first in, first out, and only the one at the head asks SQLite.
class WriteQueue:
    """A fair lock for writing.

    A wait ends with `StoreBusy` when one holder has held the lock for the busy timeout; it lasts longer while the queue
    moves.
    """

    def __init__(self, settings: SQLiteSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._held = False
        # When the present holder got the lock.
        self._since = 0.0
        # Redrive's own writer.
        self._held_by_writer = False
        self._writer: deque[Future[None]] = deque()
        self._handlers: deque[Future[None]] = deque()

    def acquire(self, *, writer: bool = False, timeout: float | None = None) -> None:
        """Wait for the lock in a thread. Raise `StoreBusy` if the holder has not released it in time."""
        ticket, begun = self._enter(writer=writer), self._clock.monotonic()
        try:
            while not ticket.done():
                left = self._left(begun, timeout)
                try:
                    ticket.result(left)
                except TimeoutError:
                    self._refuse_late(begun, timeout)
        except BaseException:
            self._withdraw(ticket)
            raise

    def try_acquire(self) -> bool:
        """Take the lock for redrive's own writer if it is free, and return whether it was."""
        with self._lock:
            if self._held:
                return False
            self._held = self._held_by_writer = True
            self._since = self._clock.monotonic()
            return True

    async def aacquire(self) -> None:
        """Wait for the lock in an asyncio task, for the transaction of a handler; see `acquire`."""
        ticket, begun = self._enter(writer=False), self._clock.monotonic()
        try:
            waiting = asyncio.wrap_future(ticket)
            while not ticket.done():
                await asyncio.wait([waiting], timeout=self._left(begun))
                if not ticket.done():
                    self._refuse_late(begun)
        except BaseException:
            self._withdraw(ticket)
            raise

    def release(self) -> None:
        """Release the lock to the next in the queue."""
        with self._lock:
            self._hand_on()

    def _enter(self, *, writer: bool) -> Future[None]:
        ticket: Future[None] = Future()
        with self._lock:
            (self._writer if writer else self._handlers).append(ticket)
            if not self._held:
                self._hand_on()
        return ticket

    def _hand_on(self) -> None:
        # redrive's own writer (heartbeats, claims, settles, enqueues) alternates with the transactions of handlers: it
        # comes next after the open transaction, however many handlers wait, and after it comes one of them.
        first, second = (self._handlers, self._writer) if self._held_by_writer else (self._writer, self._handlers)
        queue = first or second
        self._held = bool(queue)
        if queue:
            self._held_by_writer = queue is self._writer
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

    def _withdraw(self, ticket: Future[None]) -> None:
        """Leave the queue, or release the lock if the ticket got it."""
        with self._lock:
            if ticket.done():
                self._hand_on()
                return
            for queue in (self._writer, self._handlers):
                if ticket in queue:
                    queue.remove(ticket)
