"""The store on a Turso database; `redrive.stores.drivers.turso` describes its design."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NoReturn, cast

import turso

from redrive.errors import ConfigurationError, StoreMismatch, StoreOpenError
from redrive.stores.drivers import files
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.external import check_same_database, drive_external
from redrive.stores.drivers.sqlite.store import SQLiteStore
from redrive.stores.drivers.turso.connection import TursoConnection, connect
from redrive.stores.query import Operation, R


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

    def run_on(self, connection: Any, operation: Operation[R]) -> R:  # noqa: ANN401 - checked here
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

    def begin(self) -> NoReturn:
        """Raise `ConfigurationError`: Turso has one connection."""
        message = f"ctx.transaction() needs a second writer, which Turso does not allow on {self.settings}"
        raise ConfigurationError(message)

    async def abegin(self) -> NoReturn:
        """Raise `ConfigurationError`; see `begin`."""
        self.begin()
