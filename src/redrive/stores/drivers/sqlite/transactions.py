"""Transactions for handlers: the handler's writes and the end of its attempt are one transaction.

While such a transaction is open, no other connection can write to the file, including this process's own writer. So the
block should be short, and calls of redrive inside it, such as an enqueue, must use the same connection.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar

from redrive.errors import StoreError
from redrive.stores.drivers.sqlite.connection import DatabaseFile, connect, drive
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.drivers.sqlite.write_queue import WriteQueue
from redrive.stores.query import Operation, R
from redrive.stores.store import run_to_completion

# The last transaction of this thread or asyncio task. Tasks and threads that inherit the context inherit it.
_latest: ContextVar[SQLiteTransaction | None] = ContextVar("redrive_sqlite_transaction", default=None)

# Connections of the parent, after a fork. SQLite forbids the child to use them, and closing them counts as use.
_INHERITED: list[sqlite3.Connection] = []


class SQLiteTransaction:
    """A `StoreTransaction` on an SQLite file."""

    def __init__(
        self, connection: sqlite3.Connection, settings: SQLiteSettings, write_queue: WriteQueue, file: DatabaseFile
    ) -> None:
        self.connection = connection
        self.settings = settings
        self.is_current = True
        self._write_queue = write_queue
        self._file = file
        self._open = True
        self._pid = os.getpid()
        # Only redrive ends the transaction: a handler that committed it would commit its writes without the completion.
        # SQLite itself refuses that, for commit(), ``with connection`` and the statement. Handlers may use savepoints.
        connection.set_authorizer(_deny_end)

    @property
    def is_open(self) -> bool:
        """Return True while the transaction is open in this process."""
        return self._open and self._pid == os.getpid()

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        with translated(self.settings):
            cursor = self.connection.cursor()
            cursor.row_factory = None
            return drive(cursor, operation.steps, self.settings)

    def commit(self) -> None:
        """Commit and close."""
        self._end("COMMIT")
        self._file.check()

    def rollback(self) -> None:
        """Roll back and close."""
        self._end("ROLLBACK")

    def _end(self, statement: str) -> None:
        if self._pid != os.getpid():
            _INHERITED.append(self.connection)
            raise StoreError("the transaction belongs to the parent of this process: a forked child cannot end it")
        try:
            with translated(self.settings, commits=statement == "COMMIT"):
                self.connection.set_authorizer(None)
                # Some errors, such as a full disk, have ended it already.
                if self.connection.in_transaction:
                    self.connection.execute(statement)
                elif statement == "COMMIT":
                    raise sqlite3.OperationalError("cannot commit: the transaction was rolled back by SQLite")
        finally:
            self._close()

    def _close(self) -> None:
        self.connection.close()
        if self._open:
            self._open = False
            self._write_queue.release()


class AsyncSQLiteTransaction:
    """An `AsyncStoreTransaction` on an SQLite file: a thread waits for the disk."""

    def __init__(self, transaction: SQLiteTransaction, thread: ThreadPoolExecutor) -> None:
        self.connection = transaction.connection
        self.is_current: bool = transaction.is_current
        self._transaction = transaction
        self._thread = thread

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        # In this thread: the transaction holds the lock of the file already.
        return self._transaction.run(operation)

    async def commit(self) -> None:
        """Commit and close."""
        await run_to_completion(self._in_thread(self._transaction.commit))

    async def rollback(self) -> None:
        """Roll back and close."""
        await run_to_completion(self._in_thread(self._transaction.rollback))

    async def _in_thread(self, end: Callable[[], None]) -> None:
        await asyncio.shield(asyncio.wrap_future(self._thread.submit(end)))


# Handlers of one process wait for each other in the `WriteQueue`, before ``BEGIN IMMEDIATE``: a coroutine that waits
# costs no thread.
class SQLiteTransactions:
    """A source of transactions on one file, one at a time."""

    def __init__(self, settings: SQLiteSettings, write_queue: WriteQueue, file: DatabaseFile) -> None:
        self._settings = settings
        self._write_queue = write_queue
        self._file = file
        # The coroutine at the head of the queue has a thread for its commit, which no other work can occupy. One thread
        # is enough: only the holder of the write lock uses it.
        self._thread = ThreadPoolExecutor(1, "redrive-transaction")

    def begin(self, asked: Operation[bool] | None = None) -> SQLiteTransaction:
        """Open a connection and begin its transaction; see `redrive.stores.store.Store.begin`.

        Raises:
            StoreError: it cannot be opened, or another connection writes for longer than the busy timeout.
        """
        self._write_queue.acquire()
        transaction = self._begin(asked)
        _latest.set(transaction)
        return transaction

    async def abegin(self, asked: Operation[bool] | None = None) -> AsyncSQLiteTransaction:
        """Open a connection and begin its transaction in a thread; see `begin`."""
        await self._write_queue.aacquire()
        opening = self._thread.submit(self._begin, asked)
        try:
            transaction = await asyncio.wrap_future(opening)
        except BaseException:
            opening.add_done_callback(self._abandon)
            raise
        _latest.set(transaction)
        return AsyncSQLiteTransaction(transaction, self._thread)

    def _begin(self, asked: Operation[bool] | None) -> SQLiteTransaction:
        """Begin a transaction; if that fails, release the write lock."""
        try:
            self._file.check()
            with translated(self._settings):
                connection = connect(self._settings)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    transaction = SQLiteTransaction(connection, self._settings, self._write_queue, self._file)
                    if asked is not None:
                        transaction.is_current = transaction.run(asked)
                    return transaction
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            self._write_queue.release()
            raise

    def _abandon(self, opening: Future[SQLiteTransaction]) -> None:
        """Roll back the transaction of a task that was cancelled before it began."""
        if opening.cancelled():
            self._write_queue.release()
        elif opening.exception() is None:
            opening.result().rollback()


# The transaction holds the lock of its file: a write of the same thread on another connection would wait for itself.
def open_transaction() -> SQLiteTransaction | None:
    """Return the handler's transaction that is open in this thread or asyncio task, or None."""
    transaction = _latest.get()
    return transaction if transaction is not None and transaction.is_open else None


def _deny_end(action: int, *_names: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
