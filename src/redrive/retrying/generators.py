"""Retried generators.

A generator that fails half-way has yielded part of its items. There are three ways to retry it:

* ``until_first_item``, the default: it is retried until it has yielded an item; a later error is raised unchanged.
  (gRPC calls a stream *committed* when its first response has been delivered.)
* ``restart``: it starts from the beginning and yields everything again, if the consumer can process items twice.
* `resume`: it starts again with an argument that names the last item.

A retried generator supports ``send``, ``throw`` and ``close``, and ``return`` has its value. An exception that the
consumer throws in and that comes back is not retried. All attempts belong to one call: the attempts and the deadline of
the policy apply to the whole stream, the time that the consumer takes counts, and there is no timeout for an attempt.

Nothing is written to the scope, since the consumer of a generator sees the context variables that it sets. Code below
finds the call by the frame on the stack.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from redrive.errors import PolicyValueError
from redrive.errors.foreign import notes_of, set_attribute
from redrive.retrying.loops import afailed
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start
from redrive.retrying.wrapper import marked

if TYPE_CHECKING:
    from inspect import Signature

RESTART, UNTIL_FIRST_ITEM = "restart", "until_first_item"


class resume:  # noqa: N801 - read as a word: generator=resume(...)
    """The mode of a generator that starts again after the last item that it yielded.

    Args:
        key: returns the key of an item; by default the item itself.
        into: the parameter of the generator function that takes the key of the last item. The first attempt is called
            without it, unless the caller passes it.
    """

    __slots__ = ("into", "key")

    def __init__(self, key: Callable[[Any], Any] | None = None, *, into: str = "after") -> None:
        self.key: Callable[[Any], Any] | None = key
        self.into: str = into

    def __repr__(self) -> str:
        return f"resume({self.key!r}, into={self.into!r})"


Mode: TypeAlias = str | resume


def wrap(function: Callable[..., Any], plan: Plan, mode: Mode, *, is_async: bool) -> Callable[..., Any]:
    """Return the wrapper of a generator function or an async generator function."""
    _check(function, plan, mode, is_async=is_async)
    return (_wrap_async if is_async else _wrap_sync)(function, plan, mode)


def _check(function: Callable[..., Any], plan: Plan, mode: Mode, *, is_async: bool) -> None:
    """Raise `PolicyValueError` for an unknown mode, a missing parameter of `resume`, or an unsupported policy field."""
    if not isinstance(mode, resume) and mode not in (RESTART, UNTIL_FIRST_ITEM):
        choice = f"{UNTIL_FIRST_ITEM}, {RESTART} or redrive.resume(...)"
        raise PolicyValueError(f"{plan.name}: generator={mode!r}: use {choice}")
    if plan.timeout is not None or plan.policy.on_result is not None:
        field = "on_result" if plan.timeout is None else "attempt_timeout"
        raise PolicyValueError(f"{plan.name}: {field} has no meaning for a generator, which yields items over time")
    plan.refuse_hedge("a generator")
    if not is_async:
        plan.refuse_await("a generator")
    if isinstance(mode, resume):
        parameters = _signature(function).parameters
        if mode.into not in parameters and not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            raise PolicyValueError(f"{plan.name}: it has no parameter {mode.into!r} to resume with: resume(into=...)")


def _signature(function: Callable[..., Any]) -> Signature:
    # Slow to import; only `resume` needs it.
    import inspect

    return inspect.signature(function)


COMMITTED = (
    'not retried: the generator had yielded an item, which the caller may have used. retry(generator="restart") and '
    "retry(generator=redrive.resume(...)) retry after that, too"
)
"""The note of an error that the policy would retry, had it come before the first item."""


class _Stream:
    """The state of one retried generator."""

    def __init__(self, plan: Plan, mode: Mode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.call: CallState = start(plan)
        self.call.on_stack = True
        self.call.args, self.call.kwargs = args, kwargs
        #: The exception that the consumer is throwing in.
        self.thrown: BaseException | None = None
        self._mode = mode
        self._yielded = False
        self._last: Any = None

    def open(self, function: Callable[..., Any]) -> Any:
        """Start the next attempt."""
        mode, args, kwargs = self._mode, self.call.args, self.call.kwargs
        if not isinstance(mode, resume) or not self._yielded:
            return function(*args, **kwargs)
        bound = _signature(function).bind(*args, **kwargs)
        key = self._last if mode.key is None else mode.key(self._last)
        if mode.into in bound.signature.parameters:
            bound.arguments[mode.into] = key
            return function(*bound.args, **bound.kwargs)
        return function(*args, **{**kwargs, mode.into: key})

    def passed(self, item: object) -> bool:
        """Record an item; return True if it commits the stream."""
        self._yielded, self._last = True, item
        return self._mode == UNTIL_FIRST_ITEM

    def ended(self) -> None:
        """Finish the call after the generator has returned."""
        self.call.returned()

    def failed(self, error: Exception) -> bool:
        """Return True if the stream is retried."""
        return not self._is_over(error) and self.call.failed(error)

    async def afailed(self, error: BaseException) -> bool:
        """Return True if the stream is retried; await the classifier."""
        is_over = isinstance(error, Exception) and self._is_over(error)
        return not is_over and await afailed(self.call, error)

    def _is_over(self, error: Exception) -> bool:
        if error is self.thrown:
            return True
        if not self._yielded or self._mode != UNTIL_FIRST_ITEM:
            return False
        notes = notes_of(error)
        if self.call.repeats(error, None) and COMMITTED not in notes:
            set_attribute(error, "__notes__", [*notes, COMMITTED])
        self.call.left_by(error)
        return True


def _wrap_sync(  # noqa: C901 - the protocol of generators (PEP 380); `yield from` cannot retry
    function: Callable[..., Any], plan: Plan, mode: Mode
) -> Callable[..., Any]:
    open_stream = functools.partial(_Stream, plan, mode)

    def wrapper(*args: object, **kwargs: object) -> Generator[Any, Any, Any]:  # noqa: C901 - see above
        """Yield what the function yields."""
        stream = open_stream(args, kwargs)
        _rd_state, _rd_started = stream.call, stream.call.started
        _rd_plan: Plan | None = plan
        try:
            _rd_state.admit()
            while True:
                if _rd_state.delay:
                    _rd_state.sleep()
                source = stream.open(function)
                try:
                    item = next(source)
                    while True:
                        if stream.passed(item):
                            # From here on nothing is retried.
                            _rd_plan = None
                        try:
                            sent = yield item
                        except GeneratorExit:
                            source.close()
                            raise
                        except BaseException as thrown:  # noqa: BLE001 - passed on unchanged
                            stream.thrown = thrown
                            item = source.throw(thrown)
                        else:
                            item = next(source) if sent is None else source.send(sent)
                        stream.thrown = None
                except StopIteration as stop:
                    stream.ended()
                    return stop.value
                except Exception as error:
                    if not stream.failed(error):
                        raise
        finally:
            _rd_state.drop()

    return marked(wrapper)


def _wrap_async(  # noqa: C901 - the same with `await`
    function: Callable[..., Any], plan: Plan, mode: Mode
) -> Callable[..., Any]:
    open_stream = functools.partial(_Stream, plan, mode)

    async def wrapper(*args: object, **kwargs: object) -> AsyncGenerator[Any, Any]:  # noqa: C901 - see above
        """Yield what the function yields."""
        stream = open_stream(args, kwargs)
        stream.call.awaits_hooks = True
        _rd_state, _rd_started = stream.call, stream.call.started
        _rd_plan: Plan | None = plan
        try:
            _rd_state.admit()
            while True:
                if _rd_state.number > 1:
                    await _rd_state.asleep()
                source = stream.open(function)
                try:
                    item = await anext(source)
                    while True:
                        if stream.passed(item):
                            # From here on nothing is retried.
                            _rd_plan = None
                        try:
                            sent = yield item
                        except GeneratorExit:
                            await source.aclose()
                            raise
                        except BaseException as thrown:  # noqa: BLE001 - passed on unchanged
                            stream.thrown = thrown
                            item = await source.athrow(thrown)
                        else:
                            item = await source.asend(sent)
                        stream.thrown = None
                except StopAsyncIteration:
                    stream.ended()
                    return
                except BaseException as error:
                    if not await stream.afailed(error):
                        raise
        finally:
            _rd_state.drop()
            await _rd_state.await_hooks()

    return marked(wrapper)
