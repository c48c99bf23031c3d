"""Checks of the arguments of users: each error states the place, the value and what would be right."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from types import FunctionType
from typing import Any

from redrive.clock import SystemClock
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError, PolicyValueError, TaskDefinitionError
from redrive.policy import Policy
from redrive.policy.duration import LONGEST_WAIT
from redrive.visible import visible

TEXT_BYTES = 2000
"""The longest name or key in UTF-8: an entry of an index of PostgreSQL has at most 2704 bytes."""

PRIORITIES = range(-(2**31), 2**31)

LARGEST = 2**63 - 1
"""The largest whole number of a database."""

SHOWN = 60
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """Return a value as text that fits into a message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def checked_text(value: object, what: str) -> str:
    """Return a name or a key, which every database can store."""
    try:
        if isinstance(value, str) and "\0" not in value and 0 < len(value.encode()) <= TEXT_BYTES:
            return value
    except UnicodeEncodeError:
        pass
    raise ConfigurationError(
        f"{what} must be a text that is not empty, has no zero byte, and is no longer than {TEXT_BYTES} bytes, "
        f"got {shown(value)}"
    )


def check_printable(name: str, what: str) -> None:
    """Check a name of the code, which commands, logs and diagrams print on one line."""
    if visible(name) != name:
        raise ConfigurationError(f"{what} must have no line break and no control character, got {shown(name)}")


def checked_priority(value: object, what: str) -> int:
    """Return a priority."""
    if isinstance(value, int) and not isinstance(value, bool) and value in PRIORITIES:
        return value
    raise ConfigurationError(
        f"{what} must be a whole number from {PRIORITIES.start} to {PRIORITIES.stop - 1}, got {shown(value)}; "
        "jobs with a smaller one run first"
    )


def checked_flag(value: object, what: str) -> bool | None:
    """Return True, False, or None for a default."""
    if value is None or isinstance(value, bool):
        return value
    raise ConfigurationError(f"{what} must be True or False, got {shown(value)}")


def checked_count(value: object, what: str) -> int:
    """Return a positive whole number that a database can store."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        if value <= LARGEST:
            return value
        raise ConfigurationError(f"{what} must be at most {LARGEST}, got a number of {value.bit_length()} bits")
    raise ConfigurationError(f"{what} must be a whole number above zero, got {shown(value)}")


def checked_texts(value: object, what: str) -> tuple[str, ...]:
    """Return several names; a single text is refused, because it would be taken as one name for each letter."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{what} must be a list of texts, as in [{shown(value)}], got {shown(value)}")
    return tuple(checked_text(each, f"a name in {what}") for each in value)


def earlier_names(kind: str, name: str, aka: object) -> tuple[str, ...]:
    """Return the earlier names of a renamed task or step: one text, or several."""
    names = (aka,) if not isinstance(aka, Iterable) or isinstance(aka, str) else tuple(aka)
    for each in names:
        if not isinstance(each, str) or not each or each == name or names.count(each) > 1:
            raise TaskDefinitionError(
                f"{kind} {name!r}: aka= takes earlier names of the {kind}, each another text and once, got {aka!r}"
            )
    return names


def checked_policy(value: object, what: str = "retry") -> Policy | str:
    """Return a policy or a directive."""
    if isinstance(value, Policy | str):
        return value
    retries = value if isinstance(value, int) and not isinstance(value, bool) else 5
    raise PolicyValueError(
        f'{what}={shown(value)} is no policy: write a directive such as "{retries} 1s" ({retries} retries, the first '
        "after a second), or give a redrive.Policy"
    )


def checked_url(value: object) -> str:
    """Return the URL of a database."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, bytes | bytearray) or not hasattr(value, "__fspath__"):
        hint = "is the environment variable set?" if value is None or value == "" else "give a URL"
        raise ConfigurationError(
            f'App(): the URL of a database is a text such as "sqlite:///app.db", got {value!r}; {hint}'
        )
    raise ConfigurationError(
        f'App(): the URL of a database is a text, got {value!r}: write "sqlite:///{value.__fspath__()}"'
    )


def checked_instant(instant: datetime, what: str, present: datetime | None = None) -> datetime:
    """Return an instant with a time zone in UTC; refuse one that is further away than `LONGEST_WAIT`."""
    try:
        found = instant.astimezone(UTC)
    except OverflowError as error:
        raise ConfigurationError(f"{what}={instant!r} is outside of the years 1 to 9999 in UTC") from error
    if found - (present or SystemClock().now()) > LONGEST_WAIT:
        raise ConfigurationError(
            f"{what}: {instant} is more than 50 years away, which is the longest wait; were its seconds milliseconds?"
        )
    return found


def checked_clock(value: object) -> Any:
    """Return a clock, or None for that of the database."""
    if value is None or (callable(getattr(value, "now", None)) and callable(getattr(value, "monotonic", None))):
        return value
    raise ConfigurationError(
        f"App(clock=): a clock is an object such as redrive.testing.VirtualClock(), got {shown(value)}"
    )


def checked_filter(where: object) -> Filter:
    """Return a selection of jobs."""
    if isinstance(where, Filter):
        return where
    raise ConfigurationError(f'jobs are selected by a redrive.Filter, as in Filter(task="charge"), got {shown(where)}')


def check_name(name: object, what: str, parameters: Collection[str]) -> None:
    """Check a key: a text, or a function that can be called with the arguments of a job."""
    if name is None:
        return
    if not callable(name):
        checked_text(name, what)
    elif isinstance(name, FunctionType):
        code = name.__code__
        takes = code.co_argcount + code.co_kwonlyargcount
        needs = takes - len(name.__defaults__ or ()) - len(name.__kwdefaults__ or ())
        flags = code.co_flags
        if needs > len(parameters) or (
            parameters and not takes and not flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        ):
            raise ConfigurationError(
                f"{what} is a function that takes {', '.join(code.co_varnames[:takes]) or 'nothing'}, and is called "
                f"with the arguments of a job: {', '.join(parameters) or 'none'}"
            )


def only_started(name: str) -> str:
    """Return why no job of a workflow can be made."""
    return f"{name} is a workflow: its runs are started by {name}.start(...)"


def checked_function(function: Any, kind: str, how: str) -> Callable[..., Any]:
    """Return a function that a worker can call by its name alone."""
    if isinstance(function, classmethod) or inspect.ismethod(function) or _is_method(function):
        label = getattr(getattr(function, "__func__", function), "__qualname__", function)
        raise TaskDefinitionError(
            f"{label} is a method, and a job cannot store its object: make it a function, or a staticmethod"
        )
    is_workflow = getattr(type(function), "is_workflow", None)
    if is_workflow:
        raise TaskDefinitionError(f"{only_started(function.name)}; a {kind} is another function, which calls that")
    if is_workflow is not None:
        raise TaskDefinitionError(
            f"{function.name!r} is a task already, and one function is one task: make another function for the {kind}"
        )
    if not inspect.isroutine(function):
        instead = ": write a def that calls it, and decorate that" if callable(function) else ""
        raise TaskDefinitionError(f"{function!r} is no function; a {kind} is made by {how}{instead}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TaskDefinitionError(
            f"{function.__module__}.{function.__qualname__} is a generator function, and a {kind} runs to its end and "
            "returns once: return a list, or enqueue a job for each item"
        )
    found: Callable[..., Any] = function
    return found


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function that is given no other one."""
    if function.__name__ == "<lambda>":
        raise TaskDefinitionError(
            f"a lambda in {function.__module__} has no name by which a worker could find it: write a def, or give name="
        )
    return function.__name__


def _is_method(function: object) -> bool:
    """Return True for a function in the body of a class that takes the object or the class first."""
    code = getattr(function, "__code__", None)
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    first = code.co_varnames[: min(1, code.co_argcount)] if code is not None else ()
    return bool(owner) and not owner.endswith("<locals>") and first in {("self",), ("cls",)}
