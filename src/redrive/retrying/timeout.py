"""Cutting an attempt off: one context manager over the two libraries' own means of cancelling.

It is a plain ``with``, since ``with attempt:`` is one, inside ``async for`` too. trio's cancel scopes are plain
already. asyncio has no such thing, but all that it takes is public: a timer that cancels the task, and at the end a
look at whether that cancellation is ours and nobody else's (``Task.cancelling`` and ``uncancel``, the protocol that
asyncio's own ``timeout`` follows).
"""

from __future__ import annotations

import sys
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

from redrive.clock import in_trio
from redrive.policy import format_duration
from redrive.retrying.run import Run

__all__ = ["Cut", "cut"]


class Cut(Protocol):
    """Ends what runs inside it with a `TimeoutError` when its time has come."""

    fired: bool

    def __enter__(self) -> Any:
        """Set the timer."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Take it back, or raise the error if it has gone off."""
        ...


def cut(run: Run) -> Cut:
    """What cuts the present attempt of a bounded run off."""
    room = run.room
    return _TrioCut(run, room) if in_trio() else _AsyncioCut(run, room)


class _AsyncioCut:
    def __init__(self, run: Run, room: float) -> None:
        self._run = run
        self._room = room
        self.fired = False

    def __enter__(self) -> None:
        import asyncio

        task = asyncio.current_task()
        if task is None:
            raise RuntimeError(f"{self._run.name}: a timeout cuts off a task, and this code runs in none")
        self._task = task
        self._pending = task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(self._room, self._fire)

    def _fire(self) -> None:
        self.fired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._timer.cancel()
        if not self.fired:
            return
        import asyncio

        # More requests than before and ours: somebody else wants the task to end, too, and goes first.
        ours = self._task.uncancel() <= self._pending
        if ours and isinstance(error, asyncio.CancelledError):
            raise _overrun(self._run) from error


class _TrioCut:
    def __init__(self, run: Run, room: float) -> None:
        self._run = run
        self._scope = sys.modules["trio"].move_on_after(room)
        self.fired = False

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        took = self._scope.__exit__(kind, error, traceback)
        self.fired = self._scope.cancelled_caught
        if self.fired and took:
            raise _overrun(self._run) from error


def _overrun(run: Run) -> TimeoutError:
    """The error of an attempt that was cut off."""
    limit, timeout = run.plan.limit, run.plan.timeout
    if timeout is not None and (limit is None or (run.ends or 0.0) < run.started + limit):
        return TimeoutError(f"attempt {run.number} of {run.name} took longer than {_span(timeout)}")
    return TimeoutError(f"the deadline of {_span(limit)} came during attempt {run.number} of {run.name}")


def _span(seconds: float | None) -> str:
    return format_duration(timedelta(0, seconds or 0.0))
