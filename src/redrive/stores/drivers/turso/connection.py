"""The store on Turso, and the interface of the ``sqlite3`` module on ``pyturso`` for it.

`TursoConnection` hides five differences of pyturso that lose data or hide an error.
"""

from __future__ import annotations

import gc
import re
import sqlite3
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, cast

import turso

from redrive.errors import ConfigurationError, StoreMismatch, StoreOpenError
from redrive.stores.drivers import files
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.external import check_same_database, drive_external
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.drivers.sqlite.store import SQLiteStore
from redrive.stores.query import Operation, R

# Words in the message of an error after which the transaction can be repeated. ``BusySnapshot`` is not a
# ``turso.Error``, and a conflict of writers is an error with a text. Both become ``sqlite3.OperationalError`` with the
# word "locked", like SQLite's own.
_LOCKED = ("BusySnapshot", "snapshot is stale", "conflict", "Busy", "locked")

_LIMIT = re.compile(r"\bLIMIT :([a-z_]+)")


class TursoConnection:
    """A connection in autocommit mode.

    Attributes:
        total_changes: grows with every statement that may have written.
    """

    isolation_level = None

    def __init__(self, inner: turso.Connection) -> None:
        self._inner: turso.Connection | None = inner
        self.total_changes = 0

    @property
    def inner(self) -> turso.Connection:
        """Return the connection of pyturso; raise `sqlite3.ProgrammingError` if it has been closed."""
        if self._inner is None:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        return self._inner

    @property
    def in_transaction(self) -> bool:
        """Return True if a transaction is open."""
        return bool(self.inner.in_transaction)

    def cursor(self) -> TursoCursor:
        """Return a new cursor."""
        return TursoCursor(self)

    def execute(self, statement: str, parameters: Parameters = ()) -> TursoCursor:
        """Execute a statement on a new cursor."""
        return self.cursor().execute(statement, parameters)

    def close(self) -> None:
        """Close, and release the lock on the file. Idempotent."""
        if self._inner is not None:
            inner = weakref.ref(self._inner)
            self._inner.close()
            # pyturso keeps the lock on the file until the object is deleted. An error whose traceback is part of a
            # reference cycle may refer to it.
            self._inner = None
            if inner() is not None:
                gc.collect()


class TursoCursor:
    """A cursor that fetches all rows of a statement when it executes it."""

    def __init__(self, connection: TursoConnection) -> None:
        self.connection = connection
        self.description: Sequence[Sequence[Any]] | None = None
        self.row_factory: object = None
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, statement: str, parameters: Parameters = (), /) -> TursoCursor:
        """Execute a statement to its end and return this cursor; raise `sqlite3.Error` if pyturso fails."""
        inner = self.connection.inner.cursor()
        try:
            inner.execute(_literal_limits(_plain(statement), parameters), parameters)
            self.description = inner.description
            # pyturso does not write the rows of a RETURNING that are not fetched: a statement stops where its reader
            # stops.
            self._rows = inner.fetchall() if inner.description else []
        except Exception as error:
            raise as_sqlite(error) from error
        finally:
            inner.close()
        self.connection.total_changes += 1
        return self

    def executemany(self, statement: str, many: Iterable[Parameters], /) -> TursoCursor:
        """Execute a statement once for each set of parameters; see `execute`."""
        for parameters in many:
            self.execute(statement, parameters)
        self._rows = []
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return self._rows.pop(0) if self._rows else None


def connect(settings: SQLiteSettings) -> TursoConnection:
    """Open a connection; raise `sqlite3.Error` if that fails."""
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
    """Write the values of ``LIMIT`` parameters into the statement."""
    # Turso counts a LIMIT that is a parameter once for a statement and not once for each execution of a correlated
    # subquery: a claim would find nothing in its second queue.
    if not isinstance(parameters, Mapping):
        return statement
    return _LIMIT.sub(lambda limit: f"LIMIT {int(parameters[limit[1]])}", statement)


def _plain(statement: str) -> str:
    # WITHOUT ROWID, which only saves space, is experimental in Turso.
    return statement.replace(") STRICT, WITHOUT ROWID", ") STRICT")


def as_sqlite(error: Exception) -> Exception:
    """Return the error of sqlite3 for an error of pyturso; any other exception is returned as it is."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, turso.IntegrityError):
        return sqlite3.IntegrityError(str(error))
    if any(sign in text for sign in _LOCKED):
        return sqlite3.OperationalError(text if "locked" in text else f"database is locked ({text})")
    if isinstance(error, turso.Error) or type(error).__module__.startswith(("turso", "_turso")):
        return sqlite3.DatabaseError(str(error))
    return error


class TursoStore(SQLiteStore):
    """A store on a Turso database; ``busy_timeout`` has no effect, since no other process can write."""

    library = files.TURSO
    group = 1
    alone = True

    def _connections(self, count: int) -> list[sqlite3.Connection]:
        if self._pid:
            raise StoreOpenError(
                f"{self.settings} was opened by the parent of this process, and Turso does not survive a fork: start "
                "worker processes with multiprocessing's 'spawn', or use SQLite"
            )
        return super()._connections(count)

    def _connect(self) -> sqlite3.Connection:
        if self.settings.path is not None:
            # SQLite gives its log the permissions of the database, Turso those of the umask.
            files.create(Path(f"{self.settings.path}-wal"), like=self.settings.path)
        try:
            return cast("sqlite3.Connection", connect(self.settings))
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise StoreOpenError(
                f"{self.settings} is open in another process, and a Turso file belongs to one process at a time: end "
                "that one, or use sqlite:/// or postgresql:// where several processes share their jobs"
            ) from error

    def run_on(self, connection: object, operation: Operation[R]) -> R:
        """Run an operation in the user's own transaction, on a ``turso.Connection`` of this process.

        After a `StoreError` the user must roll the transaction back: Turso has no safe savepoints. Raise
        `StoreMismatch` if the connection belongs to another database, or to another library.
        """
        if not isinstance(connection, turso.Connection):
            message = f"using= takes a turso.Connection to {self.settings}, not a {type(connection).__qualname__}"
            raise StoreMismatch(message)
        with translated(self.settings):
            cursor = cast("sqlite3.Cursor", TursoConnection(connection).cursor())
            check_same_database(cursor, self.settings)
            self._file.check()
            if not connection.in_transaction and connection.isolation_level is not None:
                cursor.execute("BEGIN IMMEDIATE")
            return drive_external(cursor, operation, self.settings)

    def begin(self, asked: Operation[bool] | None = None) -> NoReturn:
        """Raise `ConfigurationError`: Turso has one connection."""
        del asked
        message = f"ctx.transaction() needs a second writer, which Turso does not allow on {self.settings}"
        raise ConfigurationError(message)

    async def abegin(self, asked: Operation[bool] | None = None) -> NoReturn:
        """Raise `ConfigurationError`; see `begin`."""
        self.begin(asked)


Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
