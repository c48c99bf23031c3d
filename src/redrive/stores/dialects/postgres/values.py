"""How values look in PostgreSQL: as themselves. Both drivers give and take instants, spans and lists.

What is left to do are three things that Python has and PostgreSQL has not: texts with a zero byte in them, lists
within lists (the rows of a statement over arrays are columns, and an array of arrays would be one array), and zones:
an instant is read in UTC whatever the zone of the session.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from redrive.engine import frozen
from redrive.policy import Policy
from redrive.stores.dialects import rng, rows
from redrive.stores.dialects.rows import Decoder
from redrive.stores.query import DRAWN, Query

__all__ = ["Decoder", "arguments", "decoder"]

_PLAIN = frozenset({bool, bytes, datetime, int, timedelta, type(None)})
"""Types whose values PostgreSQL gets as they are."""


def arguments(query: Query, names: Sequence[str]) -> list[Any]:
    """Write the parameters of a statement.

    Args:
        query: with parameters by name; those of a ``many`` become one list for each name.
        names: of the parameters, in the order in which the statement wants them.

    Returns:
        The values in that order.
    """
    if query.many is None:
        return [_value(query.params[name]) for name in names]
    return [_column(query.many, name) for name in names]


def _column(many: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    values = [row[name] for row in many]
    if _PLAIN.issuperset(map(type, values)):
        # Most columns: thousands of values that are not to be looked at one by one.
        return values
    return [_literal(value) if type(value) is list else _value(value) for value in values]


def _value(value: Any) -> Any:  # noqa: ANN401 - that is the question
    if isinstance(value, str):
        # Of a StrEnum too, because drivers look values up by their exact types.
        return str(value).replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else str(value)
    if type(value) is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_value(each) for each in value]
    return rng.number() if value is DRAWN else value


def _literal(numbers: Sequence[int]) -> str:
    """A list of numbers in the words of PostgreSQL."""
    return "{" + ",".join(map(str, numbers)) + "}"


@functools.cache
def decoder(record: type, columns: tuple[str, ...]) -> Decoder:
    """Make the function that reads rows into records.

    Args:
        record: a dataclass or struct whose fields are named like the columns.
        columns: the names of the columns of a row, in order.

    Returns:
        A function from rows to records.
    """
    return rows.decoder(record, columns, _reader)


def _reader(hint: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - a type form
    """Find what turns a column into a value of this type; None where nothing is to be done."""
    if typing.get_origin(hint) is tuple:
        return tuple
    if hint is datetime:
        return _in_utc
    if hint is Policy:
        return frozen.read
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return None


def _in_utc(instant: datetime) -> datetime:
    return instant if instant.tzinfo is UTC else instant.astimezone(UTC)
