"""A connection that detects the commits of other connections."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.file import DatabaseFile
from redrive.stores.drivers.sqlite.settings import SQLiteSettings


class Watcher:
    """A connection from which any thread reads the version of the data."""

    def __init__(
        self,
        settings: SQLiteSettings,
        connection: sqlite3.Connection,
        file: DatabaseFile,
        connect: Callable[[], sqlite3.Connection],
    ) -> None:
        self._settings = settings
        self._connection: sqlite3.Connection | None = connection
        self._file = file
        # Opens a connection in place of one that `pause` has closed.
        self._connect = connect
        self._in_use = threading.Lock()
        self._opened = 1

    # A call costs a few microseconds: SQLite reads the shared index of the log, not the file.
    def version(self) -> int:
        """Return a number that changes with each commit of another connection, also of another process.

        Raises:
            StoreError: the file is no longer at its path.
        """
        self._file.check()
        with self._in_use, translated(self._settings):
            if self._connection is None:
                self._connection = self._connect()
                self._opened += 1
            # Each connection has a counter of its own.
            return (self._opened << 32) + int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def pause(self, timeout: float, *, close: bool) -> bool:
        """Keep threads from using the connection until `resume`; see `ConnectionThread.pause`."""
        if not self._in_use.acquire(timeout=max(timeout, 0)):
            return False
        if close and self._connection is not None:
            self._connection.close()
            self._connection = None
        return True

    def resume(self) -> None:
        """Let threads use the connection again."""
        self._in_use.release()

    def close(self) -> None:
        """Close the connection."""
        with self._in_use:
            if self._connection is not None:
                self._connection.close()
