"""Transactions for handlers: the handler's writes and the end of its attempt are one transaction.

A ``def`` handler gets a connection of psycopg, a coroutine one of asyncpg. It is opened for the block and closed after
it, so changes of its session do not last. Other work does not wait for the block, except for the rows that it writes;
but the lease may be lost during it, and then the completion, which is fenced, rolls the handler's writes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus

from redrive.errors import StoreBusy, StoreError
from redrive.stores.drivers.postgres import aio, sync
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import before_completion, handler_transaction
from redrive.stores.query import Operation, R
from redrive.stores.store import run_to_completion

# Only redrive ends the transaction. psycopg refuses commit() and rollback() inside it; asyncpg has no such methods; and
# a transaction that was ended by a statement is detected.
_ENDED = "the handler has ended the transaction of ctx.transaction() by a statement of its own: redrive ends it"

_NAME = "ctx.transaction()"

# Seconds that a rollback may take before the connection is closed, which rolls back too.
_ROLLBACK_TIMEOUT = 5


class PostgresTransaction:
    """A `StoreTransaction` on a connection of psycopg."""

    def __init__(
        self, connection: psycopg.Connection[Any], settings: PostgresSettings, on_close: Callable[[], None]
    ) -> None:
        self.connection = connection
        self._settings = settings
        # Called once, when the connection has been closed.
        self._on_close = on_close
        self._transaction = connection.transaction()
        self._transaction.__enter__()
        connection.execute(handler_transaction(settings))

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if self.connection.info.transaction_status is TransactionStatus.IDLE:
            raise StoreError(_ENDED)
        try:
            if operation.writes:
                self.connection.execute(before_completion())
        except psycopg.Error as error:
            raise translation(error, self._settings) from error
        return sync.drive(self.connection, operation.steps, self._settings)

    def commit(self) -> None:
        """Commit and close."""
        try:
            self._transaction.__exit__(None, None, None)
        except psycopg.Error as error:
            raise translation(error, self._settings, commits=_NAME) from error
        finally:
            self._close()

    def rollback(self) -> None:
        """Roll back and close."""
        try:
            with contextlib.suppress(psycopg.Error):
                self._transaction.__exit__(psycopg.Rollback, psycopg.Rollback(), None)
        finally:
            self._close()

    def _close(self) -> None:
        self.connection.close()
        self._on_close()


class AsyncPostgresTransaction:
    """An `AsyncStoreTransaction` on a connection of asyncpg."""

    def __init__(
        self,
        connection: aio.Connection,
        transaction: Any,  # noqa: ANN401 - asyncpg does not export its type
        settings: PostgresSettings,
        on_close: Callable[[], None],
    ) -> None:
        self.connection = connection
        self._transaction = transaction
        self._settings = settings
        self._on_close = on_close

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if not self.connection.is_closed() and not self.connection.is_in_transaction():
            raise StoreError(_ENDED)
        async with self._in_time():
            if operation.writes:
                await aio.execute(self.connection, before_completion(), self._settings)
            return await aio.drive(self.connection, operation.steps, self._settings)

    async def commit(self) -> None:
        """Commit and close."""
        await run_to_completion(self._commit())

    async def rollback(self) -> None:
        """Roll back and close."""
        await run_to_completion(self._rollback())

    async def _commit(self) -> None:
        try:
            async with self._in_time(commits=_NAME):
                await self._transaction.commit()
        finally:
            self._close()

    @contextlib.asynccontextmanager
    async def _in_time(self, *, commits: str | None = None) -> AsyncIterator[None]:
        """Limit the time of the block."""
        # Before asyncpg sends a statement, it waits until the server has cancelled an earlier one.
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                yield
        except aio.ERRORS as error:
            raise aio.failure(error, self._settings, commits=commits) from error

    async def _rollback(self) -> None:
        try:
            with contextlib.suppress(*aio.ERRORS):
                async with asyncio.timeout(_ROLLBACK_TIMEOUT):
                    await self._transaction.rollback()
        finally:
            self._close()

    def _close(self) -> None:
        self.connection.unwatch()
        self.connection.terminate()
        self._on_close()


# A process may be stopped inside the block. The server ends a session that is silent for the timeout of the URL; and,
# once the completion is written, which locks the row of the job, after five seconds.
class PostgresTransactions:
    """A source of transactions on one database, at most ``pool`` of each library at once."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        # Counted apart from the connections that operations use: a worker can still settle when its handlers have taken
        # all of these.
        self._free = threading.BoundedSemaphore(settings.pool)
        self._frees: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.BoundedSemaphore] = WeakKeyDictionary()

    def begin(self) -> PostgresTransaction:
        """Open a connection of psycopg and begin its transaction.

        Raise `StoreBusy` if ``pool`` transactions were open for longer than the timeout, or `StoreError` if it
        cannot be opened.
        """
        if not self._free.acquire(timeout=self._settings.timeout.total_seconds()):
            raise self._none_left()
        try:
            connection = sync.connect(self._settings)
            try:
                return PostgresTransaction(connection, self._settings, self._free.release)
            except BaseException:
                connection.close()
                raise
        except BaseException as error:
            self._free.release()
            if isinstance(error, psycopg.Error):
                raise translation(error, self._settings) from error
            raise

    async def abegin(self) -> AsyncPostgresTransaction:
        """Open a connection of asyncpg and begin its transaction; see `begin`."""
        free = self._frees.setdefault(asyncio.get_running_loop(), asyncio.BoundedSemaphore(self._settings.pool))
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                await free.acquire()
        except TimeoutError:
            raise self._none_left() from None
        try:
            connection = await aio.connect(self._settings)
            connection.watch()
            try:
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(handler_transaction(self._settings))
            except BaseException:
                connection.unwatch()
                connection.terminate()
                raise
        except BaseException as error:
            free.release()
            if isinstance(error, aio.ERRORS):
                raise translation(error, self._settings) from error
            raise
        return AsyncPostgresTransaction(connection, transaction, self._settings, free.release)

    def _none_left(self) -> StoreBusy:
        return StoreBusy(
            f"all {self._settings.pool} connections to {self._settings} for ctx.transaction() are in use: set ?pool= "
            "higher, or do less inside of the blocks"
        )
