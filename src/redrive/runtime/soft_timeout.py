"""The soft timeout of an ``async def`` handler: `SoftTimeout` is raised inside the running coroutine, once.

asyncio can only cancel a task, and then a ``CancelledError`` is raised in the coroutine. So the coroutine is driven by
hand here: at the soft timeout the task is cancelled, which interrupts what it awaits; the ``CancelledError`` is caught
before it reaches the coroutine, the cancellation is taken back, and a `SoftTimeout` is thrown in instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from redrive.errors import SoftTimeout

T = TypeVar("T")


async def softly(running: Awaitable[T], seconds: float) -> T:
    """Await the coroutine of a handler, and raise `SoftTimeout` inside it after so many seconds."""
    interruption = _Interruption(asyncio.current_task())
    timer = asyncio.get_running_loop().call_later(seconds, interruption.send)
    try:
        return await _Driven(running, interruption, f"the soft timeout of {seconds:g} s has passed")
    finally:
        timer.cancel()


class _Interruption:
    """The state of one soft timeout of a task."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None  # noqa: S101 - coroutines run in tasks
        self._task = task
        self._others = task.cancelling()
        self._sent = False

    def send(self) -> None:
        """Interrupt what the task awaits."""
        self._sent = True
        self._task.cancel()

    # The worker or the hard timeout may cancel the task at the same moment. Then asyncio throws in one
    # ``CancelledError`` for both, and it reaches the coroutine.
    def take_back(self) -> bool:
        """Take the cancellation back and return True, if the soft timeout is its only reason."""
        if not self._sent:
            return False
        self._sent = False
        return self._task.uncancel() <= self._others


class _Driven(Awaitable[T]):
    def __init__(self, running: Awaitable[T], interruption: _Interruption, message: str) -> None:
        self._running = running
        self._interruption = interruption
        self._message = message

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass values and exceptions through in both directions, except for the one cancellation."""
        inner = self._running.__await__()
        error: BaseException | None = None
        while True:
            try:
                waits_for = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            try:
                yield waits_for
                error = None
            except asyncio.CancelledError as cancelled:
                error = SoftTimeout(self._message) if self._interruption.take_back() else cancelled
            except BaseException as other:  # noqa: BLE001 - an exception that is thrown in belongs to the coroutine
                error = other
