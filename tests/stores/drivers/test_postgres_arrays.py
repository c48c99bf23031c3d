"""Lists in PostgreSQL's binary form: the server reads them as what they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from redrive.errors import StoreError
from redrive.stores.drivers.postgres.settings import parse_url
from redrive.stores.drivers.postgres.sync import connect
from redrive.stores.opening import open_store
from redrive.stores.operations import workers
from tests import postgres


@pytest.fixture(name="cursor", scope="module")
def _cursor() -> Iterator[psycopg.RawCursor[Any]]:
    """Return a cursor on a connection of the store."""
    with connect(parse_url(postgres.url())) as connection:
        yield psycopg.RawCursor(connection)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [1, -1, 0, 2**63 - 1, -(2**63)]),
        ("integer", [1, 2]),
        ("bigint", [1, None, 3]),
        ("bigint", []),
        ("text", ["", "a", "NULL", '"\\{},', "ü\u2028"]),
        ("text", [None, "a"]),
        ("text", [None, None]),
        ("bytea", [b"", b"\x00\xff", b"{}"]),
        ("bytea", [None, b"a"]),
        ("boolean", [True, False]),
        ("timestamptz", [datetime(2026, 1, 1, tzinfo=UTC)]),
    ],
)
def test_a_list_arrives_as_it_was(cursor: psycopg.RawCursor[Any], kind: str, values: list[Any]):
    """Numbers, texts and bytes are written in bulk, and every other list as psycopg does."""
    cursor.execute(f"SELECT $1::{kind}[]", [values], binary=True)

    assert (values,) == cursor.fetchone()


def test_a_number_out_of_range_raises():
    """Numbers in a list that are too large raise an error of their operation."""
    store = open_store(postgres.url())
    with pytest.raises(StoreError, match="bigint out of range"):
        store.run(workers.give_back(1, [2**63], "test"))
    store.close()
