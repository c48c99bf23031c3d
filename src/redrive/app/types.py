"""Annotations of tasks: which of them JSON can be read as, and which hold times."""

# ruff: noqa: ANN401 - annotations and values of the user may have any type

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from datetime import datetime, time, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import msgspec.inspect

_ITEMS = (list, tuple, set, frozenset)


def type_name(hint: Any) -> str:
    """Return the name of a class without its module, or the text of another type form."""
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def unsupported(hint: Any) -> str | None:
    """Return why JSON cannot be read as a type; None if it can."""
    try:
        found = [part.cls for part in _parts(hint) if isinstance(part, msgspec.inspect.CustomType)]
    except TypeError as error:
        return str(error)
    for kind in found:
        if kind not in (object, ZoneInfo) and not hasattr(kind, "model_validate"):
            return (
                f"{type_name(kind)} cannot be read from JSON: use a dataclass, a struct, a TypedDict, a list or a dict"
            )
    return None


def holds_time(hint: Any) -> bool:
    """Return True if values of a type may hold a time of day with a time zone."""
    try:
        return any(
            isinstance(part, msgspec.inspect.DateTimeType | msgspec.inspect.TimeType)
            or (isinstance(part, msgspec.inspect.CustomType) and hasattr(part.cls, "model_validate"))
            for part in _parts(hint)
        )
    except TypeError:
        return False


def _parts(hint: Any) -> Iterator[object]:
    """Yield a type and the types in it, each once, as msgspec describes them."""
    left: list[Any] = [msgspec.inspect.type_info(hint)]
    seen: set[int] = set()
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            left.extend(part)
        elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            yield part
            left.extend(getattr(part, name) for name in part.__struct_fields__)


def lost_zone(value: Any) -> tzinfo | None:
    """Return the first time zone with changing offsets in a value: JSON keeps only an offset."""
    if isinstance(value, datetime | time):
        zone = value.tzinfo
        return None if zone is None or zone.utcoffset(None) is not None else zone
    return next((zone for zone in map(lost_zone, _inside(value)) if zone is not None), None)


def _inside(value: Any) -> Iterator[Any]:
    """Yield the values in a container, a dataclass, a struct or a model."""
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, _ITEMS):
        yield from value
    else:
        kind = type(value)
        # Those of msgspec, dataclasses and pydantic are names, and those of attrs have one.
        for name in ("__struct_fields__", "__dataclass_fields__", "model_fields", "__attrs_attrs__"):
            for each in getattr(kind, name, ()):
                yield getattr(value, each if isinstance(each, str) else each.name, None)
