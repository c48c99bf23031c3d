"""Lends a connection to a handler: the handler's writes and the end of its attempt are one transaction.

A ``def`` handler gets a connection of psycopg, a coroutine one of asyncpg. It is opened for the block and closed after
it: whatever the handler does to its session goes with it. Nobody else waits for the block, unless for the rows that it
writes; but a lease may be lost meanwhile, and then the completion, which is fenced, takes the handler's writes with it.

Of each colour at most ``pool`` are open at once (of asyncpg: for each event loop). They are counted apart from the
connections that operations run on: a worker whose handlers have taken all can still settle.

A process may be stopped inside of the block. The server ends a lent session that is silent for as long as the timeout
of the URL; and, once the completion is written, which locks the row of the job, after five seconds.

The transaction is redrive's to end. psycopg refuses ``commit()`` and ``rollback()`` inside of it; asyncpg has no such
methods; and a transaction that was ended by a statement is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import asyncpg
import psycopg
from psycopg.pq import TransactionStatus

from redrive.errors import StoreBusy, StoreError
from redrive.stores.drivers.postgres import aio, sync
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import ending, lent
from redrive.stores.loan import to_the_end
from redrive.stores.query import Operation

__all__ = ["AsyncPostgresLoan", "Lender", "PostgresLoan"]

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
        given_back: called once, when the connection has been closed.
    """

    def __init__(self, connection: psycopg.Connection[Any], settings: Settings, given_back: Callable[[], None]) -> None:
        self.connection = connection
        self._settings = settings
        self._given_back = given_back
        self._transaction = connection.transaction()
        self._transaction.__enter__()
        connection.execute(lent(settings))

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if self.connection.info.transaction_status is TransactionStatus.IDLE:
            raise StoreError(_ENDED)
        try:
            if operation.writes:
                self.connection.execute(ending())
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
        """Undo everything and close."""
        try:
            with contextlib.suppress(psycopg.Error):
                self._transaction.__exit__(psycopg.Rollback, psycopg.Rollback(), None)
        finally:
            self._close()

    def _close(self) -> None:
        self.connection.close()
        self._given_back()


class AsyncPostgresLoan:
    """A lent connection of asyncpg; see `redrive.stores.loan.AsyncLoan`.

    Args:
        connection: of nobody else's.
        transaction: which has begun on it.
        settings: for messages.
        given_back: called once, when the connection has been closed.
    """

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        transaction: Any,  # noqa: ANN401 - asyncpg does not export its type
        settings: Settings,
        given_back: Callable[[], None],
    ) -> None:
        self.connection = connection
        self._transaction = transaction
        self._settings = settings
        self._given_back = given_back

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if not self.connection.is_closed() and not self.connection.is_in_transaction():
            raise StoreError(_ENDED)
        async with self._in_time():
            if operation.writes:
                await aio.say(self.connection, ending(), self._settings)
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
            self._close()

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
            self._close()

    def _close(self) -> None:
        self.connection.terminate()
        self._given_back()


class Lender:
    """Lends connections of one database, at most ``pool`` of each colour at once.

    Args:
        settings: which database, and how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free = threading.BoundedSemaphore(settings.pool)
        self._frees: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.BoundedSemaphore] = WeakKeyDictionary()

    def lend(self) -> PostgresLoan:
        """Open a connection of psycopg and begin its transaction.

        Returns:
            The loan.

        Raises:
            StoreBusy: too many are lent, for longer than the timeout.
            StoreError: it cannot be opened.
        """
        if not self._free.acquire(timeout=self._settings.timeout.total_seconds()):
            raise self._none_left()
        try:
            connection = sync.connect(self._settings)
            try:
                return PostgresLoan(connection, self._settings, self._free.release)
            except BaseException:
                connection.close()
                raise
        except BaseException as error:
            self._free.release()
            if isinstance(error, psycopg.Error):
                raise translation(error, self._settings) from error
            raise

    async def alend(self) -> AsyncPostgresLoan:
        """Open a connection of asyncpg and begin its transaction; see `lend`."""
        free = self._frees.setdefault(asyncio.get_running_loop(), asyncio.BoundedSemaphore(self._settings.pool))
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                await free.acquire()
        except TimeoutError:
            raise self._none_left() from None
        try:
            connection = await aio.connect(self._settings)
            try:
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(lent(self._settings))
            except BaseException:
                connection.terminate()
                raise
        except BaseException as error:
            free.release()
            if isinstance(error, aio.ERRORS):
                raise translation(error, self._settings) from error
            raise
        return AsyncPostgresLoan(connection, transaction, self._settings, free.release)

    def _none_left(self) -> StoreBusy:
        return StoreBusy(
            f"all {self._settings.pool} connections to {self._settings} for ctx.transaction() are in use: set ?pool= "
            "higher, or do less inside of the blocks"
        )
