"""Calls of handlers: time limits, soft timeouts, threads, cancellations, and which outcome an error is."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Generator
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import structs

from redrive.app.tasks.failures import ERROR_TEXT, ExitInThread, clean, failed
from redrive.clock import SystemClock
from redrive.engine.outcome import Cancelled, Failed, Outcome, Snoozed
from redrive.errors import Cancel, PolicyError, Signal, Snooze, SoftTimeout
from redrive.errors.foreign import is_a, mark_of, set_attribute
from redrive.policy import Failure, Stage
from redrive.policy.duration import parse_wait
from redrive.policy.failure import forbidden_by, qualified_name

T = TypeVar("T")

_monotonic = SystemClock.monotonic


# A timer of the event loop for each attempt would cost a fifth of a short one. Most attempts have the same limit, so
# those with the same limit stand in one row in the order of their ends, and the loop has one timer for the row. The
# timer of a row that has become empty removes it.
class TimeLimits:
    """Cancels the attempts of an event loop that take longer than their limits."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rows: dict[timedelta, dict[Awaitable[Any], tuple[float, asyncio.Task[Any]]]] = {}

    async def within(self, limit: timedelta, running: Awaitable[T]) -> T:
        """Await a handler; raise `AttemptTimeout` if it was cancelled because its time is over.

        As with `asyncio.timeout`, a cancellation of the task by others comes first.
        """
        task = asyncio.current_task()
        assert task is not None  # coroutines run in tasks
        pending, row = task.cancelling(), self._row(limit)
        row[running] = _monotonic() + limit.total_seconds(), task
        try:
            result = await running
        except BaseException as error:
            if row.pop(running, None) is None:
                is_ours = task.uncancel() <= pending
                # The handler may have turned the cancellation into a timeout of its own.
                if issubclass(type(error), TimeoutError) or (is_ours and _is_cancellation(error)):
                    raise AttemptTimeout(limit) from error
                mark_late(error)
            raise
        if row.pop(running, None) is None:
            task.uncancel()
        return result

    def _row(self, limit: timedelta) -> dict[Awaitable[Any], tuple[float, asyncio.Task[Any]]]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._rows = loop, {}
        row = self._rows.get(limit)
        if row is None:
            row = self._rows[limit] = {}
            # A timer keeps the context that it is started in, and the row outlives the attempt.
            loop.call_later(limit.total_seconds(), self._look, limit, context=contextvars.Context())
        return row

    def _look(self, limit: timedelta) -> None:
        """Cancel the attempts of a row with times that are over, and wait for the next one."""
        row, now = self._rows[limit], _monotonic()
        for running, (until, task) in tuple(row.items()):
            if until > now:
                asyncio.get_running_loop().call_later(until - now, self._look, limit)
                return
            del row[running]
            task.cancel()
        del self._rows[limit]


# asyncio can only cancel a task, and then a ``CancelledError`` is raised in the coroutine. So the coroutine is driven
# by hand here: at the soft timeout the task is cancelled, which interrupts what it awaits; the ``CancelledError`` is
# caught before it reaches the coroutine, the cancellation is taken back, and a `SoftTimeout` is thrown in instead.
async def softly(running: Awaitable[T], seconds: float) -> T:
    """Await the coroutine of a handler, and raise `SoftTimeout` inside it, once, after so many seconds."""
    interruption = _Interruption(asyncio.current_task())
    timer = asyncio.get_running_loop().call_later(seconds, interruption.send)
    try:
        return await _Driven(running, interruption, f"the soft timeout of {seconds:g} s has passed")
    except BaseException as error:
        if interruption.arrived:
            mark_late(error)
        raise
    finally:
        timer.cancel()


class _Interruption:
    """The state of one soft timeout of a task."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None  # coroutines run in tasks
        self._task = task
        self._others = task.cancelling()
        self._sent = False
        #: True if the coroutine has got the `SoftTimeout`.
        self.arrived = False

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
        self.arrived = self._task.uncancel() <= self._others
        return self.arrived


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


def _is_cancellation(error: BaseException) -> bool:
    # isinstance() would call methods of a foreign exception, which may raise.
    return issubclass(type(error), asyncio.CancelledError)


# A cancellation by the worker ends the attempt without an outcome. Any other cancellation, by the handler itself or by
# what it awaits, is a failure: otherwise the job would be given back and run again at once, forever.
def task_is_cancelled() -> bool:
    """Return True if the current task was cancelled, and the cancellation was not taken back."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_interruption(error: BaseException) -> bool:
    """Return True if an error of a cancelled handler is no outcome: its cleanup may have replaced the cancellation."""
    return is_a(error, (asyncio.CancelledError, Exception)) and not is_a(error, Signal)


def undo_cancellation() -> None:
    """Let the current task go on after its handler has cancelled it."""
    task = asyncio.current_task()
    while task is not None and task.cancelling() > 0:
        task.uncancel()


_LATE = "__redrive_late__"


# A cleanup may replace the interruption by an error of its own, which proves nothing about the interrupted call.
def mark_late(error: BaseException) -> None:
    """Note, for `outcome_of`, that a time limit had interrupted the code before it raised this error."""
    set_attribute(error, _LATE, value=True)


def _take_late(error: BaseException) -> bool:
    """Remove the mark of `mark_late`, since the same exception may be raised again; return True if there was one."""
    is_late = mark_of(error, _LATE) is True
    if is_late:
        set_attribute(error, _LATE, value=False)
    return is_late


_TIMEOUT = ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception")


class AttemptTimeout(Exception):
    """The attempt took longer than its policy allows."""


class EndedInChild(Exception):
    """Carries the end of an attempt out of a child process.

    Attributes:
        outcome: how the attempt ended.
        error: the exception of the handler, or another one if that could not be carried over.
    """

    def __init__(self, outcome: Outcome, error: BaseException) -> None:
        super().__init__()
        self.outcome = outcome
        self.error = error


class HandlerCancelled(Exception):
    """The handler, or a future that it awaited, was cancelled, and not by the worker."""


def was_cancelled(outcome: Outcome) -> bool:
    """Return True if the attempt failed because its handler was cancelled, and not by the worker."""
    return isinstance(outcome, Failed) and outcome.failure.error_type == qualified_name(HandlerCancelled)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an attempt with a handler that raised this error."""
    try:
        end = _matched(error)
    except BaseException:  # noqa: BLE001 - the methods of a foreign exception may raise anything
        end = failed(error)
    return _in_flight(end) if _take_late(error) and isinstance(end, Failed) else end


def _in_flight(end: Failed) -> Failed:
    """Return the failure of an attempt that a time limit had interrupted, so that its effect is unknown."""
    failure = end.failure
    lasting = None if failure.lasting is None else failure.lasting._replace(stage=Stage.IN_FLIGHT)
    reason = "TIMEOUT" if failure.reason == "ERROR" else failure.reason
    return structs.replace(end, failure=failure._replace(reason=reason, stage=Stage.IN_FLIGHT, lasting=lasting))


def _matched(error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return _snoozed(error)
        case Cancel():
            return Cancelled(clean(error.why, ERROR_TEXT))
        case AttemptTimeout():
            (limit,) = error.args
            text = f"the attempt took longer than {limit.total_seconds():g} s"
            return Failed(Failure(_TIMEOUT, text, "TIMEOUT", Stage.IN_FLIGHT, once=forbidden_by(error)))
        case asyncio.CancelledError():
            cancelled = HandlerCancelled("the handler, or something that it awaited, was cancelled")
            cancelled.__cause__ = error
            return failed(cancelled)
        case ExitInThread():
            return failed(error.error)
        case _:
            return failed(error)


def _snoozed(signal: Snooze) -> Outcome:
    try:
        return Snoozed(parse_wait(signal.delay), clean(signal.why, ERROR_TEXT))
    except PolicyError as bad_delay:
        return failed(bad_delay.within("Snooze"))
