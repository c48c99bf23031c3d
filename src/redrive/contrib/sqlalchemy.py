"""Retries for SQLAlchemy 2 on PostgreSQL: classification of errors, and whole transactions as the unit of a retry.

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

from redrive.contrib import extra, sqlstate
from redrive.contrib.transactions import SWALLOWED, Steps, TransactionBlock, decorator
from redrive.policy import Failure, Policy
from redrive.policy.failure import names_of_class

with extra("sqlalchemy"):
    from sqlalchemy import Connection, Engine, exc, text
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
    below = getattr(error, "orig", None)
    if failure is None or below is None:
        return failure
    # A policy may name the classes of the driver's error as well as SQLAlchemy's.
    types = failure.types
    for each in (below, below.__cause__):
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
        TypeError: it is another object; also for a session, since a failed session cannot be used again.
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
        TypeError: the source is another object, or (when a function is decorated) it is a generator.
    """
    return decorator(lambda: _Adapter(source), policy, failure_of, prove=prove, isolation=isolation)


def _code_of(error: BaseException) -> str | None:
    # The version counter of SQLAlchemy's optimistic locking has found a newer row.
    if isinstance(error, StaleDataError):
        return "40001"
    if isinstance(error, exc.TimeoutError):  # of the pool
        return "08001"
    if not isinstance(error, exc.DBAPIError):
        return None
    below: Any = error.orig
    code = getattr(below, "sqlstate", None) or getattr(below, "pgcode", None)
    if code:
        return str(code)
    if getattr(below, "pgconn", None) is not None:
        return sqlstate.connect_code(str(below))
    return "08006" if error.connection_invalidated or isinstance(error, exc.OperationalError) else None


class _Adapter:
    """One connection or session of SQLAlchemy; see `redrive.contrib.transactions.Adapter`."""

    # Connections and sessions of both colours have the same methods, so that one class serves all four.
    # SQLAlchemy discards the whole pool when one of its connections turns out to be dead.
    spares = 0
    renewable = True

    def __init__(self, source: Any) -> None:  # noqa: ANN401 - any source
        if not isinstance(source, Engine | AsyncEngine | sessionmaker | async_sessionmaker):
            raise TypeError(
                f"{source!r} is neither an engine nor a sessionmaker; a session that has failed cannot be used again, "
                "so each attempt needs a new one"
            )
        self._source = source
        self._given: Any = None

    code_of = staticmethod(_code_of)

    def another(self) -> _Adapter:
        return _Adapter(self._source)

    def open(self) -> Steps[Any]:
        source = self._source
        self._given = yield source.connect if isinstance(source, Engine | AsyncEngine) else source
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
            row = yield from self.ask(question or "SELECT 1")
        except exc.DBAPIError as error:
            if _code_of(error) == sqlstate.FAILED_BEFORE:
                raise RuntimeError(SWALLOWED) from error
            raise
        return () if question is None else row

    def commit(self) -> Steps[None]:
        yield self._given.commit

    def rollback(self, error: BaseException) -> Steps[bool]:  # noqa: ARG002 - SQLAlchemy has no error for it
        yield self._given.rollback
        return False

    def close(self, *, usable: bool) -> Steps[None]:
        given, self._given = self._given, None
        if given is None:
            return
        if not usable:
            yield given.invalidate
        yield given.close
