"""Makes ``pyturso`` look like the ``sqlite3`` module, as far as the SQLite driver needs it.

Five differences that would lose data or hide an error, each closed here, in one place:

* Rows that a statement returns but nobody fetches are not *written*: the statement stops where its reader stops. So
  everything is fetched at once, before the cursor answers.
* Its ``BusySnapshot`` is an exception of its own and no ``turso.Error``, and a conflict of writers is an error with a
  text. Both become ``sqlite3.OperationalError`` with a text that says "locked", like SQLite's own.
* ``close`` keeps the lock on the file until the object is collected. So the objects are let go of.
* A ``LIMIT`` that is a parameter is counted once for a statement and not once for each time that a correlated subquery
  runs: of the second lane of a claim nothing would be found. So the number is written into the statement.
* ``WITHOUT ROWID``, which saves space and decides nothing, is an experiment there: it is left out of the schema.
"""

from __future__ import annotations

import gc
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import turso

from redrive.stores.drivers.sqlite.settings import Settings

__all__ = ["TursoConnection", "TursoCursor", "as_sqlite", "connect"]

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

_LOCKED = ("BusySnapshot", "snapshot is stale", "conflict", "Busy", "locked")
"""What a text contains that says: somebody else writes; repeat the transaction."""


class TursoConnection:
    """A connection in autocommit mode: transactions are begun in so many words.

    Args:
        inner: the connection of pyturso.

    Attributes:
        total_changes: grows with every statement that may have written.
    """

    isolation_level = None

    def __init__(self, inner: turso.Connection) -> None:
        self._inner: turso.Connection | None = inner
        self.total_changes = 0

    @property
    def inner(self) -> turso.Connection:
        """The connection of pyturso.

        Raises:
            sqlite3.ProgrammingError: it has been closed.
        """
        if self._inner is None:
            message = "Cannot operate on a closed database."
            raise sqlite3.ProgrammingError(message)
        return self._inner

    @property
    def in_transaction(self) -> bool:
        """Has a transaction been begun and not ended?"""
        return bool(self.inner.in_transaction)

    def cursor(self) -> TursoCursor:
        """Make a cursor."""
        return TursoCursor(self)

    def execute(self, statement: str, parameters: Parameters = ()) -> TursoCursor:
        """Run a statement on a new cursor."""
        return self.cursor().execute(statement, parameters)

    def close(self) -> None:
        """Close, and let go of the lock on the file. Idempotent."""
        if self._inner is not None:
            self._inner.close()
            self._inner = None
            gc.collect()


class TursoCursor:
    """A cursor whose rows have been fetched when it answers.

    Args:
        connection: whose.

    Attributes:
        connection: whose.
        description: the columns of the last statement, by name in the first place; None where it has none.
        row_factory: not looked at; rows are tuples.
    """

    def __init__(self, connection: TursoConnection) -> None:
        self.connection = connection
        self.description: Sequence[Sequence[Any]] | None = None
        self.row_factory: object = None
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, statement: str, parameters: Parameters = (), /) -> TursoCursor:
        """Run a statement to its end.

        Args:
            statement: SQL.
            parameters: by place or by name.

        Returns:
            This cursor, with all rows.

        Raises:
            sqlite3.Error: pyturso refused.
        """
        inner = self.connection.inner.cursor()
        try:
            inner.execute(_literal_limits(_plain(statement), parameters), parameters)
            self.description = inner.description
            self._rows = inner.fetchall() if inner.description else []
        except Exception as error:
            raise as_sqlite(error) from error
        finally:
            inner.close()
        self.connection.total_changes += 1
        return self

    def executemany(self, statement: str, many: Iterable[Parameters], /) -> TursoCursor:
        """Run a statement once for each of these; see `execute`."""
        for parameters in many:
            self.execute(statement, parameters)
        self._rows = []
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Take the rows that are left."""
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Take the next row; None where none is left."""
        return self._rows.pop(0) if self._rows else None


def connect(settings: Settings) -> TursoConnection:
    """Open a connection.

    Args:
        settings: which database, and how.

    Returns:
        The connection.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    try:
        connection = TursoConnection(turso.connect(str(settings.path), isolation_level=None))
    except Exception as error:
        raise as_sqlite(error) from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _literal_limits(statement: str, parameters: Parameters) -> str:
    """Write numbers of rows into the statement itself, where they are parameters by name."""
    if not isinstance(parameters, Mapping):
        return statement
    return _LIMIT.sub(lambda limit: f"LIMIT {int(parameters[limit[1]])}", statement)


_LIMIT = re.compile(r"\bLIMIT :([a-z_]+)")


def _plain(statement: str) -> str:
    return statement.replace(") STRICT, WITHOUT ROWID", ") STRICT")


def as_sqlite(error: Exception) -> Exception:
    """Turn what pyturso raised into what sqlite3 would have raised.

    Args:
        error: any exception.

    Returns:
        The error to raise; the same one where the database has nothing to do with it.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, turso.IntegrityError):
        return sqlite3.IntegrityError(str(error))
    if any(sign in text for sign in _LOCKED):
        return sqlite3.OperationalError(text if "locked" in text else f"database is locked ({text})")
    if isinstance(error, turso.Error) or type(error).__module__.startswith(("turso", "_turso")):
        return sqlite3.DatabaseError(str(error))
    return error
