"""Lends a connection to a handler: the handler's writes and the end of its attempt are one transaction.

A ``def`` handler gets a connection of psycopg, a coroutine one of asyncpg. It is opened for the block and closed after
it: whatever the handler does to its session goes with it. Nobody else waits for the block, unless for the rows that it
writes; but a lease may be lost meanwhile, and then the completion, which is fenced, takes the handler's writes with it.

The transaction is redrive's to end. psycopg refuses ``commit()`` and ``rollback()`` inside of it; asyncpg has no such
methods; and a transaction that was ended by a statement is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import asyncpg
import psycopg
from psycopg.pq import TransactionStatus

from redrive.errors import StoreError
from redrive.stores.drivers.postgres import aio, sync
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import durability
from redrive.stores.drivers.postgres.trouble import translation
from redrive.stores.loan import to_the_end
from redrive.stores.query import Operation

__all__ = ["AsyncPostgresLoan", "PostgresLoan", "alend", "lend"]

R = TypeVar("R")

_ENDED = "the handler has ended the transaction of ctx.transaction() by a statement of its own: redrive ends it"

_NAME = "ctx.transaction()"

_LAST_WAIT = 5
"""Seconds that a rollback may take before the connection is cut, which undoes everything too."""


class PostgresLoan:
    """A lent connection of psycopg; see `redrive.stores.loan.Loan`.

    Args:
        connection: of nobody else's.
        settings: for messages.
    """

    def __init__(self, connection: psycopg.Connection[Any], settings: Settings) -> None:
        self.connection = connection
        self._settings = settings
        self._transaction = connection.transaction()
        self._transaction.__enter__()
        connection.execute(durability(settings, local=True))

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if self.connection.info.transaction_status is TransactionStatus.IDLE:
            raise StoreError(_ENDED)
        return sync.drive(self.connection, operation.steps, self._settings)

    def commit(self) -> None:
        """Commit and close."""
        try:
            self._transaction.__exit__(None, None, None)
        except psycopg.Error as error:
            raise translation(error, self._settings, commits=_NAME) from error
        finally:
            self.connection.close()

    def rollback(self) -> None:
        """Undo everything and close."""
        with contextlib.suppress(psycopg.Error):
            self._transaction.__exit__(psycopg.Rollback, psycopg.Rollback(), None)
        self.connection.close()


class AsyncPostgresLoan:
    """A lent connection of asyncpg; see `redrive.stores.loan.AsyncLoan`.

    Args:
        connection: of nobody else's.
        transaction: which has begun on it.
        settings: for messages.
    """

    def __init__(self, connection: asyncpg.Connection[Any], transaction: Any, settings: Settings) -> None:  # noqa: ANN401
        self.connection = connection
        self._transaction = transaction
        self._settings = settings

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if not self.connection.is_in_transaction():
            raise StoreError(_ENDED)
        async with self._in_time():
            return await aio.drive(self.connection, operation.steps, self._settings)

    async def commit(self) -> None:
        """Commit and close."""
        await to_the_end(self._commit())

    async def rollback(self) -> None:
        """Undo everything and close."""
        await to_the_end(self._rollback())

    async def _commit(self) -> None:
        try:
            async with self._in_time(commits=_NAME):
                await self._transaction.commit()
        finally:
            self.connection.terminate()

    @contextlib.asynccontextmanager
    async def _in_time(self, *, commits: str | None = None) -> AsyncIterator[None]:
        """Limit the block: before it sends a statement, asyncpg waits until the server has cancelled an earlier one."""
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                yield
        except aio.ERRORS as error:
            raise aio.failure(error, self._settings, commits=commits) from error

    async def _rollback(self) -> None:
        try:
            with contextlib.suppress(*aio.ERRORS):
                async with asyncio.timeout(_LAST_WAIT):
                    await self._transaction.rollback()
        finally:
            self.connection.terminate()


def lend(settings: Settings) -> PostgresLoan:
    """Open a connection of psycopg and begin its transaction.

    Args:
        settings: which database.

    Returns:
        The loan.

    Raises:
        StoreError: it cannot be opened.
    """
    connection = sync.connect(settings)
    try:
        return PostgresLoan(connection, settings)
    except BaseException as error:
        connection.close()
        if isinstance(error, psycopg.Error):
            raise translation(error, settings) from error
        raise


async def alend(settings: Settings) -> AsyncPostgresLoan:
    """Open a connection of asyncpg and begin its transaction; see `lend`."""
    connection = await aio.connect(settings)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(durability(settings, local=True))
    except BaseException as error:
        connection.terminate()
        if isinstance(error, aio.ERRORS):
            raise translation(error, settings) from error
        raise
    return AsyncPostgresLoan(connection, transaction, settings)
