"""The asynchronous runner: asyncpg, with connections of its own for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import asyncpg

from redrive.errors import StoreBusy, StoreClosed, StoreError
from redrive.stores.dialects.postgres.values import decoder
from redrive.stores.drivers.postgres.conversation import Statement, Talk, part, whole
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import session
from redrive.stores.query import Operation, Rows, Steps

__all__ = ["ERRORS", "AsyncRunner", "connect", "drive", "failure", "say"]

R = TypeVar("R")

ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What asyncpg raises when the database says no, or nothing. Of a session that was ended between two messages it says
that it has made a mistake itself ("cannot switch to state")."""


def failure(error: BaseException, settings: Settings, *, commits: str | None) -> StoreError:
    """Turn an error of asyncpg into ours, where a commit may have been sent.

    Args:
        error: what was raised.
        settings: which database.
        commits: the operation that was to be committed, if one was.

    Returns:
        The error to raise.
    """
    # asyncpg raises an InterfaceError before it sends anything.
    sent = not isinstance(error, asyncpg.InterfaceError)
    return translation(error, settings, commits=commits if sent else None)


async def connect(settings: Settings, *, direct: str | None = None) -> asyncpg.Connection[Any]:
    """Open a connection.

    Args:
        settings: which database, and how.
        direct: ``host:port`` instead of that of the URL.

    Returns:
        The connection.

    Raises:
        StoreError: it cannot be opened.
    """
    host, _, port = (direct or "").partition(":")
    elsewhere: dict[str, Any] = {"host": host, "port": int(port or 5432)} if direct else {}
    try:
        return await asyncpg.connect(
            settings.dsn,
            timeout=settings.timeout.total_seconds(),
            command_timeout=settings.timeout.total_seconds(),
            # Behind a pool that gives each transaction another session, a prepared statement is lost at once.
            statement_cache_size=0 if settings.pgbouncer and not direct else 200,
            **elsewhere,
        )
    except (*ERRORS, ValueError) as error:
        raise translation(error, settings, opening=True) from error


async def drive(connection: asyncpg.Connection[Any], steps: Steps[R], settings: Settings) -> R:
    """Run an operation in a transaction that somebody else ends.

    Args:
        connection: in a transaction; after an error PostgreSQL refuses whatever else is said in it.
        steps: the operation.
        settings: for messages.

    Returns:
        The result of the operation.

    Raises:
        StoreError: the database refused.
    """
    return await _hold(connection, part(steps, settings), settings)


async def _hold(
    connection: asyncpg.Connection[Any],
    talk: Talk[R],
    settings: Settings,
    rows: Rows | None = None,
    *,
    ours: bool = False,
) -> R:
    """Hold a conversation: statements out, rows in; errors are thrown in."""
    try:
        said = talk.send(rows)
        while True:
            try:
                rows = await _say(connection, said)
            except ERRORS as error:
                if ours and isinstance(error, TimeoutError):
                    # Before asyncpg sends anything else, such as ROLLBACK, it waits for the server.
                    connection.terminate()
                said = talk.throw(failure(error, settings, commits=said.commits))
            else:
                said = talk.send(rows)
    except StopIteration as stop:
        result: R = stop.value
        return result


async def _say(connection: asyncpg.Connection[Any], said: Statement) -> Rows:
    if said.values is None:
        await connection.execute(said.text)
        return []
    rows: Rows = await connection.fetch(said.text, *said.values)
    if said.into is None or not rows:
        return rows
    return decoder(said.into, tuple(rows[0].keys()))(rows)


class AsyncRunner:
    """Runs operations, each on a connection that no other task uses meanwhile.

    Args:
        settings: which database, and how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._closed = False

    async def run(self, operation: Operation[R], is_news: Callable[[], bool] = bool) -> R:
        """Run an operation in a transaction of its own.

        The first answer comes within the timeout of the settings, whether or not a connection has to be waited for and
        opened; each of the others takes so long at most.

        Args:
            operation: what to run.
            is_news: asked at the end of one that wakes, whether workers are to be told.

        Returns:
            Its result.

        Raises:
            StoreBusy: no connection was free in time.
            StoreUnreachable: there was no answer in time, or no connection.
            StoreError: the database refused.
        """
        if self._closed:
            message = f"{self._settings} has been closed"
            raise StoreClosed(message)
        talk = whole(operation, self._settings, is_news)
        try:
            first = next(talk)
        except StopIteration as stop:
            answer: R = stop.value
            return answer
        async with (await self._pool()).lent(first) as (connection, rows):
            return await _hold(connection, talk, self._settings, rows, ours=True)

    def close(self) -> None:
        """Close the connections of all loops; one that is in use is closed when it comes back. Idempotent."""
        self._closed = True
        for loop, pool in list(self._pools.items()):
            pool.closed = True
            # A loop that is closed has closed its connections; see `_Pool.attend`.
            with contextlib.suppress(RuntimeError):
                if loop.is_running() and not _is_current(loop):
                    loop.call_soon_threadsafe(pool.drop)
                else:
                    pool.drop()

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._pools = {each: kept for each, kept in self._pools.items() if not each.is_closed()}
            pool = self._pools[loop] = _Pool(self._settings)
            await pool.attend()
        return pool


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def say(connection: asyncpg.Connection[Any], text: str, settings: Settings) -> None:
    """Run statements without parameters, in one message.

    Args:
        connection: where.
        text: the statements.
        settings: for messages.

    Raises:
        StoreError: the database refused.
    """
    try:
        await connection.execute(text)
    except ERRORS as error:
        raise translation(error, settings) from error


class _Pool:
    """The connections of one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.closed = False
        self._settings = settings
        self._idle: list[asyncpg.Connection[Any]] = []
        self._free = asyncio.Semaphore(settings.pool)
        self._end: AsyncGenerator[None, None] | None = None

    async def attend(self) -> None:
        """Arrange that the connections are closed when the loop ends, whoever forgets to close the store.

        Whatever runs a loop closes its asynchronous generators at the end, and so the one that waits here.
        """
        self._end = self._until_the_end()
        await anext(self._end)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.closed = True
            self.drop()

    def drop(self) -> None:
        """Close what nobody uses."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    @contextlib.asynccontextmanager
    async def lent(self, first: Statement) -> AsyncIterator[tuple[asyncpg.Connection[Any], Rows]]:
        """Lend a connection on which something has been said.

        Args:
            first: what; it may be said more than once.
        """
        until = asyncio.get_running_loop().time() + self._settings.timeout.total_seconds()
        await self._turn(until)
        try:
            connection, rows = await self._answered(first, until)
            try:
                yield connection, rows
            except BaseException as error:
                await self._undo(connection, error)
                raise
            finally:
                self._give_back(connection)
        finally:
            self._free.release()

    async def _turn(self, until: float) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            message = f"all {self._settings.pool} connections to {self._settings} are in use: set ?pool= higher"
            raise StoreBusy(message) from None

    async def _answered(self, first: Statement, until: float) -> tuple[asyncpg.Connection[Any], Rows]:
        try:
            async with asyncio.timeout_at(until):
                return await self._opened(first)
        except TimeoutError as error:
            raise failure(error, self._settings, commits=first.commits) from error

    async def _opened(self, first: Statement) -> tuple[asyncpg.Connection[Any], Rows]:
        """Send the first statement. Connections that have died while they were idle are passed over.

        One that does not answer in time is not: then the time is up.
        """
        while True:
            fresh = not self._idle
            connection = await connect(self._settings) if fresh else self._idle.pop()
            try:
                if fresh and not self._settings.pgbouncer:
                    await connection.execute(session(self._settings))
                return connection, await _say(connection, first)
            except ERRORS as error:
                connection.terminate()
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
        # Cancelled, perhaps in the middle of an answer: what is left of the transaction goes with the connection.
        connection.terminate()

    def _give_back(self, connection: asyncpg.Connection[Any]) -> None:
        if connection.is_closed():
            return
        if self.closed or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)
