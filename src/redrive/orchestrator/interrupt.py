"""Awaiting what may be ended from outside: by its time, by a close, or because the answer has come from elsewhere.

Both libraries can do that, under different names. Timers are the library's own, since a `redrive.clock.Clock` has none;
but when one goes off it asks the clock whether the time is really up, and otherwise waits for what is left. So the two
may run apart: nothing is cut off early, and a test whose clock jumps is not at the mercy of the machine's.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redrive.clock import in_trio

__all__ = ["Interrupt", "Interrupted"]

T = TypeVar("T")

_Left = Callable[[], float | None]
_BREATH = 0.001
"""Seconds until a clock is asked again at the earliest: one that stands still must not keep the loop busy."""


class Interrupted(Exception):
    """What was awaited was ended. Never leaves the orchestrator."""


class Interrupt:
    """Awaits one thing at a time; calling it ends that."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end: Callable[[], None] | None = None

    def __call__(self) -> None:
        """End what is awaited, if anything is; to be called in the thread of its event loop."""
        if self._end is not None:
            self._end()

    async def run(self, awaitable: Awaitable[T], left: _Left | None = None) -> T:
        """Await something.

        Args:
            awaitable: what.
            left: says how many seconds it may still take, or None for no limit; by default there is none.

        Returns:
            Its result.

        Raises:
            Interrupted: it was ended.
        """
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
    """A timer of asyncio that believes the clock."""

    def __init__(self, loop: Any, left: _Left, end: Callable[[], None]) -> None:
        self._loop, self._left, self._end = loop, left, end
        self._handle = loop.call_later(max(0.0, left() or 0.0), self._tick)

    def _tick(self) -> None:
        remaining = self._left() or 0.0
        if remaining <= 0:
            self._end()
        else:
            self._handle = self._loop.call_later(max(remaining, _BREATH), self._tick)

    def cancel(self) -> None:
        """Not needed any more."""
        self._handle.cancel()


async def _count_down(trio: Any, scope: Any, left: _Left, end: Callable[[], None]) -> None:
    """The same for trio, as a task of its own."""
    with scope:
        while (remaining := left() or 0.0) > 0:
            await trio.sleep(max(remaining, _BREATH))
        end()
