"""SQLite's lanes: what has gathered shares one transaction, and each answer finds its caller."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Self

import pytest

from redrive.errors import StoreBusy, StoreClosed, StoreError
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, jobs
from redrive.stores.query import Operation, Query
from redrive.stores.store import Store
from tests.stores.helpers import new


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open a store in a file, with a thread that writes and one that reads."""
    opened = open_store(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal")
    yield opened
    opened.close()


class _Here:
    """An operation that notes its thread, and may do something in the middle of the transaction."""

    def __init__(self, then: Any = bool) -> None:
        self.thread: int | None = None
        self._then = then

    def operation(self) -> Operation[None]:
        """Return the operation."""
        return Operation("here", self._steps(), writes=True)

    def _steps(self):
        yield Query("meta", {"key": "uid"})
        self.thread = threading.get_ident()
        self._then()


def test_a_call_on_a_free_connection_runs_in_its_own_thread(store: Store):
    """Operations are not handed to another thread if no other call uses the connection; those of coroutines are."""
    here, there = _Here(), _Here()
    store.run(here.operation())
    asyncio.run(store.arun(there.operation()))

    assert threading.get_ident() == here.thread
    assert here.thread != there.thread


def test_a_call_on_a_connection_in_use_waits_in_the_queue(store: Store):
    """Operations that are run while another one holds the connection share the next transaction."""
    here = _Here()
    with Gate(store) as gate:
        waiting = [threading.Thread(target=store.run, args=(jobs.enqueue([new()]),)) for _ in range(5)]
        waiting.append(threading.Thread(target=store.run, args=(here.operation(),)))
        for each in waiting:
            each.start()
        while store._writer._queue.qsize() < len(waiting):
            pass
    for each in waiting:
        each.join(30)

    assert (5, 1) == (store.run(admin.stats()).due, gate.count("BEGIN"))
    assert here.thread == store._writer._thread.ident


def test_a_call_in_the_middle_of_a_call_of_the_same_thread_is_refused(store: Store):
    """Signal handlers that interrupt a call get an error instead of waiting for themselves; the call goes on."""
    errors = []

    def interrupt() -> None:
        """Enqueue in the middle of the transaction."""
        with pytest.raises(StoreBusy, match="in the middle of another call of this thread") as caught:
            store.run(jobs.enqueue([new()]))
        errors.append(caught.value)

    store.run(_Here(interrupt).operation())
    store.run(jobs.enqueue([new()]))

    assert (1, 1) == (len(errors), store.run(admin.stats()).due)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_call_leaves_the_connection_free(store: Store, error: type[BaseException]):
    """Calls that are interrupted in their transaction are rolled back, and the next call has the connection."""

    def interrupt() -> None:
        """Raise as the handler of a signal does."""
        raise error

    with pytest.raises(error):
        store.run(_Here(interrupt).operation())
    store.run(jobs.enqueue([new()]))

    assert 1 == store.run(admin.stats()).due


class Gate:
    """An operation that holds the writing lane until it is opened, and the statements that the lane runs after it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.statements: list[str] = []
        self._open = threading.Event()
        self._inside = threading.Event()

    def __enter__(self) -> Self:
        self._future = self.store.submit(Operation("gate", self._steps(), writes=True))
        self._inside.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._future.result(30)

    def _steps(self):
        self._inside.set()
        self._open.wait(30)
        yield Query("meta", {"key": "uid"})
        connection: sqlite3.Connection = self.store._writer._connection
        connection.set_trace_callback(self.statements.append)

    def count(self, word: str) -> int:
        """Return the number of statements that begin with a word."""
        return sum(statement.startswith(word) for statement in self.statements)


def submit(store: Store, *operations: Operation[Any]) -> list[Future[Any]]:
    """Queue operations."""
    return [store.submit(operation) for operation in operations]


def put(**options: Any) -> Operation[list[int]]:
    """Return the operation that enqueues one job and returns its id."""
    placing = jobs.enqueue([new(**options)])

    def steps():
        placed = yield from placing.steps
        return placed.ids

    return Operation(placing.name, steps(), placing.writes)


def test_collected_operations_share_one_transaction(store: Store):
    """Operations that gathered while the lane was busy share one commit, each in a savepoint (group commit)."""
    with Gate(store) as gate:
        futures = submit(store, *[put() for _ in range(20)])
    ids = [future.result(30) for future in futures]

    assert [[number] for number in range(1, 21)] == ids
    assert (2, 1, 20) == (gate.count("COMMIT"), gate.count("BEGIN"), gate.count("SAVEPOINT"))


def test_an_operation_alone_needs_no_savepoint(store: Store):
    """Operations without others in the queue have a transaction without a savepoint."""
    with Gate(store) as gate:
        futures = submit(store, put())
    futures[0].result(30)

    assert (1, 0) == (gate.count("BEGIN"), gate.count("SAVEPOINT"))


def test_a_failing_operation_undoes_only_itself(store: Store):
    """In a group, an operation that fails gets its error and leaves nothing; the others are committed."""
    with Gate(store) as gate:
        good, bad, worse, fine = submit(store, put(), put(queue=""), put(priority=2**70), put())

    assert ([1], [2]) == (good.result(30), fine.result(30))
    assert isinstance(bad.exception(30), StoreError)
    assert isinstance(worse.exception(30), StoreError)
    assert (1, 2) == (gate.count("BEGIN"), store.run(admin.stats()).due)


def test_a_group_that_fails_as_a_whole_leaves_nothing(store: Store):
    """If every operation of a group fails, each gets its own error and no write is committed."""
    with Gate(store) as gate:
        futures = submit(store, put(queue=""), put(task=""))
    errors = [str(future.exception(30)) for future in futures]

    assert "queue <> ''" in errors[0]
    assert "task <> ''" in errors[1]
    assert (1, 1) == (gate.count("COMMIT"), gate.statements.count("ROLLBACK"))
    assert 0 == store.run(admin.stats()).due


def test_a_transaction_that_ends_under_a_group_fails_it_all(store: Store):
    """If an error ends the transaction, every operation of the group fails."""

    def ends_it():
        store._writer._connection.rollback()
        message = "the disk is full"
        raise StoreError(message)
        yield

    with Gate(store):
        futures = submit(store, put(), Operation("ends_it", ends_it(), writes=True), put())
    errors = [str(future.exception(30)) for future in futures]

    assert ["the disk is full"] * 3 == errors
    assert [1] == store.run(put())


def test_a_cancelled_queued_operation_never_runs(store: Store):
    """Futures that were cancelled in the queue do not run; the other operations do."""
    with Gate(store):
        first, second, third = submit(store, put(), put(), put())
        assert second.cancel()

    assert ([1], [2]) == (first.result(30), third.result(30))
    with pytest.raises(CancelledError):
        second.result(30)


def test_a_group_of_cancelled_operations_is_no_transaction(store: Store):
    """If all queued operations were cancelled, no transaction begins."""
    with Gate(store) as gate:
        (only,) = submit(store, put())
        assert only.cancel()
    store.run(put())

    assert 1 == gate.count("BEGIN")


def test_a_task_that_is_cancelled_while_it_waits_never_writes(store: Store):
    """Cancelling a waiting task cancels its operation, if that has not begun."""

    async def cancelled() -> None:
        """Cancel a task that waits behind the gate."""
        with Gate(store):
            waiting = asyncio.ensure_future(store.arun(put()))
            await asyncio.sleep(0)  # noqa: TID251 - not a sleep: lets the task begin
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(cancelled())

    assert 0 == store.run(admin.stats()).due


def test_work_outside_of_transactions_joins_no_group(store: Store):
    """Migrations and other functions run between transactions, in the order of the queue."""
    with Gate(store) as gate:
        before, work, after = (
            *submit(store, put()),
            store._writer.call(lambda cursor: cursor.connection.in_transaction),
            *submit(store, put()),
        )

    assert ([1], False, [2]) == (before.result(30), work.result(30), after.result(30))
    assert 2 == gate.count("BEGIN")


def test_an_error_outside_of_transactions_is_raised_to_its_caller(store: Store):
    """Functions that fail raise their error for their caller, translated if it is SQLite's."""
    with pytest.raises(StoreError, match="no such function: nonsense"):
        store.script(lambda cursor: cursor.execute("SELECT nonsense()"))
    with pytest.raises(ZeroDivisionError):
        store.script(lambda _: 1 / 0)

    assert [1] == store.run(put())


def test_readers_do_not_wait_for_the_writer(store: Store):
    """While the writing lane is held, reading goes on."""
    store.run(put())
    with Gate(store):
        assert "send" == store.run(jobs.get(1)).task


def test_in_memory_reads_and_writes_take_turns():
    """Databases in memory have one connection, which reads and writes in the order of the queue."""
    store = open_store("memory://")
    with Gate(store) as gate:
        answers = submit(store, put(), admin.stats(), put(), put(), admin.stats())

    assert [[1], 1, [2], [3], 3] == [getattr(each, "due", each) for each in (a.result(30) for a in answers)]
    assert 4 == gate.count("BEGIN")
    store.close()


def test_operations_of_one_loop_iteration_share_a_commit(store: Store):
    """Operations that coroutines await in one iteration of the loop share one commit."""
    statements: list[str] = []
    store.run(admin.stats())
    store._writer._connection.set_trace_callback(statements.append)

    async def ask():
        return await asyncio.gather(store.arun(put()), store.arun(put()), store.arun(admin.stats()))

    first, second, _ = asyncio.run(ask())

    assert ([1], [2]) == (first, second)
    assert 1 == sum(statement.startswith("BEGIN IMMEDIATE") for statement in statements)


def test_a_closed_store_answers_every_coroutine(store: Store):
    """Coroutines that await an operation of a closed store get an error and do not wait forever."""
    store.close()

    async def ask():
        return await asyncio.gather(store.arun(put()), store.arun(admin.stats()), return_exceptions=True)

    assert [StoreClosed, StoreClosed] == [type(answer) for answer in asyncio.run(ask())]


def test_a_group_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch):
    """No more operations share a transaction than the bound allows, and the rest follow."""
    monkeypatch.setattr(store._writer, "_size", 8)
    with Gate(store) as gate:
        futures = submit(store, *[put() for _ in range(20)])

    assert 20 == len({future.result(30)[0] for future in futures})
    assert 3 == gate.count("BEGIN")


def test_an_operation_can_handle_an_error(store: Store):
    """Errors of the database are thrown into the operation, which may handle them."""

    def forgiving():
        try:
            yield Query("payload_insert", many=[{"job_id": 404, "payload": b""}])
        except StoreError as error:
            rows = yield Query("meta", {"key": "schema"})
            return str(error), rows

    text, rows = store.run(Operation("forgiving", forgiving(), writes=True))

    assert "FOREIGN KEY constraint failed" in text
    assert [("1",)] == rows


def test_an_operation_without_statements_returns(store: Store):
    """Operations without a statement return their result."""

    def silent():
        return 7
        yield

    assert 7 == store.run(Operation("silent", silent(), writes=False))
