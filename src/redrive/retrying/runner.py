"""The calls and blocks of a policy: ``policy.call``, ``acall``, ``outcome``, ``aoutcome``, ``for attempt in policy``.

`redrive.policy.call_methods` declares these methods and calls `RUNNER` through `redrive.seams`. In a block the loop
waits and the attempt catches: it suppresses the exception of an attempt that is retried and raises any other unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import Token
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from redrive.errors import PolicyValueError
from redrive.policy import Defer, Failure, GiveUp, Policy
from redrive.policy.call_methods import AttemptProtocol, Runner
from redrive.policy.classify import is_coroutine_function, refuse_async, refuse_coroutine
from redrive.policy.outcome import Outcome
from redrive.retrying import context, loops
from redrive.retrying.cancellation import cancel_requests
from redrive.retrying.context import Scope
from redrive.retrying.loops import Timeout, attempt_timeout
from redrive.retrying.plan import Plan, name_of
from redrive.retrying.record import failure_in
from redrive.retrying.state import CallState, start

T = TypeVar("T")

_NEW, _RUNNING, _RETRY, _OVER = "new", "running", "retry", "over"


class _BlockAttempt:
    """One attempt of a block, as `AttemptProtocol` describes it. Enter it once."""

    def __init__(self, state: CallState, *, is_async: bool) -> None:
        #: The result of the block, for a policy with ``on_result``; set it inside the block.
        self.result: Any = None
        self._call = state
        self._number = state.number
        self._before = state.last
        self._is_async = is_async
        self._timeout: Timeout | None = None
        # What is being handled around a block of a coroutine.
        self._handled: BaseException | None = None
        self._token: Token[Scope | None] | None = None
        self.state: str = _NEW

    @property
    def number(self) -> int:
        return self._number

    @property
    def remaining(self) -> float | None:
        ends = self._call.ends
        return None if ends is None else max(0.0, ends - self._call.clock.monotonic())

    @property
    def deadline(self) -> datetime | None:
        ends, clock = self._call.ends, self._call.clock
        return None if ends is None else clock.now() + timedelta(seconds=ends - clock.monotonic())

    @property
    def previous(self) -> Failure | None:
        return None if self._before is None else failure_in(self._before)

    @property
    def gave_up(self) -> GiveUp | Defer | None:
        return self._call.ended

    @property
    def uid(self) -> str:
        return self._call.uid

    def __enter__(self) -> Self:
        if self.state != _NEW:
            raise RuntimeError(f"attempt {self.number} has been entered before; each turn of the loop brings a new one")
        if self._call.guard is not None:
            self._call.admit()
        self.state = _RUNNING
        self._token = self._call.publish()
        if self._is_async:
            self._handled = sys.exception()
            if self._call.plan.checks_results:
                self._call.cancel_requests = cancel_requests()
            if self._call.bounded:
                self._timeout = attempt_timeout(self._call)
                self._timeout.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool:
        self.state = _OVER
        try:
            if self._timeout is None:
                return self._decide(error)
            try:
                self._timeout.__exit__(kind, error, traceback)
            except BaseException as replaced:
                # A timeout of its own, or a cancellation that came with it.
                if self._decide(replaced):
                    return True
                raise
            return self._decide(error)
        finally:
            if self._token is not None:
                self._call.retire(self._token)
            self._handled = None
            if self.state != _RETRY:
                self._call.drop()

    def _decide(self, error: BaseException | None) -> bool:
        """Return True if the loop goes on; an error is suppressed then."""
        call = self._call
        timed_out = self._timeout is not None and self._timeout.expired
        if error is None:
            if self.result is not None:
                refuse_coroutine(self.result, call.name)
            retry = not call.accepts(self.result)
        elif isinstance(error, Exception):
            if self._is_async and not timed_out:
                if self._timeout is not None:
                    call.cancel_requests = self._timeout.pending
                call.keep_cancellation(error, self._handled)
            retry = call.timed_out(error) if timed_out else call.failed(error)
        else:
            call.left_by(error)
            return False
        if retry:
            self.state = _RETRY
        return retry


class AttemptIterator:
    """The iterator over the attempts of one block, for ``for`` and ``async for``."""

    def __init__(self, plan: Plan, name: str, frame_id: int) -> None:
        self._plan = plan
        self._name = name
        self._frame_id = frame_id
        self._call: CallState | None = None
        self._attempt: _BlockAttempt | None = None

    def __iter__(self) -> Iterator[_BlockAttempt]:
        return self

    def __next__(self) -> _BlockAttempt:
        call = self._advance()
        if call is None:
            raise StopIteration
        try:
            over = bool(call.delay) and call.sleep()
        except BaseException:
            call.drop()
            raise
        if over:
            raise StopIteration
        return self._next(call, is_async=False)

    def __aiter__(self) -> AsyncIterator[_BlockAttempt]:
        return self

    async def __anext__(self) -> _BlockAttempt:
        call = self._advance()
        if call is None:
            raise StopAsyncIteration
        try:
            over = call.number > 1 and await call.asleep()
        except BaseException:
            call.drop()
            raise
        if over:
            raise StopAsyncIteration
        return self._next(call, is_async=True)

    def _advance(self) -> CallState | None:
        """Return the state of the call if there is another attempt."""
        if self._call is None:
            self._plan.refuse_hedge("a block")
            self._plan.refuse_await("a block")
            self._call = start(self._plan, self._name)
            self._call.frame_id = self._frame_id
            return self._call
        state = _OVER if self._attempt is None else self._attempt.state
        if state in (_NEW, _RUNNING):
            raise RuntimeError(
                "a loop over a policy needs `with attempt:` in its body, otherwise it cannot see failures"
            )
        return self._call if state == _RETRY else None

    def _next(self, call: CallState, *, is_async: bool) -> _BlockAttempt:
        self._attempt = _BlockAttempt(call, is_async=is_async)
        return self._attempt


class _NotAwaitable(BaseException):
    """A function that was called to be awaited has returned a plain result; no policy retries it."""


def _awaited(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function to be awaited that raises `_NotAwaitable` if there is nothing to await."""
    if is_coroutine_function(function):
        return function

    async def call(*args: object, **kwargs: object) -> Any:
        result = function(*args, **kwargs)
        if not hasattr(type(result), "__await__") and not inspect.isawaitable(result):
            raise _NotAwaitable
        return await result

    # asyncio and trio have loaded it.
    import inspect

    return call


def _refused(function: object, instead: str) -> PolicyValueError:
    return PolicyValueError(
        f"{function!r} is a plain function: it was called, returned nothing that could be awaited, and is not called "
        f"again: write `{instead}`"
    )


class _Runner:
    """The methods are described in `redrive.policy.call_methods.CallMethods`."""

    def call(self, policy: Policy, function: Callable[..., T], args: Any, kwargs: Any) -> T:
        refuse_async(function, "await policy.acall(...)")
        result: T = loops.proceed(_start(policy, function), function, args, kwargs)
        return result

    async def acall(self, policy: Policy, function: Callable[..., Awaitable[T]], args: Any, kwargs: Any) -> T:
        try:
            result: T = await loops.aproceed(_start(policy, function), _awaited(function), args, kwargs)
        except _NotAwaitable:
            raise _refused(function, "policy.call(...)") from None
        return result

    def outcome(self, policy: Policy, function: Callable[..., T], args: Any, kwargs: Any) -> Outcome[T]:
        refuse_async(function, "await policy.aoutcome(...)")
        return loops.outcome(_start(policy, function), function, args, kwargs)

    async def aoutcome(
        self, policy: Policy, function: Callable[..., Awaitable[T]], args: Any, kwargs: Any
    ) -> Outcome[T]:
        try:
            return await loops.aoutcome(_start(policy, function), _awaited(function), args, kwargs)
        except _NotAwaitable:
            raise _refused(function, "policy.outcome(...)") from None

    def attempts(self, policy: Policy) -> Iterator[AttemptProtocol]:
        return _block(policy, is_async=False)

    def aattempts(self, policy: Policy) -> AsyncIterator[AttemptProtocol]:
        return _block(policy, is_async=True)

    def override(self, policy: Policy, changes: dict[str, Any]) -> AbstractContextManager[None]:
        return context.override(policy, changes)


RUNNER: Runner = _Runner()


def _start(policy: Policy, function: Callable[..., Any]) -> CallState:
    name = name_of(function)
    return start(_plan(policy, name), name)


def _block(policy: Policy, *, is_async: bool) -> AttemptIterator:
    """Return the attempts of a block, named after the function that contains it."""
    frame = sys._getframe(3)  # this function, the runner, `CallMethods.__iter__`, the `for` statement
    name = f"the block in {frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
    if not is_async and frame.f_code.co_flags & _COROUTINE:
        raise RuntimeError(
            f"{name}: `for attempt in policy` in a coroutine would stop the event loop during its waits: "
            "write `async for attempt in policy`"
        )
    return AttemptIterator(_plan(policy, name), name, id(frame))


# A coroutine function, one that is marked as such (`types.coroutine`), an asynchronous generator.
_COROUTINE = 0x80 | 0x100 | 0x200

_PLANS: dict[int, Plan] = {}
# Programs have few policies; one that creates them on the fly must not fill the memory.
_PLANS_KEPT = 256


def _plan(policy: Policy, name: str) -> Plan:
    """Return the plan of a policy, cached by identity: hashing a policy costs more than a whole call."""
    plan = _PLANS.get(id(policy))
    # The plan refers to its policy, so that no other one can have its id.
    if plan is None or plan.given is not policy:
        plan = Plan(policy, name)
        if len(_PLANS) >= _PLANS_KEPT:
            # Only the oldest: a plan has the budget of its policy. Other threads may change the dictionary meanwhile.
            _PLANS.pop([*_PLANS][0], None)  # noqa: RUF015 - an iterator would notice that
        _PLANS[id(policy)] = plan
    return plan
