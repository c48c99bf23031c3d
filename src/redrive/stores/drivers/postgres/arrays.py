"""Lists as arrays in PostgreSQL's binary form, for psycopg: many numbers or texts in a few steps.

psycopg looks at each element of a list to find out how it is to be written, and writes it by itself. That takes longer
than to make the jobs that are in the list. Most lists here hold numbers, texts or bytes, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar

from psycopg import DataError
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format
from psycopg.types.array import ListBinaryDumper

__all__ = ["ListDumper"]

_HEAD = struct.Struct("!IIIII")
"""Dimensions, whether there are NULLs, the type of the elements, how many, and the number of the first."""

_SIZE = struct.Struct("!I")


class _Array(Dumper):
    format = Format.BINARY
    element: ClassVar[int]

    def dump(self, obj: Sequence[Any]) -> bytes:
        """Write a list of the one type."""
        head = _HEAD.pack(1, 0, self.element, len(obj), 1)
        return head + self._elements(obj)

    def _elements(self, values: Sequence[Any]) -> bytes:
        raise NotImplementedError


class _Numbers(_Array):
    oid, element = 1016, 20  # bigint

    def _elements(self, values: Sequence[int]) -> bytes:
        parts = [8] * (2 * len(values))
        parts[1::2] = values
        try:
            return struct.pack("!" + "iq" * len(values), *parts)
        except struct.error:
            message = "bigint out of range"
            raise DataError(message) from None


class _Blobs(_Array):
    oid, element = 1001, 17  # bytea

    def _elements(self, values: Sequence[bytes]) -> bytes:
        parts = [b""] * (2 * len(values))
        parts[::2] = map(_SIZE.pack, map(len, values))
        parts[1::2] = values
        return b"".join(parts)


class _Texts(_Blobs):
    oid, element = 1009, 25  # text

    def _elements(self, values: Sequence[Any]) -> bytes:
        return super()._elements([value.encode() for value in values])


_KINDS: dict[type, type[_Array]] = {int: _Numbers, bytes: _Blobs, str: _Texts}


def _kind(values: list[Any]) -> type[_Array] | None:
    types = set(map(type, values))
    return _KINDS.get(types.pop()) if len(types) == 1 else None


class ListDumper(ListBinaryDumper):
    """Writes a list of numbers, of texts or of bytes; leaves any other one to psycopg."""

    def get_key(self, obj: list[Any], format: PyFormat) -> Any:  # noqa: A002, ANN401 - as psycopg has it
        """Tell lists apart."""
        kind = _kind(obj)
        return super().get_key(obj, format) if kind is None else (list, kind)

    def upgrade(self, obj: list[Any], format: PyFormat) -> Any:  # noqa: A002, ANN401 - as psycopg has it
        """Find who writes this list."""
        kind = _kind(obj)
        return super().upgrade(obj, format) if kind is None else kind(list, self._tx)
