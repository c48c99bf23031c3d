"""The runner for coroutines: asyncpg, with connections of its own for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import asyncpg

from redrive.errors import StoreBusy, StoreClosed, StoreError
from redrive.stores.dialects.postgres.values import decoder
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.script import Script, Statement, full_script, inner_script
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import session
from redrive.stores.query import Operation, R, Rows, Steps

# The errors of asyncpg when the database refuses or does not answer. InternalClientError ("cannot switch to state")
# occurs if the session was ended between two messages.
ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


def failure(error: BaseException, settings: PostgresSettings, *, commits: str | None) -> StoreError:
    """Translate an error of asyncpg after a statement that may have committed an operation; see `translation`."""
    # asyncpg raises an InterfaceError before it sends a statement.
    sent = not isinstance(error, asyncpg.InterfaceError)
    return translation(error, settings, commits=commits if sent else None)


async def connect(settings: PostgresSettings, *, direct: str | None = None) -> asyncpg.Connection[Any]:
    """Open a connection; ``direct`` is ``host:port`` instead of that of the URL."""
    host, _, port = (direct or "").partition(":")
    address: dict[str, Any] = {"host": host, "port": int(port or 5432)} if direct else {}
    try:
        return await asyncpg.connect(
            settings.dsn,
            timeout=settings.timeout.total_seconds(),
            command_timeout=settings.timeout.total_seconds(),
            # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
            statement_cache_size=0 if settings.pgbouncer and not direct else 200,
            **address,
        )
    except (*ERRORS, ValueError) as error:
        raise translation(error, settings, opening=True) from error


async def drive(connection: asyncpg.Connection[Any], steps: Steps[R], settings: PostgresSettings) -> R:
    """Run an operation in a transaction that the caller ends; after an error PostgreSQL refuses further statements."""
    return await _run(connection, inner_script(steps, settings), settings)


async def _run(
    connection: asyncpg.Connection[Any],
    script: Script[R],
    settings: PostgresSettings,
    rows: Rows | None = None,
    *,
    ours: bool = False,
) -> R:
    """Execute the statements of a script; send it the rows, throw errors into it."""
    try:
        statement = script.send(rows)
        while True:
            try:
                rows = await _execute(connection, statement)
            except ERRORS as error:
                if ours and isinstance(error, TimeoutError):
                    # asyncpg would wait for the server before it sends another statement, such as ROLLBACK.
                    connection.terminate()
                statement = script.throw(failure(error, settings, commits=statement.commits))
            else:
                statement = script.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


async def _execute(connection: asyncpg.Connection[Any], statement: Statement) -> Rows:
    if statement.values is None:
        await connection.execute(statement.text)
        return []
    rows: Rows = await connection.fetch(statement.text, *statement.values)
    if statement.into is None or not rows:
        return rows
    return decoder(statement.into, tuple(rows[0].keys()))(rows)


async def execute(connection: asyncpg.Connection[Any], text: str, settings: PostgresSettings) -> None:
    """Execute statements without parameters, in one message; raise `StoreError` if that fails."""
    try:
        await connection.execute(text)
    except ERRORS as error:
        raise translation(error, settings) from error


class AsyncRunner:
    """The pools of connections that run operations, one pool for each event loop."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._closed = False

    async def run(self, operation: Operation[R], should_notify: Callable[[], bool] = bool) -> R:
        """Run an operation in a transaction of its own.

        The first answer must come within the timeout of the settings, including the time to wait for a connection and
        to open it; each further answer has that time for itself. Raise `StoreBusy` if no connection was free in time,
        `StoreUnreachable` if there was no answer in time, or no connection, or `StoreError` if the database refused.
        """
        if self._closed:
            raise StoreClosed(f"{self._settings} has been closed")
        script = full_script(operation, self._settings, should_notify)
        try:
            first = next(script)
        except StopIteration as stop:
            answer: R = stop.value
            return answer
        async with (await self._pool()).checkout(first) as (connection, rows):
            return await _run(connection, script, self._settings, rows, ours=True)

    def close(self) -> None:
        """Close the connections of all loops; one that is in use is closed when it is given back. Idempotent."""
        self._closed = True
        for loop, pool in list(self._pools.items()):
            pool.closed = True
            # A loop that is closed has closed its connections; see `_Pool.close_with_loop`.
            with contextlib.suppress(RuntimeError):
                if loop.is_running() and not _is_current(loop):
                    loop.call_soon_threadsafe(pool.close_idle)
                else:
                    pool.close_idle()

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._pools = {each: kept for each, kept in self._pools.items() if not each.is_closed()}
            pool = self._pools[loop] = _Pool(self._settings)
            await pool.close_with_loop()
        return pool


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class _Pool:
    """The connections of one event loop."""

    def __init__(self, settings: PostgresSettings) -> None:
        self.closed = False
        self._settings = settings
        self._idle: list[asyncpg.Connection[Any]] = []
        self._free = asyncio.Semaphore(settings.pool)
        self._end: AsyncGenerator[None, None] | None = None

    async def close_with_loop(self) -> None:
        """Close the connections when the loop ends, even if the user does not close the store."""
        # `asyncio.run` and its like close the asynchronous generators of a loop at its end, and so this one.
        self._end = self._until_loop_ends()
        await anext(self._end)

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.closed = True
            self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that are not in use."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    @contextlib.asynccontextmanager
    async def checkout(self, first: Statement) -> AsyncIterator[tuple[asyncpg.Connection[Any], Rows]]:
        """Take a connection and execute the first statement on it, perhaps more than once; yield it and the rows."""
        until = asyncio.get_running_loop().time() + self._settings.timeout.total_seconds()
        await self._acquire(until)
        try:
            connection, rows = await self._open_in_time(first, until)
            try:
                yield connection, rows
            except BaseException as error:
                await self._undo(connection, error)
                raise
            finally:
                self._give_back(connection)
        finally:
            self._free.release()

    async def _acquire(self, until: float) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            message = f"all {self._settings.pool} connections to {self._settings} are in use: set ?pool= higher"
            raise StoreBusy(message) from None

    async def _open_in_time(self, first: Statement, until: float) -> tuple[asyncpg.Connection[Any], Rows]:
        try:
            async with asyncio.timeout_at(until):
                return await self._open(first)
        except TimeoutError as error:
            raise failure(error, self._settings, commits=first.commits) from error

    async def _open(self, first: Statement) -> tuple[asyncpg.Connection[Any], Rows]:
        """Execute the first statement; skip connections that died while they were idle."""
        while True:
            fresh = not self._idle
            connection = await connect(self._settings) if fresh else self._idle.pop()
            try:
                if fresh and not self._settings.pgbouncer:
                    await connection.execute(session(self._settings))
                return connection, await _execute(connection, first)
            except ERRORS as error:
                connection.terminate()
                # A connection that does not answer in time is not skipped: the time is up.
                if fresh or first.commits is not None or isinstance(error, TimeoutError):
                    raise failure(error, self._settings, commits=first.commits) from error
            except BaseException:
                connection.terminate()
                raise

    async def _undo(self, connection: asyncpg.Connection[Any], error: BaseException) -> None:
        if isinstance(error, Exception) and not connection.is_closed():
            if not connection.is_in_transaction():
                return
            with contextlib.suppress(*ERRORS):
                await connection.execute("ROLLBACK")
                return
        # The task was cancelled, perhaps in the middle of an answer: closing the connection ends its transaction.
        connection.terminate()

    def _give_back(self, connection: asyncpg.Connection[Any]) -> None:
        if connection.is_closed():
            return
        if self.closed or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)
