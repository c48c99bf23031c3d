"""Runs operations on one Turso database; the essay stands in `redrive.stores.drivers.turso`."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import turso

from redrive.errors import ConfigurationError, StoreMismatch, StoreOpenError
from redrive.stores.drivers import files
from redrive.stores.drivers.sqlite.driver import SQLiteDriver
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.external import check_same_database
from redrive.stores.drivers.turso.connection import TursoConnection, connect
from redrive.stores.query import Operation

__all__ = ["TursoDriver"]

R = TypeVar("R")


class TursoDriver(SQLiteDriver):
    """Runs operations on one Turso database.

    Args:
        settings: which, and how; ``busy_timeout`` means nothing here, since nobody else may write.
    """

    library = files.TURSO
    group = 1
    alone = True

    def _connections(self, count: int) -> list[sqlite3.Connection]:
        if self._pid:
            message = (
                f"{self.settings} was opened by the parent of this process, and Turso does not survive a fork: start "
                "worker processes with multiprocessing's 'spawn', or use SQLite"
            )
            raise StoreOpenError(message)
        return super()._connections(count)

    def _connect(self) -> sqlite3.Connection:
        if self.settings.path is not None:
            # SQLite gives its log the permissions of the database, Turso those of the umask.
            files.make(Path(f"{self.settings.path}-wal"), like=self.settings.path)
        try:
            return cast("sqlite3.Connection", connect(self.settings))
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            message = (
                f"{self.settings} is open in another process, and a Turso file belongs to one process at a time: end "
                "that one, or use sqlite:/// or postgresql:// where several processes share their jobs"
            )
            raise StoreOpenError(message) from error

    def run_on(self, connection: Any, operation: Operation[R]) -> R:  # noqa: ANN401 - checked here
        """Run an operation inside the user's own transaction, on a ``turso.Connection`` of this process.

        Without a savepoint, which Turso does not do safely: after a `StoreError` the transaction is to be rolled back.

        Args:
            connection: the user's, to the same file.
            operation: what to run.

        Returns:
            Its result.

        Raises:
            StoreMismatch: the connection belongs to another database, or to another library.
        """
        if not isinstance(connection, turso.Connection):
            message = f"using= takes a turso.Connection to {self.settings}, not a {type(connection).__qualname__}"
            raise StoreMismatch(message)
        with translated(self.settings):
            cursor = cast("sqlite3.Cursor", TursoConnection(connection).cursor())
            check_same_database(cursor, self.settings)
            self._place.check()
            if not connection.in_transaction and connection.isolation_level is not None:
                cursor.execute("BEGIN IMMEDIATE")
            return self._drive_on(cursor, operation)

    def lend(self) -> NoReturn:
        """Turso has one connection, which is not lent.

        Raises:
            ConfigurationError: always.
        """
        message = f"ctx.transaction() needs a second writer, which Turso does not allow on {self.settings}"
        raise ConfigurationError(message)

    async def alend(self) -> NoReturn:
        """Turso has one connection, which is not lent; see `lend`."""
        self.lend()
