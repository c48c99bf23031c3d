"""A table of the test's own, and each library in front of the real PostgreSQL."""

# ruff: noqa: S608 - the names in the statements are those of the tests' own tables

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests import postgres
from tests.contrib.transactions.libraries import KINDS, Library
from tests.proxy import Proxy


class Table:
    """A table of numbers, and a connection beside the one that is tested."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.name = postgres.fresh()
        self.connection = connection
        self.ask(f"CREATE TABLE {self.name} (n integer)")

    def ask(self, statement: str) -> list[tuple]:
        """Run a statement beside."""
        cursor = self.connection.execute(statement)
        return cursor.fetchall() if cursor.description else []

    @property
    def insert(self) -> str:
        """Return the statement that adds a row."""
        return f"INSERT INTO {self.name} VALUES (1)"

    @property
    def rows(self) -> list[int]:
        """Return the committed rows."""
        return [row[0] for row in self.ask(f"SELECT n FROM {self.name} ORDER BY n")]

    def kill(self) -> None:
        """End the sessions that are tested, and wait until they are gone."""
        found = f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = '{self.name}'"
        assert self.ask(found), "there is no session to be killed"


@pytest.fixture
def table() -> Iterator[Table]:
    """Create a table for one test."""
    with postgres.connect() as connection:
        yield Table(connection)
        connection.execute("SELECT 1")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Start a proxy that cuts connections to the server."""
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return each library, unless a test chooses one."""
    return request.param


@pytest.fixture
def library(kind: str, table: Table) -> Library:
    """Return a library with a direct connection to the server."""
    return Library(kind, postgres.server(), 5432, table.name)


@pytest.fixture
def far(kind: str, table: Table, proxy: Proxy) -> Library:
    """Return a library with a connection through the proxy."""
    return Library(kind, proxy.host, proxy.port, table.name)
