"""A lent connection: the borrower's writes and the operations on it are one transaction, which only the lender ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.errors import ConfigurationError, StoreBusy, StoreError
from redrive.stores.operations import admin, jobs
from redrive.stores.store import Store, open_store
from tests.stores.helpers import T0, new

PATIENCE = 30
"""Seconds after which a test that waits for a thread has failed."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Where the database is; nobody waits long for its lock."""
    return f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal&busy_timeout=50ms"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store, and a table of the borrower's."""
    store = open_store(url)
    loan = store.lend()
    loan.connection.execute("CREATE TABLE orders (id INTEGER)")
    loan.commit()
    yield store
    store.close()


def orders(store: Store) -> int:
    """How many rows the borrower's table has."""
    loan = store.lend()
    try:
        return loan.connection.execute("SELECT count(*) FROM orders").fetchone()[0]
    finally:
        loan.rollback()


def enqueued(store: Store) -> int:
    """How many jobs there are."""
    return store.run(admin.stats(now=T0)).due


@pytest.mark.parametrize(("end", "expected"), [("commit", (1, 1)), ("rollback", (0, 0))])
def test_both_or_neither(store: Store, end: str, expected: tuple[int, int]):
    """What the borrower wrote and what the operation wrote is there together, or not at all."""
    loan = store.lend()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    loan.run(jobs.enqueue([new()], now=T0))
    getattr(loan, end)()

    assert expected == (orders(store), enqueued(store))


@pytest.mark.parametrize(("end", "expected"), [("commit", (1, 1)), ("rollback", (0, 0))])
def test_both_or_neither_in_a_coroutine(store: Store, end: str, expected: tuple[int, int]):
    """The same, awaited."""

    async def borrow() -> None:
        """Write in one transaction."""
        loan = await store.alend()
        loan.connection.execute("INSERT INTO orders VALUES (1)")
        await loan.run(jobs.enqueue([new()], now=T0))
        await getattr(loan, end)()

    asyncio.run(borrow())

    assert expected == (orders(store), enqueued(store))


def leave_by_commit(connection: sqlite3.Connection) -> None:
    """Commit it."""
    connection.commit()


def leave_by_rollback(connection: sqlite3.Connection) -> None:
    """Undo it."""
    connection.rollback()


def leave_by_block(connection: sqlite3.Connection) -> None:
    """Commit it at the end of a block."""
    with connection:
        connection.execute("INSERT INTO orders VALUES (2)")


def leave_by_statement(connection: sqlite3.Connection) -> None:
    """Commit it in so many words."""
    connection.execute("END")


@pytest.mark.parametrize("leave", [leave_by_commit, leave_by_rollback, leave_by_block, leave_by_statement])
def test_the_borrower_cannot_end_the_transaction(store: Store, leave):
    """SQLite refuses: else the writes would be there without what they belong to."""
    loan = store.lend()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        leave(loan.connection)
    loan.rollback()

    assert 0 == orders(store)


def test_savepoints_are_the_borrowers(store: Store):
    """A part may be undone without the rest."""
    loan = store.lend()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    loan.connection.execute("SAVEPOINT mine")
    loan.connection.execute("INSERT INTO orders VALUES (2)")
    loan.connection.execute("ROLLBACK TO mine")
    loan.commit()

    assert 1 == orders(store)


def test_a_row_factory_of_the_borrowers_is_no_trouble(store: Store):
    """Operations read rows as they need them."""
    loan = store.lend()
    loan.connection.row_factory = sqlite3.Row
    (number,) = loan.run(jobs.enqueue([new()], now=T0)).ids

    assert number == loan.run(jobs.get(number)).id

    loan.rollback()


def test_a_loan_waits_for_other_writers_and_then_says_so(store: Store, url: str):
    """The lock is taken at the beginning, so that nothing is refused halfway; no connection stays behind."""
    loan = store.lend()
    with pytest.raises(StoreBusy):
        store.lend()
    with pytest.raises(StoreBusy):
        asyncio.run(store.alend())
    loan.rollback()
    store.lend().rollback()


def test_a_database_in_memory_has_nothing_to_lend():
    """Its one connection is the one that redrive works on; the message says what to use instead."""
    store = open_store("memory://")
    with pytest.raises(ConfigurationError, match=r"one connection.*sqlite:///app\.db"):
        store.lend()
    with pytest.raises(ConfigurationError, match="one connection"):
        asyncio.run(store.alend())
    store.close()


def test_a_closed_store_lends_nothing(store: Store):
    """It would be opened again behind everybody's back."""
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.lend()


def test_a_task_that_is_cancelled_while_it_waits_leaves_no_lock(store: Store, monkeypatch: pytest.MonkeyPatch):
    """The thread that opens the connection gives it back when nobody wants it any more."""
    from redrive.stores.drivers.sqlite import lending

    opening, go, given = threading.Event(), threading.Event(), []
    real = lending.lend

    def slowly(settings: object) -> object:
        opening.set()
        assert go.wait(PATIENCE)
        given.append(real(settings))
        return given[0]

    monkeypatch.setattr(lending, "lend", slowly)

    async def borrow_and_be_cancelled() -> None:
        """Cancel the task while the connection is being opened."""
        task = asyncio.ensure_future(store.alend())
        await asyncio.to_thread(opening.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    asyncio.run(borrow_and_be_cancelled())  # which waits for its threads

    assert 0 == orders(store)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        given[0].connection.execute("SELECT 1")


def test_a_commit_is_seen_through(store: Store, monkeypatch: pytest.MonkeyPatch):
    """A task that is cancelled in the middle of its commit has committed when it hears of the cancellation."""
    from redrive.stores.drivers.sqlite.lending import SQLiteLoan

    committing, go = threading.Event(), threading.Event()
    real = SQLiteLoan.commit

    def slowly(loan: SQLiteLoan) -> None:
        committing.set()
        assert go.wait(PATIENCE)
        real(loan)

    monkeypatch.setattr(SQLiteLoan, "commit", slowly)

    async def commit_and_be_cancelled() -> None:
        """Cancel the task while it commits."""
        loan = await store.alend()
        loan.connection.execute("INSERT INTO orders VALUES (1)")
        task = asyncio.ensure_future(loan.commit())
        await asyncio.to_thread(committing.wait, PATIENCE)
        task.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(commit_and_be_cancelled())

    assert 1 == orders(store)


def test_what_sqlite_has_rolled_back_cannot_be_committed(store: Store):
    """Where SQLite itself has ended the transaction, as on a full disk, the commit is an error and not a lie."""
    loan = store.lend()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    loan.connection.set_authorizer(None)
    loan.connection.execute("ROLLBACK")
    with pytest.raises(StoreError, match="cannot commit"):
        loan.commit()

    assert 0 == orders(store)
