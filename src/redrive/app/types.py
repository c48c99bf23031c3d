"""Annotations of tasks: which of them JSON can be read as, which hold times, and what JSON changes in their values."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, time, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import msgspec.inspect

from redrive.app.arguments import shown

_ITEMS = (list, tuple, set, frozenset)

_OPEN = (Any, object, str, dict, list, tuple, set, frozenset)
"""Annotations under which JSON may change a value: they leave its type open, or JSON writes the type as text."""


def type_name(hint: object) -> str:
    """Return the name of a class without its module, or the text of another type form."""
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def members_of(hint: object) -> tuple[Any, ...]:
    """Return the types of a union; of another type that one."""
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return typing.get_args(hint) if is_union else (hint,)


def covers(hint: object, kind: object) -> bool:
    """Return True if each value of a type is one of another type, which may be a union with it."""
    wanted = members_of(hint)
    return all(each in wanted for each in members_of(kind))


def unsupported(hint: object) -> str | None:
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


def holds_time(hint: object) -> bool:
    """Return True if values of a type may hold a time of day with a time zone."""
    try:
        return any(
            isinstance(part, msgspec.inspect.DateTimeType | msgspec.inspect.TimeType)
            or (isinstance(part, msgspec.inspect.CustomType) and hasattr(part.cls, "model_validate"))
            for part in _parts(hint)
        )
    except TypeError:
        return False


def is_open(hint: object) -> bool:
    """Return True if an annotation, or an argument of it, leaves the type open."""
    parts = typing.get_args(hint)
    return any(map(is_open, parts)) if parts else (typing.get_origin(hint) or hint) in _OPEN


def may_change(hint: object) -> bool:
    """Return True if an annotation, or that of a field of a class in it, leaves open what JSON may change."""
    try:
        kinds = {type(part) for part in _parts(hint)}
    except TypeError:
        return False
    numbers = {msgspec.inspect.FloatType, msgspec.inspect.NoneType}
    return is_open(hint) or bool(kinds & _CHANGING) or numbers <= kinds


_CHANGING = {msgspec.inspect.AnyType, msgspec.inspect.StrType, msgspec.inspect.CustomType}


class Change(NamedTuple):
    """A part of a value that JSON has changed.

    Attributes:
        place: of the part, as in ``.lines[0]``; "" for the value itself.
        before: the part as it was given.
        after: the part as it arrives.
    """

    place: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return self.with_advice("annotate it with what it is")

    def with_advice(self, advice: str) -> str:
        """Return the place, both values and what the caller can do."""
        where = f"{self.place.removeprefix('.')}: " if self.place else ""
        if isinstance(self.before, float) and self.after is None:
            advice = "JSON has no such number"
        return f"{where}{shown(self.before)} becomes {shown(self.after)}; {advice}"


class Loss(Change):
    """A part of a document that has more members or items than what is read from it."""

    __slots__ = ()

    def __str__(self) -> str:
        lost = "items are"
        if isinstance(self.before, dict):
            names = [name for name in self.before if name not in self.after]
            lost = f"{', '.join(map(repr, names))} {'is' if len(names) == 1 else 'are'}"
        return self.with_advice(f"{lost} lost: annotate it with what it is")


def change(hint: object, before: object, after: object, place: str = "") -> Change | None:
    """Return the first part of a value that arrives as another one, although its annotation does not say so.

    Args:
        hint: the annotation under which the value was read; that of a part without one of its own is closed.
        before: the value as it was given.
        after: the value as it was read from JSON.
        place: of the value in a larger one.
    """
    if _equal(before, after):
        return None
    found = next(_changes_inside(hint, before, after, place), None)
    if found is None and (is_open(hint) or (isinstance(before, float) and after is None)):
        return Change(place, before, after)
    return found


def _changes_inside(hint: Any, before: Any, after: Any, place: str) -> Iterator[Change]:
    """Yield the changes in a container, a dataclass, a struct or a model that has kept its class and its length."""
    parts: list[tuple[Any, Any, Any, str]] = []
    own: Mapping[str, Any] = {}
    # The items of a container that is open, such as a list, are open as well.
    inner = Any if is_open(hint) else None
    if isinstance(before, Mapping):
        if isinstance(after, Mapping) and before.keys() == after.keys():
            own = _hints(hint) if typing.is_typeddict(hint) else own
            parts = [(own.get(key, inner), before[key], after[key], f"{place}[{key!r}]") for key in before]
    elif type(before) is type(after):
        names = tuple(_fields(type(before)))
        own = _hints(type(before)) if names else own
        parts = [
            (own.get(name, Any), getattr(before, name, None), getattr(after, name, None), f"{place}.{name}")
            for name in names
        ]
        if not names and isinstance(before, list | tuple) and len(before) == len(after):
            pairs = enumerate(zip(before, after, strict=True))
            parts = [(inner, one, other, f"{place}[{n}]") for n, (one, other) in pairs]
    changes = (change(*part) for part in parts)
    yield from (each for each in changes if each is not None)


def _hints(kind: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return {}


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - a comparison of the user may raise anything
        return False


def unwritable(value: object, place: str = "") -> Change | None:
    """Return the first part of a value that JSON can only change, whatever class its reader asks for.

    These are numbers that JSON does not have, bytes, and sets. What belongs to a field of a class is as it is declared.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return Change(place, value, None)
    if isinstance(value, bytes | bytearray | memoryview | set | frozenset):
        return Change(place, value, msgspec.json.decode(msgspec.json.encode(value)))
    names = tuple(_fields(type(value)))
    pairs: Iterable[tuple[str, Any]] = ()
    if names:
        own = _hints(type(value))
        pairs = ((f"{place}.{name}", getattr(value, name, None)) for name in names if is_open(own.get(name, Any)))
    elif isinstance(value, Mapping):
        pairs = ((f"{place}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        pairs = ((f"{place}[{number}]", part) for number, part in enumerate(value))
    return next((found for where, part in pairs if (found := unwritable(part, where)) is not None), None)


_CLASSES = (
    msgspec.inspect.DataclassType
    | msgspec.inspect.StructType
    | msgspec.inspect.TypedDictType
    | msgspec.inspect.NamedTupleType
)


def may_lose(hint: object) -> bool:
    """Return True if a type has a class, so that a value may have more members than are read."""
    try:
        parts = list(_parts(hint))
    except TypeError:
        return False
    models = [part.cls for part in parts if isinstance(part, msgspec.inspect.CustomType)]
    # The members of a mapping that is given for such a model have other names than those that the model writes.
    if any(map(_has_own_names, models)):
        return False
    return any(isinstance(part, _CLASSES) for part in parts) or any(hasattr(kind, "model_validate") for kind in models)


def _has_own_names(kind: object) -> bool:
    """Return True if a pydantic model, or a model in it, reads members of other names than it writes."""
    left, seen = [kind], set()
    while left:
        part = left.pop()
        left += typing.get_args(part)
        fields = getattr(part, "model_fields", None)
        if isinstance(fields, Mapping) and part not in seen:
            seen.add(part)
            if _converts(part) or any(each.alias or each.validation_alias or each.exclude for each in fields.values()):
                return True
            left += [each.annotation for each in fields.values()]
    return False


def _converts(model: Any) -> bool:
    """Return True if a pydantic model has functions that see its document before it is read, or write it."""
    own = model.__pydantic_decorators__
    return bool(own.model_serializers) or any(each.info.mode != "after" for each in own.model_validators.values())


def left_out(hint: object) -> frozenset[str]:
    """Return the names of the members that a class in a type may write, and does not after it was read."""
    names: set[str] = set()
    for part in _parts(hint):
        if isinstance(part, msgspec.inspect.StructType):
            # Of a generic class, the type has an alias. Members with their defaults may be left out.
            if (typing.get_origin(part.cls) or part.cls).__struct_config__.omit_defaults:
                names.update(field.encode_name for field in part.fields)
        elif isinstance(part, msgspec.inspect.DataclassType) and hasattr(part.cls, "__attrs_attrs__"):
            # msgspec writes all that an instance of an attrs class has, also the cached value of a property.
            names.update({*dir(part.cls)} - {field.encode_name for field in part.fields})
    return frozenset(names)


def loss(before: Any, after: Any, optional: Collection[str], place: str = "") -> Loss | None:
    """Return the first part of a document with a member or an item that another document has not.

    Args:
        before: the document as it was written.
        after: the document as it is written of what was read from it. Other values, and more members, are no loss.
        optional: the names of members that may be missing; see `left_out`.
        place: of the document in a larger one.
    """
    if before == after:
        return None
    if isinstance(before, dict) and isinstance(after, dict):
        missing, added = before.keys() - after.keys() - {*optional}, after.keys() - before.keys()
        # What is no name is the key of a mapping, which JSON may write in another way, such as 1 and 1.0.
        if any(map(str.isidentifier, missing)) or len(missing) > len(added):
            return Loss(place, before, after)
        parts = ((before[key], after[key], f"{place}[{key!r}]") for key in before if key in after)
    elif isinstance(before, list) and isinstance(after, list):
        # The items of a set have no order, and it has each of them once.
        if any(item not in after for item in before[len(after) :]):
            return Loss(place, before, after)
        parts = (
            (one, other, f"{place}[{number}]")
            for number, (one, other) in enumerate(zip(before, after, strict=False))
            if one != other and one not in after
        )
    else:
        return None
    changes = (loss(one, other, optional, where) for one, other, where in parts)
    return next((each for each in changes if each is not None), None)


def _parts(hint: object) -> Iterator[object]:
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


def lost_zone(value: object) -> tzinfo | None:
    """Return the first time zone with changing offsets in a value: JSON keeps only an offset."""
    if isinstance(value, datetime | time):
        zone = value.tzinfo
        return None if zone is None or zone.utcoffset(None) is not None else zone
    return next((zone for zone in map(lost_zone, _inside(value)) if zone is not None), None)


def no_number(value: object) -> float | None:
    """Return the first number in a value for which JSON has only null: infinite, or not a number."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    return next((found for found in map(no_number, _inside(value)) if found is not None), None)


def _inside(value: object) -> Iterator[Any]:
    """Yield the values in a container, a dataclass, a struct or a model."""
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, _ITEMS):
        yield from value
    else:
        for name in _fields(type(value)):
            yield getattr(value, name, None)


def _fields(kind: type) -> Iterator[str]:
    """Yield the names of the fields of a struct, a dataclass, a model, a named tuple or a class of attrs."""
    for declared in ("__struct_fields__", "__dataclass_fields__", "model_fields", "_fields", "__attrs_attrs__"):
        # Those of attrs are objects.
        for each in getattr(kind, declared, ()):
            yield each if isinstance(each, str) else each.name
