"""Hears that the database has news for a worker, and holds the lock by which others see that the worker lives.

Producers do not notify for each job: of the transactions that one process commits within `WINDOW`, the first one does,
and whoever hears it looks at once and again after `AGAIN`, when the others are there too.

A connection that has died says so, or does not. So one that has been silent for `PING` is asked something; without an
answer within that time it is given up. Whoever watches opens another one then.

The lock is an advisory lock of PostgreSQL and ends with its session, a moment after its process. A worker that lives
and has lost its connection has its lock back as soon as it is connected again; until then it looks dead, which is why
the rescuer looks twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg

from redrive.errors import StoreUnreachable
from redrive.stores.drivers.postgres.aio import ERRORS, connect, say
from redrive.stores.drivers.postgres.errors import translation
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.statements import compiled

__all__ = ["AGAIN", "PING", "WINDOW", "watch"]

WINDOW = 0.01
"""Seconds in which one process notifies once."""

AGAIN = 0.015
"""Seconds after a notification at which there is a second look."""

PING = 10.0
"""Seconds of silence after which the connection is asked whether it lives, and which the answer may take."""

LOCK = "SELECT pg_try_advisory_lock('redrive_meta'::regclass::oid::integer, :lock_id::integer)"


async def watch(settings: Settings, lock_id: int | None) -> AsyncGenerator[None, None]:
    """Yield at once, and then whenever there may be news.

    Args:
        settings: which database, and how.
        lock_id: the number of the lock to be held meanwhile; None holds none.

    Yields:
        Nothing: it is a reason to look.

    Raises:
        StoreError: there is no connection, or it was lost.
    """
    if not settings.listens:
        # Whoever waits for news waits for ever; workers look every second by themselves.
        yield
        await asyncio.get_running_loop().create_future()
    connection = await connect(settings, direct=settings.direct)
    try:
        news = _News(connection)
        if settings.notify:
            await _translated(connection.add_listener(settings.channel, news.heard), settings)
        held = lock_id is None
        while True:
            if not held:
                held = await _lock(connection, settings, lock_id)
            yield
            while not await news.within(PING if held else 1.0):
                if not held:
                    held = await _lock(connection, settings, lock_id)
                await _ask(connection, settings)
    finally:
        connection.terminate()


class _News:
    """What a connection has heard."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        connection.add_termination_listener(lambda *_: self._event.set())

    def heard(self, *_: object) -> None:
        """Take a notification."""
        self._event.set()
        self._loop.call_later(AGAIN, self._event.set)

    async def within(self, seconds: float) -> bool:
        """Wait for news; answer whether there were any."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        if self._connection.is_closed():
            message = "the listening connection was lost"
            raise StoreUnreachable(message)
        heard = self._event.is_set()
        self._event.clear()
        return heard


async def _lock(connection: asyncpg.Connection[Any], settings: Settings, lock_id: int | None) -> bool:
    """Take the lock; another session of ours may hold it still, which the server has not yet given up."""
    statement = compiled(LOCK, settings.schema)
    return bool(await _translated(connection.fetchval(statement.text, lock_id), settings))


async def _ask(connection: asyncpg.Connection[Any], settings: Settings) -> None:
    try:
        async with asyncio.timeout(PING):
            await say(connection, "SELECT", settings)
    except TimeoutError as error:
        raise translation(error, settings) from error


async def _translated(answer: Any, settings: Settings) -> Any:  # noqa: ANN401 - as awaited
    try:
        return await answer
    except ERRORS as error:
        raise translation(error, settings) from error
