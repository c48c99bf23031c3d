"""Transactions that handlers write in and that redrive ends (``ctx.transaction()``).

`Store.begin` opens a connection on which redrive runs no other operations and begins a transaction on it. The handler
writes on the connection; redrive adds the end of the attempt and commits both or neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from redrive.stores.query import Operation

R = TypeVar("R")


class StoreTransaction(Protocol):
    """An open transaction for a ``def`` handler; `commit` or `rollback` ends it and closes the connection."""

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the database library's own
        """Return the connection that the handler uses, such as a `sqlite3.Connection`."""
        ...

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        ...

    def commit(self) -> None:
        """Commit and close; if this raises, nothing was written, except after `StoreOutcomeUnknown`."""
        ...

    def rollback(self) -> None:
        """Roll back and close."""
        ...


class AsyncStoreTransaction(Protocol):
    """An open transaction for an ``async def`` handler."""

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the database library's own
        """Return the connection that the handler uses."""
        ...

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        ...

    async def commit(self) -> None:
        """Commit and close; if the task is cancelled during the commit, raise ``CancelledError`` after it."""
        ...

    async def rollback(self) -> None:
        """Roll back and close, even if the task is cancelled."""
        ...


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine to its end even if the current task is cancelled.

    Raises:
        CancelledError: the task was cancelled and the coroutine succeeded. If the coroutine fails, its error is raised.
    """
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.result()
        raise
