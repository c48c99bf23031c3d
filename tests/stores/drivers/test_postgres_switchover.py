"""PostgreSQL servers that become read-only: no session of redrive is used after its server has ceased to write."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import pytest

from redrive.clock import SystemClock
from redrive.errors import StoreError, StoreUnreachable
from redrive.stores.drivers.postgres import listener
from redrive.stores.drivers.postgres.errors import ends_session, is_read_only, translation
from redrive.stores.drivers.postgres.settings import parse_url
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, clock, jobs, workers
from redrive.stores.query import Operation
from redrive.stores.store import Store
from tests import postgres
from tests.stores.helpers import LONG, T0, new

_numbers = itertools.count(1)


class Database:
    """A database that can be made read-only for new sessions, as a server that was demoted is."""

    def __init__(self) -> None:
        self.name = f"{postgres.fresh()}_{next(_numbers)}"
        with postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        self.url = postgres.url("redrive", database=self.name)

    def demote(self) -> None:
        """Make new sessions read-only, and end the present ones."""
        self._administer(f"ALTER DATABASE {self.name} SET default_transaction_read_only = on")
        self.end_sessions()

    def promote(self) -> None:
        """Make new sessions writable; the present ones stay as they are."""
        self._administer(f"ALTER DATABASE {self.name} RESET default_transaction_read_only")

    def end_sessions(self) -> None:
        """End the present sessions."""
        self._administer(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{self.name}'")  # noqa: S608 - made here

    def sessions(self) -> set[int]:
        """Return the process ids of the present sessions."""
        with postgres.connect() as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", [self.name]).fetchall()
        return {pid for (pid,) in rows}

    def drop(self) -> None:
        """Delete it."""
        self._administer(f"DROP DATABASE {self.name} WITH (FORCE)")

    @staticmethod
    def _administer(statement: str) -> None:
        with postgres.connect() as connection:
            connection.execute(statement)


@pytest.fixture(name="database")
def _database() -> Iterator[Database]:
    """Make a database of its own."""
    made = Database()
    open_store(made.url).close()
    yield made
    made.drop()


Both = Callable[[Operation[Any]], Any]


@pytest.fixture(name="store")
def _store(database: Database) -> Iterator[Store]:
    """Open a store there."""
    opened = open_store(database.url)
    yield opened
    opened.close()


@pytest.fixture(name="both", params=["sync", "async"])
def _both(request: pytest.FixtureRequest, store: Store) -> Iterator[Both]:
    """Return functions that run an operation of the store, one for each colour, always on the same loop."""
    with asyncio.Runner() as runner:
        yield store.run if request.param == "sync" else lambda operation: runner.run(store.arun(operation))
        store.close()


ENQUEUES: dict[str, Callable[[], Operation[Any]]] = {
    "one statement": lambda: jobs.enqueue([new()], now=T0),
    "a later statement": lambda: jobs.enqueue([new(), new(queue="mail")], now=T0),
    "a transaction": lambda: workers.register("w", concurrency=1, lease_for=LONG, now=T0),
}


@pytest.mark.parametrize("what", ENQUEUES)
def test_a_read_only_session_is_not_used_again(database: Database, both: Both, what: str):
    """A session that answers that it is read-only is closed, whichever statement it was; the next call succeeds."""
    both(admin.stats())
    database.demote()
    with contextlib.suppress(StoreError):
        both(ENQUEUES[what]())
    database.promote()

    assert both(ENQUEUES[what]())


def test_an_idle_session_that_is_read_only_is_replaced_at_once(database: Database, both: Both):
    """An enqueue that meets a read-only session has changed nothing, and is sent on a new one."""
    database.demote()
    both(admin.stats())
    database.promote()

    assert 1 == len(both(jobs.enqueue([new()], now=T0)).ids)
    assert 1 == both(admin.stats()).due


def test_all_sessions_of_a_read_only_server_are_replaced(database: Database, store: Store):
    """After one read-only answer no other session from before is used, also one that was in use meanwhile."""

    async def scene() -> tuple[int, set[int]]:
        await asyncio.gather(*[store.arun(jobs.enqueue([new()], now=T0)) for _ in range(8)])
        database.demote()
        await asyncio.gather(*[store.arun(clock.present()) for _ in range(8)])
        old = database.sessions()
        database.promote()
        found = await asyncio.gather(*[store.arun(jobs.enqueue([new()], now=T0)) for _ in range(8)])
        return len(found), old & database.sessions()

    assert (8, set()) == asyncio.run(scene())


@pytest.mark.parametrize("state", ["25006", "57P01", "57P02", "57P03", "57P04", "57P05", "08006", "08P01"])
def test_errors_that_end_a_session_are_known(state: str):
    """Sessions end with their server, and are not used where a server has refused to write."""
    assert ends_session(
        psycopg.errors.lookup(state)() if state in {"25006", "57P01"} else SimpleNamespace(sqlstate=state)
    )
    assert (state == "25006") is is_read_only(SimpleNamespace(sqlstate=state))


@pytest.mark.parametrize("state", ["23505", "40001", "55P03", "57014", "42P01", None])
def test_other_errors_leave_the_session(state: str | None):
    """Refused statements, conflicts and timeouts of the server leave a session that can be used."""
    assert not ends_session(SimpleNamespace(sqlstate=state))


def test_a_standby_is_unreachable_for_writers():
    """A standby refuses to begin a transaction that writes by a code of its own: it is read-only, too."""
    error = asyncpg.FeatureNotSupportedError("cannot set transaction read-write mode during recovery")

    assert is_read_only(error)
    assert isinstance(translation(error, parse_url("postgresql://db.example/shop")), StoreUnreachable)


def test_a_connection_of_the_user_stays_open(database: Database, store: Store):
    """An error of a connection that the user passes is reported, and the connection is left as it is."""
    with psycopg.connect(store.url.partition("?")[0] + f"?host={postgres.server()}") as given:
        given.read_only = True
        with pytest.raises(StoreUnreachable, match="read only"):
            store.run(jobs.enqueue([new()], now=T0), using=given)
        assert not given.closed
        given.rollback()
        given.read_only = False
        store.run(jobs.enqueue([new()], now=T0), using=given)

    assert 1 == store.run(admin.stats()).due


def test_an_asynchronous_connection_of_the_user_stays_open(database: Database, store: Store):
    """The same holds for a connection of asyncpg."""

    async def scene() -> tuple[bool, int]:
        given = await asyncpg.connect(host=postgres.server(), user="postgres", database=database.name)
        try:
            with pytest.raises(StoreUnreachable, match="read only"):
                async with given.transaction(readonly=True):
                    await store.arun(jobs.enqueue([new()], now=T0), using=given)
            is_open = not given.is_closed()
            await store.arun(jobs.enqueue([new()], now=T0), using=given)
            return is_open, (await store.arun(admin.stats())).due
        finally:
            await given.close()

    assert (True, 1) == asyncio.run(scene())


def test_a_handler_gets_a_new_session(database: Database, store: Store):
    """The connection of a handler's transaction is closed with it, so the next attempt gets a writable one."""
    database.demote()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        _write(store)
    database.promote()
    _write(store)

    assert 1 == len(_rows(database))


def _write(store: Store) -> None:
    """Write a row in the transaction of a handler."""
    transaction = store.begin()
    try:
        transaction.connection.execute("CREATE TABLE IF NOT EXISTS written (id bigint)")
        transaction.connection.execute("INSERT INTO written VALUES (1)")
    except BaseException:
        transaction.rollback()
        raise
    transaction.commit()


def _rows(database: Database) -> list[tuple[Any, ...]]:
    with postgres.connect(database=database.name) as connection:
        return connection.execute("SELECT * FROM written").fetchall()


def test_a_coroutine_handler_gets_a_new_session(database: Database, store: Store):
    """The same holds for the transaction of a coroutine."""

    async def write() -> None:
        transaction = await store.abegin()
        try:
            await transaction.connection.execute("CREATE TABLE IF NOT EXISTS written (id bigint)")
            await transaction.connection.execute("INSERT INTO written VALUES (1)")
        except BaseException:
            await transaction.rollback()
            raise
        await transaction.commit()

    database.demote()
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        asyncio.run(write())
    database.promote()
    asyncio.run(write())

    assert 1 == len(_rows(database))


def test_a_listener_of_a_read_only_server_ends(database: Database, store: Store, monkeypatch: pytest.MonkeyPatch):
    """A server that no longer writes notifies of nothing: the listening session is given up when it is checked."""
    monkeypatch.setattr(listener, "PING", 0.01)

    async def scene() -> None:
        database.demote()
        watching = store.watch(SystemClock())
        await anext(watching)
        await anext(watching)

    with pytest.raises(StoreError, match="read only"):
        asyncio.run(scene())
