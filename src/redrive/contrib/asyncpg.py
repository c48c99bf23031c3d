"""asyncpg: its errors in the words of a policy, and whole transactions as the unit of a retry.

Answers: what does an error of asyncpg mean for a retry, and how is a transaction on it repeated? May import: asyncpg,
and what `redrive.contrib` may.

Three names, the same as in `redrive.contrib.psycopg` and `redrive.contrib.sqlalchemy`:

===================  ==================================================================================
`transactional`      a decorator: each call of the function is a transaction, repeated as a whole
`transaction`        one transaction as a block, for ``async for attempt in policy: with attempt: ...``
`failure_of`         what an exception means: ``on=failure_of``, also for single statements
===================  ==================================================================================

What is repeated, and what a lost COMMIT comes to, stands in `redrive.contrib.transactions`; the codes in
`redrive.contrib.sqlstate`. asyncpg does not tell whether a transaction has failed and would take the answer ROLLBACK to
its COMMIT for success, so an empty statement is sent before it; with ``prove=True`` the question for the receipt does
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import asyncpg

from redrive.contrib import sqlstate
from redrive.contrib.transactions import (
    LOST,
    NOT_RENEWABLE,
    OPEN_ALREADY,
    SWALLOWED,
    Steps,
    TransactionBlock,
    decorator,
)
from redrive.policy import Failure, Policy

__all__ = ["failure_of", "transaction", "transactional"]

P = ParamSpec("P")
T = TypeVar("T")

Source: TypeAlias = asyncpg.Pool | Callable[[], Any]


def failure_of(error: BaseException) -> Failure | None:
    """What an exception means for a retry.

    As ``on`` of a policy it has retried what is transient, and a single statement whose connection was lost only if
    the policy is ``idempotent``: nobody knows whether it was carried out.

    Args:
        error: what was raised.

    Returns:
        None if it is no failure of the database.
    """
    return sqlstate.failure_of(error, _code_of(error))


def transaction(
    source: Source | asyncpg.Connection, *, prove: bool = False, isolation: str | None = None
) -> TransactionBlock[Any]:
    """One transaction as a block: begun at its start, committed at its end, rolled back if it fails.

    ``async with`` gives the connection. In a loop over a policy each attempt needs a new one:
    ``async for attempt in policy:``, ``with attempt:``, ``async with transaction(pool) as connection:``.

    Args:
        source: a pool, a function that connects (what it returns is closed afterwards) or returns a pool, or a
            connection without an open transaction.
        prove: ask after a lost COMMIT on another connection; not for a connection.
        isolation: ``"serializable"``, ``"repeatable read"`` or ``"read committed"``; None leaves the connection's own.

    Raises:
        TypeError: it is none of these, or there is no other connection to ask on.
        ValueError: there is no such isolation level.
        RuntimeError: (when entered) a transaction is open on the connection: the retry belongs around the whole of it.
        OutcomeUnknown: (when left) the answer to the COMMIT was lost.
    """
    return TransactionBlock(_Link(source), prove=prove, isolation=isolation)


def transactional(
    source: Source, policy: Policy | str, *, prove: bool = False, isolation: str | None = None
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Make each call of a coroutine function a transaction, repeated as a whole while a policy says so.

    The function takes the connection as its first argument; the decorated one does not.

    Args:
        source: a pool, or a function that connects (what it returns is closed afterwards) or returns a pool.
        policy: a policy, or a directive. Without ``on`` it retries whatever is transient; with names only those, and
            also errors that are not transient if they are named exactly, such as ``UNIQUE_VIOLATION``.
        prove: see `transaction`.
        isolation: see `transaction`.

    Raises:
        PolicyError: the policy means nothing sensible.
        TypeError: (when a function is decorated) it is a generator, or the source is a connection: one that has broken
            could not be replaced.
    """
    if not _Link(source).renewable:
        raise TypeError(NOT_RENEWABLE)
    return decorator(partial(transaction, source, prove=prove, isolation=isolation), policy, failure_of)


def _code_of(error: BaseException) -> str | None:
    if isinstance(error, asyncpg.PostgresError):
        code: str | None = error.sqlstate
        return code
    if isinstance(error, asyncpg.InterfaceError) and "connection is closed" in str(error):
        return "08006"
    return None


class _Link:
    """One connection of asyncpg; see `redrive.contrib.transactions.Link`."""

    spares = 0  # the event loop sees the end of a connection, so that a pool has no dead ones

    def __init__(self, source: Any) -> None:  # noqa: ANN401 - any source
        if not (_is_connection(source) or hasattr(source, "acquire") or callable(source)):
            raise TypeError(f"{source!r} is neither a pool, nor a function that connects, nor a connection of asyncpg")
        self._source = source
        self._pool: Any = None
        self._connection: Any = None
        self._block: Any = None

    @property
    def renewable(self) -> bool:
        return not _is_connection(self._source)

    def code_of(self, error: BaseException) -> str | None:
        return _code_of(error)

    def another(self) -> _Link:
        return _Link(self._source)

    def open(self) -> Steps[Any]:
        source = self._source
        if self.renewable and not hasattr(source, "acquire"):
            source = yield source
        if hasattr(source, "acquire"):
            self._pool = source
            source = yield source.acquire
        if not self.renewable and source.is_closed():
            raise RuntimeError(LOST)
        if not self.renewable and source.is_in_transaction():
            raise RuntimeError(OPEN_ALREADY)
        self._connection = source
        return source

    def begin(self, isolation: str | None) -> Steps[None]:
        level = None if isolation is None else isolation.lower().replace(" ", "_")
        self._block = self._connection.transaction(isolation=level)
        yield self._block.start

    def ask(self, statement: str, value: str | None = None) -> Steps[tuple[Any, ...]]:
        asked = [statement] if value is None else [statement.format(value="$1"), value]
        row = yield partial(self._connection.fetchrow, *asked)
        return tuple(row)

    def ready(self, question: str | None) -> Steps[tuple[Any, ...]]:
        try:
            if question is not None:
                return (yield from self.ask(question))
            yield partial(self._connection.execute, "SELECT")
        except asyncpg.InFailedSQLTransactionError as error:
            raise RuntimeError(SWALLOWED) from error
        return ()

    def commit(self) -> Steps[None]:
        block, self._block = self._block, None
        yield block.commit

    def rollback(self, error: BaseException) -> Steps[bool]:  # noqa: ARG002 - asyncpg has no error for it
        block, self._block = self._block, None
        if block is not None:
            yield block.rollback
        return False

    def close(self, *, usable: bool) -> Steps[None]:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if not usable or connection.is_in_transaction():
            connection.terminate()
        if self._pool is not None:
            yield partial(self._pool.release, connection)
        elif self.renewable:
            yield connection.close


def _is_connection(source: object) -> bool:
    return hasattr(source, "is_in_transaction")
