"""The representation of values in PostgreSQL. Both drivers pass and return instants, spans and lists as they are."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from redrive.stores.query import DRAWN, Query
from redrive.stores.values import rng, rows
from redrive.stores.values.rows import Decoder

# Three kinds of values need a conversion: texts with a zero byte, which PostgreSQL refuses; lists within lists, because
# the parameters of a statement over arrays are columns, and an array of arrays would be one array; and instants, which
# are read in UTC independent of the time zone of the session.
#
# Types with values that are passed as they are.
_PLAIN = frozenset({bool, bytes, datetime, int, timedelta, type(None)})


def arguments(query: Query, names: Sequence[str], more: Mapping[str, Any]) -> list[Any]:
    """Return the parameters of a query in the order of `names`; ``more`` has the parameters that the driver adds.

    Those of ``many`` become one JSON document if the only name is ``rows``, and otherwise one list for each name.
    """
    if query.many is None:
        given = {**more, **query.params}
        return [
            value
            if (kind := type(value := given[name])) in _PLAIN or (kind is str and "\0" not in value)
            else _value(value)
            for name in names
        ]
    if tuple(names) == ("rows",):
        return [_document(query.many)]
    return [_column(query.many, name) for name in names]


# PostgreSQL refuses the escape of a zero byte, too. A backslash before the escape is a part of the text if it is the
# second one of a pair.
_ZERO = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


def _document(many: Sequence[Mapping[str, Any]]) -> str:
    """Return parameters as a JSON array of objects; bytes are written in base64."""
    raw = msgspec.json.encode(many)
    return (_ZERO.sub(rb"\1\\ufffd", raw) if b"\\u0000" in raw else raw).decode()


def _column(many: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    values = [row[name] for row in many]
    if _PLAIN.issuperset(map(type, values)):
        # Most columns: thousands of values need no conversion one by one.
        return values
    return [_literal(value) if type(value) is list else _value(value) for value in values]


def _value(value: object) -> Any:  # noqa: ANN401 - a value of any type
    if isinstance(value, str):
        # A StrEnum becomes a str, because drivers select the encoder by the exact type.
        return str(value).replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else str(value)
    if type(value) is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_value(each) for each in value]
    return rng.number() if value is DRAWN else value


def _literal(numbers: Sequence[int]) -> str:
    """Return a list of numbers as an array literal."""
    return "{" + ",".join(map(str, numbers)) + "}"


@functools.cache
def decoder(record: type, columns: tuple[str, ...]) -> Decoder:
    """Return the function that reads rows with these columns into records."""
    return rows.decoder(record, columns, {tuple: tuple, datetime: _in_utc})


def _in_utc(instant: datetime) -> datetime:
    return instant if instant.tzinfo is UTC else instant.astimezone(UTC)
