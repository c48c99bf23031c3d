"""Reads rows into records, whatever the dialect.

A row becomes a record by the types of the record's fields: the columns are matched by name, so a statement may list
them in any order, and one that lacks a column fails at its first use, in the tests.
"""

from __future__ import annotations

import inspect
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

__all__ = ["Decoder", "Reader", "decoder"]

Decoder: TypeAlias = Callable[[Sequence[Any]], Any]
Reader: TypeAlias = Callable[[Any], Callable[[Any], Any] | None]


def decoder(record: type, columns: tuple[str, ...], reader: Reader) -> Decoder:
    """Make the function that reads a row into a record.

    Args:
        record: a dataclass or struct whose fields are named like the columns.
        columns: the names of the row's columns, in order.
        reader: finds, for the type of a field, what turns a column into such a value; None where nothing is to be done.

    Returns:
        A function from a row to the record.
    """
    hints = typing.get_type_hints(record)
    names = list(inspect.signature(record).parameters)
    pick = _picker([columns.index(name) for name in names])
    steps = [(i, step) for i, name in enumerate(names) if (step := reader(_bare(hints[name])))]

    def read(row: Sequence[Any]) -> Any:  # noqa: ANN401 - an instance of `record`
        # Once for every job that is claimed: most columns are values already, so only the others are looked at.
        values = list(pick(row))
        for i, step in steps:
            value = values[i]
            if value is not None:
                values[i] = step(value)
        return record(*values)

    return read


def _picker(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if len(places) == 1:
        # Of a single index, itemgetter answers the bare value.
        return lambda row: (row[places[0]],)
    return operator.itemgetter(*places)


def _bare(hint: Any) -> Any:  # noqa: ANN401 - a type form
    """The type without ``| None``."""
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in hint.__args__ if each is not types.NoneType)
    return hint
