"""Retries for psycopg 3: classification of its errors, and whole transactions as the unit of a retry.

`redrive.contrib.transactions` describes which transactions are repeated, and the outcome of a COMMIT without an answer;
`redrive.contrib.sqlstate` lists the codes. A pool is any object with ``getconn`` and ``putconn``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from redrive.contrib import extra, sqlstate
from redrive.contrib.transactions import LOST, OPEN_ALREADY, SWALLOWED, Steps, TransactionBlock, decorator
from redrive.errors.foreign import attribute, is_a
from redrive.policy import Failure, Policy

with extra("postgres"):
    import psycopg
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

__all__ = ["AsyncPool", "Pool", "failure_of", "transaction", "transactional"]

P = ParamSpec("P")
T = TypeVar("T")

Sync: TypeAlias = psycopg.Connection[Any]
Async: TypeAlias = psycopg.AsyncConnection[Any]


class Pool(Protocol):
    """A pool of connections, such as ``psycopg_pool.ConnectionPool``."""

    def getconn(self) -> Sync:
        """Take a connection."""

    def putconn(self, conn: Sync) -> None:
        """Give a connection back; a closed one is replaced."""


class AsyncPool(Protocol):
    """An asynchronous pool, such as ``psycopg_pool.AsyncConnectionPool``."""

    async def getconn(self) -> Async:
        """Take a connection."""

    async def putconn(self, conn: Async) -> None:
        """Give a connection back; a closed one is replaced."""


SyncSource: TypeAlias = Pool | Callable[[], "Sync | Pool"]
AsyncSource: TypeAlias = AsyncPool | Callable[[], "AsyncPool | Awaitable[Async | AsyncPool]"]


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure that an exception describes; None if it is no failure of the database.

    As ``on`` of a policy it retries transient failures, and a single statement after a lost connection only if the
    policy is ``idempotent``: it is unknown whether the statement took effect.
    """
    return sqlstate.failure_of(error, _code_of(error))


@overload
def transaction(
    source: SyncSource | Sync, *, prove: bool = ..., isolation: str | None = ...
) -> TransactionBlock[Sync]: ...
@overload
def transaction(
    source: AsyncSource | Async, *, prove: bool = ..., isolation: str | None = ...
) -> TransactionBlock[Async]: ...
def transaction(
    source: SyncSource | AsyncSource | Sync | Async, *, prove: bool = False, isolation: str | None = None
) -> TransactionBlock[Any]:
    """Return one transaction as a block: begun at its start, committed at its end, rolled back if it fails.

    ``with`` gives the connection, ``async with`` an asynchronous one. In a loop over a policy each attempt needs a new
    one: ``for attempt in policy: with attempt, transaction(pool) as connection: ...``.

    Args:
        source: a pool, a function that connects (its connection is closed afterwards) or returns a pool, or a
            connection without an open transaction.
        prove: find out the outcome of a COMMIT without an answer on another connection, at the price of a round trip
            before each COMMIT; not for a connection.
        isolation: ``"serializable"``, ``"repeatable read"`` or ``"read committed"``; None keeps the connection's own.

    Raises:
        TypeError: it is none of these, or ``prove`` needs another connection.
        ValueError: the isolation level is unknown.
        RuntimeError: (when entered) a transaction is open on the connection: the retry belongs around the whole of it.
        OutcomeUnknown: (when left) the answer to the COMMIT was lost.
    """
    return TransactionBlock(_Adapter(source), prove=prove, isolation=isolation)


@overload
def transactional(
    source: SyncSource, policy: Policy | str, *, prove: bool = ..., isolation: str | None = ...
) -> Callable[[Callable[Concatenate[Sync, P], T]], Callable[P, T]]: ...
@overload
def transactional(
    source: AsyncSource, policy: Policy | str, *, prove: bool = ..., isolation: str | None = ...
) -> Callable[[Callable[Concatenate[Async, P], T]], Callable[P, T]]: ...
def transactional(
    source: SyncSource | AsyncSource, policy: Policy | str, *, prove: bool = False, isolation: str | None = None
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Make each call of a function a transaction that a policy retries as a whole.

    The function, ``def`` or ``async def``, takes the connection as its first argument; the decorated one does not.

    Args:
        source: a pool, or a function that connects (its connection is closed afterwards) or returns a pool.
        policy: a policy, or a directive. Without ``on`` it retries all transient failures; with names only those, and
            also errors that are not transient if they are named exactly, such as ``UNIQUE_VIOLATION``.
        prove: see `transaction`.
        isolation: see `transaction`.

    Raises:
        PolicyError: the policy is invalid.
        TypeError: (when a function is decorated) it is a generator, or the source is a connection, which could not be
            replaced after it has broken.
    """
    return decorator(lambda: _Adapter(source), policy, failure_of, prove=prove, isolation=isolation)


def _code_of(error: BaseException) -> str | None:
    if not is_a(error, psycopg.Error):
        return None
    code: str | None = attribute(error, "sqlstate")
    if code:
        return code
    if not is_a(error, psycopg.OperationalError):
        return None
    if attribute(error, "pgconn") is not None:
        return sqlstate.connect_code(str(error))
    # No server has answered: either no connection was opened in time, or an open one was lost.
    unsent = is_a(error, psycopg.errors.ConnectionTimeout) or type(error).__module__.startswith("psycopg_pool")
    return "08001" if unsent else "08006"


class _Adapter:
    """One connection of psycopg; see `redrive.contrib.transactions.Adapter`."""

    is_postgres = True

    def __init__(self, source: Any) -> None:  # noqa: ANN401 - any source
        if not (
            isinstance(source, psycopg.Connection | psycopg.AsyncConnection) or _is_pool(source) or callable(source)
        ):
            raise TypeError(
                f"{source!r} is neither a pool, nor a function that connects, nor a connection of psycopg 3"
            )
        self._source = source
        self._pool: Any = None
        self._connection: Any = None
        self._block: Any = None

    @property
    def renewable(self) -> bool:
        return not isinstance(self._source, psycopg.Connection | psycopg.AsyncConnection)

    @property
    def spares(self) -> int:
        return int(getattr(self._source, "max_size", 0)) if self.renewable else 0

    code_of = staticmethod(_code_of)

    def another(self) -> _Adapter:
        return _Adapter(self._source)

    def open(self) -> Steps[Any]:
        source = self._source
        if self.renewable and not _is_pool(source):
            source = yield source
        if _is_pool(source):
            self._pool = source
            source = yield source.getconn
        self._connection = source
        if not self.renewable and source.closed:
            raise RuntimeError(LOST)
        if source.info.transaction_status not in {TransactionStatus.IDLE, TransactionStatus.UNKNOWN}:
            if not self.renewable:
                # The user ends that transaction.
                self._connection = None
            raise RuntimeError(OPEN_ALREADY)
        return source

    def begin(self, isolation: str | None) -> Steps[None]:
        block = self._connection.transaction()
        yield _verb(block, "enter")
        self._block = block
        if isolation is not None:
            yield partial(self._connection.execute, f"SET TRANSACTION ISOLATION LEVEL {isolation}")

    def ask(self, statement: str, value: str | None = None) -> Steps[tuple[Any, ...]]:
        cursor = self._connection.cursor(row_factory=tuple_row)
        yield partial(cursor.execute, *([statement] if value is None else [statement.format(value="%s"), [value]]))
        row: tuple[Any, ...] = yield cursor.fetchone
        return row

    def ready(self, question: str | None) -> Steps[tuple[Any, ...]]:
        # Psycopg would end the block without an error.
        if self._connection.closed:
            raise psycopg.OperationalError("the connection was lost before COMMIT was sent")
        if self._connection.info.transaction_status is TransactionStatus.INERROR:
            raise RuntimeError(SWALLOWED)
        return () if question is None else (yield from self.ask(question))

    def commit(self) -> Steps[None]:
        block, self._block = self._block, None
        yield partial(_verb(block, "exit"), None, None, None)

    def rollback(self, error: BaseException) -> Steps[bool]:
        block, self._block = self._block, None
        if block is None:
            return False
        return bool((yield partial(_verb(block, "exit"), type(error), error, None)))

    def close(self, *, usable: bool, cancelled: bool = False) -> Steps[None]:  # noqa: ARG002 - psycopg has sent the request
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # A pool replaces a connection that is closed; one with an open transaction must not be used again.
        idle = usable and connection.info.transaction_status is TransactionStatus.IDLE
        try:
            if not idle or (self._pool is None and self.renewable):
                yield connection.close
        finally:
            # Also if the task is cancelled again: the pool waits for the connection.
            if self._pool is not None:
                yield partial(self._pool.putconn, connection)


def _is_pool(source: object) -> bool:
    # Recognised by its methods, so that psycopg_pool need not be installed.
    return hasattr(source, "getconn") and hasattr(source, "putconn")


def _verb(block: object, verb: str) -> Any:  # noqa: ANN401 - a method in one colour or the other
    colour = "a" if hasattr(block, "__aenter__") else ""
    return getattr(block, f"__{colour}{verb}__")
