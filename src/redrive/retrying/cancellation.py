"""Cancellations that an attempt has turned into another error.

A function that is cancelled may raise another error from its cleanup: ``finally: await writer.drain()`` raises
``ConnectionError``. A retry would lose the cancellation then: `asyncio.timeout`, `asyncio.wait_for` and
``task.cancel()`` cancel once, so the call would run on. A task of asyncio counts the requests that have not been taken
back (``Task.cancelling``). Under trio the next wait raises the cancellation again, so that nothing is lost there.

The cleanup of a cancelled task may call functions that are retried. The cancellation that such a task is handling is in
the chain of contexts of each error, too; it was caught outside of the call, by a frame that is still on the stack.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import EllipsisType, FrameType, TracebackType

from redrive.errors.foreign import cause_of, context_of, is_a


def keep_cancellation(error: Exception, before: int, handled: BaseException | EllipsisType | None = ...) -> int:
    """Raise the cancellation that an attempt has turned into another error, if the task of asyncio was cancelled.

    Args:
        error: what the attempt has raised.
        before: how many requests for a cancellation there were at the end of the attempt before, 0 at the first one.
        handled: for a block, what was being handled when its attempt began, because the frame of a block is still on
            the stack; for a call, nothing.

    Returns:
        The requests for a cancellation that have not been taken back, for the next attempt.
    """
    requests = _requests()
    if requests > before:
        cancellation = latest_cancellation(error, handled)
        if cancellation is not None:
            # The same object, because anyio recognises its own by their text.
            raise cancellation
    return requests


def _requests() -> int:
    """Return how many requests for a cancellation the current task of asyncio has not taken back."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return 0
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # Another library runs the coroutine.
        return 0
    return 0 if task is None else int(task.cancelling())


# The number of requests alone is no proof: `asyncio.TaskGroup` of Python 3.11 does not take back all of its own.
def latest_cancellation(
    error: BaseException, handled: BaseException | EllipsisType | None = ...
) -> BaseException | None:
    """Return the latest cancellation that an error has replaced; None if the code that raised it has seen none."""
    kind: type[BaseException] = sys.modules["asyncio"].CancelledError
    outside = _frames() if isinstance(handled, EllipsisType) else ()
    for link in _chain(context_of(error)):
        if link is handled or _caught_by(link) in outside:
            return None
        # The cause of a timeout was taken back by it.
        if is_a(link, kind) and not (is_a(error, TimeoutError) and cause_of(error) is link):
            return link
        error = link
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those before it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = context_of(error)


def _frames() -> set[FrameType]:
    """Return the frames on the stack, also those of the coroutines that await this one."""
    frames: set[FrameType] = set()
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - documented; CPython and PyPy have it
    while frame is not None:
        frames.add(frame)
        frame = frame.f_back
    return frames


def _caught_by(error: BaseException) -> FrameType | None:
    """Return the outermost frame that an error has reached."""
    traceback: TracebackType | None = _TRACEBACK.__get__(error)
    return None if traceback is None else traceback.tb_frame


_TRACEBACK = BaseException.__dict__["__traceback__"]
