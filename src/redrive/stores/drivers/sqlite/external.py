"""What has to hold for the user's own connection, before an operation runs in its transaction."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from redrive.errors import StoreMismatch
from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["begins_by_itself", "check_same_database", "same_file"]


def check_same_database(cursor: sqlite3.Cursor, settings: Settings) -> None:
    """Refuse a connection to another database.

    Args:
        cursor: of the user's connection.
        settings: which database the app's jobs are in.

    Raises:
        StoreMismatch: the connection belongs to another database.
    """
    # The first row is the main database. Its path is text or bytes, as the user's connection has it.
    path = os.fsdecode(cursor.execute("PRAGMA database_list").fetchall()[0][2] or "")
    if not path or settings.path is None or not same_file(settings.path, path):
        message = (
            f"using= is a connection to {path or 'a database in memory'}, but the app's jobs are in "
            f"{settings}: only a connection to the same file can enqueue in its transaction"
        )
        raise StoreMismatch(message)


def same_file(one: Path, other: str) -> bool:
    """Return True if two paths lead to one file, which exists."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Return True if sqlite3 begins a transaction before an INSERT: not in either of its two autocommit modes."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
