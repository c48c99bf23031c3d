"""Compiled wrappers, one for each shape of signature.

The wrapper is generated as text and compiled, as `dataclasses` does for ``__init__``. The text depends only on the
names and kinds of the parameters and is compiled once for each shape. Defaults are not part of it: the wrapper shares
the default objects of the function. A signature that cannot be repeated (a builtin, a partial, a reserved parameter
name) gets ``*args, **kwargs``.

::

    wrapper(...) --- a scope is in force ---> scoped(plan, ...)          redrive.retrying.runner
        |
        |--- returns -----------------------> the result: no other function of redrive was called
        `--- raises ---> start -> CallState                              redrive.retrying.state
                            |
              .----> failed(error): decide -- give up ---> raise
              |             |
              |           retry
              |             |
              |           sleep(delay)
              |             |
              `-- raises -- call -- returns -> returned() -> the result

The frame of such a wrapper marks a retried call: `redrive.retrying.context` recognises it on the stack by its globals.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import cache
from keyword import iskeyword
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, cast

from redrive.policy.classify import refuse_coroutine
from redrive.policy.value import NamedTuple
from redrive.retrying.own import OwnBudget, counting

if TYPE_CHECKING:
    from redrive.retrying.plan import Plan

# The globals of every such wrapper, and of no other function: one ``is`` recognises a frame.
MARK: dict[str, Any] = {"__builtins__": builtins, "__name__": __name__}

# The local variable of such a frame that holds its plan.
PLAN = "_rd_plan"

# The local variable that holds the clock's reading at the start of the first attempt, once there is one.
STARTED = "_rd_started"

# The local variable that holds the `CallState`, once there is one; before that the system clock is in force.
STATE = "_rd_state"

# File names and texts of wrappers that `linecache` does not have yet; see `list_sources`.
UNLISTED: dict[str, str] = {}

_RESERVED = "_rd_"

# Most decorated calls succeed at once, so the cost of that case is the cost of the decorator. A wrapper with
# `*args, **kwargs` spends most of its time on packing and unpacking arguments; a wrapper that repeats the parameters of
# its function passes them on unchanged:
#
#     `fn()`, no wrapper                             0.2
#     wrapper with `*args, **kwargs`                 0.7
#     the same, and it reads the clock               1.1
#     wrapper with the function's own parameters     0.35
#     the same, and it reads the clock               0.8
#     a loop written by hand, `for` and `try`        1.0
#
# (CPython 3.11, a function without arguments, relative to the last line; `benchmarks/inprocess.py` measures it.)
# The wrapper must read the clock, because a deadline counts from the start of the first attempt.

_SYNC = """\
def factory(_rd_call, _rd_plan, _rd_scope, _rd_clock, _rd_scoped, _rd_start, _rd_publish, _rd_reset):
    def wrapper({parameters}):
        if _rd_scope() is not None:
            return _rd_scoped(_rd_plan, _rd_call, {args}, {kwargs})
        _rd_started = _rd_clock()
        try:
            return _rd_call({passed})
        except Exception as _rd_error:
            _rd_state = _rd_start(_rd_plan, _rd_started)
            if not _rd_state.failed(_rd_error):
                raise
        try:
            while True:
                if _rd_state.delay:
                    _rd_state.sleep()
                try:
                    _rd_result = _rd_call({passed})
                except Exception as _rd_error:
                    if not _rd_state.failed(_rd_error):
                        raise
                else:
                    _rd_state.returned()
                    return _rd_result
        finally:
            _rd_state.live = False
    return wrapper
"""
_ASYNC = """\
def factory(_rd_call, _rd_plan, _rd_scope, _rd_clock, _rd_scoped, _rd_start, _rd_publish, _rd_reset):
    async def wrapper({parameters}):
        if _rd_scope() is not None:
            return await _rd_scoped(_rd_plan, _rd_call, {args}, {kwargs})
        _rd_started = _rd_clock()
        try:
            return await _rd_call({passed})
        except Exception as _rd_error:
            _rd_state = _rd_start(_rd_plan, _rd_started)
            if not _rd_state.afailed(_rd_error):
                raise
        except BaseException as _rd_error:
            _rd_start(_rd_plan, _rd_started).left_by(_rd_error)
            raise
        _rd_token = _rd_publish(_rd_state) if _rd_scope() is None else _rd_state.publish()
        try:
            while True:
                await _rd_state.asleep()
                try:
                    _rd_result = await _rd_call({passed})
                except Exception as _rd_error:
                    if not _rd_state.afailed(_rd_error):
                        raise
                except BaseException as _rd_error:
                    _rd_state.left_by(_rd_error)
                    raise
                else:
                    _rd_state.returned()
                    return _rd_result
        finally:
            _rd_state.live = False
            try:
                _rd_reset(_rd_token)
            except ValueError:
                pass
    return wrapper
"""
# The failure is decided on inside the `except` clause, where a bare `raise` leaves the traceback unchanged. The next
# attempt is made outside of it, where Python does not set the first error as `__context__` of the second. A coroutine
# writes to the scope itself, as `CallState.publish` and `retire` would: two calls are 3 % of a recovery.

# CO_VARARGS and CO_VARKEYWORDS of `inspect`; importing that costs 10 ms.
_VARARGS, _VARKEYWORDS = 0x04, 0x08


class Parts(NamedTuple):
    """The functions that a wrapper calls."""

    #: Returns the present scope; None where nothing is in force.
    scope: Callable[[], object]
    #: Returns seconds.
    clock: Callable[[], float]
    #: ``(plan, function, args, kwargs)``: makes the whole call under the present scope.
    scoped: Callable[..., Any]
    #: ``(plan, started)``: returns the `CallState` of a call after its first attempt has failed.
    start: Callable[..., Any]
    #: ``(state)``: sets the present scope and returns a token.
    publish: Callable[[Any], object]
    #: ``(token)``: restores the scope.
    reset: Callable[[Any], object]


class _Shape(NamedTuple):
    """The parameters of a function, without their defaults."""

    positional_only: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    rest: str | None = None
    keyword: tuple[str, ...] = ()
    more: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all parameters."""
        extra = tuple(name for name in (self.rest, self.more) if name)
        return self.positional_only + self.positional + self.keyword + extra


_ANY = _Shape(rest="args", more="kwargs")


def compile_wrapper(function: Callable[..., Any], plan: Plan, parts: Parts, *, is_async: bool) -> Callable[..., Any]:
    """Return a wrapper with the function's parameters and defaults, but not yet its name and docstring."""
    shape = _shape(function)
    called = function if is_async else _Checked(function)
    wrapper = _factory(shape, is_async=is_async)(called, plan, *parts)
    cell = (wrapper.__closure__ or ())[wrapper.__code__.co_freevars.index("_rd_call")]
    if isinstance(called, _Checked):
        called.cell = cell
    if plan.own is not None:
        _count(cell, called, plan.own, is_async=is_async)
    if shape is not _ANY and isinstance(function, FunctionType):
        wrapper.__defaults__ = function.__defaults__
        wrapper.__kwdefaults__ = function.__kwdefaults__
    return wrapper


class _Checked:
    """A function that must not return a coroutine.

    A check of each result would cost a tenth of a call, so the wrapper calls a plain function itself as soon as it has
    returned. The results of others, such as those of `functools.singledispatch`, are of several kinds.
    """

    __slots__ = ("_is_plain", "cell", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._is_plain = isinstance(function, FunctionType) and not hasattr(function, "__wrapped__")
        #: The variable of the wrapper that holds what it calls.
        self.cell: CellType | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        result = refuse_coroutine(self.function(*args, **kwargs), self.function)
        # While successes are counted, the cell holds the function that counts.
        if self._is_plain and self.cell is not None and self.cell.cell_contents is self:
            self.cell.cell_contents = self.function
        return result


def _count(cell: CellType, called: Callable[..., Any], own: OwnBudget, *, is_async: bool) -> None:
    """Have the wrapper count its successes, by another function in its cell, while tokens of its budget are missing.

    A test in the wrapper itself would cost a tenth of a call.
    """

    def switch(low: bool) -> None:  # noqa: FBT001 - a callback
        cell.cell_contents = counting(called, own, is_async=is_async) if low else called

    own.watch(switch)


def marked(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with frames that are recognised as those of a retried call.

    It must keep the local variables named above and use no globals except builtins.
    """
    function = cast("FunctionType", wrapper)
    return FunctionType(function.__code__, MARK, closure=function.__closure__)


def list_sources() -> None:
    """Register the texts of wrappers in `linecache`, so that tracebacks show their lines.

    Called by the first failure, or by the compilation if `linecache` is imported already: importing it takes as long as
    a tenth of the start-up of a program that only decorates.
    """
    import linecache

    for filename in list(UNLISTED):
        # Another thread may have taken it.
        text = UNLISTED.pop(filename, "")
        if text:
            linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)


def _shape(function: Callable[..., Any]) -> _Shape:
    """Return the parameters to repeat; those of ``*args, **kwargs`` if they cannot be repeated."""
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
    usable = all(name.isidentifier() and not iskeyword(name) and not name.startswith(_RESERVED) for name in shape.names)
    return shape if usable else _ANY


@cache
def _factory(shape: _Shape, *, is_async: bool) -> Callable[..., FunctionType]:
    """Compile the wrapper for one shape; all functions of that shape share its code."""
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
    UNLISTED[filename] = text
    if "linecache" in sys.modules:
        list_sources()
    made: dict[str, Any] = {}
    exec(text, MARK, made)  # noqa: S102 - generated above; the names are identifiers
    factory: FunctionType = made["factory"]
    # `compile` with a file name would first make all classes of `ast`, which takes longer than the rest of this module.
    factory.__code__ = _in_file(factory.__code__, filename)
    return cast("Callable[..., FunctionType]", factory)


def _in_file(code: CodeType, filename: str) -> CodeType:
    """Return code, and that inside of it, as from a file."""
    constants = (_in_file(each, filename) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=filename, co_consts=tuple(constants))
