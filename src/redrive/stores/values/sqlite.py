"""The representation of values in SQLite: instants and spans are whole microseconds, lists are JSON."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from redrive.stores.query import Drawn
from redrive.stores.values import rng, rows
from redrive.stores.values.rows import Decoder

Value: TypeAlias = str | int | float | bytes | None

# The approximate largest size of one JSON object, in bytes. SQLite allows a billion; this limits memory.
MOST = 16_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(instant: datetime) -> int:
    """Return an aware instant as microseconds since 1970 in UTC."""
    return (instant - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return microseconds since 1970 as an instant in UTC."""
    return _EPOCH + timedelta(0, 0, micros)


# Cached because the rows of one claim have the same instants.
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
    """Return parameters with values that sqlite3 can bind."""
    return {
        name: convert(value) if (convert := _ENCODERS.get(type(value))) else value for name, value in params.items()
    }


def pairs(many: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the parameters of a statement that takes all at once: JSON objects of limited size."""
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


@functools.cache
def decoder(record: type, columns: tuple[str, ...]) -> Decoder:
    """Return the function that reads rows with these columns into records."""
    return rows.decoder(
        record, columns, {tuple: _list, list: msgspec.json.decode, datetime: _instant, timedelta: _span, bool: bool}
    )
