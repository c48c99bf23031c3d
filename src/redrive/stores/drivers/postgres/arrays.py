"""A fast dumper of lists as binary arrays, for psycopg."""

# psycopg chooses a dumper for each element of a list and calls it. That takes longer than creating the jobs in the
# list. Most lists of redrive contain only numbers, only texts or only bytes.

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar

from psycopg import DataError
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format
from psycopg.types.array import ListBinaryDumper

# The number of dimensions, the flag for NULLs, the type of the elements, their number, and the index of the first.
_HEAD = struct.Struct("!IIIII")

_SIZE = struct.Struct("!I")


class _Array(Dumper):
    format = Format.BINARY
    element: ClassVar[int]

    def dump(self, obj: Sequence[Any]) -> bytes:
        """Return a list of one type as a binary array."""
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
            raise DataError("bigint out of range") from None


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
    """A dumper of lists of numbers, of texts or of bytes; psycopg dumps any other list."""

    def get_key(self, obj: list[Any], format: PyFormat) -> Any:  # noqa: A002, ANN401 - as psycopg has it
        """Return the key of a list for psycopg's cache."""
        kind = _kind(obj)
        return super().get_key(obj, format) if kind is None else (list, kind)

    def upgrade(self, obj: list[Any], format: PyFormat) -> Any:  # noqa: A002, ANN401 - as psycopg has it
        """Return the dumper for this list."""
        kind = _kind(obj)
        return super().upgrade(obj, format) if kind is None else kind(list, self._tx)
