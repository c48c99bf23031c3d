"""The file of a database: detection of a file that was replaced, and the size of its write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from redrive.errors import StoreError
from redrive.stores.drivers.sqlite.settings import SQLiteSettings

# SQLite copies the log into the database every thousand pages and then overwrites it from the beginning, unless a
# transaction still reads it: as long as one does, the log grows. The log file never shrinks by itself. So each
# connection has a journal_size_limit, by which SQLite truncates a log that starts again, and a worker truncates a large
# one. The limit is in bytes. A thousand pages are four megabytes, and a burst of large jobs some tens of megabytes.
LOG_LIMIT = 64 * 1024 * 1024

# Milliseconds that writers wait while the log is truncated.
LOG_PATIENCE = 200


# An open file can be deleted or replaced. Its connections do not notice: they write to a file without a name, and the
# data that they acknowledge is lost with the process. Worse, ``-wal`` may then belong to another database. So the path
# is checked before each transaction, and again between a commit and its acknowledgement.
class DatabaseFile:
    """The file at the path of a database; for a database in memory all checks pass."""

    def __init__(self, settings: SQLiteSettings) -> None:
        self._settings = settings
        self._path = None if settings.path is None else os.fspath(settings.path)
        self._id: tuple[int, int] | None = None

    def remember(self) -> None:
        """Store the identity of the file at the path, which has just been opened."""
        if self._path is not None:
            self._id = self._find()

    def check(self) -> None:
        """Raise `StoreError` if the open file was deleted, or another file has its path."""
        if self._path is None:
            return
        if self._find() != self._id:
            raise self._lost("was replaced by another file while it was open")

    def _find(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path or "")  # noqa: PTH116 - a Path costs as much again
        except OSError as error:
            raise self._lost(f"was deleted or moved while it was open ({error.strerror})") from error
        return found.st_dev, found.st_ino

    def _lost(self, happened: str) -> StoreError:
        return StoreError(
            f"{self._settings} {happened}: what is written to the open file would be lost, so nothing is acknowledged "
            "any more. Stop every process that uses it, put the right file there, and start them again"
        )


def same_file(one: Path, other: str) -> bool:
    """Return True if two paths lead to one existing file."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def excess_log(settings: SQLiteSettings) -> int:
    """Return the size of the log in bytes if it exceeds the limit, otherwise 0."""
    try:
        size = os.stat(f"{settings.path}-wal").st_size  # noqa: PTH116 - a Path costs as much again
    except OSError:
        return 0
    return size if size > LOG_LIMIT else 0


def truncate_log(cursor: sqlite3.Cursor, settings: SQLiteSettings) -> None:
    """Copy the log into the database and truncate it, as far as no transaction still reads it."""
    cursor.execute(f"PRAGMA busy_timeout = {LOG_PATIENCE}")
    try:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {round(settings.busy_timeout.total_seconds() * 1000)}")
