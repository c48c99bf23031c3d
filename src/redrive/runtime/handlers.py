"""How handlers run: in threads, with soft timeouts, and which outcome an error of theirs is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from typing import Any, TypeVar

from redrive.app.failures import ERROR_TEXT, clean, failed
from redrive.engine.outcome import Cancelled, Failed, Outcome, Snoozed
from redrive.errors import Cancel, PolicyError, Snooze, SoftTimeout
from redrive.policy import Failure, Stage, parse_duration
from redrive.policy.failure import qualified_name


# Python cannot stop a thread, so one may go on when its attempt has ended.
class Threads:
    """Runs handlers in the threads of a pool and records which of them run."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # The leases of the attempts by the futures of their threads. One operation on a dictionary needs no lock.
        self._running: dict[Future[Any], int] = {}

    @property
    def running(self) -> Collection[int]:
        """The leases of the handlers that run, whether or not their attempts have ended."""
        return set(self._running.copy().values())

    def start(self, lease_id: int, call: Callable[[], Any]) -> Future[Any]:
        """Call a handler, or a step of one, in a thread, and return the future of its result."""
        future = self._pool.submit(call)
        self._running[future] = lease_id
        future.add_done_callback(lambda ended: self._running.pop(ended, None))
        return future

    def when_stopped(self, lease_id: int, call: Callable[[], object]) -> None:
        """Call a function when the threads of an attempt have stopped; at once if they have. Any thread may call it."""
        running = self._running.copy().items()
        future = next((each for each, lease in running if lease == lease_id and not each.done()), None)
        if future is None:
            call()
        else:
            # Another thread of the attempt may still run then.
            future.add_done_callback(lambda _: self.when_stopped(lease_id, call))


T = TypeVar("T")


# asyncio can only cancel a task, and then a ``CancelledError`` is raised in the coroutine. So the coroutine is driven
# by hand here: at the soft timeout the task is cancelled, which interrupts what it awaits; the ``CancelledError`` is
# caught before it reaches the coroutine, the cancellation is taken back, and a `SoftTimeout` is thrown in instead.
async def softly(running: Awaitable[T], seconds: float) -> T:
    """Await the coroutine of a handler, and raise `SoftTimeout` inside it, once, after so many seconds."""
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


_TIMEOUT = ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception")


class AttemptTimeout(Exception):
    """The attempt took longer than its policy allows."""


class HandlerCancelled(Exception):
    """The handler, or a future that it awaited, was cancelled, and not by the worker."""


def was_cancelled(outcome: Outcome) -> bool:
    """Return True if the attempt failed because its handler was cancelled, and not by the worker."""
    return isinstance(outcome, Failed) and outcome.failure.error_type == qualified_name(HandlerCancelled)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an attempt with a handler that raised this error."""
    try:
        return _matched(error)
    except BaseException:  # noqa: BLE001 - the methods of a foreign exception may raise anything
        return failed(error)


def _matched(error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return _snoozed(error)
        case Cancel():
            return Cancelled(clean(error.why, ERROR_TEXT))
        case AttemptTimeout():
            (limit,) = error.args
            text = f"the attempt took longer than {limit.total_seconds():g} s"
            return Failed(Failure(_TIMEOUT, text, "TIMEOUT", Stage.IN_FLIGHT))
        case asyncio.CancelledError():
            cancelled = HandlerCancelled("the handler, or something that it awaited, was cancelled")
            cancelled.__cause__ = error
            return failed(cancelled)
        case _:
            return failed(error)


def _snoozed(signal: Snooze) -> Outcome:
    try:
        return Snoozed(parse_duration(signal.delay), clean(signal.why, ERROR_TEXT))
    except PolicyError as bad_delay:
        return failed(bad_delay)
