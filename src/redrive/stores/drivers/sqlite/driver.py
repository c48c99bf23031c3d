"""Runs operations on one SQLite database; the essay stands in `redrive.stores.drivers.sqlite`."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from redrive.errors import StoreClosed, StoreMismatch
from redrive.stores.drivers.sqlite.conversation import connect, drive, savepoint
from redrive.stores.drivers.sqlite.lane import Lane
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.drivers.sqlite.trouble import translated
from redrive.stores.query import Operation

__all__ = ["SQLiteDriver"]

R = TypeVar("R")

_INHERITED: list[object] = []
"""Connections of the parent, after a fork. SQLite forbids the child to use them, and closing them counts as use."""


class SQLiteDriver:
    """Runs operations on one SQLite database.

    Args:
        settings: which, and how.
    """

    dialect = "sqlite"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._start = threading.Lock()
        self._pid = 0
        self._closed = False
        self._writer: Lane | None = None
        self._reader: Lane | None = None
        self._watcher: sqlite3.Connection | None = None

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Run an operation in one transaction.

        Args:
            operation: what to run; its generator is used up.

        Returns:
            A future of its result, or of its error.

        Raises:
            StoreClosed: the driver has been closed.
        """
        writer, reader = self._lanes()
        return (writer if operation.writes else reader).submit(operation)

    def run_on(self, connection: sqlite3.Connection, operation: Operation[R]) -> R:
        """Run an operation inside the user's own transaction.

        What it writes is there if and only if the user commits. On a connection in autocommit mode without an open
        transaction it is a transaction of its own.

        Args:
            connection: the user's, to the same database.
            operation: what to run.

        Returns:
            Its result.

        Raises:
            StoreMismatch: the connection belongs to another database.
        """
        if not isinstance(connection, sqlite3.Connection):
            message = f"using= takes a sqlite3.Connection to {self.settings}, not a {type(connection).__qualname__}"
            raise StoreMismatch(message)
        with translated(self.settings):
            cursor = connection.cursor()
            cursor.row_factory = None
            self._same_database(cursor)
            if not connection.in_transaction and _begins_by_itself(connection):
                cursor.execute(f"BEGIN {connection.isolation_level}")
            with savepoint(cursor):
                return drive(cursor, operation.steps, self.settings)

    def script(self, work: Callable[[sqlite3.Cursor], R]) -> R:
        """Run free work, such as a migration, on the writing connection, between transactions.

        Args:
            work: gets a cursor in autocommit mode.

        Returns:
            What it returned.
        """
        writer, _ = self._lanes()
        return writer.call(work).result()

    def version(self) -> int:
        """A number that changes when any connection, of this process or another, has committed a change.

        Costs a few microseconds: it looks at the shared index of the log, not at the file.

        Returns:
            The number; compare it with an earlier one.
        """
        self._lanes()
        if self._watcher is None:
            return self._writer.commits if self._writer else 0
        with translated(self.settings):
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Finish what is queued and close the connections. Idempotent."""
        with self._start:
            self._closed = True
            if self._pid != os.getpid():
                return
            for lane in {self._writer, self._reader} - {None}:
                lane.close()  # type: ignore[union-attr]
            if self._watcher is not None:
                self._watcher.close()

    def _lanes(self) -> tuple[Lane, Lane]:
        if self._pid != os.getpid() or self._closed:
            self._open()
        assert self._writer  # noqa: S101 - _open has set both or raised
        assert self._reader  # noqa: S101
        return self._writer, self._reader

    def _open(self) -> None:
        with self._start:
            if self._closed:
                message = f"{self.settings} has been closed"
                raise StoreClosed(message)
            if self._pid == os.getpid():
                return
            if self._pid:
                _INHERITED.append((self._writer, self._reader, self._watcher))
            first, *others = self._connections(1 if self.settings.path is None else 3)
            self._reader = self._writer = Lane(self.settings, first, "write")
            if others:
                self._reader = Lane(self.settings, others[0], "read")
                self._watcher = others[1]
            self._pid = os.getpid()

    def _connections(self, count: int) -> list[sqlite3.Connection]:
        """Open so many connections, or none."""
        opened: list[sqlite3.Connection] = []
        try:
            with translated(self.settings, opening=True):
                while len(opened) < count:
                    opened.append(connect(self.settings))
        except BaseException:
            for each in opened:
                each.close()
            raise
        return opened

    def _same_database(self, cursor: sqlite3.Cursor) -> None:
        # The first row is the main database. Its path is text or bytes, as the user's connection has it.
        path = os.fsdecode(cursor.execute("PRAGMA database_list").fetchall()[0][2] or "")
        if not path or self.settings.path is None or not _same_file(self.settings.path, path):
            message = (
                f"using= is a connection to {path or 'a database in memory'}, but the app's jobs are in "
                f"{self.settings}: only a connection to the same file can enqueue in its transaction"
            )
            raise StoreMismatch(message)


def _same_file(one: Path, other: str) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Would sqlite3 begin a transaction before an INSERT? Not in either of its two autocommit modes."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
