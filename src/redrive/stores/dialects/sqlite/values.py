"""How values look in SQLite: instants and spans are whole microseconds, lists are JSON."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from redrive.engine import frozen
from redrive.policy import Policy
from redrive.stores.dialects import rng, rows
from redrive.stores.dialects.rows import Decoder
from redrive.stores.query import Drawn

__all__ = ["Decoder", "decoder", "encode", "from_micros", "pairs", "to_micros"]

Value: TypeAlias = str | int | float | bytes | None

MOST = 16_000_000
"""Bytes in one JSON object, roughly. SQLite takes texts of a billion, but nobody has memory to waste."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(instant: datetime) -> int:
    """Write an instant.

    Args:
        instant: aware.

    Returns:
        Microseconds since 1970 in UTC.
    """
    return (instant - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Read an instant.

    Args:
        micros: microseconds since 1970 in UTC.

    Returns:
        The instant, aware, in UTC.
    """
    return _EPOCH + timedelta(0, 0, micros)


# The rows of one claim have the same instants.
_instant = functools.lru_cache(maxsize=1024)(from_micros)


def _span(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


@functools.lru_cache(maxsize=1024)
def _list(text: str) -> tuple[Any, ...]:
    return tuple(msgspec.json.decode(text))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_ENCODERS: dict[type, Callable[[Any], Value]] = {
    datetime: to_micros,
    timedelta: lambda span: span // _MICROSECOND,
    list: _json,
    Drawn: lambda _: rng.number(),
}


def encode(params: Mapping[str, Any]) -> dict[str, Value]:
    """Write parameters as SQLite wants them.

    Args:
        params: by name.

    Returns:
        The same names, with values that sqlite3 can bind.
    """
    return {name: _encode(value) for name, value in params.items()}


def pairs(many: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write the parameters of a statement that takes them all at once: for each row a number, and JSON as bytes.

    Args:
        many: such rows, by name.

    Returns:
        JSON objects, from the numbers to the texts: one, unless it would become very large.
    """
    written: dict[int, str] = {}
    size = 0
    for row in many:
        number, document = row.values()
        written[number] = document.decode()
        size += len(document)
        if size >= MOST:
            yield _json(written)
            written, size = {}, 0
    if written:
        yield _json(written)


def _encode(value: Any) -> Value:  # noqa: ANN401 - that is the question
    convert = _ENCODERS.get(type(value))
    return convert(value) if convert else value


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
        return _list
    if hint is datetime:
        return _instant
    if hint is timedelta:
        return _span
    if hint is bool:
        return bool
    if hint is Policy:
        return frozen.read
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return None
