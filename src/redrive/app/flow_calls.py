"""What the body of a workflow asks for: checked descriptions of steps, waits, branches and child runs.

A description is made where the body calls `redrive.Flow`, so that an error about an argument has the line of the call.
The worker carries it out when the body awaits it.
"""

# ruff: noqa: ANN401 - arguments and results of the user

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from redrive.app.arguments import checked_text, shown
from redrive.app.enqueue import durable_policy
from redrive.app.payload import Returns, Signature, dec_hook
from redrive.app.task import Task
from redrive.app.types import type_name
from redrive.engine.runs import StepKind, digest_of
from redrive.errors import ConfigurationError, PayloadError, PolicyError, ScheduleError, TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.policy.fields import span

#: The parameters that ``flow.step`` takes itself.
RESERVED: Final = frozenset({"retry", "timeout", "undo"})

_HERE: Final = str(Path(__file__).parents[1])


class OnError(StrEnum):
    """What ``flow.gather`` does when a branch fails."""

    FIRST = "first"
    """Raise the first error at once; the other branches are dropped."""
    WAIT = "wait"
    """Wait for all branches, then raise the error of the first one that has failed, in their order."""
    COLLECT = "collect"
    """Wait for all branches, and return errors in the places of results."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A function as a step: its name, its parameters and its result."""

    function: Callable[..., Any]
    name: str
    signature: Signature
    returns: Returns


@dataclass(frozen=True, slots=True)
class Undo:
    """The function that takes a step back; it receives the result of the step."""

    function: Callable[[Any], Any]
    name: str


@dataclass(frozen=True, slots=True)
class StepCall:
    """A call of ``flow.step``, or of ``flow.transaction`` if ``transacted``."""

    step: StepFunction
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    policy: Policy | None
    undo: Undo | None
    digest: int
    line: str
    transacted: bool = False


@dataclass(frozen=True, slots=True)
class SleepCall:
    """A call of ``flow.sleep`` or ``flow.sleep_until``."""

    span: timedelta | None
    until: datetime | None
    line: str


@dataclass(frozen=True, slots=True)
class WaitCall:
    """A call of ``flow.wait_for`` (`StepKind.WAIT`) or ``flow.wait_for_event`` (`StepKind.EVENT`)."""

    kind: StepKind
    name: str
    hint: Any
    timeout: timedelta | None
    line: str


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A call of ``flow.call``: the enqueueing methods of the child workflow, its arguments as JSON, its id."""

    workflow: Any
    payload: bytes
    digest: int
    id: str | None
    line: str


Branch: TypeAlias = Awaitable[Any] | Callable[[], Any]
"""One branch of a gather: an awaitable of an ``async def`` body, a function of a ``def`` body."""


@dataclass(frozen=True, slots=True)
class GatherCall:
    """A call of ``flow.gather``, ``flow.map`` or ``flow.first``.

    ``make`` returns the branches one by one, so that those of a large map do not exist at once.
    """

    name: str
    branches: Sequence[Branch]
    on_error: OnError
    at_once: int | None
    line: str


Asked: TypeAlias = StepCall | SleepCall | WaitCall | ChildCall | GatherCall


def caller() -> str:
    """Return the place in the user's code that called redrive, as ``file:line``."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented as specific to CPython, as inspect is
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"


@functools.lru_cache(maxsize=1024)
def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


_functions: WeakKeyDictionary[Callable[..., Any], StepFunction] = WeakKeyDictionary()


def step_function(function: Any) -> StepFunction:
    """Return a function as a step, after a check that its calls can be recorded."""
    if isinstance(function, Task):
        return _checked(StepFunction(function.function, function.name, function.signature, function.returns))
    try:
        known = _functions.get(function)
    except TypeError:
        known = None
    if known is None:
        known = _checked(_described(function))
        # A bound method is made anew for each call.
        if inspect.isfunction(function):
            _functions[function] = known
    return known


def _described(function: Any) -> StepFunction:
    if not callable(function):
        hint = "; pass the function and its arguments, as in flow.step(charge, order)"
        if inspect.isawaitable(function):
            if inspect.iscoroutine(function):
                function.close()
            raise TaskDefinitionError(f"flow.step() takes a function, and got the call of one{hint}")
        raise TaskDefinitionError(f"flow.step() takes a function, got {shown(function)}{hint}")
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise TaskDefinitionError(
            f"flow.step(): {shown(function)} has no name, and a step is recorded by its name: write a def function"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskDefinitionError(f"flow.step(): {name} is a generator function, and a step returns once")
    try:
        signature = Signature(function, name)
    except TaskDefinitionError as error:
        raise TaskDefinitionError(str(error).replace("task ", "step ", 1)) from None
    return StepFunction(function, name, signature, Returns(signature))


def _checked(step: StepFunction) -> StepFunction:
    taken = RESERVED.intersection(step.signature.parameters)
    if taken:
        raise TaskDefinitionError(
            f"step {step.name!r}: a parameter cannot be called {min(taken)!r}, which flow.step() takes itself"
        )
    if step.signature.context is not None:
        raise TaskDefinitionError(
            f"step {step.name!r} takes a redrive.Context, and a step is no job: leave that parameter out"
        )
    step.returns.check_type()
    return step


@functools.lru_cache(maxsize=1024)
def _parsed(retry: Policy | str | None, timeout: timedelta | None, where: str) -> Policy:
    kind, _, name = where.partition(" ")
    policy = durable_policy(retry, name, kind=kind)
    if policy.catch is not None:
        raise TaskDefinitionError(
            f"{where}: the policy of a step has no catch: write try/except around flow.step(), or give the catch to "
            "@app.workflow(retry=...)"
        )
    return policy if timeout is None else policy.with_(attempt_timeout=timeout)


def step_policy(retry: Policy | str | None, timeout: Duration | None, where: str) -> Policy:
    """Return the complete policy of a step; without one, its first failure is final."""
    limit = None if timeout is None else long_span(timeout, f"{where}: timeout")
    try:
        return _parsed(retry, limit, where)
    except TypeError:
        return _parsed.__wrapped__(retry, limit, where)


def undo_of(undo: Any, where: str) -> Undo | None:
    """Return the function that takes a step back."""
    if undo is None:
        return None
    if isinstance(undo, Task):
        return Undo(undo.function, undo.name)
    name = getattr(undo, "__name__", None) or getattr(getattr(undo, "func", None), "__name__", None)
    if not callable(undo) or not isinstance(name, str) or not name.isidentifier():
        raise TaskDefinitionError(f"{where}: undo= takes a function of the result of the step, got {shown(undo)}")
    return Undo(undo, name)


def step_call(  # noqa: PLR0913 - the parts of the call
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    retry: Policy | str | None,
    timeout: Duration | None,
    undo: Any,
    line: str,
    transacted: bool = False,
) -> StepCall:
    """Describe a step; raise if its function, its arguments or its policy cannot be used."""
    step = step_function(function)
    where = f"step {step.name!r}"
    if transacted:
        step = replace(step, signature=_without_first(step))
    is_open = retry is None and timeout is None
    policy = None if is_open else step_policy(retry, timeout, where)
    digest = digest_of(step.signature.write(args, kwargs, order="deterministic"))
    return StepCall(step, args, kwargs, policy, undo_of(undo, where), digest, line, transacted)


def _without_first(step: StepFunction) -> Signature:
    """Return the signature of a function without its first parameter, which receives the connection."""
    names = list(step.signature.parameters)
    if not names:
        raise TaskDefinitionError(
            f"flow.transaction(): {step.name} takes no parameter; its first one receives the connection"
        )
    function, first = step.function, names[0]

    class _Rest(Signature):
        @functools.cached_property
        def payload(self) -> tuple[str, ...]:
            return tuple(name for name in self.parameters if name != first)

    return _Rest(function, step.name)


def wait_call(kind: StepKind, name: Any, hint: Any, timeout: Duration | None, line: str) -> WaitCall:
    """Describe a wait; names of signals do not begin with a colon, which the engine uses."""
    method = "wait_for" if kind is StepKind.WAIT else "wait_for_event"
    return WaitCall(
        kind,
        checked_event(name, f"flow.{method}(): the name"),
        hint,
        None if timeout is None else long_span(timeout, f"flow.{method}({name!r}): timeout"),
        line,
    )


def checked_event(name: Any, what: str) -> str:
    """Return the name of a signal or event."""
    text = checked_text(name, what)
    if text.startswith(":"):
        raise ConfigurationError(f"{what} {text!r} begins with a colon, which is reserved for redrive itself")
    return text


def long_span(value: Any, what: str) -> timedelta:
    """Return a time span: as policies have it (``"7d"``), or in words (``"1 day"``)."""
    # A body is replayed often, and its texts are few.
    return _read_span(value, what) if isinstance(value, str) else span(value, what)


@functools.lru_cache(maxsize=1024)
def _read_span(value: str, what: str) -> timedelta:
    try:
        return span(value, what)
    except PolicyError:
        found = _in_words(value)
        if found is None:
            raise
        return found


def _in_words(text: str) -> timedelta | None:
    """Return a time span in words, or None."""
    from redrive.schedule.english import spans
    from redrive.schedule.english.tokens import Reader, lines

    found = lines(text)
    if len(found) != 1:
        return None
    try:
        reader = Reader(found[0])
        length = spans.some(reader)
    except ScheduleError:
        return None
    return length if reader.next is None else None


@functools.lru_cache(maxsize=256)
def _decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(hint, dec_hook=dec_hook)
    except TypeError as error:
        raise TaskDefinitionError(f"{hint!r} cannot be read from JSON: {error}") from error


def read_value(raw: bytes | None, hint: Any, what: str) -> Any:
    """Read a value as a type; raise `PayloadError` if it does not fit."""
    try:
        return _decoder(hint).decode(b"null" if raw is None else raw)
    except TaskDefinitionError:
        raise
    except Exception as error:
        # Validators are the user's and may raise anything.
        raise PayloadError(f"{what} does not fit {type_name(hint)}: {error}") from error
