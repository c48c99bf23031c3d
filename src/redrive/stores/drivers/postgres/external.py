"""Execution of operations in the user's own transaction, on the user's connection."""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg
import psycopg
from asyncpg.pool import PoolConnectionProxy
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.errors import StoreError, StoreMismatch, StoreOpenError
from redrive.stores.drivers.postgres import aio, sync
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.script import Statement, inner_script, lent_statement, notifies
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.operations.admin import identify
from redrive.stores.query import Compound, Operation, Query, R, Rows, Statements


def run_on(given: object, operation: Operation[R], settings: PostgresSettings, uid: str) -> R:
    """Run an operation in the user's transaction, on a connection of psycopg or Django or a session of SQLAlchemy.

    Raise `StoreMismatch` if it is another object or belongs to another database; ``uid`` is the id of the database.
    """
    connection = _below(given, settings)
    commits: str | None = None
    try:
        query = next(operation.steps)
        if isinstance(query, Query) and notifies(query, settings):
            # psycopg begins the user's transaction, unless the connection is in autocommit mode.
            commits = operation.name if connection.autocommit and _is_idle(connection) else None
            rows = sync.ask(connection, lent_statement(query, operation, settings, uid))
            if not rows:
                _check(sync.drive(connection, identify("uid").steps, settings), uid, settings)
            query = operation.steps.send(rows)
        if not connection.autocommit and _is_idle(connection):
            # Begins the user's transaction; otherwise psycopg would commit at the end of the block below.
            connection.execute("SELECT")
        alone = _is_idle(connection)
        with connection.transaction():
            try:
                found = sync.drive(connection, identify("uid").steps, settings)
            except StoreOpenError:
                found = None
            _check(found, uid, settings)
            result = sync.drive(connection, operation.steps, settings, query)
            if operation.wakes and settings.notify:
                connection.execute(_notify(settings))
            # In autocommit mode, without an open transaction, the end of this block is a commit.
            commits = operation.name if alone and operation.writes else None
        return result
    except StopIteration as stop:
        single: R = stop.value
        return single
    except sync.ERRORS as error:
        raise _without_tables(translation(error, settings, commits=commits), settings) from error


async def arun_on(given: object, operation: Operation[R], settings: PostgresSettings, uid: str) -> R:
    """Run an operation in the user's transaction; see `run_on`.

    The connection is one of asyncpg, an asynchronous one of psycopg, or an asynchronous connection or session of
    SQLAlchemy.
    """
    connection = await _abelow(given, settings)
    other = isinstance(connection, psycopg.AsyncConnection)
    drive: Any = _drive if other else aio.drive
    ask: Any = _ask if other else aio.ask
    commits: str | None = None
    try:
        alone = _is_idle(connection) if other else not connection.is_in_transaction()
        commits_alone = alone and (not other or connection.autocommit)
        query = next(operation.steps)
        if isinstance(query, Query) and notifies(query, settings):
            commits = operation.name if commits_alone else None
            rows = await ask(connection, lent_statement(query, operation, settings, uid))
            if not rows:
                _check(await drive(connection, identify("uid").steps, settings), uid, settings)
            query = operation.steps.send(rows)
        if alone and not commits_alone:
            await connection.execute("SELECT")
        async with connection.transaction():
            try:
                found = await drive(connection, identify("uid").steps, settings)
            except StoreOpenError:
                found = None
            _check(found, uid, settings)
            result: R = await drive(connection, operation.steps, settings, query)
            if operation.wakes and settings.notify:
                await connection.execute(_notify(settings))
            commits = operation.name if commits_alone and operation.writes else None
        return result
    except StopIteration as stop:
        single: R = stop.value
        return single
    except (*sync.ERRORS, *aio.ERRORS) as error:
        raise _without_tables(aio.failure(error, settings, commits=commits), settings) from error


# The operation runs in a savepoint: if it fails, the user's transaction continues without it. One that is a single
# statement needs none, for the statement is refused by the database itself only if any statement would be.
async def _drive(
    connection: psycopg.AsyncConnection[Any],
    steps: Statements[R],
    settings: PostgresSettings,
    first: Query | Compound | None = None,
) -> R:
    """Run an operation on an asynchronous connection of psycopg, which only users have."""
    script = inner_script(steps, settings, first)
    try:
        statement = next(script)
        while True:
            try:
                rows = await _ask(connection, statement)
            except sync.ERRORS as error:
                statement = script.throw(translation(error, settings))
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


async def _ask(connection: psycopg.AsyncConnection[Any], statement: Statement) -> Rows:
    async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        # In pipeline mode the end of a block within the pipeline fetches the answer.
        async with connection.pipeline() if connection.pgconn.pipeline_status else contextlib.nullcontext():
            await cursor.execute(statement.text, statement.values, binary=True)
        rows = await cursor.fetchall() if sync.returns_rows(cursor) else []
        return sync.read(rows, statement, cursor)


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return True if no transaction is open."""
    return connection.info.transaction_status is TransactionStatus.IDLE


def _notify(settings: PostgresSettings) -> str:
    # Always: the instant when the user commits is unknown. PostgreSQL sends the notifications of a transaction once.
    return f'NOTIFY "{settings.channel}"'


def _check(found: str | None, uid: str, settings: PostgresSettings) -> None:
    if found != uid:
        raise _mismatch(settings)


def _mismatch(settings: PostgresSettings) -> StoreMismatch:
    return StoreMismatch(
        f"using= is a connection to another database than {settings}, where the app's jobs are: only one to the "
        "same database can enqueue in its transaction"
    )


def _without_tables(error: StoreError, settings: PostgresSettings) -> StoreError:
    return _mismatch(settings) if isinstance(error, StoreOpenError) else error


# The library of a connection is recognised by the name of its module, without importing it. Libraries on top of psycopg
# and asyncpg are first made to begin their transaction, so that they end it, and then asked for the connection below.
def _below(given: Any, settings: PostgresSettings) -> psycopg.Connection[Any]:  # noqa: ANN401 - of any library
    """Return the connection of psycopg below a connection or session of another library."""
    connection = given
    if _of(given, "sqlalchemy") and not hasattr(given, "sync_session") and not hasattr(given, "sync_connection"):
        # A session has a method of this name; a connection is one already.
        connection = given.connection() if callable(given.connection) else given
        if not connection.in_transaction():
            connection.begin()
        connection = connection.connection.driver_connection
    elif _of(given, "django"):
        given.ensure_connection()
        connection = given.connection
    if isinstance(connection, psycopg.Connection):
        return connection
    raise StoreMismatch(_refusal(given, connection, settings, "a psycopg.Connection, or one of SQLAlchemy or Django"))


async def _abelow(given: Any, settings: PostgresSettings) -> Any:  # noqa: ANN401 - of any library
    """Return the connection of asyncpg, or the asynchronous one of psycopg, below that of another library."""
    connection = given
    if hasattr(given, "sync_session") and _of(given, "sqlalchemy"):
        connection = await given.connection()
    if hasattr(connection, "sync_connection") and _of(connection, "sqlalchemy"):
        below = (await connection.get_raw_connection()).driver_connection
        if not connection.in_transaction():
            await connection.begin()
        if isinstance(below, asyncpg.Connection) and not below.is_in_transaction():
            # SQLAlchemy begins a transaction of asyncpg with its first statement.
            await connection.exec_driver_sql("SELECT 1")
        connection = below
    if isinstance(connection, psycopg.AsyncConnection | asyncpg.Connection | PoolConnectionProxy):
        return connection
    raise StoreMismatch(
        _refusal(given, connection, settings, "an asynchronous connection of asyncpg, psycopg or SQLAlchemy")
    )


def _of(given: object, library: str) -> bool:
    return any(each.__module__.partition(".")[0] == library for each in type(given).__mro__)


def _refusal(given: object, below: object, settings: PostgresSettings, wanted: str) -> str:
    got = type(given)
    what = f"{got.__module__.partition('.')[0]}.{got.__qualname__}"
    if below is not given:
        what += f" on {type(below).__module__.partition('.')[0]}"
    hint = "enqueue takes synchronous connections, aenqueue asynchronous ones"
    return f"using= takes {wanted} to {settings}, not a {what}; {hint}"
