"""A lent connection: the borrower's writes and the operations on it are one transaction, which only the lender ends."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.errors import ConfigurationError, StoreBusy, StoreError
from redrive.stores.drivers.sqlite.transactions import SQLiteTransaction, SQLiteTransactions
from redrive.stores.drivers.sqlite.write_queue import WriteQueue
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.query import Query, Statements, writes
from redrive.stores.store import Store
from tests.stores.helpers import T0, new

PATIENCE = 90
"""Seconds after which a test that waits for a thread has failed."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of the database, with a short busy timeout."""
    return f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal&busy_timeout=50ms"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open a store with a table of the user."""
    store = open_store(url)
    loan = store.begin()
    loan.connection.execute("CREATE TABLE orders (id INTEGER)")
    loan.commit()
    yield store
    store.close()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Store]:
    """Open a store with a busy timeout longer than any test."""
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal&busy_timeout={2 * PATIENCE}s")
    yield store
    store.close()


def orders(store: Store) -> int:
    """Return the number of rows in the user's table."""
    loan = store.begin()
    try:
        return loan.connection.execute("SELECT count(*) FROM orders").fetchone()[0]
    finally:
        loan.rollback()


def enqueued(store: Store) -> int:
    """Return the number of jobs."""
    return store.run(admin.stats(now=T0)).due


@pytest.mark.parametrize(("end", "expected"), [("commit", (1, 1)), ("rollback", (0, 0))])
def test_both_or_neither(store: Store, end: str, expected: tuple[int, int]):
    """Writes of the handler and the operation are committed together, or not at all."""
    loan = store.begin()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    loan.run(jobs.enqueue([new()], now=T0))
    getattr(loan, end)()

    assert expected == (orders(store), enqueued(store))


@pytest.mark.parametrize(("end", "expected"), [("commit", (1, 1)), ("rollback", (0, 0))])
def test_both_or_neither_in_a_coroutine(store: Store, end: str, expected: tuple[int, int]):
    """Writes of a coroutine and the operation are committed together, or not at all."""

    async def borrow() -> None:
        """Write in one transaction."""
        loan = await store.abegin()
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
def test_a_handler_cannot_end_the_transaction(store: Store, leave):
    """SQLite refuses: the writes would be stored without the end of the attempt."""
    loan = store.begin()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        leave(loan.connection)
    loan.rollback()

    assert 0 == orders(store)


def test_handlers_can_use_savepoints(store: Store):
    """Handlers can roll back to savepoints."""
    loan = store.begin()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    loan.connection.execute("SAVEPOINT mine")
    loan.connection.execute("INSERT INTO orders VALUES (2)")
    loan.connection.execute("ROLLBACK TO mine")
    loan.commit()

    assert 1 == orders(store)


def test_the_row_factory_of_a_handler_is_ignored(store: Store):
    """Operations read rows as they need them."""
    loan = store.begin()
    loan.connection.row_factory = sqlite3.Row
    (number,) = loan.run(jobs.enqueue([new()], now=T0)).ids

    assert number == loan.run(jobs.get(number)).id

    loan.rollback()


def test_a_transaction_waits_for_other_writers_and_then_fails(store: Store, url: str):
    """Transactions take the lock at their beginning; if that fails, no connection stays open."""
    loan = store.begin()
    with pytest.raises(StoreBusy):
        store.begin()
    with pytest.raises(StoreBusy):
        asyncio.run(store.abegin())
    loan.rollback()
    store.begin().rollback()


def test_a_database_in_memory_refuses_transactions():
    """Databases in memory have one connection; the message names the alternatives."""
    store = open_store("memory://")
    with pytest.raises(ConfigurationError, match=r"one connection.*sqlite:///app\.db"):
        store.begin()
    with pytest.raises(ConfigurationError, match="one connection"):
        asyncio.run(store.abegin())
    store.close()


def test_a_closed_store_begins_no_transaction(store: Store):
    """Beginning a transaction does not open a closed store again."""
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.begin()


def test_a_task_that_is_cancelled_while_it_waits_leaves_no_lock(patient: Store, monkeypatch: pytest.MonkeyPatch):
    """Threads close the connection that they have opened for a cancelled task."""
    opening, go, given = threading.Event(), threading.Event(), []
    real = SQLiteTransactions._begin

    def slowly(lender: SQLiteTransactions, asked: None) -> object:
        opening.set()
        assert go.wait(PATIENCE)
        given.append(real(lender, asked))
        return given[-1]

    monkeypatch.setattr(SQLiteTransactions, "_begin", slowly)

    async def borrow_and_be_cancelled() -> None:
        """Cancel the task while the connection is being opened."""
        task = asyncio.ensure_future(patient.abegin())
        await asyncio.to_thread(opening.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    asyncio.run(borrow_and_be_cancelled())

    patient.begin().rollback()  # which waits for the thread
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        given[0].connection.execute("SELECT 1")


def test_a_cancelled_commit_is_finished(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Tasks that are cancelled during their commit have committed when ``CancelledError`` is raised."""
    committing, go = threading.Event(), threading.Event()
    real = SQLiteTransaction.commit

    def slowly(loan: SQLiteTransaction) -> None:
        committing.set()
        assert go.wait(PATIENCE)
        real(loan)

    monkeypatch.setattr(SQLiteTransaction, "commit", slowly)

    async def commit_and_be_cancelled() -> None:
        """Cancel the task while it commits."""
        loan = await store.abegin()
        loan.connection.execute("INSERT INTO orders VALUES (1)")
        task = asyncio.ensure_future(loan.commit())
        await asyncio.to_thread(committing.wait, PATIENCE)
        task.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(commit_and_be_cancelled())

    assert 1 == orders(store)


def test_a_transaction_that_sqlite_rolled_back_cannot_be_committed(store: Store):
    """If SQLite itself has ended the transaction, as on a full disk, the commit raises."""
    loan = store.begin()
    loan.connection.execute("INSERT INTO orders VALUES (1)")
    loan.connection.set_authorizer(None)
    loan.connection.execute("ROLLBACK")
    with pytest.raises(StoreError, match="cannot commit"):
        loan.commit()

    assert 0 == orders(store)


# --------------------------------------------------------------------------------------- handlers that want it at once


async def borrow(store: Store, *, turns: int = 3) -> None:
    """Hold a lent transaction for some turns of the event loop, and commit it."""
    loan = await store.abegin()
    await loan.run(jobs.enqueue([new()], now=T0))
    for _ in range(turns):
        await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets the other tasks run
    await loan.commit()


def test_coroutines_that_wait_for_their_transaction_do_not_keep_the_holder_from_its_commit(patient: Store):
    """More tasks than the event loop has threads want a transaction at once, and each has it in its turn."""

    async def run() -> None:
        """Let twenty tasks ask at once, in a loop with two threads, which other work keeps busy."""
        loop, busy = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(2))
        others = [asyncio.ensure_future(asyncio.to_thread(busy.wait, PATIENCE)) for _ in range(2)]
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*[borrow(patient) for _ in range(20)])
        finally:
            busy.set()
            await asyncio.gather(*others)

    asyncio.run(run())

    assert 20 == enqueued(patient)


def test_a_task_that_waits_for_its_transaction_blocks_no_thread(patient: Store):
    """While one transaction is open, twenty tasks wait for theirs without a thread and without a connection."""

    async def run() -> list[threading.Thread]:
        """Find the threads that the waiting tasks start."""
        loan = await patient.abegin()
        before = threading.enumerate()
        waiting = [asyncio.ensure_future(borrow(patient)) for _ in range(20)]
        for _ in range(3):
            await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets the tasks ask
        more = [each for each in threading.enumerate() if each not in before]
        await loan.rollback()
        await asyncio.gather(*waiting)
        return more

    assert [] == asyncio.run(run())


def test_transactions_begin_in_the_order_of_their_requests(patient: Store):
    """None of the tasks that wait is overtaken by another one."""
    order: list[int] = []

    async def take(number: int) -> None:
        """Note the turn."""
        loan = await patient.abegin()
        order.append(number)
        await loan.rollback()

    async def run() -> None:
        """Ask one after the other."""
        await asyncio.gather(*[take(number) for number in range(10)])

    asyncio.run(run())

    assert list(range(10)) == order


@writes
def noting(order: list[str]) -> Statements[None]:
    """Note that the transaction has begun."""
    order.append("redrive")
    yield Query("clock", {"now": None})


def test_writes_of_redrive_precede_waiting_transactions(patient: Store):
    """Heartbeats and settles wait for the open transaction, and for none in the queue."""
    order: list[str] = []

    async def take(number: int) -> None:
        """Note the turn."""
        loan = await patient.abegin()
        order.append(f"handler {number}")
        await loan.rollback()

    async def run() -> None:
        """Let ten handlers wait, and then write."""
        loan = await patient.abegin()
        waiting = [asyncio.ensure_future(take(number)) for number in range(10)]
        for _ in range(3):
            await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets the tasks ask
        patient.submit(noting(order))
        while not patient._writer._write_queue._writer:
            await SystemClock().asleep(0.001)
        await loan.rollback()
        await asyncio.gather(*waiting)

    asyncio.run(run())

    assert ["redrive", *[f"handler {number}" for number in range(10)]] == order


def test_a_waiting_transaction_precedes_further_writes_of_redrive(patient: Store):
    """Between two transactions of redrive's own, one of the handlers that wait has its turn."""
    queue = patient._write_queue
    queue.acquire(writer=True)

    async def run() -> list[str]:
        """Let redrive and a handler ask while redrive writes."""
        order: list[str] = []
        handler = asyncio.ensure_future(queue.aacquire())
        handler.add_done_callback(lambda _: order.append("handler"))
        own = asyncio.ensure_future(asyncio.to_thread(queue.acquire, writer=True))
        own.add_done_callback(lambda _: order.append("redrive"))
        while not (queue._writer and queue._handlers):
            await SystemClock().asleep(0.001)
        queue.release()
        await handler
        queue.release()
        await own
        queue.release()
        return order

    assert ["handler", "redrive"] == asyncio.run(run())


def test_a_task_that_is_cancelled_in_the_queue_leaves_it(patient: Store):
    """Cancelled tasks leave the queue, whether or not they have just got the lock."""

    async def run() -> None:
        """Cancel one task that waits, and one that has just got the lock."""
        loan = await patient.abegin()
        waits, comes, last = [asyncio.ensure_future(patient.abegin()) for _ in range(3)]
        await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets the tasks ask
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        loan._transaction.rollback()
        comes.cancel()
        results = await asyncio.gather(waits, comes, return_exceptions=True)
        assert [asyncio.CancelledError] * 2 == [type(each) for each in results]
        await (await last).rollback()

    asyncio.run(run())

    patient.begin().rollback()


def test_waiting_for_a_moving_queue_may_exceed_the_busy_timeout(store: Store):
    """Only one transaction at a time counts for the busy timeout, not the whole queue."""
    store.close()
    clock = Stepped()
    queue = WriteQueue(store.settings)
    queue._clock = clock
    queue.acquire()

    async def run() -> list[object]:
        """Let the holder take 40 ms, then the next one as much, and the third one for ever."""
        asked = [asyncio.ensure_future(queue.aacquire()) for _ in range(3)]
        await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets the tasks ask
        for number in range(2):
            clock.now += 0.04
            queue.release()
            await asked[number]
        clock.now += 0.06
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [type(None), type(None), StoreBusy] == [type(each) for each in asyncio.run(run())]


class Stepped(SystemClock):
    """A monotonic clock that tests advance."""

    now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now
