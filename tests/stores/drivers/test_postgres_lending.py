"""Lent connections of PostgreSQL: both or neither, in both colours, and a lease that is lost in the middle (D26)."""

# ruff: noqa: S608 - the names of tables are this test's own
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import asyncpg
import psycopg
import pytest

from redrive import App, Context
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed
from redrive.errors import StoreClosed, StoreError
from redrive.stores.operations import admin, jobs
from redrive.stores.store import Store, open_store
from redrive.testing import VirtualClock, drain
from tests import postgres
from tests.runtime.helpers import PATIENCE, run_due
from tests.stores.helpers import T0, new


@pytest.fixture
def url() -> str:
    """A schema of its own, with a table of the borrower's beside."""
    return postgres.url()


@pytest.fixture
def table(url: str) -> Iterator[str]:
    """A table of the user's."""
    name = f"orders_{url.partition('schema=')[2].partition('&')[0]}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE TABLE {name} (number INTEGER)")
    yield name
    with postgres.connect() as connection:
        connection.execute(f"DROP TABLE {name}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The store."""
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """An app, whose time stands still until told otherwise."""
    app = App(url, clock=VirtualClock())
    yield app
    app.close()


def rows(table: str) -> list[int]:
    """What is in the user's table."""
    with postgres.connect() as connection:
        return [row[0] for row in connection.execute(f"SELECT number FROM {table} ORDER BY number")]  # type: ignore[call-overload]


def enqueued(store: Store) -> int:
    """How many jobs there are."""
    return store.run(admin.stats(now=T0)).due


# ------------------------------------------------------------------------------------------------------------ the loan


@pytest.mark.parametrize(("end", "expected"), [("commit", ([1], 1)), ("rollback", ([], 0))])
def test_both_or_neither(store: Store, table: str, end: str, expected: object):
    """What was written on the connection of psycopg and what the operation wrote is there together, or not at all."""
    loan = store.lend()
    assert isinstance(loan.connection, psycopg.Connection)
    loan.connection.execute(f"INSERT INTO {table} VALUES (1)")
    loan.run(jobs.enqueue([new()], now=T0))
    getattr(loan, end)()

    assert (expected, True) == ((rows(table), enqueued(store)), loan.connection.closed)


@pytest.mark.parametrize(("end", "expected"), [("commit", ([1], 1)), ("rollback", ([], 0))])
def test_both_or_neither_in_a_coroutine(store: Store, table: str, end: str, expected: object):
    """The same on a connection of asyncpg."""

    async def borrow() -> bool:
        """Write in one transaction."""
        loan = await store.alend()
        assert isinstance(loan.connection, asyncpg.Connection)
        await loan.connection.execute(f"INSERT INTO {table} VALUES ($1)", 1)
        await loan.run(jobs.enqueue([new()], now=T0))
        await getattr(loan, end)()
        return loan.connection.is_closed()

    closed = asyncio.run(borrow())

    assert (expected, True) == ((rows(table), enqueued(store)), closed)


@pytest.mark.parametrize("leave", [psycopg.Connection.commit, psycopg.Connection.rollback])
def test_the_borrower_cannot_end_the_transaction(store: Store, table: str, leave: Callable[[object], None]):
    """It is refused: else the writes would be there without what they belong to."""
    loan = store.lend()
    loan.connection.execute(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
        leave(loan.connection)
    loan.rollback()

    assert [] == rows(table)


def test_a_transaction_that_a_statement_has_ended_is_noticed(store: Store):
    """Nothing more is written then: the completion would stand alone."""
    loan = store.lend()
    loan.connection.execute("COMMIT")
    with pytest.raises(StoreError, match="ended the transaction"):
        loan.run(jobs.enqueue([new()], now=T0))
    loan.rollback()

    async def borrow() -> None:
        """The same with asyncpg."""
        loan = await store.alend()
        await loan.connection.execute("COMMIT")
        with pytest.raises(StoreError, match="ended the transaction"):
            await loan.run(jobs.enqueue([new()], now=T0))
        await loan.rollback()

    asyncio.run(borrow())

    assert 0 == enqueued(store)


def test_a_transaction_that_has_failed_cannot_be_committed(store: Store, table: str):
    """An error that the borrower has swallowed is found by the next statement."""
    loan = store.lend()
    with pytest.raises(psycopg.Error):
        loan.connection.execute("SELECT nothing")
    with pytest.raises(StoreError):
        loan.run(jobs.enqueue([new()], now=T0))
    loan.rollback()

    assert 0 == enqueued(store)


def test_a_closed_store_lends_nothing(store: Store):
    """In neither colour."""
    store.close()
    with pytest.raises(StoreClosed):
        store.lend()
    with pytest.raises(StoreClosed):
        asyncio.run(store.alend())


def test_a_commit_that_fails_is_an_error(store: Store, table: str):
    """A constraint that is checked at the commit refuses everything."""
    with postgres.connect() as connection:
        connection.execute(f"ALTER TABLE {table} ADD UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")
    loan = store.lend()
    loan.connection.execute(f"INSERT INTO {table} VALUES (1), (1)")
    loan.run(jobs.enqueue([new()], now=T0))
    with pytest.raises(StoreError):
        loan.commit()

    async def borrow() -> None:
        """The same with asyncpg."""
        loan = await store.alend()
        await loan.connection.execute(f"INSERT INTO {table} VALUES (1), (1)")
        await loan.run(jobs.enqueue([new()], now=T0))
        with pytest.raises(StoreError):
            await loan.commit()

    asyncio.run(borrow())

    assert ([], 0) == (rows(table), enqueued(store))


# ---------------------------------------------------------------------------------------------------------- in handlers


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_completion_is_in_the_handlers_transaction(app: App, table: str, colour: str):
    """(a) both are there, with the result; (b) after an error neither, and the next attempt writes once."""

    @app.task(name="work", retry="1 1s")
    def work(context: Context) -> str:
        """Write and complete; fail in the first attempt."""
        with context.transaction() as connection:
            connection.execute(f"INSERT INTO {table} VALUES (%s)", [context.attempt])
            context.set_result("done")
            if context.attempt == 1:
                raise ValueError("boom")
        return "done"

    @app.task(name="awork", retry="1 1s")
    async def awork(context: Context) -> str:
        """The same with asyncpg."""
        async with context.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES ($1)", context.attempt)
            context.set_result("done")
            if context.attempt == 1:
                raise ValueError("boom")
        return "done"

    job = (work if colour == "sync" else awork).enqueue()
    drain(app)

    assert ([2], "done") == (rows(table), job.result())
    assert ["failed", "succeeded"] == [each.outcome for each in job.attempts]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lease_that_is_lost_in_the_block_undoes_everything(app: App, table: str, colour: str):
    """(d) an operator cancels the job in the middle: the completion is refused, and the row goes with it."""

    @app.task(name="work")
    def work(context: Context) -> None:
        """Write, and lose the job."""
        with context.transaction() as connection:
            connection.execute(f"INSERT INTO {table} VALUES (1)")
            app.job(context.job_id).cancel()

    @app.task(name="awork")
    async def awork(context: Context) -> None:
        """The same with asyncpg."""
        async with context.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            await app.job(context.job_id).acancel()

    job = (work if colour == "sync" else awork).enqueue()
    outcome = run_due(app)

    assert isinstance(outcome, Failed)
    assert ("redrive.errors.LeaseLost", []) == (outcome.failure.error_type, rows(table))
    assert State.CANCELLED is job.refresh().state


def test_a_cancelled_coroutine_leaves_nothing(app: App, table: str):
    """The hard timeout interrupts a statement of the handler's: nothing stays, and nothing stays locked."""

    @app.task(timeout="50ms")
    async def work(context: Context) -> None:
        """Write, and sleep in the database."""
        async with context.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            await connection.execute("SELECT pg_sleep($1)", PATIENCE)

    job = work.enqueue()
    drain(app)

    assert ([], "TIMEOUT") == (rows(table), job.refresh().record.reason)
