"""Transactions for handlers: the handler's writes and the end of its attempt are one transaction.

A ``def`` handler gets a connection of psycopg, a coroutine one of asyncpg. Other work does not wait for the block,
except for the rows that it writes; but the lease may be lost during it, and then the completion, which is fenced, rolls
the handler's writes back.

A block takes three round trips besides those of the handler: one begins the transaction and asks for the lease, one
completes the job, one commits. A session whose block was committed is used again. No state of one handler may reach
another one, so the message that commits also undoes what the handler has changed in the session, and each block has a
connection object of its own, which is closed at its end (`redrive.stores.drivers.postgres.sync.renewed`). After any
other end, and wherever something is left, the session is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from redrive.clock import SystemClock
from redrive.errors import StoreBusy, StoreClosed, StoreError, StoreUnreachable
from redrive.stores.drivers.postgres import aio, sync
from redrive.stores.drivers.postgres.errors import is_unsure, translation
from redrive.stores.drivers.postgres.script import Opening, Statement, lent_script
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import commit_handler
from redrive.stores.drivers.postgres.timeline import Timeline
from redrive.stores.query import Operation, R
from redrive.stores.store import run_to_completion, unknown

C = TypeVar("C", sync.Connection, aio.Connection)

# Only redrive ends the transaction. psycopg refuses commit() and rollback() inside it; asyncpg has no such methods; and
# a transaction that was ended by a statement is detected.
_ENDED = "the handler has ended the transaction of ctx.transaction() by a statement of its own: redrive ends it"

_NAME = "ctx.transaction()"

# Seconds that a rollback may take before the connection is closed, which rolls back too.
_ROLLBACK_TIMEOUT = 5

_ROLLBACK = Statement("ROLLBACK")

_monotonic = SystemClock.monotonic


def _commit(settings: PostgresSettings) -> Statement:
    return Statement(commit_handler(settings), counts=not settings.pgbouncer)


def _failed_commit(error: BaseException, settings: PostgresSettings) -> StoreError:
    """Return the error for a commit without the answer that it has succeeded."""
    # An error may be one of the statements after the commit.
    if is_unsure(error):
        return unknown(settings, _NAME, str(error))
    return aio.failure(error, settings, commits=_NAME)


class _Idle(Generic[C]):
    """Connections that no handler uses, the last one that was used first."""

    def __init__(self, settings: PostgresSettings, timeline: Timeline, close: Callable[[C], None]) -> None:
        self._settings = settings
        self._timeline = timeline
        self._close: Callable[[C], None] = close
        self._kept: list[tuple[C, float]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def old_in(self) -> float | None:
        """The seconds until `close_old` closes the first one, not below zero; None without any."""
        with self._lock:
            return max(self._kept[0][1] + aio.IDLE - _monotonic(), 0.0) if self._kept else None

    def pop(self) -> C | None:
        """Take a connection that may be used; None if there is none."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise StoreClosed(f"{self._settings} has been closed")
                if not self._kept:
                    return None
                connection, _ = self._kept.pop()
            if self._may_be_used(connection):
                return connection
            self._close(connection)

    def put(self, connection: C) -> None:
        """Keep a connection for the next handler."""
        with self._lock:
            if not self._is_closed:
                self._kept.append((connection, _monotonic()))
                return
        self._close(connection)

    def close_old(self) -> None:
        """Close the connections that no handler has used for long."""
        if not self._kept:
            return
        until = _monotonic() - aio.IDLE
        with self._lock:
            old = [each for each, since in self._kept if since <= until]
            self._kept = [(each, since) for each, since in self._kept if since > until]
        for connection in old:
            self._close(connection)

    def close(self) -> None:
        """Close all; one that is in use is closed when it is put back."""
        with self._lock:
            self._is_closed = True
            kept, self._kept = self._kept, []
        for connection, _ in kept:
            self._close(connection)

    def _may_be_used(self, connection: C) -> bool:
        is_current = connection.turn == self._settings.servers.turn and connection.era == self._timeline.era
        return is_current and (self._settings.pgbouncer or not connection.is_read_only)


class PostgresTransaction:
    """A `StoreTransaction` on a connection of psycopg."""

    def __init__(
        self,
        connection: sync.Connection,
        settings: PostgresSettings,
        timeline: Timeline,
        on_close: Callable[[sync.Connection | None], None],
    ) -> None:
        self.connection = connection
        connection.is_lent = True
        self.is_current: bool = True
        self._settings = settings
        self._timeline = timeline
        # Called once, with the connection if it can be used again.
        self._on_close = on_close

    def begin(self, opening: Opening) -> None:
        """Begin the transaction."""
        self._timeline.check(opening.era, self._settings)
        try:
            rows = sync.ask(self.connection, opening.statement)
        except psycopg.Error as error:
            raise translation(error, self._settings) from error
        self.is_current = opening.answer(rows)

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if self.connection.info.transaction_status is TransactionStatus.IDLE:
            raise StoreError(_ENDED)
        self._timeline.check(operation.era, self._settings)
        return sync.execute(self.connection, lent_script(operation, self._settings), self._settings)

    def commit(self) -> None:
        """Commit."""
        left: sync.Connection | None = None
        try:
            try:
                connection = sync.renewed(self.connection)
            except psycopg.Error as error:
                raise translation(error, self._settings) from error
            try:
                if not sync.ask(connection, _commit(self._settings)):
                    left = connection
            except psycopg.Error as error:
                raise _failed_commit(error, self._settings) from error
        finally:
            self._close(left)

    def rollback(self) -> None:
        """Roll back and close."""
        try:
            with contextlib.suppress(psycopg.Error):
                sync.ask(self.connection, _ROLLBACK)
        finally:
            self._close(None)

    def _close(self, left: sync.Connection | None) -> None:
        if left is None:
            self.connection.pgconn.finish()
        self._on_close(left)


class AsyncPostgresTransaction:
    """An `AsyncStoreTransaction` on a connection of asyncpg."""

    def __init__(
        self,
        connection: aio.Connection,
        settings: PostgresSettings,
        timeline: Timeline,
        on_close: Callable[[aio.Connection | None], None],
    ) -> None:
        self.connection = connection
        self.is_current: bool = True
        self._settings = settings
        self._timeline = timeline
        self._on_close = on_close

    async def begin(self, opening: Opening) -> None:
        """Begin the transaction."""
        self._timeline.check(opening.era, self._settings)
        async with self._in_time():
            rows = await aio.begin(self.connection, opening.statement)
        self.is_current = opening.answer(rows)

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        if not self.connection.is_closed() and not self.connection.is_in_transaction():
            raise StoreError(_ENDED)
        self._timeline.check(operation.era, self._settings)
        async with self._in_time():
            return await aio.execute(self.connection, lent_script(operation, self._settings), self._settings)

    async def commit(self) -> None:
        """Commit."""
        await run_to_completion(self._commit())

    async def rollback(self) -> None:
        """Roll back and close."""
        await run_to_completion(self._rollback())

    async def _commit(self) -> None:
        left: aio.Connection | None = None
        connection = self.connection if self.connection.is_closed() else aio.renewed(self.connection)
        connection.watch()
        try:
            async with self._in_time(_failed_commit):
                if not await aio.ask(connection, _commit(self._settings)) and not connection.is_changed:
                    left = connection
        finally:
            connection.unwatch()
            self._close(left)

    @contextlib.asynccontextmanager
    async def _in_time(
        self, failed: Callable[[BaseException, PostgresSettings], StoreError] = translation
    ) -> AsyncIterator[None]:
        """Limit the time of the block."""
        # Before asyncpg sends a statement, it waits until the server has cancelled an earlier one.
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                yield
        except aio.ERRORS as error:
            raise failed(error, self._settings) from error

    async def _rollback(self) -> None:
        try:
            with contextlib.suppress(*aio.ERRORS):
                async with asyncio.timeout(_ROLLBACK_TIMEOUT):
                    await aio.ask(self.connection, _ROLLBACK)
        finally:
            self._close(None)

    def _close(self, left: aio.Connection | None) -> None:
        if left is None:
            self.connection.end()
        self._on_close(left)


class _Lender:
    """The transactions of the coroutines of one event loop."""

    def __init__(self, settings: PostgresSettings, timeline: Timeline, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._timeline = timeline
        self._loop = loop
        self._free = asyncio.BoundedSemaphore(settings.pool)
        self.idle: _Idle[aio.Connection] = _Idle(settings, timeline, aio.Connection.terminate)
        self._closing: asyncio.TimerHandle | None = None
        self.end: AsyncGenerator[None, None] = aio.at_end_of_loop(self.idle.close)

    async def begin(self, asked: Operation[bool] | None) -> AsyncPostgresTransaction:
        """Take or open a connection, and begin its transaction."""
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                await self._free.acquire()
        except TimeoutError:
            raise _none_left(self._settings) from None
        try:
            return await self._begin(Opening(asked, self._settings))
        except BaseException:
            self._free.release()
            raise

    async def _begin(self, opening: Opening) -> AsyncPostgresTransaction:
        while True:
            kept = self.idle.pop()
            connection = await self._open() if kept is None else aio.renewed(kept)
            loan = AsyncPostgresTransaction(connection, self._settings, self._timeline, self._give_back)
            connection.watch()
            try:
                if kept is not None:
                    # The types of the database may have changed, and those of an earlier handler are its own.
                    await connection.reload_schema_state()
                await loan.begin(opening)
            except BaseException as error:
                connection.end()
                if kept is None or not _has_ended(error):
                    raise
            else:
                return loan

    async def _open(self) -> aio.Connection:
        connection = await aio.connect(self._settings)
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                if not self._settings.pgbouncer:
                    await aio.meet(connection, self._timeline)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, aio.ERRORS):
                raise translation(error, self._settings) from error
            raise
        return connection

    def _give_back(self, connection: aio.Connection | None) -> None:
        self._free.release()
        if connection is not None:
            self.idle.put(connection)
            self._close_later()

    def _close_later(self) -> None:
        seconds = self.idle.old_in
        if self._closing is None and seconds is not None:
            self._closing = self._loop.call_later(seconds, self._close_old)

    def _close_old(self) -> None:
        self._closing = None
        self.idle.close_old()
        self._close_later()


# A process may be stopped inside the block. The server ends a session that is silent for the timeout of the URL; and,
# once the completion is written, which locks the row of the job, after five seconds.
class PostgresTransactions:
    """A source of transactions on one database, at most ``pool`` of each library at once."""

    def __init__(self, settings: PostgresSettings, timeline: Timeline) -> None:
        self._settings = settings
        self._timeline = timeline
        # Counted apart from the connections that operations use: a worker can still settle when its handlers have taken
        # all of these.
        self._free = threading.BoundedSemaphore(settings.pool)
        self._idle: _Idle[sync.Connection] = _Idle(settings, timeline, sync.Connection.close)
        self._lenders: dict[asyncio.AbstractEventLoop, _Lender] = {}

    def begin(self, asked: Operation[bool] | None = None) -> PostgresTransaction:
        """Take or open a connection of psycopg, and begin its transaction; see `redrive.stores.store.Store.begin`.

        Raise `StoreBusy` if ``pool`` transactions were open for longer than the timeout, or `StoreError` if it
        cannot be opened.
        """
        if not self._free.acquire(timeout=self._settings.timeout.total_seconds()):
            raise _none_left(self._settings)
        try:
            return self._begin(Opening(asked, self._settings))
        except BaseException:
            self._free.release()
            raise

    async def abegin(self, asked: Operation[bool] | None = None) -> AsyncPostgresTransaction:
        """Take or open a connection of asyncpg, and begin its transaction; see `begin`."""
        loop = asyncio.get_running_loop()
        lender = self._lenders.get(loop)
        if lender is None:
            self._lenders = {each: kept for each, kept in self._lenders.items() if not each.is_closed()}
            lender = self._lenders[loop] = _Lender(self._settings, self._timeline, loop)
            await anext(lender.end)
        return await lender.begin(asked)

    def close_old(self) -> None:
        """Close the connections of psycopg that no handler has used for long; those of asyncpg have a timer."""
        self._idle.close_old()

    def close(self) -> None:
        """Close the connections; one that is in use is closed at the end of its transaction. Idempotent."""
        self._idle.close()
        for loop, lender in list(self._lenders.items()):
            aio.in_loop(loop, lender.idle.close)

    def _begin(self, opening: Opening) -> PostgresTransaction:
        while True:
            kept = self._idle.pop()
            connection = self._open() if kept is None else sync.again(kept, self._settings)
            loan = PostgresTransaction(connection, self._settings, self._timeline, self._give_back)
            try:
                loan.begin(opening)
            except BaseException as error:
                connection.close()
                if kept is None or not _has_ended(error):
                    raise
            else:
                return loan

    def _open(self) -> sync.Connection:
        connection = sync.connect(self._settings)
        try:
            if not self._settings.pgbouncer:
                sync.meet(connection, self._timeline)
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise translation(error, self._settings) from error
            raise
        return connection

    def _give_back(self, connection: sync.Connection | None) -> None:
        if connection is not None:
            self._idle.put(connection)
        self._free.release()


def _has_ended(error: BaseException) -> bool:
    """Return True if a kept session had ended, so that another one may serve; a late answer is no reason to repeat."""
    return isinstance(error, StoreUnreachable) and not isinstance(error.__cause__, sync.NoAnswer | TimeoutError)


def _none_left(settings: PostgresSettings) -> StoreBusy:
    return StoreBusy(
        f"all {settings.pool} connections to {settings} for ctx.transaction() are in use: set ?pool= higher, or do "
        "less inside of the blocks"
    )
