"""What the body of a workflow asks for: checked descriptions of steps, waits, branches and child runs.

A description is made where the body calls `redrive.Flow`, so that an error about an argument has the line of the call.
The worker carries it out when the body awaits it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from redrive.app.arguments import checked_count, checked_instant, checked_text, shown
from redrive.app.payload import Returns, Signature, dec_hook, refuse_encoded
from redrive.app.tasks.task import Task
from redrive.app.types import type_name
from redrive.engine.runs import RACE, StepKind, digest_of
from redrive.errors import ConfigurationError, PayloadError, PolicyError, ScheduleError, TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.duration import Duration
from redrive.policy.fields import wait

T = TypeVar("T")

_HERE: Final = str(Path(__file__).parents[1])


class OnError(StrEnum):
    """What ``flow.gather`` does when a branch fails."""

    FIRST = "first"
    """Raise the first error at once; the other branches are dropped."""
    WAIT = "wait"
    """Wait for all branches, then raise the error of the first one that has failed, in their order."""
    COLLECT = "collect"
    """Wait for all branches, and return errors in the places of results."""


class Key(msgspec.Struct, frozen=True):
    """What identifies a named call beside its kind and its place among equal ones.

    Attributes:
        name: the name that the code gives.
        digest: of the inputs; without inputs of the arguments, and None for a call without them.
    """

    name: str
    digest: int | None = None


class StepFunction(msgspec.Struct, frozen=True):
    """A function as a step: its name, its parameters, its result and its earlier names; ``once`` if it may run once."""

    function: Callable[..., Any]
    name: str
    signature: Signature
    returns: Returns
    aka: tuple[str, ...] = ()
    once: bool = False


class Undo(msgspec.Struct, frozen=True):
    """The function that takes a step back; it receives the result of the step, and ``once`` if it may run once."""

    function: Callable[[Any], Any]
    name: str
    once: bool = False


class StepCall(msgspec.Struct, frozen=True):
    """A call of ``flow.step``, or of ``flow.transaction`` if ``transacted``."""

    step: StepFunction
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    policy: Policy | None
    undo: Undo | None
    digest: int
    line: str
    transacted: bool = False
    key: Key | None = None


class SleepCall(msgspec.Struct, frozen=True):
    """A call of ``flow.sleep`` or ``flow.sleep_until``."""

    span: timedelta | None
    until: datetime | None
    line: str
    key: Key | None = None


class WaitCall(msgspec.Struct, frozen=True):
    """A call of ``flow.wait_for`` (`StepKind.WAIT`) or ``flow.wait_for_event`` (`StepKind.EVENT`)."""

    kind: StepKind
    name: str
    hint: Any
    timeout: timedelta | None
    line: str
    key: Key | None = None


class ChildCall(msgspec.Struct, frozen=True):
    """A call of ``flow.call``: the enqueueing methods of the child workflow, its arguments as JSON, its id."""

    workflow: Any
    payload: bytes
    digest: int
    id: str | None
    line: str
    key: Key | None = None


Branch: TypeAlias = Awaitable[Any] | Callable[[], Any]
"""One branch of a gather: an awaitable of an ``async def`` body, a function of a ``def`` body."""


class GatherCall(msgspec.Struct, frozen=True):
    """A call of ``flow.gather``, ``flow.map`` or ``flow.first``.

    ``make`` returns the branches one by one, so that those of a large map do not exist at once.
    """

    name: str
    branches: Sequence[Branch]
    on_error: OnError
    at_once: int | None
    line: str
    aka: tuple[str, ...] = ()
    key: None = None


OneCall: TypeAlias = StepCall | SleepCall | WaitCall | ChildCall | GatherCall


def caller() -> str:
    """Return the place in the user's code that called redrive, as ``file:line``."""
    frame: FrameType | None = sys._getframe(1)  # documented as specific to CPython, as inspect is
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    # Hot path: the same text as that of `place`.
    return "" if frame is None else f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"


def place(file: str, line: int) -> str:
    """Return a line of a file as messages name it."""
    return f"{_short(file)}:{line}"


@functools.lru_cache(maxsize=1024)
def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


def wait_call(kind: StepKind, name: object, hint: object, timeout: Duration | None, line: str) -> WaitCall:
    """Describe a wait; names of signals do not begin with a colon, which the engine uses."""
    method = "wait_for" if kind is StepKind.WAIT else "wait_for_event"
    return WaitCall(
        kind,
        checked_event(name, f"flow.{method}(): the name"),
        hint,
        None if timeout is None else long_span(timeout, f"flow.{method}({name!r}): timeout"),
        line,
    )


def gather_call(name: str, branches: list[Any], on_error: str, at_once: int | None) -> GatherCall:
    """Describe branches that run at once."""
    words = [str(each) for each in OnError]
    if on_error not in words:
        raise ConfigurationError(f"on_error is {', '.join(map(repr, words))}, not {on_error!r}")
    if at_once is not None:
        checked_count(at_once, "flow.map(): at_once")
    return GatherCall(name, branches, OnError(on_error), at_once, caller())


def first_call(branches: list[Any]) -> GatherCall:
    """Describe branches of which the first to end wins."""
    if not branches:
        raise ConfigurationError("flow.first() takes at least one branch")
    return GatherCall(RACE, branches, OnError.FIRST, None, caller())


def ordered(items: Iterable[T]) -> Iterable[T]:
    """Return items for branches; raise if their order may differ in a replay."""
    if isinstance(items, set | frozenset):
        raise ConfigurationError("flow.map(): the order of a set is another one in each process; pass sorted(items)")
    return items


def child_call(workflow: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ChildCall:
    """Describe a child run; raise if it is no workflow, or its arguments do not fit."""
    if not isinstance(workflow, Task) or not workflow.is_workflow:
        raise TaskDefinitionError(
            f"flow.call() takes a workflow, got {shown(workflow)}; a function is called by flow.step()"
        )
    payload = workflow.signature.write(args, kwargs, order="deterministic")
    return ChildCall(workflow, payload, digest_of(payload), None, caller())


def aware(instant: object) -> datetime:
    """Return an instant in UTC; raise if it has no time zone."""
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        raise ConfigurationError(
            f"flow.sleep_until() takes a datetime with a time zone, got {shown(instant)}; a time from now on is "
            "flow.sleep()"
        )
    return checked_instant(instant, "flow.sleep_until()")


def checked_event(name: object, what: str) -> str:
    """Return the name of a signal or event."""
    text = checked_text(name, what)
    if text.startswith(":"):
        raise ConfigurationError(f"{what} {text!r} begins with a colon, which is reserved for redrive itself")
    return text


def long_span(value: Any, what: str) -> timedelta:
    """Return a time span: as policies have it (``"7d"``), or in words (``"1 day"``)."""
    # A body is replayed often, and its texts are few.
    return _read_span(value, what) if isinstance(value, str) else wait(value, what)


@functools.lru_cache(maxsize=1024)
def _read_span(value: str, what: str) -> timedelta:
    try:
        return wait(value, what)
    except PolicyError:
        found = _in_words(value)
        if found is None:
            raise
        return wait(found, what)


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
def _decoder(hint: object) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(hint, dec_hook=dec_hook)
    except TypeError as error:
        raise TaskDefinitionError(f"{hint!r} cannot be read from JSON: {error}") from error


def read_value(raw: bytes | None, hint: object, what: str) -> Any:
    """Read a value as a type; raise `PayloadError` if it does not fit."""
    if raw is not None:
        refuse_encoded(raw, what)
    try:
        return _decoder(hint).decode(b"null" if raw is None else raw)
    except TaskDefinitionError:
        raise
    except Exception as error:
        # Validators are the user's and may raise anything.
        raise PayloadError(f"{what} does not fit {type_name(hint)}: {error}") from error
