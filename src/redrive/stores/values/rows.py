"""Reads rows into records, for all dialects."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from redrive.engine import frozen
from redrive.policy import Policy

Decoder: TypeAlias = Callable[[Sequence[Sequence[Any]]], list[Any]]
Converters: TypeAlias = Mapping[type, Callable[[Any], Any]]


# A row becomes a record by the types of the record's fields. Columns are matched by name, so a statement may list them
# in any order, and one that lacks a column fails at its first use, in the tests.
def decoder(record: type, columns: tuple[str, ...], converters: Converters) -> Decoder:
    """Return the function that reads rows into records, a dataclass or struct with fields named like the columns.

    ``converters`` are the functions that convert a column to the type of a field; other types need no conversion.
    """
    hints = typing.get_type_hints(record)
    names = inspect.signature(record).parameters
    fields = [(columns.index(name), _converter(hints[name], converters)) for name in names]

    def read(rows: Sequence[Sequence[Any]]) -> list[Any]:
        if len(rows) == 1:
            # A quarter of the time of what follows, which reads each column at once.
            (row,) = rows
            return [record(*[row[place] if step is None else _converted(step, row[place]) for place, step in fields])]
        if not rows:
            return []
        by_column = list(zip(*rows, strict=True))
        values = [by_column[place] if step is None else _stepped(step, by_column[place]) for place, step in fields]
        return list(map(record, *values))

    return read


def _stepped(step: Callable[[Any], Any], column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else step(value) for value in column]


def _converted(step: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401 - a column of any type
    return None if value is None else step(value)


def _converter(hint: Any, converters: Converters) -> Callable[[Any], Any] | None:  # noqa: ANN401 - a type form
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in hint.__args__ if each is not types.NoneType)
    kind = typing.get_origin(hint) or hint
    if kind is Policy:
        return frozen.read
    if issubclass(kind, msgspec.Struct):
        return msgspec.json.Decoder(kind).decode
    return kind if issubclass(kind, StrEnum) else converters.get(kind)
