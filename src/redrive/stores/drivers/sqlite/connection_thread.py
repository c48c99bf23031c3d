"""A thread with a connection that takes operations from a queue, and gives those that have gathered one transaction."""

from __future__ import annotations

import contextlib
import functools
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from redrive.errors import StoreClosed
from redrive.stores.drivers.sqlite.conversation import drive, savepoint
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.numbers import advance
from redrive.stores.drivers.sqlite.place import Place
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.drivers.sqlite.turns import Turns
from redrive.stores.query import Operation, Steps

__all__ = ["GROUP", "ConnectionThread", "WorkItem"]

R = TypeVar("R")

GROUP = 256
"""Operations that share one transaction, at most."""


class ConnectionThread:
    """A thread with a connection that takes operations from a queue.

    Args:
        settings: for messages.
        connection: used by this thread only.
        kind: for the name of the thread.
        turns: those at writing, which its transactions that write take.
        place: of the database.
        connect: opens a connection in place of one that was closed by `rest`.
        size: operations that share one transaction, at most.

    Attributes:
        commits: transactions of this lane that changed something.
    """

    def __init__(  # noqa: PLR0913 - what the driver gives each of its lanes
        self,
        settings: Settings,
        connection: sqlite3.Connection,
        kind: str,
        *,
        turns: Turns,
        place: Place,
        connect: Callable[[], sqlite3.Connection],
        size: int = GROUP,
    ) -> None:
        self.commits = 0
        self._size = size
        self._turns = turns
        self._place = place
        self._connect = connect
        self._settings = settings
        self._cursor: sqlite3.Cursor | None = connection.cursor()
        self._using = threading.Lock()
        """Held while the thread uses the connection, and while the process forks."""
        self._queue: queue.SimpleQueue[Sequence[WorkItem]] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"redrive-{kind}", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Queue an operation.

        Args:
            operation: what to run.

        Returns:
            A future of its result.

        Raises:
            StoreClosed: the lane has been closed.
        """
        return self.submit_all([WorkItem(operation.steps, writes=operation.writes)])

    def submit_all(self, errands: Sequence[WorkItem]) -> Future[Any]:
        """Queue operations so that they share a transaction, as far as they fit into one.

        Args:
            errands: each with its future.

        Returns:
            The future of the last one.

        Raises:
            StoreClosed: the lane has been closed.
        """
        # Whoever comes after the last word of `close` would wait for ever.
        with self._gate:
            if self._closing:
                message = f"{self._settings} has been closed"
                raise StoreClosed(message)
            self._queue.put(errands)
        return errands[-1].future

    def call(self, work: Callable[[sqlite3.Cursor], R]) -> Future[R]:
        """Queue free work, to be run between transactions.

        Args:
            work: gets a cursor in autocommit mode.

        Returns:
            A future of what it returns.

        Raises:
            StoreClosed: the lane has been closed.
        """
        return self.submit_all([WorkItem(work=work, writes=True)])

    def close(self) -> None:
        """Finish what is queued, then close the connection; returns when that is done."""
        with self._gate:
            self._closing = True
            self._queue.put(())
        self._thread.join()

    def rest(self, timeout: float, *, close: bool) -> bool:
        """Keep the thread from using its connection, until `resume`.

        Args:
            timeout: seconds to wait for the end of what runs.
            close: close the connection too; the thread opens another one when it needs it.

        Returns:
            False if something still runs; then there is nothing to resume.
        """
        if not self._using.acquire(timeout=max(timeout, 0)):
            return False
        if close and self._cursor is not None:
            self._cursor.connection.close()
            self._cursor = None
        return True

    def resume(self) -> None:
        """Let the thread use its connection again."""
        self._using.release()

    def _open(self) -> sqlite3.Cursor:
        if self._cursor is None:
            self._cursor = self._connect().cursor()
        return self._cursor

    def _run(self) -> None:
        waiting: deque[WorkItem] = deque()
        while waiting or self._wait(waiting):
            self._take(waiting)
            first = waiting.popleft()
            if first.work is not None:
                first.attempt(functools.partial(self._work, first), self._settings)
                continue
            group = [first]
            while waiting and len(group) < self._size and waiting[0].fits(first):
                group.append(waiting.popleft())
            self._transaction(group)
        with self._using:
            if self._cursor is not None:
                self._cursor.connection.close()

    def _work(self, errand: WorkItem) -> Any:  # noqa: ANN401 - what the caller's work returns
        assert errand.work is not None  # noqa: S101 - free work
        with self._turn(errand), self._using:
            return errand.work(self._open())

    def _wait(self, waiting: deque[WorkItem]) -> bool:
        """Wait for something to do; answer whether there is, or this is the end."""
        waiting.extend(self._queue.get())
        return bool(waiting)

    def _take(self, waiting: deque[WorkItem]) -> None:
        """Take what else has gathered. The empty word of `close` is the last one and ends the wait after this."""
        with contextlib.suppress(queue.Empty):
            while len(waiting) < self._size:
                more = self._queue.get_nowait()
                if not more:
                    self._queue.put(more)
                    break
                waiting.extend(more)

    def _transaction(self, group: list[WorkItem]) -> None:
        group = [task for task in group if task.future.set_running_or_notify_cancel()]
        if not group:
            return
        try:
            with translated(self._settings), self._turn(group[0]), self._using:
                self._run_group(group, self._open())
        except BaseException as error:  # noqa: BLE001 - it belongs to the callers, who wait for it
            for task in group:
                task.error = error
        for task in group:
            task.finish()

    @contextlib.contextmanager
    def _turn(self, first: WorkItem) -> Iterator[None]:
        if not first.writes:
            yield
            return
        self._turns.take(own=True)
        try:
            yield
        finally:
            self._turns.release()

    def _run_group(self, group: list[WorkItem], cursor: sqlite3.Cursor) -> None:
        before = cursor.connection.total_changes
        self._place.check()
        try:
            cursor.execute("BEGIN IMMEDIATE" if group[0].writes else "BEGIN")
            if group[0].writes:
                advance(cursor, self._settings.path)
            for task in group:
                task.prepare(cursor, self._settings, alone=len(group) == 1)
            with translated(self._settings, commits=True):
                cursor.execute("COMMIT" if any(task.error is None for task in group) else "ROLLBACK")
        except BaseException:
            _roll_back(cursor)
            raise
        if group[0].writes:
            self._place.check()
        self.commits += cursor.connection.total_changes != before


def _roll_back(cursor: sqlite3.Cursor) -> None:
    with contextlib.suppress(sqlite3.Error):
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")


class WorkItem:
    """One operation, or one piece of free work, on its way through a lane.

    Args:
        steps: the operation.
        writes: does it write?
        work: gets a cursor in autocommit mode.

    Attributes:
        future: of its result.
    """

    def __init__(
        self,
        steps: Steps[Any] | None = None,
        *,
        writes: bool = False,
        work: Callable[[sqlite3.Cursor], Any] | None = None,
    ) -> None:
        self.future: Future[Any] = Future()
        self.writes = writes
        self.work = work
        self.error: BaseException | None = None
        self._steps = steps
        self._result: Any = None

    def prepare(self, cursor: sqlite3.Cursor, settings: Settings, *, alone: bool) -> None:
        """Run the operation inside the group's transaction; one that fails undoes only itself."""
        assert self._steps is not None  # noqa: S101 - only operations are grouped
        try:
            if alone:
                self._result = drive(cursor, self._steps, settings)
            else:
                with savepoint(cursor, settings):
                    self._result = drive(cursor, self._steps, settings)
        except Exception as error:
            if alone or not cursor.connection.in_transaction:
                raise
            self.error = error

    def fits(self, other: WorkItem) -> bool:
        """May it share a transaction with this one?"""
        return self.work is None and self.writes == other.writes

    def attempt(self, work: Callable[[], Any], settings: Settings) -> None:
        """Run free work."""
        self.future.set_running_or_notify_cancel()
        try:
            with translated(settings):
                self._result = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who waits for it
            self.error = error
        self.finish()

    def finish(self) -> None:
        """Tell the caller."""
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self._result)
