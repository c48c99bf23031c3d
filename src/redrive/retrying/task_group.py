"""Several coroutines at once, each with a number, ended together: over asyncio and over trio.

``async with crew() as group`` starts pieces of work with `Crew.start` and hears of their ends with `Crew.heard`. When
the block ends, in whatever way, all that still runs is cancelled *and awaited*: nobody's ``finally`` runs after the
call that started it has returned. An error with which work answers its cancellation is nobody's any more.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from redrive.clock import in_trio

__all__ = ["Crew", "Ended", "crew"]


class Ended(NamedTuple):
    """One piece of work is over.

    Attributes:
        number: which.
        value: what it returned; None if it raised.
        error: what it raised, if it did.
    """

    number: int
    value: Any
    error: BaseException | None


_Work = Callable[[], Awaitable[Any]]


class Crew(Protocol):
    """See the top of the module."""

    async def __aenter__(self) -> Self:
        """Open."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Cancel and await what still runs."""
        ...

    def start(self, number: int, work: _Work) -> None:
        """Run something beside everything else."""
        ...

    async def heard(self) -> Ended:
        """Wait for the next end."""
        ...


def crew() -> Crew:
    """A crew under the library that is running."""
    return _TrioCrew() if in_trio() else _AsyncioCrew()


async def _told(number: int, work: _Work, tell: Callable[[Ended], object]) -> None:
    try:
        value = await work()
    except BaseException as error:
        tell(Ended(number, None, error))
        if not isinstance(error, Exception):
            raise
    else:
        tell(Ended(number, value, None))


class _AsyncioCrew:
    async def __aenter__(self) -> Self:
        import asyncio

        self._asyncio = asyncio
        self._ends: asyncio.Queue[Ended] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    def start(self, number: int, work: _Work) -> None:
        self._tasks.add(self._asyncio.create_task(_told(number, work, self._ends.put_nowait)))

    async def heard(self) -> Ended:
        return await self._ends.get()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        for task in self._tasks:
            task.cancel()
        interrupted: BaseException | None = None
        while running := [task for task in self._tasks if not task.done()]:
            try:
                await self._asyncio.wait(running)
            except self._asyncio.CancelledError as again:  # from outside: pass it on, but leave nobody behind
                interrupted = again
                for task in running:
                    task.cancel()
        for task in self._tasks:
            if not task.cancelled():
                task.exception()  # heard of already; asyncio need not complain
        if interrupted is not None and not isinstance(error, self._asyncio.CancelledError):
            raise interrupted


class _TrioCrew:
    async def __aenter__(self) -> Self:
        trio = sys.modules["trio"]
        self._send, self._receive = trio.open_memory_channel(float("inf"))
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self

    def start(self, number: int, work: _Work) -> None:
        self._nursery.start_soon(_told, number, work, self._send.send_nowait)

    async def heard(self) -> Ended:
        ended: Ended = await self._receive.receive()
        return ended

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._nursery.cancel_scope.cancel()
        try:
            await self._manager.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            raise _essence(group) from None


def _essence(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a nursery's group is about: one error, or a cancellation; a call that is hedged raises no groups."""
    cancelled = sys.modules["trio"].Cancelled
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions))
        else:
            leaves.append(each)
    return next((leaf for leaf in leaves if not isinstance(leaf, cancelled)), leaves[0])
