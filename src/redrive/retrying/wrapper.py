"""Wrappers that cost a call and little more: compiled once for each shape of signature.

Nearly every decorated call succeeds at once, so that case decides what a retry costs a program. In plain Python the
cheapest general wrapper is ``def wrapper(*args, **kwargs)``, and packing and unpacking its arguments is most of its
cost. A wrapper that has the parameters of its function passes them on as they came:

==============================================  ====
``fn()``, no wrapper                            0.2
wrapper with ``*args, **kwargs``                0.7
the same, and it reads the clock                1.1
wrapper with the function's own parameters      0.35
the same, and it reads the clock                0.8
a loop written by hand, ``for`` and ``try``     1.0
==============================================  ====

(CPython 3.11, a function without arguments, relative to the last line; ``benchmarks/inprocess.py`` measures it anew.)
The clock has to be read: a deadline counts from the start of the first attempt, and nobody can tell later when that
was. With that reading only the second kind of wrapper is still cheaper than what people write by hand.

So the wrapper is written as text and compiled, as `dataclasses` does for ``__init__``. The text depends on nothing but
the names and kinds of the parameters, it is compiled once for each such shape, and `linecache` knows it, so that a
traceback shows its lines. Defaults are not part of it: the wrapper shares the function's own default objects. A
signature that cannot be repeated so (a builtin, a partial, a parameter named like one of our own) gets
``*args, **kwargs``.

The frame of such a wrapper is a sign: while it is on the stack, a retried call is being made. Leaving it costs nothing;
`redrive.retrying.context` reads it.
"""

from __future__ import annotations

import builtins
import linecache
from collections.abc import Callable
from functools import cache
from keyword import iskeyword
from types import FunctionType
from typing import Any, NamedTuple, cast

__all__ = ["PLAN", "RUN", "SIGN", "STARTED", "Parts", "compile_wrapper", "signed"]

SIGN: dict[str, Any] = {"__builtins__": builtins, "__name__": __name__}
"""The globals of every such wrapper, and of nothing else: by them a frame is recognised, at the cost of one ``is``."""

PLAN = "_rd_plan"
"""The name under which such a frame holds its plan."""

STARTED = "_rd_started"
"""The name under which such a frame holds the clock's reading at the start of its first attempt, once it has one."""

RUN = "_rd_run"
"""The name under which it holds its `Run`, once it has one; before that the system clock is in force."""

_OURS = "_rd_"

_SYNC = """\
def factory(_rd_call, _rd_plan, _rd_scope, _rd_clock, _rd_scoped, _rd_start, _rd_audience, _rd_publish, _rd_reset):
    def wrapper({parameters}):
        if _rd_scope() is not None:
            return _rd_scoped(_rd_plan, _rd_call, {args}, {kwargs})
        _rd_started = _rd_clock()
        try:
            return _rd_call({passed})
        except Exception as _rd_error:
            _rd_run = _rd_start(_rd_plan, _rd_started)
            if not _rd_run.failed(_rd_error):
                raise
        while True:
            if _rd_run.delay:
                _rd_run.sleep()
            try:
                _rd_result = _rd_call({passed})
            except Exception as _rd_error:
                if not _rd_run.failed(_rd_error):
                    raise
            else:
                if _rd_audience:
                    _rd_run.emit_end()
                return _rd_result
    return wrapper
"""
_ASYNC = """\
def factory(_rd_call, _rd_plan, _rd_scope, _rd_clock, _rd_scoped, _rd_start, _rd_audience, _rd_publish, _rd_reset):
    async def wrapper({parameters}):
        if _rd_scope() is not None:
            return await _rd_scoped(_rd_plan, _rd_call, {args}, {kwargs})
        _rd_started = _rd_clock()
        try:
            return await _rd_call({passed})
        except Exception as _rd_error:
            _rd_run = _rd_start(_rd_plan, _rd_started)
            if not _rd_run.failed(_rd_error):
                raise
        _rd_token = _rd_publish(_rd_run) if _rd_scope() is None else _rd_run.publish()
        try:
            while True:
                if _rd_run.delay:
                    await _rd_run.asleep()
                try:
                    _rd_result = await _rd_call({passed})
                except Exception as _rd_error:
                    if not _rd_run.failed(_rd_error):
                        raise
                else:
                    if _rd_audience:
                        _rd_run.emit_end()
                    return _rd_result
        finally:
            _rd_run.live = False
            try:
                _rd_reset(_rd_token)
            except ValueError:
                pass
    return wrapper
"""
# A failure is judged inside the `except` clause, where a bare `raise` lets the error go as it came; the next attempt is
# made outside of it, where Python does not hang the first error on the second as its `__context__`. What a coroutine
# writes into the scope it writes by itself, as `Run.publish` and `Run.retire` would: two calls are 3 % of a recovery.

_VARARGS, _VARKEYWORDS = 0x04, 0x08  # CO_VARARGS and CO_VARKEYWORDS of `inspect`, whose import costs 10 ms


class Parts(NamedTuple):
    """What the wrapper calls.

    Attributes:
        scope: returns the present scope, or None where nothing is in force.
        clock: returns seconds.
        scoped: ``(plan, function, args, kwargs)``: makes the whole call under the present scope.
        start: ``(plan, started)``: makes the `Run` of a call whose first attempt has failed.
        audience: not empty while somebody wants to be told how such a call ends.
        publish: ``(run)``: sets the present scope, and returns a token.
        reset: ``(token)``: sets it back.
    """

    scope: Callable[[], object]
    clock: Callable[[], float]
    scoped: Callable[..., Any]
    start: Callable[..., Any]
    audience: list[None]
    publish: Callable[[Any], object]
    reset: Callable[[Any], object]


class _Shape(NamedTuple):
    """The parameters of a function, without defaults."""

    positional_only: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    rest: str | None = None
    keyword: tuple[str, ...] = ()
    more: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every parameter."""
        extra = tuple(name for name in (self.rest, self.more) if name)
        return self.positional_only + self.positional + self.keyword + extra


_ANY = _Shape(rest="args", more="kwargs")


def compile_wrapper(function: Callable[..., Any], plan: object, parts: Parts, *, is_async: bool) -> Callable[..., Any]:
    """Make the wrapper of a function.

    Args:
        function: what is called; a coroutine function if ``is_async``.
        plan: kept in the wrapper's frame and handed to ``parts.scoped`` and ``parts.start``.
        parts: what the wrapper calls beside the function.
        is_async: whether the wrapper is a coroutine function too; then ``scoped`` is as well.

    Returns:
        A plain function with the function's parameters and defaults, but not yet its name and docstring.
    """
    shape = _shape(function)
    wrapper = _factory(shape, is_async=is_async)(function, plan, *parts)
    if shape is not _ANY and isinstance(function, FunctionType):
        wrapper.__defaults__ = function.__defaults__
        wrapper.__kwdefaults__ = function.__kwdefaults__
    return wrapper


def signed(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with frames that are recognised as those of a retried call.

    Args:
        wrapper: a function that keeps the locals named above and uses no globals but builtins.
    """
    function = cast("FunctionType", wrapper)
    return FunctionType(function.__code__, SIGN, closure=function.__closure__)


def _shape(function: Callable[..., Any]) -> _Shape:
    """The parameters to repeat, or ``*args, **kwargs`` where they cannot be."""
    if not isinstance(function, FunctionType):
        return _ANY
    code = function.__code__
    names = iter(code.co_varnames)
    take = [next(names) for _ in range(code.co_argcount)]
    keyword = tuple(next(names) for _ in range(code.co_kwonlyargcount))
    shape = _Shape(
        positional_only=tuple(take[: code.co_posonlyargcount]),
        positional=tuple(take[code.co_posonlyargcount :]),
        rest=next(names) if code.co_flags & _VARARGS else None,
        keyword=keyword,
        more=next(names) if code.co_flags & _VARKEYWORDS else None,
    )
    usable = all(name.isidentifier() and not iskeyword(name) and not name.startswith(_OURS) for name in shape.names)
    return shape if usable else _ANY


@cache
def _factory(shape: _Shape, *, is_async: bool) -> Callable[..., FunctionType]:
    """Compile the wrapper's text for one shape; all functions of that shape share its code."""
    star = [f"*{shape.rest}"] if shape.rest else []
    bare = ["*"] if shape.keyword and not shape.rest else []
    only = [*shape.positional_only, "/"] if shape.positional_only else []
    more = [f"**{shape.more}"] if shape.more else []
    values = [*shape.positional_only, *shape.positional, *star]
    named = [f"{name}={name}" for name in shape.keyword]
    parameters = ", ".join([*only, *shape.positional, *star, *bare, *shape.keyword, *more])
    text = (_ASYNC if is_async else _SYNC).format(
        parameters=parameters,
        args=f"({', '.join(values)},)" if values else "()",
        kwargs="{" + ", ".join([*(f"{name!r}: {name}" for name in shape.keyword), *more]) + "}",
        passed=", ".join([*values, *named, *more]),
    )
    filename = f"<redrive.retry: {'async ' * is_async}def wrapper({parameters})>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    made: dict[str, Any] = {}
    exec(compile(text, filename, "exec"), SIGN, made)  # noqa: S102 - our own text; names are checked to be identifiers
    factory: Callable[..., FunctionType] = made["factory"]
    return factory
