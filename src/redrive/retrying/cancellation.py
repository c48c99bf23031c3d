"""Cancellations that an attempt has turned into another error, or into a result that is rejected.

A function that is cancelled may raise another error from its cleanup: ``finally: await writer.drain()`` raises
``ConnectionError``. A retry would lose the cancellation then: `asyncio.timeout`, `asyncio.wait_for` and
``task.cancel()`` cancel once, so the call would run on. A task of asyncio counts the requests that have not been taken
back (``Task.cancelling``). Under trio the next wait raises the cancellation again, so that nothing is lost there.

The cleanup of a cancelled task may call functions that are retried. The cancellation that such a task is handling is in
the chain of contexts of each error, too; it was caught outside of the call, by a frame that is still on the stack.

An attempt that leaves its ``except`` clause before it raises or returns leaves no cancellation in that chain. Then only
the requests prove one, if they have been counted before the attempt, as those of a cleanup are older:

* They are counted where it costs a call without failures nothing: in calls with ``on_result``, a timeout, a given
  deadline, a coroutine function in the policy, in copies of a hedged call, and after each failure. In the first attempt
  of another call such a cancellation is not noticed.
* They prove it on Python 3.13 and later. Before, an `asyncio.TaskGroup` with a failed task may leave a request behind,
  and an attempt that handles its exception group, and fails or returns a rejected result later, looks as if it had been
  cancelled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import inf
from types import EllipsisType, FrameType, TracebackType

from redrive.errors.foreign import cause_of, context_of, is_a

# Task groups take back all their requests.
COUNT_IS_PROOF = sys.version_info >= (3, 13)


def keep_cancellation(
    error: Exception | None, before: int | None, handled: BaseException | EllipsisType | None = ...
) -> int:
    """Raise the cancellation that an attempt has turned into another error, if the task of asyncio was cancelled.

    Args:
        error: what the attempt has raised; None if it has returned a result that is rejected.
        before: how many requests for a cancellation there were before the attempt; None if they were not counted.
        handled: for a block, what was being handled when its attempt began, because the frame of a block is still on
            the stack; for a call, nothing.

    Returns:
        The requests for a cancellation that have not been taken back, for the next attempt.
    """
    requests = cancel_requests()
    if requests and requests > (before or 0):
        cancellation = None if error is None else latest_cancellation(error, handled)
        if cancellation is not None:
            # The same object, because anyio recognises its own by their text.
            raise cancellation
        if (
            COUNT_IS_PROOF
            and before is not None
            and not (error is not None and _shows_one(error))
            and not _comes_again()
        ):
            kind: type[BaseException] = sys.modules["asyncio"].CancelledError
            raise kind("the task was cancelled during an attempt that did not raise the cancellation")
    return requests


def cancel_requests() -> int:
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


def _shows_one(error: Exception) -> bool:
    """Return True if a cancellation is in the chain of an error: it was taken back, or came before the call."""
    kind: type[BaseException] = sys.modules["asyncio"].CancelledError
    return any(is_a(link, kind) for link in _chain(error))


def _comes_again() -> bool:
    """Return True if a cancel scope of anyio is cancelled: it cancels the next wait, too, by an error of its own."""
    anyio = sys.modules.get("anyio")
    return anyio is not None and anyio.current_effective_deadline() == -inf


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
    frame: FrameType | None = sys._getframe()  # documented; CPython and PyPy have it
    while frame is not None:
        frames.add(frame)
        frame = frame.f_back
    return frames


def _caught_by(error: BaseException) -> FrameType | None:
    """Return the outermost frame that an error has reached."""
    traceback: TracebackType | None = _TRACEBACK.__get__(error)
    return None if traceback is None else traceback.tb_frame


_TRACEBACK = BaseException.__dict__["__traceback__"]
