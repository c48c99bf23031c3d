"""Reads rows into records, for all dialects."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Decoder: TypeAlias = Callable[[Sequence[Sequence[Any]]], list[Any]]
Reader: TypeAlias = Callable[[Any], Callable[[Any], Any] | None]


# A row becomes a record by the types of the record's fields. Columns are matched by name, so a statement may list them
# in any order, and one that lacks a column fails at its first use, in the tests.
def decoder(record: type, columns: tuple[str, ...], reader: Reader) -> Decoder:
    """Return the function that reads rows into records, a dataclass or struct with fields named like the columns.

    ``reader`` returns the function that converts a column to the type of a field, or None if it needs no conversion.
    """
    hints = typing.get_type_hints(record)
    fields = [(columns.index(name), reader(_bare(hints[name]))) for name in inspect.signature(record).parameters]

    def read(rows: Sequence[Sequence[Any]]) -> list[Any]:
        if not rows:
            return []
        by_column = list(zip(*rows, strict=True))
        values = [by_column[place] if step is None else _stepped(step, by_column[place]) for place, step in fields]
        return list(map(record, *values))

    return read


def _stepped(step: Callable[[Any], Any], column: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else step(value) for value in column]


def _bare(hint: Any) -> Any:  # noqa: ANN401 - a type form
    """Return the type without ``| None``."""
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in hint.__args__ if each is not types.NoneType)
    return hint
