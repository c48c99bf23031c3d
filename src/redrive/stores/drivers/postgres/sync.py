"""The synchronous runner: psycopg 3, with connections of its own, for any number of threads.

psycopg itself waits for an answer for ever, and so does a TCP connection to a server process that was stopped: its
kernel goes on to acknowledge. Therefore each wait of these connections has a deadline. A connection whose answer does
not come in time is closed at once, without a word to the server; whether a write took effect is then unknown.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.clock import SystemClock
from redrive.errors import StoreBusy, StoreClosed
from redrive.stores.dialects.postgres.values import decoder
from redrive.stores.drivers.postgres.arrays import ListDumper
from redrive.stores.drivers.postgres.conversation import Statement, Talk, part, whole
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import session
from redrive.stores.query import Operation, Rows, Steps

__all__ = ["Connection", "SyncRunner", "connect", "drive", "read"]

R = TypeVar("R")
Cursor = psycopg.RawCursor[tuple[Any, ...]]

_LEAST_TO_CONNECT = 2
"""Seconds; libpq takes a shorter time to connect for this one."""

_monotonic = SystemClock.monotonic


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for an answer for ever.

    Attributes:
        patience: seconds that one answer may take.
        until: the instant of the monotonic clock by which an answer must have come, if that is earlier.
    """

    patience = math.inf
    until = math.inf

    def wait(self, gen: Generator[Any, Any, R], *args: Any, **kwargs: Any) -> R:  # noqa: ANN401 - psycopg's own
        """Wait for an answer, as psycopg does, until its time is up; then close the connection.

        Raises:
            psycopg.OperationalError: there was no answer in time.
        """
        now = _monotonic()
        seconds = min(self.patience, self.until - now)
        try:
            return super().wait(_within(gen, seconds, now + seconds), *args, **kwargs)
        except _NoAnswer:
            self.close()
            raise


class _NoAnswer(psycopg.OperationalError):
    """The server did not answer in time."""


def _within(gen: Generator[Any, Any, R], seconds: float, until: float) -> Generator[Any, Any, R]:
    """Pass on what psycopg's generator waits for, and raise where nothing has come until this instant.

    psycopg resumes the generator ten times a second, also when there is nothing to read.
    """
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and _monotonic() >= until:
                message = f"no answer within {max(seconds, 0):.1f} s"
                raise _NoAnswer(message)
            wanted = gen.send(ready)
    except StopIteration as stop:
        result: R = stop.value
        return result


def connect(settings: Settings, *, until: float = math.inf) -> Connection:
    """Open a connection in autocommit mode: transactions are begun in so many words.

    Args:
        settings: which database, and how.
        until: the instant of the monotonic clock by which it should be open, if that is earlier than the settings say.

    Returns:
        The connection.

    Raises:
        StoreError: it cannot be opened.
    """
    seconds = min(settings.timeout.total_seconds(), until - _monotonic())
    try:
        connection = Connection.connect(
            settings.dsn,
            autocommit=True,
            # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
            prepare_threshold=None if settings.pgbouncer else 2,
            connect_timeout=max(_LEAST_TO_CONNECT, round(seconds)),
            tcp_user_timeout=round(settings.timeout.total_seconds() * 1000),
        )
    except psycopg.Error as error:
        raise translation(error, settings, opening=True) from error
    connection.patience = settings.timeout.total_seconds()
    connection.adapters.register_dumper(list, ListDumper)
    return connection


def drive(connection: psycopg.Connection[Any], steps: Steps[R], settings: Settings) -> R:
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


def _cursor(connection: psycopg.Connection[Any]) -> Cursor:
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


def _say(cursor: Cursor, said: Statement) -> Rows:
    if said.values is None:
        cursor.execute(said.text, prepare=False)
        return []
    cursor.execute(said.text, said.values, binary=True)
    return read(cursor.fetchall() if cursor.description else [], said, cursor.description)


def read(rows: list[tuple[Any, ...]], said: Statement, description: Sequence[psycopg.Column] | None) -> Rows:
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

    def run(self, operation: Operation[R], is_news: Callable[[], bool] = bool, *, timeout: float = math.inf) -> R:
        """Run an operation in a transaction of its own.

        The first answer comes within the timeout of the settings, whether or not a connection has to be waited for and
        opened; each of the others takes so long at most.

        Args:
            operation: what to run.
            is_news: asked at the end of one that wakes, whether workers are to be told.
            timeout: seconds that all of it may take.

        Returns:
            Its result.

        Raises:
            StoreBusy: no connection was free in time.
            StoreUnreachable: there was no answer in time, or no connection.
            StoreError: the database refused.
        """
        now = _monotonic()
        until, first_until = now + timeout, now + min(timeout, self._settings.timeout.total_seconds())
        talk = whole(operation, self._settings, is_news)
        try:
            first = next(talk)
        except StopIteration as stop:
            answer: R = stop.value
            return answer
        with self._turn(first_until):
            connection, cursor, rows = self._opened(first, first_until)
            connection.until = until
            try:
                return _hold(cursor, talk, self._settings, rows)
            except BaseException:
                # Whatever state it is in: what is left of the transaction goes with it.
                self._undo(connection)
                raise
            finally:
                self._give_back(connection)

    def close(self) -> None:
        """Close the connections; one that is in use is closed when it comes back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def _turn(self, until: float) -> Iterator[None]:
        if not self._free.acquire(timeout=max(until - _monotonic(), 0)):
            message = f"all {self._settings.pool} connections to {self._settings} are in use: set ?pool= higher"
            raise StoreBusy(message)
        try:
            yield
        finally:
            self._free.release()

    def _opened(self, first: Statement, until: float) -> tuple[Connection, Cursor, Rows]:
        """Send the first statement. Connections that have died while they were idle are passed over.

        One that does not answer in time is not: then the time is up.
        """
        while True:
            with self._lock:
                if self._closed:
                    message = f"{self._settings} has been closed"
                    raise StoreClosed(message)
                idle = self._idle.pop() if self._idle else None
            connection = idle or connect(self._settings, until=until)
            connection.until = until
            cursor = _cursor(connection)
            try:
                if idle is None and not self._settings.pgbouncer:
                    _say(cursor, Statement(session(self._settings)))
                return connection, cursor, _say(cursor, first)
            except BaseException as error:
                connection.close()
                if not isinstance(error, psycopg.Error):
                    raise
                if idle is None or first.commits is not None or isinstance(error, _NoAnswer):
                    raise translation(error, self._settings, commits=first.commits) from error

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
