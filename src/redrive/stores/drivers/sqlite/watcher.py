"""A connection that sees whether any other one has committed a change."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.place import Place
from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["Watcher"]


class Watcher:
    """A connection that is only asked for the version of the data, by any thread.

    Args:
        settings: for messages.
        connection: that is used at first.
        place: of the database.
        connect: opens a connection in place of one that was closed by `rest`.
    """

    def __init__(
        self,
        settings: Settings,
        connection: sqlite3.Connection,
        place: Place,
        connect: Callable[[], sqlite3.Connection],
    ) -> None:
        self._settings = settings
        self._connection: sqlite3.Connection | None = connection
        self._place = place
        self._connect = connect
        self._using = threading.Lock()
        self._opened = 1

    def version(self) -> int:
        """Return a number that changes with each commit of another connection, also of another process.

        Costs a few microseconds: SQLite looks at the shared index of the log, not at the file.

        Raises:
            StoreError: the file is no longer at its path.
        """
        self._place.check()
        with self._using, translated(self._settings):
            if self._connection is None:
                self._connection = self._connect()
                self._opened += 1
            # Each connection counts for itself.
            return (self._opened << 32) + int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def rest(self, timeout: float, *, close: bool) -> bool:
        """Let no thread use the connection, until `resume`; see `Lane.rest`."""
        if not self._using.acquire(timeout=max(timeout, 0)):
            return False
        if close and self._connection is not None:
            self._connection.close()
            self._connection = None
        return True

    def resume(self) -> None:
        """Let threads use the connection again."""
        self._using.release()

    def close(self) -> None:
        """Close the connection."""
        with self._using:
            if self._connection is not None:
                self._connection.close()
