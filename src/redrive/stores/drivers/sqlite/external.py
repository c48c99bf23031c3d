"""Execution of operations in the user's own transaction, on the user's connection."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

from redrive import forks
from redrive.errors import StoreMismatch
from redrive.stores.drivers.sqlite.connection import DatabaseFile, drive, same_file, savepoint
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.query import Operation, R

_READ = "SELECT value FROM redrive_sequences WHERE name = 'job'"
_ADVANCE = "UPDATE redrive_sequences SET value = :id WHERE name = 'job' AND value < :id"

# The user may roll the transaction back. The sequence of job ids is a row, so a rollback takes the drawn ids back: the
# next job would get an id that a handle refers to already. So this process remembers, for each file, the highest id
# that it has given out in a transaction of a user, and continues after it.
_lock = forks.hold(threading.Lock())
_highest_ids: dict[Path, int] = {}


def run_on(connection: sqlite3.Connection, operation: Operation[R], settings: SQLiteSettings, file: DatabaseFile) -> R:
    """Run an operation in the user's transaction.

    Its writes are committed with that transaction. On a connection in autocommit mode without an open transaction, it
    is a transaction of its own.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise StoreMismatch(f"using= takes a sqlite3.Connection to {settings}, not a {type(connection).__qualname__}")
    with translated(settings):
        cursor = connection.cursor()
        cursor.row_factory = None
        check_same_database(cursor, settings)
        file.check()
        if not connection.in_transaction and _begins_implicitly(connection):
            cursor.execute(f"BEGIN {connection.isolation_level}")
        with savepoint(cursor, settings):
            return drive_external(cursor, operation, settings)


def drive_external(cursor: sqlite3.Cursor, operation: Operation[R], settings: SQLiteSettings) -> R:
    """Run an operation in a transaction that may be rolled back; its job ids are not given out again."""
    if not operation.wakes or settings.path is None:
        return drive(cursor, operation.steps, settings)
    advance_ids(cursor, settings.path)
    result = drive(cursor, operation.steps, settings)
    last = int(cursor.execute(_READ).fetchone()[0])
    with _lock:
        _highest_ids[settings.path] = max(last, _highest_ids.get(settings.path, 0))
    return result


def advance_ids(cursor: sqlite3.Cursor, path: Path | None) -> None:
    """Move the sequence of job ids beyond the ids that were given out in transactions of users."""
    # A database in memory, without a path, has no transactions of users.
    last = _highest_ids.get(path) if path is not None else None
    if last is not None:
        cursor.execute(_ADVANCE, {"id": last})


def check_same_database(cursor: sqlite3.Cursor, settings: SQLiteSettings) -> None:
    """Raise `StoreMismatch` if the user's connection belongs to another database."""
    # The first row is the main database. Its path is text or bytes, as the user's connection has it.
    path = os.fsdecode(cursor.execute("PRAGMA database_list").fetchall()[0][2] or "")
    if not path or settings.path is None or not same_file(settings.path, path):
        raise StoreMismatch(
            f"using= is a connection to {path or 'a database in memory'}, but the app's jobs are in "
            f"{settings}: only a connection to the same file can enqueue in its transaction"
        )


def _begins_implicitly(connection: sqlite3.Connection) -> bool:
    """Return True if sqlite3 begins a transaction before an INSERT: not in either of its two autocommit modes."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
