"""The loops of calls: attempts and waits, blocking or awaited.

A blocking attempt cannot be interrupted without harm (an abandoned thread goes on working), so no timeout ends it; code
below reads the time that is left from `redrive.deadline`. An awaited attempt is cancelled at its ``attempt_timeout``
and at a deadline that the user gave, by the means of asyncio or trio, and raises `TimeoutError`. The stage of such a
failure is *in flight*, so only a policy with ``idempotent=True`` and an ``on`` that names it retries it. A cancellation
from outside is a ``BaseException`` in both libraries and passes at once.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeAlias, cast

from redrive.clock import in_trio
from redrive.errors.foreign import is_a
from redrive.policy import Failure, format_duration
from redrive.policy.classify import Answer, answer_of, is_coroutine_function, must_be_awaited, refuse_coroutine
from redrive.policy.outcome import Outcome
from redrive.retrying.cancellation import cancel_requests
from redrive.retrying.context import LOOPS
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start

_AsyncFunction: TypeAlias = "Callable[..., Awaitable[Any]]"


def call(plan: Plan, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a whole call in the present scope; see `proceed`."""
    return proceed(start(plan), function, args, kwargs)


def proceed(  # noqa: C901 - a part of it would be a call more for each attempt
    state: CallState, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the function until it succeeds or the policy gives up; return its last result."""
    state.plan.refuse_hedge("not one")
    state.plan.refuse_await("a plain function")
    if state.plan.has_hooks:
        state.args, state.kwargs = args, kwargs
    token = state.publish()
    try:
        if state.guard is not None:
            state.admit()
        while True:
            if state.delay and state.sleep():
                return state.result
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                if not state.failed(error):
                    raise
            else:
                if must_be_awaited(type(result)):
                    refuse_coroutine(result, function)
                if state.accepts(result):
                    return result
    finally:
        state.retire(token)
        if state.guard is not None:
            state.drop()


def outcome(
    state: CallState, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome[Any]:
    """Make a call as `proceed` does, and return an exception as a value."""
    try:
        result = proceed(state, function, args, kwargs)
    except Exception as error:
        # A predicate of the policy raised, not the function.
        if state.ended is None:
            raise
        return state.outcome(None, error)
    return state.outcome(result)


async def acall(plan: Plan, function: _AsyncFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a whole awaited call in the present scope; see `aproceed`."""
    return await aproceed(start(plan), function, args, kwargs)


async def aproceed(state: CallState, function: _AsyncFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call and await the function until it succeeds or the policy gives up; return its last result."""
    if not state.plan.is_attended:
        return await _copies(state, function, args, kwargs)
    state.cancel_requests = cancel_requests()
    state.args, state.kwargs, state.awaits_hooks = args, kwargs, True
    try:
        return await _copies(state, function, args, kwargs)
    finally:
        await state.await_hooks()


async def _copies(state: CallState, function: _AsyncFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make one copy of the call, or several if it is hedged."""
    if state.hedges:
        from redrive.retrying.hedging import hedged_call

        return await hedged_call(state, attempts, function, args, kwargs)
    return await attempts(state, function, args, kwargs)


async def attempts(state: CallState, function: _AsyncFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the attempts of a call, or of one copy of a hedged call."""
    timeout: Timeout | None = None
    token = state.publish()
    try:
        if state.guard is not None:
            state.admit()
        while True:
            if state.number > 1 and await state.asleep():
                return state.result
            try:
                if state.bounded:
                    with (timeout := attempt_timeout(state)):
                        result = await function(*args, **kwargs)
                else:
                    result = await function(*args, **kwargs)
            except BaseException as error:
                if not await afailed(state, error, timeout):
                    raise
            else:
                if await _aaccepts(state, result) if state.plan.awaits else state.accepts(result):
                    return result
    finally:
        state.retire(token)
        if state.guard is not None:
            state.drop()


LOOPS.update((proceed.__code__, attempts.__code__))


async def afailed(state: CallState, error: BaseException, timer: Timeout | None = None) -> bool:
    """Return True if an attempt that raised is retried; await the classifier if it is a coroutine function."""
    if not isinstance(error, Exception):
        state.left_by(error)
        return False
    timed_out = False
    if timer is not None:
        timed_out, state.cancel_requests = timer.expired, timer.pending
    on = state.plan.policy.on
    if state.plan.awaits and not state.off and callable(on) and is_coroutine_function(on):
        if not timed_out:
            state.keep_cancellation(error)
        at = state.clock.monotonic()
        answer = await cast("Awaitable[Answer]", on(error))
        return state.decide_error(error, at, timed_out=timed_out, answer=answer)
    return state.timed_out(error) if timed_out else state.afailed(error)


async def _aaccepts(state: CallState, result: object) -> bool:
    """Return True if a result ends the call; await the predicates that are coroutine functions."""
    rejected_by = []
    for number, rejects in enumerate(() if state.off else state.plan.policy.predicates):
        if rejects is None:
            continue
        answer = rejects(result)
        if is_coroutine_function(rejects):
            answer = await cast("Awaitable[bool]", answer)
        if answer_of(answer, "on_result", rejects):
            rejected_by.append(number)
    return state.decide_result(result, Failure.of_result(result, tuple(rejected_by)) if rejected_by else None)


async def aoutcome(
    state: CallState, function: _AsyncFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome[Any]:
    """Make a call as `aproceed` does, and return an exception as a value."""
    try:
        result = await aproceed(state, function, args, kwargs)
    except Exception as error:
        # A predicate of the policy raised, not the function.
        if state.ended is None:
            raise
        return state.outcome(None, error)
    return state.outcome(result)


# ----------------------------------------------------------------------------------------------------------- timeouts


class _AsyncioTimeout:
    """A timer that cancels the current asyncio task, by the protocol of ``asyncio.timeout``, as a plain ``with``."""

    #: The requests for a cancellation of the task before the attempt.
    pending: int = 0

    def __init__(self, state: CallState) -> None:
        self._state = state
        self.expired: bool = False

    def __enter__(self) -> None:
        import asyncio

        task = asyncio.current_task()
        if task is None:
            raise RuntimeError(f"{self._state.name}: a timeout cuts off a task, and this code runs in none")
        self._task = task
        self.pending = task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(_time_left(self._state), self._expire)

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._timer.cancel()
        if not self.expired:
            return
        import asyncio

        # If there are more cancel requests than before and this one, another cancellation comes first.
        is_ours = self._task.uncancel() <= self.pending
        if is_ours and is_a(error, asyncio.CancelledError):
            raise _timeout_error(self._state) from error
        if not is_ours and isinstance(error, Exception):
            raise asyncio.CancelledError from error


class _TrioTimeout:
    """A cancel scope of trio that raises `TimeoutError`."""

    #: Trio counts no requests: it cancels the next wait, too.
    pending = 0

    def __init__(self, state: CallState) -> None:
        self._state = state
        self._scope = sys.modules["trio"].move_on_after(_time_left(state))
        self.expired: Any = False

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        caught = self._scope.__exit__(kind, error, traceback)
        # The attempt may have turned the cancellation into another error.
        self.expired = self._scope.cancelled_caught or (isinstance(error, Exception) and self._scope.cancel_called)
        if self.expired and caught:
            raise _timeout_error(self._state) from error


Timeout: TypeAlias = "_AsyncioTimeout | _TrioTimeout"
"""A context manager that cancels the code inside it at the end of its time and raises `TimeoutError`."""


def attempt_timeout(state: CallState) -> Timeout:
    """Return the timeout of the present attempt of a bounded call."""
    return _TrioTimeout(state) if in_trio() else _AsyncioTimeout(state)


def _time_left(state: CallState) -> float:
    return max(0.0, (state.ends or 0.0) - state.began)


def _timeout_error(state: CallState) -> TimeoutError:
    limit, timeout = state.plan.limit, state.plan.timeout
    if timeout is not None and (limit is None or (state.ends or 0.0) < state.started + limit):
        return TimeoutError(f"attempt {state.number} of {state.name} took longer than {_span(timeout)}")
    return TimeoutError(f"the deadline of {_span(limit)} came during attempt {state.number} of {state.name}")


def _span(seconds: float | None) -> str:
    return format_duration(timedelta(0, seconds or 0.0))
