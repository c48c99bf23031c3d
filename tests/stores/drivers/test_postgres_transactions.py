"""Lent connections of PostgreSQL: both or neither, in both colours, and a lease that is lost in the middle (D26)."""

# ruff: noqa: S608 - the names of tables are this test's own
from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from redrive import App, Context
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Succeeded
from redrive.errors import StoreBusy, StoreClosed, StoreError, StoreUnreachable
from redrive.stores.drivers.postgres import script, statements
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs, leases
from redrive.stores.operations.leases import Ending
from redrive.stores.store import Store
from redrive.testing import VirtualClock, drain
from tests import postgres
from tests.runtime.helpers import PATIENCE, run_due, take, until
from tests.stores.helpers import T0, new


@pytest.fixture
def url() -> Iterator[str]:
    """Lend an empty store."""
    with postgres.lent() as lent:
        yield lent


@pytest.fixture
def table(url: str) -> Iterator[str]:
    """Return the name of the user's table."""
    name = f"orders_{url.partition('schema=')[2].partition('&')[0]}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE TABLE {name} (number INTEGER)")
    yield name
    with postgres.connect() as connection:
        connection.execute(f"DROP TABLE {name}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open the store."""
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def app(url: str) -> Iterator[App]:
    """Create an app with a clock that stands still."""
    app = App(url, clock=VirtualClock())
    yield app
    app.close()


def rows(table: str) -> list[int]:
    """Return the rows of the user's table."""
    with postgres.connect() as connection:
        return [row[0] for row in connection.execute(f"SELECT number FROM {table} ORDER BY number")]  # type: ignore[call-overload]


def enqueued(store: Store) -> int:
    """Return the number of jobs."""
    return store.run(admin.stats(now=T0)).due


# ------------------------------------------------------------------------------------------------------------ the loan


@pytest.mark.parametrize(("end", "expected"), [("commit", ([1], 1)), ("rollback", ([], 0))])
def test_both_or_neither(store: Store, table: str, end: str, expected: object):
    """Writes on psycopg's connection and the operation are committed together, or not at all."""
    loan = store.begin()
    assert isinstance(loan.connection, psycopg.Connection)
    loan.connection.execute(f"INSERT INTO {table} VALUES (1)")
    loan.run(jobs.enqueue([new()], now=T0))
    getattr(loan, end)()

    assert (expected, True) == ((rows(table), enqueued(store)), loan.connection.closed)


@pytest.mark.parametrize(("end", "expected"), [("commit", ([1], 1)), ("rollback", ([], 0))])
def test_both_or_neither_in_a_coroutine(store: Store, table: str, end: str, expected: object):
    """Writes on asyncpg's connection and the operation are committed together, or not at all."""

    async def borrow() -> bool:
        """Write in one transaction."""
        loan = await store.abegin()
        assert isinstance(loan.connection, asyncpg.Connection)
        await loan.connection.execute(f"INSERT INTO {table} VALUES ($1)", 1)
        await loan.run(jobs.enqueue([new()], now=T0))
        await getattr(loan, end)()
        return loan.connection.is_closed()

    closed = asyncio.run(borrow())

    assert (expected, True) == ((rows(table), enqueued(store)), closed)


@pytest.mark.parametrize("leave", ["commit", "rollback"])
def test_a_handler_cannot_end_the_transaction(store: Store, table: str, leave: str):
    """Handlers cannot commit: their writes would be stored without the end of the attempt."""
    loan = store.begin()
    loan.connection.execute(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
        getattr(loan.connection, leave)()
    loan.rollback()

    assert [] == rows(table)


def test_a_transaction_ended_by_a_statement_is_detected(store: Store):
    """After the handler has ended the transaction, the completion is not written."""
    loan = store.begin()
    loan.connection.execute("COMMIT")
    with pytest.raises(StoreError, match="ended the transaction"):
        loan.run(jobs.enqueue([new()], now=T0))
    loan.rollback()

    async def borrow() -> None:
        """End the transaction on asyncpg."""
        loan = await store.abegin()
        await loan.connection.execute("COMMIT")
        with pytest.raises(StoreError, match="ended the transaction"):
            await loan.run(jobs.enqueue([new()], now=T0))
        await loan.rollback()

    asyncio.run(borrow())

    assert 0 == enqueued(store)


def test_a_transaction_that_has_failed_cannot_be_committed(store: Store, table: str):
    """Errors that the handler has suppressed appear at the next statement."""
    loan = store.begin()
    with pytest.raises(psycopg.Error):
        loan.connection.execute("SELECT nothing")
    with pytest.raises(StoreError):
        loan.run(jobs.enqueue([new()], now=T0))
    loan.rollback()

    assert 0 == enqueued(store)


def test_a_closed_store_begins_no_transaction(store: Store):
    """In neither colour."""
    store.close()
    with pytest.raises(StoreClosed):
        store.begin()
    with pytest.raises(StoreClosed):
        asyncio.run(store.abegin())


def test_a_commit_that_fails_is_an_error(store: Store, table: str):
    """Constraints that are checked at the commit reject all writes."""
    with postgres.connect() as connection:
        connection.execute(f"ALTER TABLE {table} ADD UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")
    loan = store.begin()
    loan.connection.execute(f"INSERT INTO {table} VALUES (1), (1)")
    loan.run(jobs.enqueue([new()], now=T0))
    with pytest.raises(StoreError):
        loan.commit()

    async def borrow() -> None:
        """Fail a commit on asyncpg."""
        loan = await store.abegin()
        await loan.connection.execute(f"INSERT INTO {table} VALUES (1), (1)")
        await loan.run(jobs.enqueue([new()], now=T0))
        with pytest.raises(StoreError):
            await loan.commit()

    asyncio.run(borrow())

    assert ([], 0) == (rows(table), enqueued(store))


# ---------------------------------------------------------------------------------------------- blocks that take long


async def begin(store: Store, colour: str) -> Any:
    """Borrow a connection, of either colour."""
    return await store.abegin() if colour == "async" else await asyncio.to_thread(store.begin)


async def result_of(loan: Any, name: str, *arguments: Any) -> Any:
    """Call a method of a loan, of either colour."""
    answer = getattr(loan, name)(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def gone(loan: Any) -> None:
    """Wait until the server has ended the session of a loan."""
    own = loan.connection
    pid = own.info.backend_pid if isinstance(own, psycopg.Connection) else own.get_server_pid()
    with postgres.connect() as connection:
        question = "SELECT FROM pg_stat_activity WHERE pid = %s"
        await until(lambda: not connection.execute(question, [pid]).fetchall())


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_idle_transaction_is_ended(table: str, url: str, colour: str):
    """Sessions of handlers that have stopped inside the block are ended by the server, with their locks."""
    store = open_store(f"{url}&timeout=500ms")

    async def borrow() -> None:
        """Write, and stop."""
        loan = await begin(store, colour)
        await result_of(loan.connection, "execute", f"INSERT INTO {table} VALUES (1)")
        await gone(loan)
        with pytest.raises(StoreUnreachable, match="wrote nothing"):
            await result_of(loan, "run", jobs.enqueue([new()], now=T0))
        await result_of(loan, "rollback")

    asyncio.run(borrow())
    store.close()

    assert [] == rows(table)


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_process_suspended_before_the_commit_keeps_no_job(app: App, monkeypatch: pytest.MonkeyPatch, colour: str):
    """Once the completion is written the job is locked: a process that stops there is ended soon."""
    monkeypatch.setattr(statements, "_SHORT", "'200ms'")

    @app.task
    def work() -> None:
        """Do nothing."""

    job = work.enqueue()
    (claim,) = take(app)

    async def borrow() -> None:
        """Complete the job, and stop."""
        loan = await begin(app.store, colour)
        await result_of(loan, "run", leases.settle([Ending(claim, Succeeded(), 0.0)], now=app.now()))
        assert await asyncio.to_thread(job.cancel)
        await gone(loan)
        with pytest.raises(StoreError):
            await result_of(loan, "commit")

    asyncio.run(borrow())

    assert State.CANCELLED is job.refresh().state


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_pool_limits_transactions_of_handlers(url: str, colour: str):
    """``?pool=`` limits the transactions of handlers too, apart from operations; the error names the remedy."""
    store = open_store(f"{url}&pool=2&timeout=300ms")

    async def borrow() -> None:
        """Take all, and one more."""
        loans = [await begin(store, colour) for _ in range(2)]
        with pytest.raises(StoreBusy, match=r"all 2 connections .* for ctx.transaction\(\) are in use: set \?pool="):
            await begin(store, colour)
        await store.arun(jobs.enqueue([new()], now=T0))
        await result_of(loans.pop(), "rollback")
        loan = await begin(store, colour)
        await result_of(loan, "commit")
        loans.append(await begin(store, colour))
        await result_of(loans.pop(), "rollback")
        await result_of(await begin(store, colour), "rollback")
        await result_of(loans.pop(), "rollback")

    asyncio.run(borrow())

    assert 1 == enqueued(store)
    store.close()


@pytest.mark.realtime
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_transaction_that_fails_to_begin_is_not_counted(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, colour: str
):
    """Transactions that could not begin are not counted."""
    small = open_store(f"{url}&pool=1&timeout=300ms")

    async def borrow() -> None:
        """Fail, and borrow."""
        with monkeypatch.context() as patch:
            patch.setattr(script, "handler_transaction", lambda _: "SELECT nothing")
            with pytest.raises(StoreError):
                await begin(small, colour)
        await result_of(await begin(small, colour), "rollback")

    asyncio.run(borrow())
    small.close()


@pytest.mark.realtime
def test_an_operator_waits_no_longer_than_the_timeout_for_a_lock(url: str):
    """Whatever holds the row of a job, cancelling it ends with a clear message, and nothing is changed."""
    app = App(f"{url}&timeout=300ms", clock=VirtualClock())
    number = app.store.run(jobs.enqueue([new()], now=T0)).ids[0]
    with postgres.connect(autocommit=False) as connection:
        schema = url.partition("schema=")[2].partition("&")[0]
        connection.execute(f'SELECT FROM "{schema}".redrive_jobs WHERE id = {number} FOR UPDATE')  # type: ignore[call-overload]
        with pytest.raises(
            StoreBusy, match="waited too long for a lock that another transaction holds.*changed nothing"
        ):
            app.job(number).cancel()
    state = app.job(number).state
    app.close()

    assert State.READY is state


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
        """Write on asyncpg."""
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
        """Write on asyncpg."""
        async with context.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            await app.job(context.job_id).acancel()

    job = (work if colour == "sync" else awork).enqueue()
    outcome = run_due(app)

    assert isinstance(outcome, Failed)
    assert ("redrive.errors.LeaseLost", []) == (outcome.failure.error_type, rows(table))
    assert State.CANCELLED is job.refresh().state


def test_a_cancelled_coroutine_leaves_nothing(app: App, table: str):
    """Cancelling a statement by the hard timeout leaves no writes and no locks."""

    @app.task(timeout="50ms")
    async def work(context: Context) -> None:
        """Write, and sleep in the database."""
        async with context.transaction() as connection:
            await connection.execute(f"INSERT INTO {table} VALUES (1)")
            await connection.execute("SELECT pg_sleep($1)", PATIENCE)

    job = work.enqueue()
    drain(app)

    assert ([], "TIMEOUT") == (rows(table), job.refresh().record.reason)
