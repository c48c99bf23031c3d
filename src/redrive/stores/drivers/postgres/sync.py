"""The synchronous runner: psycopg 3, with connections of its own, for any number of threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.errors import StoreBusy, StoreClosed
from redrive.stores.dialects.postgres.values import decoder
from redrive.stores.drivers.postgres.arrays import ListDumper
from redrive.stores.drivers.postgres.conversation import Said, Talk, part, whole
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import session
from redrive.stores.drivers.postgres.trouble import translation
from redrive.stores.query import Operation, Rows, Steps

__all__ = ["SyncRunner", "connect", "drive", "read"]

R = TypeVar("R")
Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.RawCursor[tuple[Any, ...]]


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
        connection = psycopg.connect(
            settings.dsn,
            autocommit=True,
            # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
            prepare_threshold=None if settings.pgbouncer else 2,
            connect_timeout=max(1, round(settings.timeout.total_seconds())),
            tcp_user_timeout=round(settings.timeout.total_seconds() * 1000),
        )
    except psycopg.Error as error:
        raise translation(error, settings, opening=True) from error
    connection.adapters.register_dumper(list, ListDumper)
    return connection


def drive(connection: Connection, steps: Steps[R], settings: Settings) -> R:
    """Run an operation in a transaction that somebody else ends.

    Args:
        connection: in a transaction; after an error PostgreSQL refuses whatever else is said in it.
        steps: the operation.
        settings: for messages.

    Returns:
        The result of the operation.

    Raises:
        StoreError: the database refused.
    """
    with _cursor(connection) as cursor:
        return _hold(cursor, part(steps, settings), settings)


def _cursor(connection: Connection) -> Cursor:
    # Ours, and not one of the connection's factory: a user's connection may have any.
    return psycopg.RawCursor(connection, row_factory=tuple_row)


def _hold(cursor: Cursor, talk: Talk[R], settings: Settings, rows: Rows | None = None) -> R:
    """Hold a conversation: statements out, rows in; errors are thrown in."""
    try:
        said = talk.send(rows)
        while True:
            try:
                rows = _say(cursor, said)
            except psycopg.Error as error:
                said = talk.throw(translation(error, settings, commits=said.commits))
            else:
                said = talk.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


def _say(cursor: Cursor, said: Said) -> Rows:
    if said.values is None:
        cursor.execute(said.text, prepare=False)
        return []
    cursor.execute(said.text, said.values, binary=True)
    return read(cursor.fetchall() if cursor.description else [], said, cursor.description)


def read(rows: list[tuple[Any, ...]], said: Said, description: Sequence[psycopg.Column] | None) -> Rows:
    """Read rows into the records that were asked for.

    Args:
        rows: as psycopg reads them.
        said: what was asked.
        description: of their columns.

    Returns:
        The records, or the rows.
    """
    if said.into is None or not rows:
        return rows
    return decoder(said.into, tuple(column.name for column in description or ()))(rows)


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

    def run(self, operation: Operation[R], is_news: Callable[[], bool] = bool) -> R:
        """Run an operation in a transaction of its own.

        Args:
            operation: what to run.
            is_news: asked at the end of one that wakes, whether workers are to be told.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        talk = whole(operation, self._settings, is_news)
        try:
            first = next(talk)
        except StopIteration as stop:
            answer: R = stop.value
            return answer
        with self._turn():
            cursor, rows = self._opened(first)
            try:
                return _hold(cursor, talk, self._settings, rows)
            except BaseException:
                # Whatever state it is in: what is left of the transaction goes with it.
                self._undo(cursor.connection)
                raise
            finally:
                self._give_back(cursor.connection)

    def close(self) -> None:
        """Close the connections; one that is in use is closed when it comes back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._free.acquire(timeout=self._settings.timeout.total_seconds()):
            message = f"all {self._settings.pool} connections to {self._settings} are in use: set ?pool= higher"
            raise StoreBusy(message)
        try:
            yield
        finally:
            self._free.release()

    def _opened(self, first: Said) -> tuple[Cursor, Rows]:
        """Say the first thing. Connections that have died while nobody used them are passed over."""
        while True:
            with self._lock:
                if self._closed:
                    message = f"{self._settings} has been closed"
                    raise StoreClosed(message)
                connection = self._idle.pop() if self._idle else None
            fresh = connection is None
            cursor = _cursor(connection or connect(self._settings))
            try:
                if fresh and not self._settings.pgbouncer:
                    _say(cursor, Said(session(self._settings)))
                return cursor, _say(cursor, first)
            except BaseException as error:
                cursor.connection.close()
                if not isinstance(error, psycopg.Error):
                    raise
                if fresh:
                    raise translation(error, self._settings) from error

    def _undo(self, connection: Connection) -> None:
        if connection.info.transaction_status is TransactionStatus.IDLE:
            return
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
