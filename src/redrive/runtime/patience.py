"""Calls of the database at the end of a worker: each may get no answer, and none may keep the worker from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from redrive.errors import StoreUnreachable
from redrive.observe.logs import logger

__all__ = ["in_time"]

log = logger("redrive.worker")


SECONDS = 5.0
"""How long one try may take."""

TRIES = 2


async def in_time(call: Callable[[], Awaitable[None]], what: str) -> None:
    """Call something that asks the database, and once more where there is no answer: another connection may have one.

    Args:
        call: what to call; it may be cancelled at any point and called again.
        what: what cannot be done where there is no answer, for messages.

    Raises:
        StoreUnreachable: no try has ended in time.
    """
    for _ in range(TRIES):
        try:
            async with asyncio.timeout(SECONDS):
                return await call()
        except TimeoutError:
            log.warning("%s: the database has not answered within %g s", what, SECONDS)
    message = f"{what}: the database has not answered within {TRIES} times {SECONDS:g} s"
    raise StoreUnreachable(message)
