"""Awaiting with an end from outside: at a deadline, at a close, or after the answer has come from elsewhere.

Timers are those of asyncio or trio, since a `redrive.clock.Clock` has none. A timer that expires compares the clock,
and waits again if time is left. So the two clocks may differ: nothing ends early, and tests can jump with their own
clock.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redrive.clock import in_trio

T = TypeVar("T")

_Left = Callable[[], float | None]
# Seconds between two readings of the clock: a stopped clock must not keep the loop busy.
_SHORTEST = 0.001


class Interrupted(Exception):
    """The awaited operation was ended. Raised inside the orchestrator only."""


class Interrupt:
    """Awaits one operation at a time; calling the object ends it."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end: Callable[[], None] | None = None

    def __call__(self) -> None:
        """End the awaited operation, if there is one; call this in the thread of its event loop."""
        if self._end is not None:
            self._end()

    async def run(self, awaitable: Awaitable[T], left: _Left | None = None) -> T:
        """Await an operation for at most ``left()`` seconds and return its result, or raise `Interrupted`."""
        bound = left if left is not None and left() is not None else None
        try:
            return await (self._trio if in_trio() else self._asyncio)(awaitable, bound)
        finally:
            self._end = None

    async def _asyncio(self, awaitable: Awaitable[T], left: _Left | None) -> T:
        import asyncio

        loop = asyncio.get_running_loop()

        def end() -> None:
            if not scope.expired():
                scope.reschedule(loop.time())

        timer = None if left is None else _Timer(loop, left, end)
        try:
            async with asyncio.timeout(None) as scope:
                self._end = end
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            raise Interrupted from None
        finally:
            if timer is not None:
                timer.cancel()

    async def _trio(self, awaitable: Awaitable[T], left: _Left | None) -> T:
        trio = sys.modules["trio"]
        timer = trio.CancelScope()
        with trio.CancelScope() as scope:
            self._end = scope.cancel
            if left is not None:
                trio.lowlevel.spawn_system_task(_count_down, trio, timer, left, scope.cancel)
            try:
                return await awaitable
            finally:
                timer.cancel()
        raise Interrupted


class _Timer:
    """A timer of asyncio that compares the clock before it ends the operation."""

    def __init__(self, loop: Any, left: _Left, end: Callable[[], None]) -> None:
        self._loop, self._left, self._end = loop, left, end
        self._handle = loop.call_later(max(0.0, left() or 0.0), self._tick)

    def _tick(self) -> None:
        remaining = self._left() or 0.0
        if remaining <= 0:
            self._end()
        else:
            self._handle = self._loop.call_later(max(remaining, _SHORTEST), self._tick)

    def cancel(self) -> None:
        """Stop the timer."""
        self._handle.cancel()


async def _count_down(trio: Any, scope: Any, left: _Left, end: Callable[[], None]) -> None:
    """Run the timer under trio, as a task."""
    with scope:
        while (remaining := left() or 0.0) > 0:
            await trio.sleep(max(remaining, _SHORTEST))
        end()
