"""The runner for synchronous callers: psycopg 3, with connections of its own, for any number of threads."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import select
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.clock import SystemClock
from redrive.errors import StoreBusy, StoreClosed
from redrive.stores.drivers.postgres.arrays import ListDumper
from redrive.stores.drivers.postgres.errors import ends_session, is_read_only, no_server, translation
from redrive.stores.drivers.postgres.liveness import answers, lost_text
from redrive.stores.drivers.postgres.script import Script, Statement, full_script, inner_script
from redrive.stores.drivers.postgres.servers import Address, Attempt, NoServer, Search, Servers, Session, no_answer
from redrive.stores.drivers.postgres.settings import SHORTEST, PostgresSettings
from redrive.stores.drivers.postgres.statements import STATE, compiled, durability, session
from redrive.stores.drivers.postgres.timeline import Timeline
from redrive.stores.query import Compound, Operation, Query, R, Rows, Statements
from redrive.stores.values.postgres import decoder

# Seconds after which a connection that nothing has used is closed: a fleet of idle workers would take the sessions of
# the server with what each of them needs at times.
IDLE = 60.0

Cursor = psycopg.RawCursor[tuple[Any, ...]]

# The errors of psycopg when the database refuses or does not answer, and that of Python for a text that the encoding of
# the connection does not have, such as one with a lone surrogate.
ERRORS = (psycopg.Error, UnicodeEncodeError)

# Errors about a value.
_UNFIT = (psycopg.DataError, UnicodeEncodeError)

_SHORTEST_CONNECT = round(SHORTEST.total_seconds())

_monotonic = SystemClock.monotonic

#: Names of the columns of each statement: psycopg has them as bytes, one by one.
_COLUMNS: dict[str, tuple[str, ...]] = {}


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection with a deadline for each answer.

    Attributes:
        patience: seconds that one answer may take.
        until: instant of the monotonic clock by which an answer must have come, if that is earlier.
        servers: those of which it has one.
        address: its server.
        era: that of the store when it was opened.
        turn: the turn of the servers when it was opened.
        limit: seconds without an answer after which it asks whether its server is there.
        over: True if another object has taken over its session; see `renewed`.
        is_lent: True if it is that of a handler.
    """

    over = is_lent = False
    patience: float = math.inf
    until: float = math.inf
    servers: Servers = Servers()
    address: Address = Address("")
    turn = 0
    era = 0
    limit: float = math.inf

    @property
    def is_read_only(self) -> bool:
        """True if the server has reported that new transactions of the session cannot write."""
        reported = self.pgconn.parameter_status
        return reported(b"in_hot_standby") == b"on" or reported(b"default_transaction_read_only") == b"on"

    @property
    def closed(self) -> bool:
        """True if it cannot be used any more."""
        return self.over or super().closed

    def commit(self) -> None:
        """Commit; a handler must not do that."""
        if self.is_lent:
            raise psycopg.ProgrammingError("commit() is forbidden: the end of ctx.transaction() commits")
        super().commit()

    def rollback(self) -> None:
        """Roll back; a handler must not do that."""
        if self.is_lent:
            raise psycopg.ProgrammingError("rollback() is forbidden: an error that leaves ctx.transaction() rolls back")
        super().rollback()

    @functools.cached_property
    def own_cursor(self) -> Cursor:
        """The cursor for all statements of redrive: a new one would look up again how each type is read and written."""
        return _cursor(self)

    def wait(self, gen: Generator[Any, Any, R], *args: Any, **kwargs: Any) -> R:  # noqa: ANN401 - psycopg's own
        """Wait for an answer, as psycopg does, until the deadline; then close the connection."""
        # psycopg waits for an answer without limit, and so does a TCP connection to a server process that was stopped:
        # its kernel continues to acknowledge. Whether a write took effect is then unknown.
        if self.over:
            raise psycopg.OperationalError("the connection is closed: its transaction has ended")
        now = _monotonic()
        seconds = min(self.patience, self.until - now)
        try:
            return super().wait(self._with_deadline(gen, seconds, now + seconds), *args, **kwargs)
        except NoAnswer:
            self.close()
            raise

    def _with_deadline(self, gen: Generator[Any, Any, R], seconds: float, until: float) -> Generator[Any, Any, R]:
        """Run psycopg's generator, and raise if the socket is not ready by the deadline, or the server is lost."""
        # psycopg resumes the generator ten times a second, also when there is no data to read.
        look_at = _monotonic() + self.limit
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready:
                    now = _monotonic()
                    if now >= until:
                        raise NoAnswer(no_answer(max(seconds, 0)))
                    if now >= look_at:
                        self._look(min(self.limit, until - now))
                        look_at = _monotonic() + self.limit
                wanted = gen.send(ready)
        except StopIteration as stop:
            result: R = stop.value
            return result

    def _look(self, seconds: float) -> None:
        """Raise if the server does not answer on a new connection either."""
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as own:
            peer = own.getpeername()
        if not answers(peer, seconds):
            self.servers.lost(self.address)
            raise Lost(lost_text(self.address, seconds))


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time."""


class Lost(NoAnswer):
    """The server does not answer on a new connection either."""


def connect(settings: PostgresSettings, *, until: float = math.inf) -> Connection:
    """Open a connection in autocommit mode to the first server that can be used.

    Raise `StoreError` if there is none by the instant ``until`` of the monotonic clock, or within the timeout of the
    settings if that is earlier. libpq and psycopg try each server for two seconds at least.
    """
    trying: Search[Connection] = settings.search(
        settings.servers, now=_monotonic(), until=until, close=Connection.close
    )
    with contextlib.closing(trying):
        try:
            attempt = next(trying)
            while True:
                attempt = trying.send((_tried(settings, attempt), _monotonic()))
        except StopIteration as stop:
            connection: Connection = stop.value
            return connection
        except NoServer as error:
            raise no_server(error, settings) from error.failures[-1][1]


def _tried(settings: PostgresSettings, attempt: Attempt) -> Session[Connection] | psycopg.Error:
    """Try one server."""
    try:
        connection = _open(settings, attempt)
    except psycopg.errors.ConnectionTimeout:
        return psycopg.errors.ConnectionTimeout(no_answer(max(attempt.seconds, _SHORTEST_CONNECT)))
    except psycopg.Error as error:
        return error
    try:
        return _session(connection, settings)
    except BaseException as error:
        connection.close()
        if isinstance(error, psycopg.Error):
            return error
        raise


def _open(settings: PostgresSettings, attempt: Attempt) -> Connection:
    turn = settings.servers.turn
    connection = Connection.connect(
        settings.dsn,
        **attempt.address.place,
        autocommit=True,
        # A database with the encoding SQL_ASCII takes any bytes, and would let psycopg return them.
        client_encoding="utf8",
        prepare_threshold=_threshold(settings),
        connect_timeout=max(_SHORTEST_CONNECT, round(attempt.seconds)),
        tcp_user_timeout=round(settings.timeout.total_seconds() * 1000),
        # The settings have it, also from the environment; see `_session`.
        target_session_attrs="any",
    )
    connection.servers, connection.address, connection.turn = settings.servers, attempt.address, turn
    connection.limit = settings.patience(settings.servers)
    connection.patience = attempt.seconds
    connection.adapters.register_dumper(list, ListDumper)
    return connection


# An object has state of its own beside the session, such as adapters, factories, handlers and prepared statements. Code
# that has kept the earlier object, or a cursor of it, cannot use the session any more.
def renewed(earlier: Connection) -> Connection:
    """Return another object for the session of a connection, which prepares no statements; end the earlier object.

    Raise `psycopg.OperationalError` if another thread has used the connection for the time of an answer.
    """
    # A thread may be in the middle of a statement.
    if not earlier.lock.acquire(timeout=min(earlier.patience, threading.TIMEOUT_MAX)):
        raise psycopg.OperationalError("another thread uses the connection")
    try:
        earlier.over = True
        connection = type(earlier)(earlier.pgconn)
    finally:
        earlier.lock.release()
    for name in ("servers", "address", "turn", "era", "limit", "patience"):
        setattr(connection, name, getattr(earlier, name))
    connection.adapters.register_dumper(list, ListDumper)
    # Statements of the earlier object may have the same names.
    connection.prepare_threshold = None
    return connection


def again(kept: Connection, settings: PostgresSettings) -> Connection:
    """Return an object for the session of an idle connection without prepared statements, in the state of a new one."""
    connection = renewed(kept)
    connection.autocommit = True
    connection.prepare_threshold = _threshold(settings)
    return connection


def _threshold(settings: PostgresSettings) -> int | None:
    # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
    return None if settings.pgbouncer else 2


def _session(connection: Connection, settings: PostgresSettings) -> Session[Connection]:
    """Return a session as `search` judges it; it has the whole timeout for each answer from now on."""
    standby, read_only = False, False
    if settings.servers.wanted != "any":
        reported = connection.pgconn.parameter_status
        standby, read_only = reported(b"in_hot_standby") == b"on", connection.is_read_only
        if settings.pgbouncer:
            # It reports the state of a session that it had before.
            ((standby, read_only),) = connection.own_cursor.execute(STATE).fetchall()
    connection.patience = settings.timeout.total_seconds()
    return Session(connection, standby, read_only)


def begin_session(connection: Connection, settings: PostgresSettings, timeline: Timeline) -> None:
    """Set the settings of a session, and record its server."""
    cursor = connection.own_cursor
    try:
        cursor.execute(session(settings, timeline.server), prepare=False)
    except psycopg.Error as error:
        if not timeline.refused(error.sqlstate):
            raise
        cursor.execute(session(settings), prepare=False)
    row = cursor.fetchone()
    connection.era = timeline.meet(None if row is None else row[-1])


def meet(connection: Connection, timeline: Timeline) -> None:
    """Record the server of a session, whose settings are those of the server."""
    connection.era = timeline.era
    try:
        row = connection.own_cursor.execute(f"SELECT {timeline.server}", prepare=False).fetchone()
    except psycopg.Error as error:
        if not timeline.refused(error.sqlstate):
            raise
    else:
        connection.era = timeline.meet(None if row is None else row[0])


def drive(
    connection: psycopg.Connection[Any],
    steps: Statements[R],
    settings: PostgresSettings,
    first: Query | Compound | None = None,
) -> R:
    """Run an operation in a transaction that the caller ends; after an error PostgreSQL refuses further statements.

    ``first`` is its first query, if the caller has taken it already.
    """
    return execute(connection, inner_script(steps, settings, first), settings)


def execute(connection: psycopg.Connection[Any], script: Script[R], settings: PostgresSettings) -> R:
    """Execute the statements of a script, in a transaction that the caller ends."""
    with _cursor(connection) as cursor:
        return _run(cursor, script, settings)


def ask(connection: psycopg.Connection[Any], statement: Statement) -> Rows:
    """Execute one statement on a connection of the user and return its rows."""
    with _cursor(connection) as cursor:
        return _execute(cursor, statement)


def _cursor(connection: psycopg.Connection[Any]) -> Cursor:
    # Not made by the connection's factory: a user's connection may have any.
    return psycopg.RawCursor(connection, row_factory=tuple_row)


def _run(
    cursor: Cursor,
    script: Script[R],
    settings: PostgresSettings,
    rows: Rows | None = None,
    failed: Callable[[BaseException], None] | None = None,
) -> R:
    """Execute the statements of a script; send it the rows, throw errors into it, and call ``failed`` with them."""
    try:
        statement = script.send(rows)
        while True:
            try:
                rows = _execute(cursor, statement)
            except ERRORS as error:
                if failed is not None:
                    failed(error)
                statement = script.throw(translation(error, settings, commits=statement.commits))
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


def _execute(cursor: Cursor, statement: Statement) -> Rows:
    if statement.values is None:
        cursor.execute(statement.text, prepare=False)
        if not statement.counts:
            return []
        while cursor.nextset():
            pass
        return [()] * cursor.rowcount
    if cursor.connection.pgconn.pipeline_status:
        # A user's connection in pipeline mode: the end of a block within the pipeline fetches the answer.
        with cursor.connection.pipeline():
            cursor.execute(statement.text, statement.values, binary=True)
    else:
        cursor.execute(statement.text, statement.values, binary=True)
    return read(cursor.fetchall() if returns_rows(cursor) else [], statement, cursor)


def returns_rows(cursor: psycopg.RawCursor[Any] | psycopg.AsyncRawCursor[Any]) -> bool:
    """Return True if the last statement may have rows."""
    # ``cursor.description`` makes an object for each column.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def read(
    rows: list[tuple[Any, ...]], statement: Statement, cursor: psycopg.RawCursor[Any] | psycopg.AsyncRawCursor[Any]
) -> Rows:
    """Return rows as the records that the statement asks for."""
    if statement.into is None or not rows or cursor.pgresult is None:
        return rows
    columns = _COLUMNS.get(statement.text)
    if columns is None:
        names = map(cursor.pgresult.fname, range(cursor.pgresult.nfields))
        columns = tuple(name.decode() for name in names if name)
    decode = decoder(statement.into, columns)
    _COLUMNS[statement.text] = columns
    return decode(rows)


class SyncRunner:
    """A pool of connections that runs operations; each connection is used by one thread at a time."""

    def __init__(self, settings: PostgresSettings, timeline: Timeline) -> None:
        self._settings = settings
        self._timeline = timeline
        # Not a semaphore, which is a condition with more Python code around it.
        self._lock = threading.RLock()  # a signal handler or a finalizer may enqueue in the middle of another call
        self._given_back = threading.Condition(self._lock)
        self._waiting = 0
        self._in_use = 0
        #: Connections that are not in use, and since when, by that time.
        self._idle: list[tuple[Connection, float]] = []
        self._closed = False

    def run(self, operation: Operation[R], should_notify: Callable[[], bool] = bool, *, timeout: float = math.inf) -> R:
        """Run an operation in a transaction of its own.

        The first answer must come within the timeout of the settings, including the time to wait for a connection and
        to open it; each further answer has that time for itself. Raise `StoreBusy` if no connection was free in time,
        `StoreUnreachable` if there was no answer in time, or no connection, or `StoreError` if the database refused.
        """
        now = _monotonic()
        until, first_until = now + timeout, now + min(timeout, self._settings.timeout.total_seconds())
        script = full_script(operation, self._settings, should_notify)
        try:
            first = next(script)
        except StopIteration as stop:
            answer: R = stop.value
            return answer
        connection, cursor, rows = self._checkout(first, first_until, operation.era)
        connection.until = until
        try:
            return _run(cursor, script, self._settings, rows, functools.partial(self._close_spent, connection))
        except BaseException:
            self._undo(connection)
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close the connections; one that is in use is closed when it is given back. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def _checkout(self, first: Statement, until: float, era: int | None) -> tuple[Connection, Cursor, Rows]:
        """Take a connection and execute the first statement on it; skip connections that died while they were idle."""
        taken = False
        try:
            with self._lock:
                if self._in_use >= self._settings.pool:
                    self._wait(until)
                self._in_use += 1
                taken = True
            while True:
                idle = self._pop()
                if idle is not None and (not self._is_current(idle) or _has_ended(idle)):
                    idle.close()
                    continue
                connection = idle or connect(self._settings, until=until)
                connection.until = until
                cursor, commits = connection.own_cursor, None
                try:
                    if idle is None and not self._settings.pgbouncer:
                        begin_session(connection, self._settings, self._timeline)
                    self._timeline.check(era, self._settings)
                    commits = first.commits
                    return connection, cursor, _execute(cursor, first)
                except BaseException as error:
                    connection.close()
                    if not isinstance(error, ERRORS):
                        raise
                    self._close_spent(connection, error)
                    # A connection that does not answer in time is not skipped: the time is up. Nor is one that
                    # refuses a value, as each would.
                    may_have_committed = commits is not None and not is_read_only(error)
                    is_final = isinstance(error, (NoAnswer, *_UNFIT)) and not isinstance(error, Lost)
                    if idle is None or may_have_committed or is_final:
                        raise translation(error, self._settings, commits=commits) from error
        except BaseException:
            if taken:
                self._give_back(None)
            raise

    def _wait(self, until: float) -> None:
        """Wait, with the lock, until another thread has given a connection back."""
        self._waiting += 1
        try:
            size = self._settings.pool
            if not self._given_back.wait_for(lambda: self._in_use < size, max(until - _monotonic(), 0)):
                raise StoreBusy(f"all {size} connections to {self._settings} are in use: set ?pool= higher")
        finally:
            self._waiting -= 1

    def _pop(self) -> Connection | None:
        with self._lock:
            if self._closed:
                raise StoreClosed(f"{self._settings} has been closed")
            return self._idle.pop()[0] if self._idle else None

    def _close_spent(self, connection: Connection, error: BaseException) -> None:
        """Close a connection that must not be used after an error, and the idle ones if the server is of no use."""
        if ends_session(error):
            connection.close()
        if is_read_only(error):
            self._settings.servers.lost(connection.address)
        if connection.turn != self._settings.servers.turn:
            # Sessions from before belong to the same server, also those that are in use.
            with self._lock:
                idle, self._idle = self._idle, []
            for each, _ in idle:
                each.close()

    def _undo(self, connection: Connection) -> None:
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except BaseException:  # noqa: BLE001 - the first error is being raised already
            connection.close()

    def _give_back(self, connection: Connection | None) -> None:
        """Let the next operation use a connection; None if there is none that it could use."""
        if connection is not None and not self._is_usable(connection):
            connection.close()
            connection = None
        spare = connection
        with self._lock:
            self._in_use -= 1
            if self._waiting:
                self._given_back.notify()
            if connection is not None and not self._closed:
                now = _monotonic()
                self._idle.append((connection, now))
                spare = self._idle.pop(0)[0] if now - self._idle[0][1] > IDLE else None
        if spare is not None:
            spare.close()

    def _is_current(self, connection: Connection) -> bool:
        return connection.turn == self._settings.servers.turn and connection.era == self._timeline.era

    def _is_usable(self, connection: Connection) -> bool:
        """Return True if the next operation may use a connection."""
        # That of a closed connection is UNKNOWN.
        if connection.pgconn.transaction_status != TransactionStatus.IDLE or not self._is_current(connection):
            return False
        # A pool that gives each transaction another session reports the state of one that it had before.
        return self._settings.pgbouncer or not connection.is_read_only


def _has_ended(connection: Connection) -> bool:
    """Return True if the server has ended the session of an idle connection, or changed what it may do."""
    # A statement that commits cannot be sent again on another connection. The server sends nothing to an idle session
    # but its end, and settings that have changed.
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


class MigrationCursor:
    """A cursor for the statements of migrations, which name no schema: the transaction searches only one.

    Until a migration takes its lock, each answer has the deadline of the connection; after that none.
    """

    def __init__(self, connection: Connection, settings: PostgresSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._cursor = psycopg.RawCursor(connection, row_factory=tuple_row)

    @property
    def look(self) -> tuple[str, ...]:
        """Return the statements before the version is read."""
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            f'SET LOCAL search_path TO "{self._settings.schema}"; {durability(self._settings)}',
        )

    @property
    def lock(self) -> tuple[str, ...]:
        """Return the statements before the first write: one process migrates at a time."""
        return (
            f"SELECT pg_advisory_xact_lock(hashtextextended('redrive.{self._settings.schema}', 0))",
            # CREATE SCHEMA IF NOT EXISTS fails for a role that may not create schemas even if the schema exists.
            f"""DO $$ BEGIN
                IF to_regnamespace('"{self._settings.schema}"') IS NULL THEN
                    CREATE SCHEMA "{self._settings.schema}";
                END IF;
            END $$""",
        )

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Execute one statement, with ``:name`` where it has parameters; raise `StoreError` if that fails."""
        if statement in self.lock:
            # Other processes may migrate for long, and so may this one.
            self._connection.patience = math.inf
        try:
            if parameters is None:
                # A statement of a migration may contain a colon or a dollar.
                self._cursor.execute(statement)
            else:
                wanted = compiled(statement, None)
                self._cursor.execute(wanted.text, [parameters[name] for name in wanted.names])
        except psycopg.Error as error:
            commits = "the migration" if statement == "COMMIT" else None
            raise translation(error, self._settings, opening=True, commits=commits) from error

    def fetchone(self) -> Any:  # noqa: ANN401 - a row
        """Return one row."""
        return self._cursor.fetchone()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
