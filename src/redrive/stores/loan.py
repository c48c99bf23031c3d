"""A connection that is lent to a handler, in a transaction that redrive ends.

The handler writes what it likes on the connection; redrive adds what ends the attempt, and commits both or neither
(`App` users meet this as ``ctx.transaction()``). It is a connection of its own, never one that operations run on. Its
driver says what it is: `sqlite3.Connection` on SQLite.

This is the seam for drivers: one that can lend implements ``lend()`` and ``alend()``, each answering a loan whose
transaction has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from redrive.stores.query import Operation

__all__ = ["AsyncLoan", "Loan", "to_the_end"]

R = TypeVar("R")


class Loan(Protocol):
    """A lent connection, for ``def`` handlers. It is given back by `commit` or by `rollback`."""

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the driver's own
        """What the handler gets."""
        ...

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        ...

    def commit(self) -> None:
        """Commit and close; what was written is there when this returns, and not if it raises."""
        ...

    def rollback(self) -> None:
        """Undo everything and close."""
        ...


class AsyncLoan(Protocol):
    """A lent connection, for ``async def`` handlers."""

    @property
    def connection(self) -> Any:  # noqa: ANN401 - the driver's own
        """What the handler gets."""
        ...

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        ...

    async def commit(self) -> None:
        """Commit and close; if the task is cancelled meanwhile, ``CancelledError`` is raised after the commit."""
        ...

    async def rollback(self) -> None:
        """Undo everything and close, even if the task is cancelled meanwhile."""
        ...


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do something, and know how it went, even if the task is cancelled meanwhile.

    Args:
        work: the end of a transaction.

    Raises:
        CancelledError: the task was cancelled, and the work is done.
        Exception: what the work raised, even if the task was cancelled.
    """
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        doing.result()
        raise
