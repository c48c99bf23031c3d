"""Descriptions of types, which asyncpg reads from the server."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from redrive.stores.drivers.postgres import aio, parse_url
from tests import postgres


@pytest.mark.parametrize("pooled", [False, True], ids=["own sessions", "pgbouncer"])
def test_the_types_of_postgresql_are_read_once_in_a_process(monkeypatch: pytest.MonkeyPatch, *, pooled: bool):
    """Further connections do not ask the server for the types of arrays, and read and write them as the first one."""
    asked: list[Any] = []
    original = asyncpg.Connection._introspect_types

    async def introspect(self: Any, typeoids: Any, *options: Any) -> Any:
        """Record it."""
        asked.append(typeoids)
        return await original(self, typeoids, *options)

    async def ask() -> list[Any]:
        """Send arrays there and back on three new connections."""
        answers = []
        for _ in range(3):
            connection = await aio.connect(parse_url(postgres.url(pgbouncer="on" if pooled else "off")))
            answers.append(await connection.fetchval("SELECT $1::bigint[] || $2::smallint[]::bigint[]", [1, 2], [3]))
            await connection.close()
        return answers

    monkeypatch.setattr(aio._Connection, "_known", {})
    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", introspect)

    assert [[1, 2, 3]] * 3 == asyncio.run(ask())
    assert 1 == len(asked)


def test_types_of_a_database_are_read_on_each_connection(monkeypatch: pytest.MonkeyPatch):
    """The ids of the user's own types differ between databases, so their descriptions are not kept."""

    async def ask() -> list[Any]:
        """Read a value of an own type on a new connection."""
        connection = await aio.connect(parse_url(postgres.url()))
        await connection.execute("CREATE TYPE pg_temp.colour AS ENUM ('red')")
        answer = await connection.fetchval("SELECT ARRAY['red']::pg_temp.colour[]")
        await connection.close()
        return answer

    monkeypatch.setattr(aio._Connection, "_known", {})

    assert [["red"], {}] == [asyncio.run(ask()), aio._Connection._known]
