"""Raises `SoftTimeout` inside a running coroutine, once.

asyncio can only cancel a task, and what the coroutine then meets is a ``CancelledError``: a word that means "end", not
"hurry up". So the coroutine is driven by hand here. At the soft timeout the task is cancelled, which interrupts
whatever it awaits; the ``CancelledError`` that asyncio throws in is caught on its way, taken back, and what goes on
into the coroutine is a `SoftTimeout`.

Somebody else may cancel the task at the same moment: the worker, or the hard timeout. Then asyncio still throws in one
``CancelledError`` for both, and the other one is what counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from redrive.errors import SoftTimeout

__all__ = ["softly"]

T = TypeVar("T")


async def softly(running: Awaitable[T], seconds: float) -> T:
    """Await something, and raise `SoftTimeout` inside of it after a while.

    Args:
        running: the coroutine of a handler.
        seconds: when.

    Returns:
        Its result.
    """
    hurry = _Hurry(asyncio.current_task())
    timer = asyncio.get_running_loop().call_later(seconds, hurry.up)
    try:
        return await _Driven(running, hurry, f"the soft timeout of {seconds:g} s has passed")
    finally:
        timer.cancel()


class _Hurry:
    """Whether the soft timeout is on its way into the coroutine.

    Args:
        task: what runs the coroutine.
    """

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None  # noqa: S101 - coroutines run in tasks
        self._task = task
        self._others = task.cancelling()
        self._sent = False

    def up(self) -> None:
        """Interrupt whatever the task awaits."""
        self._sent = True
        self._task.cancel()

    def meant(self) -> bool:
        """Was this ``CancelledError`` meant as a soft timeout, and as nothing else? Then it is taken back."""
        if not self._sent:
            return False
        self._sent = False
        return self._task.uncancel() <= self._others


class _Driven(Awaitable[T]):
    def __init__(self, running: Awaitable[T], hurry: _Hurry, message: str) -> None:
        self._running = running
        self._hurry = hurry
        self._message = message

    def __await__(self) -> Generator[Any, Any, T]:
        """Hand everything through, in both directions, but for the one exception."""
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
                error = SoftTimeout(self._message) if self._hurry.meant() else cancelled
            except BaseException as other:  # noqa: BLE001 - whatever is thrown in belongs to the coroutine
                error = other
