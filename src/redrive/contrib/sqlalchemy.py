"""Retries for SQLAlchemy 2: classification of errors, and whole transactions as the unit of a retry.

The databases are PostgreSQL, SQLite, MySQL and MariaDB; the tables of their error codes are in
`redrive.contrib.sqlstate` and `redrive.contrib.other_databases`. An engine of another database is refused. ``prove``,
``isolation`` and the limit of statements by a deadline are for PostgreSQL.

From an engine each attempt gets a connection, from a ``sessionmaker`` a session of its own: the next attempt does not
see objects that a failed one has loaded or added. Objects that are used after the commit need
``sessionmaker(expire_on_commit=False)``, since the session is closed then. The version counter of SQLAlchemy's own
optimistic locking (``StaleDataError``) counts as a serialisation failure.

`redrive.contrib.transactions` describes which transactions are repeated, and the outcome of a COMMIT without an answer;
`redrive.contrib.sqlstate` lists the codes. The dialects of psycopg 3 and asyncpg are tested.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

from redrive.contrib import extra, other_databases, sqlstate
from redrive.contrib.transactions import SWALLOWED, Steps, TransactionBlock, decorator
from redrive.errors.foreign import attribute, cause_of, is_a
from redrive.policy import Failure, Policy
from redrive.policy.failure import names_of_class

with extra("sqlalchemy"):
    from sqlalchemy import Connection, Dialect, Engine, event, exc, text
    from sqlalchemy.dialects.mysql.base import MySQLDialect
    from sqlalchemy.dialects.postgresql.base import PGDialect
    from sqlalchemy.dialects.sqlite.base import SQLiteDialect
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, sessionmaker
    from sqlalchemy.orm.exc import StaleDataError

__all__ = ["failure_of", "transaction", "transactional"]

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=Session)
A = TypeVar("A", bound=AsyncSession)

Source: TypeAlias = Engine | AsyncEngine | sessionmaker[Any] | async_sessionmaker[Any]


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure that an exception describes; None if it is no failure of the database.

    As ``on`` of a policy it retries transient failures, and a single statement after a lost connection only if the
    policy is ``idempotent``: it is unknown whether the statement took effect.
    """
    failure = sqlstate.failure_of(error, _code_of(error))
    below = attribute(error, "orig")
    if failure is None or below is None:
        return failure
    # A policy may name the classes of the driver's error as well as SQLAlchemy's.
    types = failure.types
    for each in (below, cause_of(below)):
        if each is not None:
            types += tuple(name for name in names_of_class(type(each))[0] if name not in types)
    return failure._replace(types=types)


@overload
def transaction(source: Engine, *, prove: bool = ..., isolation: str | None = ...) -> TransactionBlock[Connection]: ...
@overload
def transaction(source: sessionmaker[S], *, prove: bool = ..., isolation: str | None = ...) -> TransactionBlock[S]: ...
@overload
def transaction(
    source: AsyncEngine, *, prove: bool = ..., isolation: str | None = ...
) -> TransactionBlock[AsyncConnection]: ...
@overload
def transaction(
    source: async_sessionmaker[A], *, prove: bool = ..., isolation: str | None = ...
) -> TransactionBlock[A]: ...
def transaction(source: Source, *, prove: bool = False, isolation: str | None = None) -> TransactionBlock[Any]:
    """Return one transaction as a block: begun at its start, committed at its end, rolled back if it fails.

    ``with`` gives a connection or a session, ``async with`` an asynchronous one. In a loop over a policy each attempt
    needs a new one: ``for attempt in policy: with attempt, transaction(Session) as session: ...``.

    Args:
        source: an engine, or a ``sessionmaker``; of either colour.
        prove: find out the outcome of a COMMIT without an answer on another connection, at the price of a round trip
            before each COMMIT.
        isolation: ``"serializable"``, ``"repeatable read"`` or ``"read committed"``; None keeps the engine's own.

    Raises:
        TypeError: it is another object; also for a session, since a failed session cannot be used again; or the
            database is none of those above; or ``prove`` or ``isolation`` is given for another one than PostgreSQL.
        ValueError: the isolation level is unknown.
        RuntimeError: (when entered) the connection or session of the source is in a transaction.
        OutcomeUnknown: (when left) the answer to the COMMIT was lost.
    """
    return TransactionBlock(_Adapter(source), prove=prove, isolation=isolation)


@overload
def transactional(
    source: Engine, policy: Policy | str, *, prove: bool = ..., isolation: str | None = ...
) -> Callable[[Callable[Concatenate[Connection, P], T]], Callable[P, T]]: ...
@overload
def transactional(
    source: sessionmaker[S], policy: Policy | str, *, prove: bool = ..., isolation: str | None = ...
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[P, T]]: ...
@overload
def transactional(
    source: AsyncEngine, policy: Policy | str, *, prove: bool = ..., isolation: str | None = ...
) -> Callable[[Callable[Concatenate[AsyncConnection, P], T]], Callable[P, T]]: ...
@overload
def transactional(
    source: async_sessionmaker[A], policy: Policy | str, *, prove: bool = ..., isolation: str | None = ...
) -> Callable[[Callable[Concatenate[A, P], T]], Callable[P, T]]: ...
def transactional(
    source: Source, policy: Policy | str, *, prove: bool = False, isolation: str | None = None
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Make each call of a function a transaction that a policy retries as a whole.

    The function, ``def`` or ``async def``, takes the connection or session as its first argument; the decorated one
    does not.

    Args:
        source: an engine, or a ``sessionmaker``; of the function's colour.
        policy: a policy, or a directive. Without ``on`` it retries all transient failures; with names only those, and
            also errors that are not transient if they are named exactly, such as ``UNIQUE_VIOLATION``.
        prove: see `transaction`.
        isolation: see `transaction`.

    Raises:
        PolicyError: the policy is invalid.
        TypeError: the source is another object or of an unknown database, as in `transaction`, or (when a function is
            decorated) it is a generator.
    """
    return decorator(lambda: _Adapter(source), policy, failure_of, prove=prove, isolation=isolation)


_POSTGRES_DRIVERS = ("psycopg", "asyncpg", "pg8000", "sqlalchemy.dialects.postgresql")
_KNOWN = (PGDialect, SQLiteDialect, MySQLDialect)


def _dialect_of(source: Any) -> Dialect | None:  # noqa: ANN401 - an engine, a session or a maker of sessions
    """Return the dialect of a source; None for sessions that choose their engine by what they are asked."""
    if isinstance(source, sessionmaker | async_sessionmaker):
        source = source.kw.get("bind")
    return None if source is None else source.dialect


def _is_on_postgres(session: Session) -> bool:
    """Return True if a session that chooses its engine chooses one of PostgreSQL for a statement of no table."""
    try:
        return isinstance(session.get_bind().dialect, PGDialect)
    except Exception:  # noqa: BLE001 - SQLAlchemy's, or that of the user's method
        return False


def _code_of(error: BaseException) -> str | None:
    # The version counter of SQLAlchemy's optimistic locking has found a newer row.
    if is_a(error, StaleDataError):
        return "40001"
    if is_a(error, exc.TimeoutError):  # of the pool
        return "08001"
    if not is_a(error, exc.DBAPIError):
        # SQLAlchemy 2.0 does not wrap the errors that asyncpg raises while it connects.
        return attribute(error, "sqlstate") if type(error).__module__.startswith("asyncpg.") else None
    # SQLAlchemy has found out that the connection is lost, in the way of each database.
    lost = "08006" if attribute(error, "connection_invalidated") else None
    below: Any = attribute(error, "orig")
    code = other_databases.code_of(below)
    if code is not None:
        return lost or code if code == other_databases.GENERAL else code
    code = attribute(below, "sqlstate") or attribute(below, "pgcode")
    if code:
        return str(code)
    if attribute(below, "pgconn") is not None:
        return sqlstate.connect_code(str(below))
    # The drivers of PostgreSQL have no code for a connection that was lost or could not be opened.
    is_postgres = type(below).__module__.startswith(_POSTGRES_DRIVERS)
    return "08006" if is_postgres and is_a(error, exc.OperationalError) else lost


class _Adapter:
    """One connection or session of SQLAlchemy; see `redrive.contrib.transactions.Adapter`."""

    # Connections and sessions of both colours have the same methods, so that one class serves all four.
    # SQLAlchemy discards the whole pool when one of its connections turns out to be dead.
    spares = 0
    renewable = True

    def __init__(self, source: object) -> None:
        if not isinstance(source, Engine | AsyncEngine | sessionmaker | async_sessionmaker):
            raise TypeError(
                f"{source!r} is neither an engine nor a sessionmaker; a session that has failed cannot be used again, "
                "so each attempt needs a new one"
            )
        dialect = _dialect_of(source)
        if dialect is not None and not isinstance(dialect, _KNOWN):
            raise TypeError(
                f"{source!r} is a database whose error codes redrive does not know ({dialect.name}), so that it cannot "
                "tell which transactions may be repeated: it knows those of PostgreSQL, SQLite, MySQL and MariaDB"
            )
        self._source = source
        self._given: Any = None
        self._chooses = dialect is None
        # The connections that such a session has taken.
        self._taken: dict[Connection, None] = {}
        # Sessions that choose their engine may be of PostgreSQL until they are opened.
        self.is_postgres = self._chooses or isinstance(dialect, PGDialect)

    code_of = staticmethod(_code_of)

    def another(self) -> _Adapter:
        return _Adapter(self._source)

    def open(self) -> Steps[Any]:
        source = self._source
        self._given = yield source.connect if isinstance(source, Engine | AsyncEngine) else source
        if self._chooses:
            session = getattr(self._given, "sync_session", self._given)
            event.listen(session, "after_begin", lambda _session, _transaction, taken: self._taken.setdefault(taken))
            self.is_postgres = _is_on_postgres(session)
        return self._given

    def begin(self, isolation: str | None) -> Steps[None]:
        yield self._given.begin
        if isolation is not None:
            yield partial(self._given.execute, text(f"SET TRANSACTION ISOLATION LEVEL {isolation}"))

    def ask(self, statement: str, value: str | None = None) -> Steps[tuple[Any, ...]]:
        asked = text(statement) if value is None else text(statement.format(value=":value")).bindparams(value=value)
        result = yield partial(self._given.execute, asked)
        return tuple(result.one())

    def ready(self, question: str | None) -> Steps[tuple[Any, ...]]:
        # Pending changes of a session are written here, so that their errors come before the COMMIT.
        if isinstance(self._given, Session | AsyncSession):
            yield self._given.flush
        try:
            if question is not None:
                return (yield from self.ask(question))
            each_one = [{"bind_arguments": {"bind": taken}} for taken in self._taken] if self._chooses else [{}]
            for options in each_one:
                yield partial(self._given.execute, text("SELECT 1"), **options)
        except exc.DBAPIError as error:
            if _code_of(error) == sqlstate.FAILED_BEFORE:
                raise RuntimeError(SWALLOWED) from error
            raise
        return ()

    def commit(self) -> Steps[None]:
        yield self._given.commit

    def rollback(self, error: BaseException) -> Steps[bool]:  # noqa: ARG002 - SQLAlchemy has no error for it
        yield self._given.rollback
        return False

    def close(self, *, usable: bool, cancelled: bool = False) -> Steps[None]:  # noqa: ARG002 - the driver has sent the request
        given, self._given = self._given, None
        if given is None:
            return
        try:
            if not usable:
                yield given.invalidate
        finally:
            # Also if the task is cancelled again: the pool waits for the connection.
            yield given.close
