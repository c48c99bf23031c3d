"""A store whose documents are encoded on their way into the database, and decoded on their way out.

Operations see documents as they are without a codec: digests, tags and keys are made of them, and comparisons hold.
This is the only place that calls the codec.

A document that the codec cannot decode, or for which it returns no bytes, is handed out as it is stored, so that one of
them stops no statement about others. Its readers raise `redrive.errors.PayloadEncoded`, and workers keep such jobs
waiting.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import structs

from redrive.app.types import type_name
from redrive.engine.records import ENCODED
from redrive.engine.runs import StepKind
from redrive.errors import CodecError
from redrive.observe import logs
from redrive.stores.query import Compound, Operation, Query, Rows, Statements
from redrive.stores.store import AsyncStoreTransaction, Store, StoreTransaction
from redrive.stores.urls import redacted

_log = logs.logger("redrive.stores")

# The parameters that hold documents of the user.
_DOCUMENTS = ("payload", "result", "set_values", "data", "timeout_payload")

# Rows of a run whose results are of redrive itself: screens read them without a key.
_OWN = frozenset({StepKind.UNDO, StepKind.GATHER, StepKind.PATCH, StepKind.CANCEL, StepKind.SLEEP})

# What is written out of the database, as into an archive, stays encoded.
_AS_STORED = frozenset({"entries"})

# An encoded document, which may be a part of another one. In a text of JSON, its quotation marks would be escaped.
_FOUND = re.compile(rb'\{"redrive:encoded":("(?:[^"\\]|\\.)*")\}')


class Codec(Protocol):
    """Encodes the documents of an app, for example by encryption; the argument ``codec=`` of `redrive.App`.

    The methods are called in any thread, often in a transaction: they must be fast and must not wait.
    """

    def encode(self, document: bytes) -> str:
        """Return a document, which is JSON, as a text."""

    def decode(self, text: str) -> bytes:
        """Return the document of a text; raise any exception if that is not possible, as with another key."""


class CodedStore:
    """A store with a codec. Members that are not named here are those of the store."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store, self._codec = store, codec
        self._warned = False

    def __getattr__(self, name: str) -> Any:
        """Return another member of the store."""
        return getattr(self._store, name)

    def run(self, operation: Operation[Any], **options: Any) -> Any:
        """Run an operation; see `Store.run`."""
        return self._store.run(self.coded(operation), **options)

    async def arun(self, operation: Operation[Any], **options: Any) -> Any:
        """Run an operation; see `Store.arun`."""
        return await self._store.arun(self.coded(operation), **options)

    def begin(self, asked: Operation[bool] | None = None) -> Any:
        """Begin a transaction; see `Store.begin`."""
        return _Transaction(self._store.begin(asked), self)

    async def abegin(self, asked: Operation[bool] | None = None) -> Any:
        """Begin a transaction; see `Store.abegin`."""
        return _AsyncTransaction(await self._store.abegin(asked), self)

    def coded(self, operation: Operation[Any]) -> Operation[Any]:
        """Return an operation whose documents are encoded and decoded."""
        if operation.name in _AS_STORED:
            return operation
        return structs.replace(operation, steps=self._steps(operation.steps))

    def _steps(self, steps: Statements[Any]) -> Statements[Any]:
        try:
            query = next(steps)
            while True:
                try:
                    rows = yield self._encoded(query)
                except Exception as error:  # noqa: BLE001 - the operation may handle it
                    query = steps.throw(error)
                else:
                    query = steps.send(self._decoded(rows))
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    # ---------------------------------------------------------------- into the database

    def _encoded(self, query: Query | Compound) -> Query | Compound:
        if isinstance(query, Compound):
            return Compound(tuple(self._query(each) for each in query.queries))
        return self._query(query)

    def _query(self, query: Query) -> Query:
        if query.many is not None:
            return structs.replace(query, many=[self._params(each) for each in query.many])
        return structs.replace(query, params=self._params(query.params))

    def _params(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if params.get("kind") in _OWN:
            return params
        changed = {
            name: self._encode(params[name])
            for name in _DOCUMENTS
            if type(params.get(name)) is bytes and not params[name].startswith(ENCODED)
        }
        return {**params, **changed} if changed else params

    def _encode(self, document: bytes) -> bytes:
        try:
            text = self._codec.encode(document)
        except Exception as error:
            # The codec is the user's and may raise anything.
            raise CodecError(f"{self._refused}: {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise CodecError(f"{self._refused}: encode() returned {type_name(type(text))}, and must return a str")
        return ENCODED + msgspec.json.encode(text) + b"}"

    @property
    def _refused(self) -> str:
        return f"the codec of the app ({self._name}) could not encode a document, and nothing was written"

    @property
    def _name(self) -> str:
        return type_name(type(self._codec))

    # ---------------------------------------------------------------- out of the database

    def _decoded(self, rows: Rows) -> Rows:
        if not rows:
            return rows
        kind = type(rows[0])
        if not issubclass(kind, msgspec.Struct):
            # Tuples, or rows of a driver that are sequences.
            return [self._tuple(row) for row in rows]
        names = _documents(kind)
        return [self._record(row, names) for row in rows] if names else rows

    def _tuple(self, row: Sequence[Any]) -> Sequence[Any]:
        if not any(type(each) is bytes and ENCODED in each for each in row):
            return row
        values = [self._decode(each) if type(each) is bytes else each for each in row]
        return type(row)(*values) if hasattr(row, "_fields") else tuple(values)

    def _record(self, row: Any, names: Sequence[str]) -> Any:
        changed = {
            name: self._decode(value)
            for name in names
            if type(value := getattr(row, name)) is bytes and ENCODED in value
        }
        return structs.replace(row, **changed) if changed else row

    def _decode(self, document: bytes) -> bytes:
        return _FOUND.sub(self._plain, document)

    def _plain(self, found: re.Match[bytes]) -> bytes:
        try:
            document: object = self._codec.decode(msgspec.json.decode(found[1], type=str))
        except Exception as error:  # noqa: BLE001 - the codec is the user's and may raise anything
            return self._undecoded(found[0], type(error).__name__)
        if not isinstance(document, bytes):
            why = f"decode() returned {type_name(type(document))}, and must return bytes"
            return self._undecoded(found[0], why)
        return document

    def _undecoded(self, stored: bytes, why: str) -> bytes:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s: the codec of the app (%s) cannot decode a stored document (%s); jobs with such documents wait "
                "for a process that can. This is logged once",
                redacted(self._store.url),
                self._name,
                why,
            )
        return stored


class _Transaction:
    def __init__(self, transaction: StoreTransaction, store: CodedStore) -> None:
        self._transaction, self._coded = transaction, store.coded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def run(self, operation: Operation[Any]) -> Any:
        return self._transaction.run(self._coded(operation))


class _AsyncTransaction:
    def __init__(self, transaction: AsyncStoreTransaction, store: CodedStore) -> None:
        self._transaction, self._coded = transaction, store.coded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    async def run(self, operation: Operation[Any]) -> Any:
        return await self._transaction.run(self._coded(operation))


@functools.cache
def _documents(kind: type) -> tuple[str, ...]:
    """Return the fields of a record that may hold a document."""
    hints = typing.get_type_hints(kind)
    return tuple(name for name, hint in hints.items() if hint is bytes or bytes in typing.get_args(hint))
