"""Connections of the sqlite3 module, the execution of an operation's statements on them, and their file."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from redrive import clock
from redrive.engine import anchor as anchors
from redrive.errors import StoreError
from redrive.stores.drivers.sqlite.errors import UNFIT, translated, translation
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.query import Compound, Query, R, Rows, Statements
from redrive.stores.statements import loader
from redrive.stores.values.sqlite import decoder, encode, pairs

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


# KiB of pages that a connection caches at most. With SQLite's default of 2000, the indexes of some ten thousand rows
# are read again and again.
CACHE = 16_000

# Attempts of a connection to switch a new file to WAL; in each attempt but one another connection succeeds.
SWITCHES = 100

# Names of the columns of each statement. ``cursor.description`` makes an object for each column.
_COLUMNS: dict[str, tuple[str, ...]] = {}

_CLOCK = "SELECT now, (SELECT value FROM redrive_meta WHERE key = 'clock') FROM redrive_clock"


def connect(settings: SQLiteSettings) -> sqlite3.Connection:
    """Open a connection in autocommit mode that any thread may use."""
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
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT}")
    except BaseException:
        connection.close()
        raise
    return connection


def fill(cursor: sqlite3.Cursor, create: Callable[[sqlite3.Cursor], object]) -> None:
    """Make the tables of a new database in memory, by a copy of what ``create`` makes once in ten times as long."""
    with contextlib.closing(sqlite3.connect(":memory:")) as copied:
        copied.deserialize(_created(create))
        copied.backup(cursor.connection)
    cursor.execute("UPDATE redrive_meta SET value = lower(hex(randomblob(8))) WHERE key = 'uid'")


@functools.cache
def _created(create: Callable[[sqlite3.Cursor], object]) -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        create(made.cursor())
        return made.serialize()


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log."""
    # Of two connections that switch a new file at once, SQLite refuses one without waiting.
    for _ in range(SWITCHES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            # This waits for the other connection, up to the busy timeout.
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


def drive(cursor: sqlite3.Cursor, steps: Statements[R], settings: SQLiteSettings) -> R:
    """Execute the statements of an operation in an open transaction and return its result."""
    try:
        query = next(steps)
        while True:
            try:
                rows = _execute(cursor, query)
            except sqlite3.Error as error:
                query = steps.throw(translation(error, settings))
            except UNFIT as error:
                query = steps.throw(StoreError(f"{settings}: a value cannot be stored: {error}"))
            else:
                query = steps.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


def _execute(cursor: sqlite3.Cursor, query: Query | Compound) -> Rows:
    if isinstance(query, Compound):
        return [_execute(cursor, each) for each in query.queries][-1]
    statement = loader.statements("sqlite")[query.name]
    if query.many is not None:
        many = query.many
        if many and many[0].get("now", 0) is None:
            now = _now(cursor)
            many = [{**row, "now": now} for row in many]
        rows = _execute_many(cursor, statement, loader.headers("sqlite")[query.name].get("many"), many)
    else:
        params = encode(query.params)
        if params.get("now", 0) is None:
            params["now"] = _now(cursor)
        elif "ticks" in params:
            params["boot"], params["ticks"] = clock.boot_time() or (None, None)
        for each in loader.preliminaries()[query.name]:
            cursor.execute(each, params)
        rows = cursor.execute(statement, params).fetchall()
    if query.into is None or not rows:
        return rows
    columns = _COLUMNS.get(query.name)
    if columns is None:
        columns = tuple(column[0] for column in cursor.description)
    # A user's connection may have settings by which columns have other names, and the decoder refuses them.
    decode = decoder(query.into, columns)
    _COLUMNS[query.name] = columns
    return decode(rows)


def _execute_many(
    cursor: sqlite3.Cursor, statement: str, header: str | None, many: Sequence[Mapping[str, Any]]
) -> list[tuple[Any, ...]]:
    """Execute a statement for each set of parameters; see ``many`` in `redrive.stores.statements.loader`."""
    # In as few calls as the statement allows: a call costs as much as a row.
    if header == "pairs":
        for each in pairs(many):
            cursor.execute(statement, {"pairs": each})
        return []
    if header is None:
        cursor.executemany(statement, [encode(params) for params in many])
        return []
    return [row for params in many for row in cursor.execute(statement, encode(params)).fetchall()]


def _now(cursor: sqlite3.Cursor) -> int:
    """Return the time of the database, in microseconds since 1970."""
    # The clock of the machine, corrected if it was set a short while ago: see `redrive.engine.anchor`.
    wall, text = cursor.execute(_CLOCK).fetchone()
    anchor = anchors.read(text)
    return wall if anchor is None else anchors.corrected(anchor, clock.boot_time(), wall)


# In autocommit mode the savepoint is a transaction of its own.
@contextlib.contextmanager
def savepoint(cursor: sqlite3.Cursor, settings: SQLiteSettings) -> Iterator[None]:
    """Roll back the writes of the block, and only these, if it raises."""
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


class PausableConnection:
    """A connection that a fork can close; its next use opens another one by ``reopen``."""

    def __init__(self, connection: sqlite3.Connection, reopen: Callable[[], sqlite3.Connection]) -> None:
        self._connection: sqlite3.Connection | None = connection
        self._reopen = reopen
        # Held while a thread uses the connection, and while the process forks.
        self._in_use = threading.Lock()
        self._opened = 1

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._reopen()
            self._opened += 1
        return self._connection

    def pause(self, timeout: float, *, close: bool) -> bool:
        """Keep threads from using the connection until `resume`, and close it if ``close`` is True.

        Return False if it is still in use after ``timeout`` seconds; then `resume` must not be called.
        """
        if not self._in_use.acquire(timeout=max(timeout, 0)):
            return False
        if close:
            self._close()
        return True

    def resume(self) -> None:
        """Let threads use the connection again."""
        self._in_use.release()

    def close(self) -> None:
        """Close the connection."""
        with self._in_use:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Watcher(PausableConnection):
    """A connection from which any thread reads the version of the data."""

    def __init__(
        self,
        settings: SQLiteSettings,
        connection: sqlite3.Connection,
        file: DatabaseFile,
        reopen: Callable[[], sqlite3.Connection],
    ) -> None:
        super().__init__(connection, reopen)
        self._settings = settings
        self._file = file

    # A call costs a few microseconds: SQLite reads the shared index of the log, not the file.
    def version(self) -> int:
        """Return a number that changes with each commit of another connection, also of another process."""
        self._file.check()
        with translated(self._settings), self._in_use:
            version = int(self._open().execute("PRAGMA data_version").fetchone()[0])
            # Each connection has a counter of its own.
            return (self._opened << 32) + version
