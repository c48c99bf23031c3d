"""The synchronous runner: psycopg 3, with connections of its own, for any number of threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.errors import StoreBusy, StoreClosed
from redrive.stores.dialects.postgres.values import arguments, decoder
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import begin, prepared
from redrive.stores.drivers.postgres.trouble import translation
from redrive.stores.query import Operation, Query, Rows, Steps

__all__ = ["SyncRunner", "connect", "drive", "read"]

R = TypeVar("R")
Connection = psycopg.Connection[tuple[Any, ...]]


def connect(settings: Settings) -> Connection:
    """Open a connection in autocommit mode: transactions are begun in so many words.

    Args:
        settings: which database, and how.

    Returns:
        The connection.

    Raises:
        StoreError: it cannot be opened.
    """
    try:
        return psycopg.connect(
            settings.dsn,
            autocommit=True,
            # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
            prepare_threshold=None if settings.pgbouncer else 2,
            connect_timeout=max(1, round(settings.timeout.total_seconds())),
            tcp_user_timeout=round(settings.timeout.total_seconds() * 1000),
        )
    except psycopg.Error as error:
        raise translation(error, settings, opening=True) from error


def drive(connection: Connection, steps: Steps[R], settings: Settings) -> R:
    """Run the conversation: statements out, rows in; errors are thrown in.

    Args:
        connection: in a transaction; after an error PostgreSQL refuses whatever else is said in it.
        steps: the operation.
        settings: for messages.

    Returns:
        The result of the operation.

    Raises:
        StoreError: the database refused.
    """
    # A cursor of ours and not one of the connection's factory: a user's connection may have any.
    with psycopg.RawCursor(connection, row_factory=tuple_row) as cursor:
        try:
            query = next(steps)
            while True:
                try:
                    rows = _execute(cursor, query, settings)
                except psycopg.Error as error:
                    query = steps.throw(translation(error, settings))
                else:
                    query = steps.send(rows)
        except StopIteration as stop:
            result: R = stop.value
            return result


def _execute(cursor: psycopg.Cursor[tuple[Any, ...]], query: Query, settings: Settings) -> Rows:
    statement = prepared(settings.schema)[query.name]
    cursor.execute(statement.text, arguments(query, statement.names), binary=True)
    return read(cursor.fetchall() if cursor.description else [], query, cursor.description)


def read(rows: list[tuple[Any, ...]], query: Query, description: Sequence[psycopg.Column] | None) -> Rows:
    """Read rows into the records that were asked for.

    Args:
        rows: as psycopg reads them.
        query: what was asked.
        description: of their columns.

    Returns:
        The records, or the rows.
    """
    if query.into is None or not rows:
        return rows
    step = decoder(query.into, tuple(column.name for column in description or ()))
    return [step(row) for row in rows]


class SyncRunner:
    """Runs operations, each on a connection that no other thread uses meanwhile.

    Args:
        settings: which database, and how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free = threading.BoundedSemaphore(settings.pool)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def run(self, operation: Operation[R], *, ending: str) -> R:
        """Run an operation in a transaction of its own.

        Args:
            operation: what to run.
            ending: the statements that end the transaction.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        with self._lent(operation) as connection:
            result = drive(connection, operation.steps, self._settings)
            self._say(connection, ending)
            return result

    def close(self) -> None:
        """Close the connections; one that is in use is closed when it comes back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def _lent(self, operation: Operation[Any]) -> Iterator[Connection]:
        if not self._free.acquire(timeout=self._settings.timeout.total_seconds()):
            message = f"all {self._settings.pool} connections to {self._settings} are in use: set ?pool= higher"
            raise StoreBusy(message)
        try:
            connection = self._begun(begin(writes=operation.writes))
            try:
                yield connection
            except BaseException:
                # Whatever state it is in: what is left of the transaction goes with it.
                self._undo(connection)
                raise
            finally:
                self._give_back(connection)
        finally:
            self._free.release()

    def _begun(self, beginning: str) -> Connection:
        """Begin a transaction. Connections that have died while nobody used them are passed over."""
        while True:
            with self._lock:
                if self._closed:
                    message = f"{self._settings} has been closed"
                    raise StoreClosed(message)
                connection = self._idle.pop() if self._idle else None
            fresh = connection is None
            connection = connection or connect(self._settings)
            try:
                connection.execute(beginning)
            except psycopg.Error as error:
                connection.close()
                if fresh:
                    raise translation(error, self._settings) from error
            else:
                return connection

    def _say(self, connection: Connection, text: str) -> None:
        try:
            connection.execute(text)
        except psycopg.Error as error:
            raise translation(error, self._settings) from error

    def _undo(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except BaseException:  # noqa: BLE001 - what went wrong is being raised already
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()
