"""Threads that own a connection and run the operations of a queue, several in one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from redrive.errors import StoreBusy, StoreClosed
from redrive.stores.drivers.sqlite.connection import DatabaseFile, PausableConnection, drive, savepoint
from redrive.stores.drivers.sqlite.errors import translated, translation
from redrive.stores.drivers.sqlite.external import advance_ids
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.drivers.sqlite.write_queue import WriteQueue
from redrive.stores.query import Operation, R, Statements

# Operations that share one transaction, at most.
GROUP = 256


class ConnectionThread(PausableConnection):
    """A thread with a connection that runs the operations of a queue.

    Attributes:
        commits: number of transactions of this thread that changed something.
    """

    def __init__(
        self,
        settings: SQLiteSettings,
        connection: sqlite3.Connection,
        kind: str,
        *,
        write_queue: WriteQueue,
        file: DatabaseFile,
        connect: Callable[[], sqlite3.Connection],
        size: int = GROUP,
    ) -> None:
        self.commits = 0
        self._size = size
        self._write_queue = write_queue
        self._file = file
        self._settings = settings
        super().__init__(connection, connect)
        # The thread of a caller that runs an operation itself.
        self._user: int | None = None
        self._queue: queue.SimpleQueue[Sequence[QueuedItem]] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"redrive-{kind}", daemon=True)
        self._thread.start()

    # To hand an operation to the thread and its result back costs as much as a small transaction.
    def run(self, operation: Operation[R]) -> R:
        """Run an operation, in the thread of the caller if the connection and the lock of the file are free."""
        if not self._enter(writes=operation.writes):
            return self.submit(operation).result()
        item = WorkItem(operation.steps, writes=operation.writes)
        try:
            self._run_group([item], self._open().cursor())
        except sqlite3.Error as error:
            raise translation(error, self._settings) from error
        finally:
            self._leave(writes=operation.writes)
        result: R = item.result
        return result

    def _enter(self, *, writes: bool) -> bool:
        """Take the connection for this thread if no other one uses it or waits for it."""
        if self._user == threading.get_ident():
            raise StoreBusy(
                f"{self._settings} is in the middle of another call of this thread, which a signal handler or a "
                "finalizer interrupted: call redrive after it, or from another thread"
            )
        if not self._queue.empty() or (writes and not self._write_queue.try_acquire()):
            return False
        if self._in_use.acquire(blocking=False):
            # A closed connection would be opened again.
            if not self._closing:
                self._user = threading.get_ident()
                return True
            self._in_use.release()
        if writes:
            self._write_queue.release()
        return False

    def _leave(self, *, writes: bool) -> None:
        self._user = None
        self._in_use.release()
        if writes:
            self._write_queue.release()

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Queue an operation and return a future of its result; raise `StoreClosed` after `close`."""
        return self.submit_all([QueuedItem(operation.steps, writes=operation.writes)])

    def submit_all(self, items: Sequence[QueuedItem]) -> Future[Any]:
        """Queue operations so that they share a transaction up to its maximum size; return the last future."""
        # A caller that came after the end marker of `close` would wait forever.
        with self._gate:
            if self._closing:
                raise StoreClosed(f"{self._settings} has been closed")
            self._queue.put(items)
        return items[-1].future

    def call(self, function: Callable[[sqlite3.Cursor], R]) -> Future[R]:
        """Queue a function that gets a cursor in autocommit mode, between transactions."""
        return self.submit_all([QueuedItem(function=function, writes=True)])

    def close(self) -> None:
        """Finish what is queued, close the connection, and return."""
        with self._gate:
            self._closing = True
            self._queue.put(())
        self._thread.join()

    def _run(self) -> None:
        waiting: deque[QueuedItem] = deque()
        while waiting or self._wait(waiting):
            self._take(waiting)
            first = waiting.popleft()
            if first.function is not None:
                first.call(functools.partial(self._call, first.function), self._settings)
                continue
            group = [first]
            while waiting and len(group) < self._size and waiting[0].fits(first):
                group.append(waiting.popleft())
            self._transaction(group)
        super().close()

    def _call(self, function: Callable[[sqlite3.Cursor], Any]) -> Any:  # noqa: ANN401 - the function's result
        with self._write_lock(), self._in_use:
            return function(self._open().cursor())

    def _wait(self, waiting: deque[QueuedItem]) -> bool:
        """Wait for items; return False after `close`."""
        waiting.extend(self._queue.get())
        return bool(waiting)

    def _take(self, waiting: deque[QueuedItem]) -> None:
        """Take the other items that are queued."""
        with contextlib.suppress(queue.Empty):
            while len(waiting) < self._size:
                more = self._queue.get_nowait()
                if not more:
                    # The end marker stays the last one, for `_wait`.
                    self._queue.put(more)
                    break
                waiting.extend(more)

    def _transaction(self, group: list[QueuedItem]) -> None:
        group = [item for item in group if item.future.set_running_or_notify_cancel()]
        if not group:
            return
        lock = self._write_lock() if group[0].writes else contextlib.nullcontext()
        try:
            with translated(self._settings), lock, self._in_use:
                self._run_group(group, self._open().cursor())
        except BaseException as error:  # noqa: BLE001 - the callers get it through their futures
            for item in group:
                item.error = error
        for item in group:
            item.finish()

    @contextlib.contextmanager
    def _write_lock(self) -> Iterator[None]:
        self._write_queue.acquire(writer=True)
        try:
            yield
        finally:
            self._write_queue.release()

    def _run_group(self, group: Sequence[WorkItem], cursor: sqlite3.Cursor) -> None:
        before = cursor.connection.total_changes
        self._file.check()
        try:
            cursor.execute("BEGIN IMMEDIATE" if group[0].writes else "BEGIN")
            if group[0].writes:
                advance_ids(cursor, self._settings.path)
            for item in group:
                item.run(cursor, self._settings, alone=len(group) == 1)
            commits = any(item.error is None for item in group)
            try:
                cursor.execute("COMMIT" if commits else "ROLLBACK")
            except sqlite3.Error as error:
                raise translation(error, self._settings, commits=True) from error
        except BaseException:
            _roll_back(cursor)
            raise
        if group[0].writes:
            self._file.check()
        self.commits += cursor.connection.total_changes != before


def _roll_back(cursor: sqlite3.Cursor) -> None:
    with contextlib.suppress(sqlite3.Error):
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")


class WorkItem:
    """An operation that runs in a transaction, perhaps with others."""

    def __init__(self, steps: Statements[Any] | None, *, writes: bool) -> None:
        self.writes = writes
        self.error: BaseException | None = None
        self.result: Any = None
        self._steps = steps

    def run(self, cursor: sqlite3.Cursor, settings: SQLiteSettings, *, alone: bool) -> None:
        """Run the operation inside the group's transaction; if it fails, only its own writes are rolled back."""
        assert self._steps is not None  # only operations are grouped
        try:
            if alone:
                self.result = drive(cursor, self._steps, settings)
            else:
                with savepoint(cursor, settings):
                    self.result = drive(cursor, self._steps, settings)
        except Exception as error:
            if alone or not cursor.connection.in_transaction:
                raise
            self.error = error


class QueuedItem(WorkItem):
    """An operation, or a function, in the queue of a connection thread."""

    def __init__(
        self,
        steps: Statements[Any] | None = None,
        *,
        writes: bool = False,
        function: Callable[[sqlite3.Cursor], Any] | None = None,
    ) -> None:
        super().__init__(steps, writes=writes)
        self.future: Future[Any] = Future()
        # Called with a cursor in autocommit mode, instead of an operation.
        self.function = function
        # An operation may call functions of the user: the guards of a machine, the backoff function of a policy.
        self._context = contextvars.copy_context()

    def run(self, cursor: sqlite3.Cursor, settings: SQLiteSettings, *, alone: bool) -> None:
        """Run the operation with the context variables of its caller."""
        self._context.run(super().run, cursor, settings, alone=alone)

    def fits(self, other: QueuedItem) -> bool:
        """Return True if it may share a transaction with the other item."""
        return self.function is None and self.writes == other.writes

    def call(self, function: Callable[[], Any], settings: SQLiteSettings) -> None:
        """Call a function and set the future to its result."""
        self.future.set_running_or_notify_cancel()
        try:
            with translated(settings):
                self.result = function()
        except BaseException as error:  # noqa: BLE001 - the caller gets it through the future
            self.error = error
        self.finish()

    def finish(self) -> None:
        """Set the future to the result or the error."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


# A worker that settles jobs and claims others in one iteration then needs one commit.
class LoopBatches:
    """Operations that coroutines submit in one iteration of their event loop, which are queued together."""

    def __init__(self, threads: Callable[[], tuple[ConnectionThread, ConnectionThread]]) -> None:
        # Returns the thread that writes and the thread that reads, or raises the error that the callers get.
        self._threads = threads
        self._batches: dict[asyncio.AbstractEventLoop, list[QueuedItem]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, item: QueuedItem) -> None:
        """Add an item to the batch of the running loop; it is queued at the end of this iteration."""
        batch = self._batches.setdefault(loop, [])
        batch.append(item)
        if len(batch) == 1:
            loop.call_soon(self._submit, loop)

    def _submit(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._batches.pop(loop)
        try:
            writer, reader = self._threads()
            for thread, writes in ((writer, True), (reader, False)):
                if items := [item for item in batch if item.writes is writes]:
                    thread.submit_all(items)
        except BaseException as error:  # noqa: BLE001 - the callers get it through their futures
            for item in batch:
                if not item.future.done():
                    item.future.set_exception(error)
