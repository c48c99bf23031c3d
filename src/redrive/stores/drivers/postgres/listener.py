"""The listening connection of a worker process, which receives notifications and holds the lock of a live worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import asyncpg

from redrive.errors import StoreUnreachable
from redrive.stores.drivers.postgres.aio import ERRORS, Connection, ask, connect
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.script import Statement
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.statements import compiled, inlined

# Seconds in which one process notifies once: of the transactions that it commits within them, only the first one does.
WINDOW = 0.01

# Seconds between a notification and the second report of it, when the other transactions are committed.
AGAIN = 0.015

# Seconds of silence after which the connection is checked, and seconds that the answer may take. A dead connection does
# not always raise an error.
PING = 10.0
ANSWER = 10.0

# The lock is an advisory lock of PostgreSQL and ends with its session, a moment after its process. A live worker that
# has lost its connection takes the lock again as soon as it is connected; until then it seems dead, which is why the
# rescuer checks twice.
LOCK = "SELECT 1 WHERE pg_try_advisory_lock('redrive_meta'::regclass::oid::integer, :lock_id::integer)"

_STATE = "SELECT current_setting('transaction_read_only')"


async def watch(
    settings: PostgresSettings, lock_id: int | None, again: Callable[[], bool] | None = None
) -> AsyncGenerator[None, None]:
    """Yield at once, and then after each notification; see `redrive.stores.store.Store.watch`."""
    if not settings.listens:
        # There are no notifications; workers poll every second without them.
        yield
        await asyncio.get_running_loop().create_future()
    turn = settings.servers.turn
    connection = await connect(settings, direct=True, kind=_Listener)
    try:
        notifications = _Notifications(connection, again)
        if settings.notify:
            await _translated(connection.add_listener(settings.channel, notifications.receive), settings)
        held = lock_id is None
        patience = settings.patience(settings.servers)
        loop = asyncio.get_running_loop()
        while True:
            if not held:
                held = await _lock(connection, settings, lock_id)
            yield
            since = loop.time()
            while not await notifications.wait(min(PING if held else 1.0, patience)):
                if settings.servers.turn != turn:
                    raise StoreUnreachable(f"the listening connection to {settings} is given up, as others were lost")
                if not held:
                    held = await _lock(connection, settings, lock_id)
                elif loop.time() - since < PING - patience:
                    continue
                await _ping(connection, settings)
                since = loop.time()
    finally:
        connection.terminate()


class _Listener(Connection):
    """A listening connection."""

    async def fetch(self, query: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as in asyncpg
        """Execute LISTEN in one round trip: asyncpg would prepare it."""
        if args or kwargs:
            return await super().fetch(query, *args, **kwargs)
        await self.execute(query)
        return []


class _Notifications:
    """The notifications of a connection."""

    def __init__(self, connection: asyncpg.Connection[Any], again: Callable[[], bool] | None) -> None:
        self._connection = connection
        self._again = again
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        connection.add_termination_listener(lambda *_: self._event.set())

    def receive(self, *_: object) -> None:
        """Set the event now, and again after `AGAIN` if that is wanted."""
        self._event.set()
        if self._again is None or self._again():
            self._loop.call_later(AGAIN, self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification; return False if there was none in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        if self._connection.is_closed():
            raise StoreUnreachable("the listening connection was lost")
        received = self._event.is_set()
        self._event.clear()
        return received


async def _lock(connection: Connection, settings: PostgresSettings, lock_id: int | None) -> bool:
    """Take the lock; return False if an older session of this process, which the server has not ended yet, holds it."""
    # Nor does this prepare the statement, which is executed once.
    message = Statement(inlined(compiled(LOCK, settings.schema).text, [lock_id]), counts=True)
    return bool(await _translated(ask(connection, message), settings))


async def _ping(connection: Connection, settings: PostgresSettings) -> None:
    connection.watch()
    try:
        async with asyncio.timeout(ANSWER):
            state = await _translated(connection.fetchval(_STATE), settings)
    except TimeoutError as error:
        raise translation(error, settings) from error
    finally:
        connection.unwatch()
    if state == "on":
        # A server that was demoted does not notify of what its successor commits.
        (settings.direct or settings.servers).lost(connection.address)
        raise StoreUnreachable(f"the listening connection to {settings} is read only: is it a standby?")


async def _translated(answer: Any, settings: PostgresSettings) -> Any:  # noqa: ANN401 - as awaited
    try:
        return await answer
    except ERRORS as error:
        raise translation(error, settings) from error
