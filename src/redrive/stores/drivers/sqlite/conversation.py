"""Runs the conversation of an operation with a connection."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from redrive.stores.dialects import loader
from redrive.stores.dialects.sqlite.values import decoder, encode, pairs
from redrive.stores.drivers.sqlite import log
from redrive.stores.drivers.sqlite.errors import translated, translation
from redrive.stores.drivers.sqlite.instants import boot_time, present
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.query import Query, Rows, Steps

__all__ = ["connect", "drive", "savepoint"]

R = TypeVar("R")

CACHE = 16_000
"""KiB of pages that a connection keeps at most. With SQLite's own two thousand, the indexes of some ten thousand rows
are read again and again."""

SWITCHES = 100
"""How often a connection tries to be the one that switches a new file to the log; each try but one has a winner."""


def connect(settings: Settings) -> sqlite3.Connection:
    """Open a connection in autocommit mode: transactions are begun in so many words.

    Args:
        settings: which database, and how.

    Returns:
        A connection that a lane may use from its own thread.

    Raises:
        sqlite3.Error: it cannot be opened; nothing is left open then.
    """
    connection = sqlite3.connect(
        settings.path or ":memory:",
        timeout=settings.busy_timeout.total_seconds(),
        isolation_level=None,
        check_same_thread=False,
        cached_statements=128,
    )
    try:
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{CACHE}")
        connection.execute(f"PRAGMA journal_size_limit = {log.LIMIT}")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. Of two that switch a new file at once SQLite refuses one without waiting."""
    for _ in range(SWITCHES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            # This waits for the other one, up to the busy timeout.
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


def drive(cursor: sqlite3.Cursor, steps: Steps[R], settings: Settings) -> R:
    """Run the conversation: statements out, rows in; errors are thrown in, so that the operation may answer them.

    Args:
        cursor: in a transaction.
        steps: the operation.
        settings: for messages.

    Returns:
        The result of the operation.

    Raises:
        StoreError: the database refused, and the operation had no answer to that.
    """
    try:
        query = next(steps)
        while True:
            try:
                rows = _execute(cursor, query)
            except sqlite3.Error as error:
                query = steps.throw(translation(error, settings))
            else:
                query = steps.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


def _execute(cursor: sqlite3.Cursor, query: Query) -> Rows:
    for other in query.also:
        _execute(cursor, other)
    statement = loader.statements("sqlite")[query.name]
    if query.many is not None:
        rows = _execute_many(cursor, statement, query.many)
    else:
        params = encode(query.params)
        if params.get("now", 0) is None:
            params["now"] = present(cursor)
        elif "ticks" in params:
            params["boot"], params["ticks"] = boot_time() or (None, None)
        rows = cursor.execute(statement, params).fetchall()
    if query.into is None or not rows:
        return rows
    return decoder(query.into, tuple(column[0] for column in cursor.description))(rows)


def _execute_many(cursor: sqlite3.Cursor, statement: str, many: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Run a statement for each of these, in as few calls as it allows: a call costs as much as a row."""
    if _PAIRS in statement:
        for each in pairs(many):
            cursor.execute(statement, {"pairs": each})
        return []
    if not _RETURNS.search(statement):
        cursor.executemany(statement, [encode(params) for params in many])
        return []
    return [row for params in many for row in cursor.execute(statement, encode(params)).fetchall()]


_PAIRS = "(:pairs)"
_RETURNS = re.compile(r"^RETURNING\b", re.MULTILINE)


@contextlib.contextmanager
def savepoint(cursor: sqlite3.Cursor, settings: Settings) -> Iterator[None]:
    """Undo what the block wrote if it raises, and only that.

    Args:
        cursor: in a transaction, or in autocommit mode, where the savepoint is a transaction of its own.
        settings: for messages.
    """
    cursor.execute("SAVEPOINT redrive")
    try:
        yield
    except BaseException:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK TO redrive")
            cursor.execute("RELEASE redrive")
        raise
    with translated(settings, commits=True):
        cursor.execute("RELEASE redrive")
