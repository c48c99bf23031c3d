"""Descriptions of types, which asyncpg reads from the server."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import pytest

from redrive.stores.drivers.postgres import aio, parse_url
from redrive.stores.statements import loader
from tests import postgres


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the types that asyncpg reads."""
    read: list[Any] = []
    original = asyncpg.Connection._introspect_types

    async def introspect(self: Any, typeoids: Any, *options: Any) -> Any:
        """Record it."""
        read.append(typeoids)
        return await original(self, typeoids, *options)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", introspect)
    return read


def ask(statement: str, *values: Any, **options: str) -> Any:
    """Return the result of a statement on a new connection."""

    async def fetch() -> Any:
        """Open the connection, and close it afterwards."""
        connection = await aio.connect(parse_url(postgres.url(**options)))
        await connection.execute("CREATE TYPE pg_temp.colour AS ENUM ('red')")
        answer = await connection.fetchval(statement, *values)
        await connection.close()
        return answer

    return asyncio.run(fetch())


@pytest.mark.parametrize("bouncer", ["off", "on"])
def test_types_of_arrays_are_not_read(asked: list[Any], bouncer: str):
    """Arrays are written and read without a statement about their types, on any connection."""
    answer = ask("SELECT $1::bigint[] || $2::integer[]::bigint[]", [1, 2], [3], pgbouncer=bouncer)

    assert ([1, 2, 3], []) == (answer, asked)


def test_types_of_a_database_are_read(asked: list[Any]):
    """The ids of the user's own types differ between databases, so each connection reads them."""
    assert ["red"] == ask("SELECT ARRAY['red']::pg_temp.colour[]")
    assert 1 == len(asked)


@pytest.mark.parametrize("oid", sorted(aio._ARRAYS))
def test_a_type_of_arrays_is_described_as_the_server_does(oid: int):
    """The description is the one that the statement of asyncpg returns."""

    async def described() -> list[dict[str, Any]]:
        """Read it from the server."""
        connection = await asyncpg.connect(host=postgres.server(), user="postgres", database="postgres")
        types, _ = await connection._introspect_types([oid], None)
        await connection.close()
        return [dict(each) for each in types]

    assert aio.array_type(oid) in asyncio.run(described())


def test_all_arrays_in_statements_are_described():
    """Each type of arrays in a statement is one that asyncpg has, or has a description."""
    texts = loader.statements("postgres").values()
    used = {name for text in texts for name in re.findall(r"::([a-z ]+)\[\]", text)}

    assert "bigint" in used
    assert used - {"text"} <= {aio.array_type(oid)["elemtype_name"] for oid in aio._ARRAYS} | {"timestamptz"}
