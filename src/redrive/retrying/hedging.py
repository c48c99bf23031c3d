"""Hedged calls: several copies of a call run, the first answer is used, and the others are cancelled and awaited.

Each copy is a whole call: it asks the breaker, its attempts are retried by the policy and have their own timeouts. All
copies share one deadline and one budget; a further copy is charged to the budget as a retry is, so that an overload is
not doubled.

The rules are those of gRPC (proposal A6, "Hedging Policy"):

* A copy succeeds: its result is that of the call.
* It fails with an error that the policy does not retry ("fatal"): that error is raised.
* It fails otherwise: the next copy is started at once instead of after its delay, or after the hint of the error
  (pushback); the delays continue from there.
* It fails with `redrive.errors.GiveUp` (a pushback that forbids retries), or the breaker refuses it: no further copy is
  started; those in progress may still succeed.
* No copy is running and none is left: the last error is raised.

No copy is started at the deadline or after it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from redrive.clock import in_trio
from redrive.errors.foreign import is_a
from redrive.policy.failure import flatten
from redrive.policy.hedge import Hedge
from redrive.policy.outcome import surface
from redrive.policy.value import NamedTuple
from redrive.retrying.context import enclosing, layers
from redrive.retrying.record import attach_copies
from redrive.retrying.shared import resolve_hedge
from redrive.retrying.state import CallState

_Attempts: TypeAlias = "Callable[[CallState, Any, tuple[Any, ...], dict[str, Any]], Awaitable[Any]]"
_FATAL = ("not_matched",)
_LAST = ("permanent", "breaker")


async def hedged_call(
    state: CallState, attempts: _Attempts, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a hedged call; return the result of the first copy that succeeds."""
    hedge = resolve_hedge(state.plan.policy, state.name)
    # An override has removed it.
    if hedge is None:
        return await attempts(state, function, args, kwargs)
    # The tasks of the copies do not have those frames on their stacks.
    state.above = layers(enclosing(state, None))
    async with task_group() as group:
        copies = _Copies(state, hedge, group, lambda copy: attempts(copy, function, args, kwargs))
        end = await copies.run()
    if end.error is None:
        state.emit_end()
        return end.value
    if isinstance(end.error, Exception):
        if state.copies:
            attach_copies(end.error, state.copies)
        state.emit_end(end.error)
        return surface(end.error)
    raise end.error


class _Copies:
    """The copies of one hedged call, numbered from 1, and the timers of their starts, with numbers below 0."""

    def __init__(
        self, state: CallState, hedge: Hedge, group: TaskGroup, make: Callable[[CallState], Awaitable[Any]]
    ) -> None:
        self._state = state
        self._group = group
        self._make = make
        self._gaps = [gap.total_seconds() for gap in hedge.after]
        self._left = hedge.attempts
        self._sent: list[CallState] = []
        self._running = 0
        # The number of the timer that counts; 0 for none. All others are out of date.
        self._timer = 0
        self._timers = 0

    async def run(self) -> TaskEnd:
        """Start copies until the end of one decides the call."""
        self._start()
        last: TaskEnd | None = None
        while self._running or self._timer:
            end = await self._group.next_end()
            if end.number < 0:
                if end.number == self._timer:
                    self._start()
                continue
            self._running -= 1
            last = end
            copy = self._sent[end.number - 1]
            if self._is_final(end, copy):
                self._state.adopt(copy, self._sent)
                return end
            self._schedule_next(copy)
        assert last is not None  # the first copy is always started
        self._state.adopt(self._sent[last.number - 1], self._sent)
        return last

    def _is_final(self, end: TaskEnd, copy: CallState) -> bool:
        if end.error is None or not isinstance(end.error, Exception):
            return True
        return copy.ended is None or copy.ended.rule in _FATAL

    def _schedule_next(self, failed: CallState) -> None:
        """Start the next copy after one has failed, at once or after the hint of its error."""
        if failed.ended is not None and failed.ended.rule in _LAST:
            self._left = self._timer = 0
            return
        failure = failed.previous
        hint = None if failure is None else failure.hint
        if hint and failed.plan.policy.hints != "ignore":
            self._set_timer(hint.total_seconds())
        else:
            self._start()

    def _start(self) -> None:
        """Start the next copy and the timer of the one after it; where that has no delay, start it too."""
        self._timer = 0
        while self._left and self._send():
            if self._left and (gap := self._gaps[len(self._sent) - 1]):
                self._set_timer(gap)
                return

    def _send(self) -> bool:
        copy = self._state.copy()
        if copy.plan.shares or copy.plan.own is not None:
            copy.join_shared(hedging=bool(self._sent))
        if self._sent and (self._is_too_late(0) or not copy.afford()):
            self._left = 0
            return False
        self._left -= 1
        self._running += 1
        self._sent.append(copy)
        self._group.start(len(self._sent), lambda: self._make(copy))
        return True

    def _set_timer(self, seconds: float) -> None:
        self._timer = 0
        if not self._left or self._is_too_late(seconds):
            return
        self._timers += 1
        self._timer = -self._timers
        self._group.start(self._timer, lambda: self._state.clock.asleep(seconds))

    def _is_too_late(self, seconds: float) -> bool:
        limit = self._state.plan.limit
        return limit is not None and self._state.clock.monotonic() + seconds >= self._state.started + limit


# --------------------------------------------------------------------------------------------------------- task groups


class TaskEnd(NamedTuple):
    """The end of one task."""

    number: int
    #: The result of the task; None if it raised.
    value: Any
    #: The exception of the task; None if it returned.
    error: BaseException | None


_Work = Callable[[], Awaitable[Any]]


# Numbered tasks that are cancelled and awaited at the end of an `async with` block. No `finally` of a task runs after
# the call that started it has returned. Errors that tasks raise when they are cancelled are ignored.
TaskGroup: TypeAlias = "_AsyncioTaskGroup | _TrioTaskGroup"


def task_group() -> TaskGroup:
    """Return a task group of the running library."""
    return _TrioTaskGroup() if in_trio() else _AsyncioTaskGroup()


async def _run_task(number: int, work: _Work, report: Callable[[TaskEnd], object]) -> None:
    try:
        value = await work()
    except BaseException as error:
        report(TaskEnd(number, None, error))
        if not isinstance(error, Exception):
            raise
    else:
        report(TaskEnd(number, value, None))


class _AsyncioTaskGroup:
    async def __aenter__(self) -> Self:
        import asyncio

        self._asyncio = asyncio
        self._ends: asyncio.Queue[TaskEnd] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    def start(self, number: int, work: _Work) -> None:
        self._tasks.add(self._asyncio.create_task(_run_task(number, work, self._ends.put_nowait)))

    async def next_end(self) -> TaskEnd:
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
            except self._asyncio.CancelledError as again:  # from outside: raise it after all tasks have ended
                interrupted = again
                for task in running:
                    task.cancel()
        for task in self._tasks:
            if not task.cancelled():
                # Reported already; asyncio logs exceptions that are never retrieved.
                task.exception()
        if interrupted is not None and not is_a(error, self._asyncio.CancelledError):
            raise interrupted


class _TrioTaskGroup:
    async def __aenter__(self) -> Self:
        trio = sys.modules["trio"]
        self._send, self._receive = trio.open_memory_channel(float("inf"))
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self

    def start(self, number: int, work: _Work) -> None:
        self._nursery.start_soon(_run_task, number, work, self._send.send_nowait)

    async def next_end(self) -> TaskEnd:
        end: TaskEnd = await self._receive.receive()
        return end

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._nursery.cancel_scope.cancel()
        try:
            await self._manager.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            raise _main_error(group) from None


def _main_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a nursery's group that is no cancellation; a hedged call raises no groups."""
    cancelled = sys.modules["trio"].Cancelled
    leaves = flatten(group)
    return next((leaf for leaf in leaves if not isinstance(leaf, cancelled)), leaves[0])
