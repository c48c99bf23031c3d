"""The fields of an event as plain values by name, for log records of programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeAlias

from redrive.observe.events import Event
from redrive.policy import Failure
from redrive.policy.value import Value
from redrive.visible import visible

__all__ = ["Fact", "facts"]

Fact: TypeAlias = str | int | float | bool | None

# Fields with these names would collide with attributes of log records.
_OTHER_NAMES = {"name": "call"}


def facts(event: Event) -> Iterator[tuple[str, Fact]]:
    """Yield the fields of an event, as names and plain values.

    Texts are escaped (`redrive.visible`), since a log is read on a terminal. Spans become seconds, instants ISO
    8601, an error its repr; a `Failure` becomes ``reason``, ``error_type`` and ``error``. The ``name`` of a call
    becomes ``call``. The text that a sink has left with a job is left out.
    """
    for name in _names(event):
        value = getattr(event, name)
        if isinstance(value, Failure):
            yield from (("reason", value.reason), ("error_type", value.error_type), ("error", _plain(value.message)))
        elif not (name == "trace" or (name == "error" and isinstance(value, BaseException))):
            yield _OTHER_NAMES.get(name, name), _plain(value)


def _names(event: Event) -> Iterator[str]:
    if isinstance(event, Value):
        yield from event.arguments()
    elif is_dataclass(event):
        yield from (field.name for field in fields(event))


def _plain(value: object) -> Fact:
    match value:
        case Enum():
            return value.name
        case str():
            return visible(value)
        case bool() | int() | float() | None:
            return value
        case timedelta():
            return value.total_seconds()
        case datetime():
            return value.isoformat()
        case tuple():
            return visible(", ".join(map(str, value)))
        case _:
            return visible(repr(value))
