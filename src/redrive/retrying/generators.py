"""Generators: what it means to call one again that has yielded already.

A generator that fails half-way has given away part of its items. There are three honest answers:

* ``until_first_item``, the default: it is tried again as long as nothing has been yielded; the first item commits it,
  and a later error passes as it is. (gRPC calls a stream *committed* when its first response has been delivered.)
* ``restart``: it is started from the beginning, and yields everything again. Right if the consumer can bear that.
* `resume`: it is started again and told after which item to go on.

A retried generator is a generator: ``send``, ``throw`` and ``close`` reach the one inside, and ``return`` has its
value. An exception that the consumer throws in, and that comes back out, is the consumer's; it is not retried. All
attempts belong to one call: the policy's attempts and its deadline are those of the whole stream, and the time that
the consumer takes counts. For the same reason there is no timeout for an attempt here.

Nothing is written into the scope, since a context variable that a generator sets is seen by its consumer. Code below
sees the call by the frame that is on the stack while the generator runs.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from redrive.errors import PolicyValueError
from redrive.retrying import aio
from redrive.retrying.plan import Plan
from redrive.retrying.run import Run, start
from redrive.retrying.wrapper import signed

if TYPE_CHECKING:
    from inspect import Signature

__all__ = ["Mode", "check", "resume", "wrap_async", "wrap_sync"]

RESTART, UNTIL_FIRST_ITEM = "restart", "until_first_item"


class resume:  # noqa: N801 - used like a word: generator=resume(...)
    """After a failure, start a generator again behind the last item that it yielded.

    Args:
        key: what to say of an item, so that the generator finds it again; by default the item itself.
        into: the parameter of the generator function that takes it. The first attempt is called without it, unless the
            caller passes it.
    """

    __slots__ = ("into", "key")

    def __init__(self, key: Callable[[Any], Any] | None = None, *, into: str = "after") -> None:
        self.key = key
        self.into = into

    def __repr__(self) -> str:
        return f"resume({self.key!r}, into={self.into!r})"


Mode: TypeAlias = str | resume


def check(function: Callable[..., Any], plan: Plan, mode: Mode, *, is_async: bool) -> None:
    """Refuse what a generator cannot have.

    Raises:
        PolicyValueError: an unknown mode, a parameter to resume with that the function does not have, or a field of the
            policy that means nothing for a generator.
    """
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
    import inspect  # a third of the cost of this package; only `resume` needs it

    return inspect.signature(function)


class _Stream:
    """What the attempts of one retried generator share.

    Attributes:
        run: the call.
        thrown: the exception that the consumer is throwing in.
    """

    def __init__(self, plan: Plan, mode: Mode) -> None:
        self.run: Run = start(plan)
        self.run.has_sign = True
        self.thrown: BaseException | None = None
        self._mode = mode
        self._yielded = False
        self._last: Any = None

    def open(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Start the next attempt."""
        mode = self._mode
        if not isinstance(mode, resume) or not self._yielded:
            return function(*args, **kwargs)
        bound = _signature(function).bind(*args, **kwargs)
        key = self._last if mode.key is None else mode.key(self._last)
        if mode.into in bound.signature.parameters:
            bound.arguments[mode.into] = key
            return function(*bound.args, **bound.kwargs)
        return function(*args, **{**kwargs, mode.into: key})

    def passed(self, item: Any) -> bool:
        """Take note of an item; whether it commits the stream."""
        self._yielded, self._last = True, item
        return self._mode == UNTIL_FIRST_ITEM

    def ended(self) -> None:
        """The generator has returned."""
        if self.run.guard is not None:
            self.run.guard.finish(None)
        self.run.emit_end()

    def failed(self, error: Exception) -> bool:
        """Whether the stream is tried again."""
        return not self._is_over(error) and self.run.failed(error)

    async def afailed(self, error: Exception) -> bool:
        """The same, awaiting the classifier."""
        return not self._is_over(error) and await aio.failed(self.run, error)

    def _is_over(self, error: Exception) -> bool:
        return error is self.thrown or (self._yielded and self._mode == UNTIL_FIRST_ITEM)


def wrap_sync(  # noqa: C901 - the protocol of generators (PEP 380), which `yield from` would hide
    function: Callable[..., Any], plan: Plan, mode: Mode
) -> Callable[..., Any]:
    """The wrapper of a generator function."""
    open_stream = functools.partial(_Stream, plan, mode)

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:  # noqa: C901 - see above
        """Yield what the function yields."""
        stream = open_stream()
        _rd_run, _rd_started = stream.run, stream.run.started
        _rd_plan: Plan | None = plan
        try:
            _rd_run.admit()
            while True:
                if _rd_run.delay:
                    _rd_run.sleep()
                source = stream.open(function, args, kwargs)
                try:
                    item = next(source)
                    while True:
                        if stream.passed(item):
                            _rd_plan = None  # from here on nothing is retried
                        try:
                            sent = yield item
                        except GeneratorExit:
                            source.close()
                            raise
                        except BaseException as thrown:  # noqa: BLE001 - handed on, whatever it is
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
            _rd_run.drop()

    return signed(wrapper)


def wrap_async(  # noqa: C901 - the same with `await`
    function: Callable[..., Any], plan: Plan, mode: Mode
) -> Callable[..., Any]:
    """The wrapper of an async generator function."""
    open_stream = functools.partial(_Stream, plan, mode)

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:  # noqa: C901 - see above
        """Yield what the function yields."""
        stream = open_stream()
        _rd_run, _rd_started = stream.run, stream.run.started
        _rd_plan: Plan | None = plan
        try:
            _rd_run.admit()
            while True:
                if _rd_run.delay:
                    await _rd_run.asleep()
                source = stream.open(function, args, kwargs)
                try:
                    item = await anext(source)
                    while True:
                        if stream.passed(item):
                            _rd_plan = None  # from here on nothing is retried
                        try:
                            sent = yield item
                        except GeneratorExit:
                            await source.aclose()
                            raise
                        except BaseException as thrown:  # noqa: BLE001 - handed on, whatever it is
                            stream.thrown = thrown
                            item = await source.athrow(thrown)
                        else:
                            item = await source.asend(sent)
                        stream.thrown = None
                except StopAsyncIteration:
                    stream.ended()
                    return
                except Exception as error:
                    if not await stream.afailed(error):
                        raise
        finally:
            _rd_run.drop()

    return signed(wrapper)
