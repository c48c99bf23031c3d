"""The write-ahead log of a database in a file, and how it is kept small.

SQLite copies the log back into the database every thousand pages, and then writes it from its beginning again, unless
a transaction still reads from it: as long as one does, the log grows. Its file never shrinks by itself. So each
connection has a ``journal_size_limit``, by which SQLite cuts a log that starts again, and a worker empties one that is
large.
"""

from __future__ import annotations

import os
import sqlite3

from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["LIMIT", "empty", "excess"]

LIMIT = 64 * 1024 * 1024
"""Bytes that the log may keep: a thousand pages are four megabytes, and a burst of large jobs some tens."""

PATIENCE = 200
"""Milliseconds that writers may be kept waiting for transactions that read from the log."""


def excess(settings: Settings) -> int:
    """Return the size of the log in bytes where it is too large, and else 0."""
    try:
        size = os.stat(f"{settings.path}-wal").st_size  # noqa: PTH116 - a Path costs as much again
    except OSError:
        return 0
    return size if size > LIMIT else 0


def empty(cursor: sqlite3.Cursor, settings: Settings) -> None:
    """Copy the log into the database and cut it off, as far as no transaction still reads from it.

    Args:
        cursor: in autocommit mode.
        settings: which database.
    """
    cursor.execute(f"PRAGMA busy_timeout = {PATIENCE}")
    try:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {round(settings.busy_timeout.total_seconds() * 1000)}")
