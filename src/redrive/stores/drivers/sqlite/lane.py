"""A thread with a connection that takes operations from a queue, and gives those that have gathered one transaction."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from redrive.errors import StoreClosed
from redrive.stores.drivers.sqlite.conversation import drive, savepoint
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.drivers.sqlite.trouble import translated
from redrive.stores.query import Operation, Steps

__all__ = ["Lane"]

R = TypeVar("R")

GROUP = 256
"""Operations that share one transaction, at most."""


class Lane:
    """A thread with a connection that takes operations from a queue.

    Args:
        settings: for messages.
        connection: used by this thread only.
        kind: for the name of the thread.

    Attributes:
        commits: transactions of this lane that changed something.
    """

    def __init__(self, settings: Settings, connection: sqlite3.Connection, kind: str) -> None:
        self.commits = 0
        self._settings = settings
        self._cursor = connection.cursor()
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
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
        return self._put(_Task(operation.steps, writes=operation.writes))

    def call(self, work: Callable[[sqlite3.Cursor], R]) -> Future[R]:
        """Queue free work, to be run between transactions.

        Args:
            work: gets a cursor in autocommit mode.

        Returns:
            A future of what it returns.

        Raises:
            StoreClosed: the lane has been closed.
        """
        return self._put(_Task(work=work))

    def _put(self, task: _Task) -> Future[Any]:
        # Whoever comes after the last word of `close` would wait for ever.
        with self._gate:
            if self._closing:
                message = f"{self._settings} has been closed"
                raise StoreClosed(message)
            self._queue.put(task)
        return task.future

    def close(self) -> None:
        """Finish what is queued, then close the connection; returns when that is done."""
        with self._gate:
            self._closing = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            rest: _Task | None = task
            while rest is not None:
                rest = self._group(rest)
        self._cursor.connection.close()

    def _group(self, first: _Task) -> _Task | None:
        """Run what has gathered; answer the task that does not fit into the group, if one was taken."""
        if first.work is not None:
            first.attempt(lambda: first.work(self._cursor), self._settings)  # type: ignore[misc]
            return None
        group, odd = [first], None
        with contextlib.suppress(queue.Empty):
            while len(group) < GROUP and odd is None:
                following = self._queue.get_nowait()
                if following is None or following.work is not None or following.writes != first.writes:
                    odd = following
                    if following is None:
                        self._queue.put(None)
                        break
                else:
                    group.append(following)
        self._transaction(group)
        return odd

    def _transaction(self, group: list[_Task]) -> None:
        group = [task for task in group if task.future.set_running_or_notify_cancel()]
        if not group:
            return
        before = self._cursor.connection.total_changes
        try:
            with translated(self._settings):
                self._cursor.execute("BEGIN IMMEDIATE" if group[0].writes else "BEGIN")
                for task in group:
                    task.prepare(self._cursor, self._settings, alone=len(group) == 1)
                self._cursor.execute("COMMIT" if any(task.error is None for task in group) else "ROLLBACK")
        except BaseException as error:  # noqa: BLE001 - it belongs to the callers, who wait for it
            self._roll_back()
            for task in group:
                task.error = error
        self.commits += self._cursor.connection.total_changes != before
        for task in group:
            task.finish()

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._cursor.connection.in_transaction:
                self._cursor.execute("ROLLBACK")


class _Task:
    """One operation on its way through a lane."""

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
                with savepoint(cursor):
                    self._result = drive(cursor, self._steps, settings)
        except Exception as error:
            if alone or not cursor.connection.in_transaction:
                raise
            self.error = error

    def attempt(self, work: Callable[[], Any], settings: Settings) -> None:
        self.future.set_running_or_notify_cancel()
        try:
            with translated(settings):
                self._result = work()
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who waits for it
            self.error = error
        self.finish()

    def finish(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self._result)
