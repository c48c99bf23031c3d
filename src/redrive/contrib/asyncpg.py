"""Retries for asyncpg: classification of its errors, and whole transactions as the unit of a retry.

`redrive.contrib.transactions` describes which transactions are repeated, and the outcome of a COMMIT without an answer;
`redrive.contrib.sqlstate` lists the codes. An empty statement is sent before each COMMIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from redrive.contrib import extra, sqlstate
from redrive.contrib.transactions import LOST, OPEN_ALREADY, SWALLOWED, Steps, TransactionBlock, decorator
from redrive.contrib.transactions.commit_status import seconds_left
from redrive.errors.foreign import attribute, is_a
from redrive.policy import Failure, Policy

with extra("postgres"):
    import asyncpg

__all__ = ["failure_of", "transaction", "transactional"]

P = ParamSpec("P")
T = TypeVar("T")

Source: TypeAlias = asyncpg.Pool | Callable[[], Any]


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure that an exception describes; None if it is no failure of the database.

    As ``on`` of a policy it retries transient failures, and a single statement after a lost connection only if the
    policy is ``idempotent``: it is unknown whether the statement took effect.
    """
    return sqlstate.failure_of(error, _code_of(error))


def transaction(
    source: Source | asyncpg.Connection, *, prove: bool = False, isolation: str | None = None
) -> TransactionBlock[Any]:
    """Return one transaction as a block: begun at its start, committed at its end, rolled back if it fails.

    ``async with`` gives the connection. In a loop over a policy each attempt needs a new one:
    ``async for attempt in policy:``, ``with attempt:``, ``async with transaction(pool) as connection:``.

    Args:
        source: a pool, a function that connects (its connection is closed afterwards) or returns a pool, or a
            connection without an open transaction.
        prove: find out the outcome of a COMMIT without an answer on another connection; not for a connection.
        isolation: ``"serializable"``, ``"repeatable read"`` or ``"read committed"``; None keeps the connection's own.

    Raises:
        TypeError: it is none of these, or ``prove`` needs another connection.
        ValueError: the isolation level is unknown.
        RuntimeError: (when entered) a transaction is open on the connection: the retry belongs around the whole of it.
        OutcomeUnknown: (when left) the answer to the COMMIT was lost.
    """
    return TransactionBlock(_Adapter(source), prove=prove, isolation=isolation)


def transactional(
    source: Source, policy: Policy | str, *, prove: bool = False, isolation: str | None = None
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Make each call of a coroutine function a transaction that a policy retries as a whole.

    The function takes the connection as its first argument; the decorated one does not.

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


# asyncpg has no code for a connection that was lost between two statements: the event loop has closed it; its pool has
# taken it back; or the message of the server, which ends the session, has come, but not the end of the connection.
_LOST_TEXTS = ("connection is closed", "connection has been released back to the pool", "cannot switch to state")
# Seconds to end the statement of a cancelled task and to roll back; then the connection is closed.
_CANCEL_WITHIN = 5.0
# The least of them where a timeout or a deadline has cancelled the task, so that no time is left: a new connection with
# the request, and the rollback, are a few round trips.
_CANCEL_AT_LEAST = 0.5


def _code_of(error: BaseException) -> str | None:
    if is_a(error, asyncpg.PostgresError):
        code: str | None = attribute(error, "sqlstate")
        return code
    if is_a(error, (asyncpg.InterfaceError, asyncpg.InternalClientError)) and any(
        text in str(error) for text in _LOST_TEXTS
    ):
        return "08006"
    return None


class _Adapter:
    """One connection of asyncpg; see `redrive.contrib.transactions.Adapter`."""

    is_postgres = True

    # The event loop detects the end of a connection, so a pool has no dead ones for longer than a moment.
    spares = 0

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

    code_of = staticmethod(_code_of)

    def another(self) -> _Adapter:
        return _Adapter(self._source)

    def open(self) -> Steps[Any]:
        source = self._source
        if self.renewable and not hasattr(source, "acquire"):
            source = yield source
        if hasattr(source, "acquire"):
            self._pool = source
            source = yield source.acquire
        # A connection of the user is neither replaced nor taken out of its transaction.
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
        # asyncpg does not report whether a transaction has failed, and takes the answer ROLLBACK to its COMMIT for
        # success. So a statement is sent before it: the query for the receipt, or an empty one.
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

    def close(self, *, usable: bool, cancelled: bool = False) -> Steps[None]:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if cancelled:
            try:
                usable = yield from self._interrupted()
            except BaseException:
                # Cancelled again: a pool would wait for the connection for ever.
                connection.terminate()
                raise
        # A pool replaces a connection that is closed; one with an open transaction must not be used again.
        if not usable or connection.is_in_transaction():
            connection.terminate()
        if self._pool is not None:
            yield partial(self._pool.release, connection)
        elif self.renewable:
            yield connection.close

    def _interrupted(self) -> Steps[bool]:
        """Roll back after a cancellation; return False if that fails."""
        block, self._block = self._block, None
        if block is None:
            return False
        left = seconds_left()
        within = _CANCEL_WITHIN if left is None else max(_CANCEL_AT_LEAST, min(_CANCEL_WITHIN, left))
        try:
            # asyncpg asks the server to end the statement, and waits for its answer before it sends another one.
            yield lambda: asyncio.wait_for(block.rollback(), within)
        except Exception:  # noqa: BLE001 - the connection is closed then, and the server rolls back
            return False
        return True


def _is_connection(source: object) -> bool:
    return hasattr(source, "is_in_transaction")
