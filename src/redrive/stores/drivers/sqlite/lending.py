"""Lends a connection to a handler: the handler's writes and the end of its attempt are one transaction.

While the transaction is open no other connection can write to the file, this process's own writer included. So the
block should be short, and what it asks of redrive meanwhile (an enqueue, say) must go over the same connection.

Handlers of one process wait for each other in `Turns`, before ``BEGIN IMMEDIATE``: a coroutine that waits costs no
thread. The one whose turn it is has a thread of the lender's for itself, so nothing can keep it from committing.

The transaction is redrive's to end: were the handler to commit it, its writes would be there without the completion.
SQLite itself refuses that, by an authorizer, for ``commit()``, ``with connection`` and the statement alike. Savepoints
are the handler's as it likes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

from redrive.errors import StoreError
from redrive.stores.drivers.sqlite.conversation import connect, drive
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.place import Place
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.drivers.sqlite.turns import Turns
from redrive.stores.loan import to_the_end
from redrive.stores.query import Operation

__all__ = ["AsyncSQLiteLoan", "Lender", "SQLiteLoan", "open_loan"]

R = TypeVar("R")

_latest: ContextVar[SQLiteLoan | None] = ContextVar("redrive_sqlite_loan", default=None)
"""The loan that was last made in this thread or asyncio task. Tasks and threads that inherit the context inherit it."""

_INHERITED: list[sqlite3.Connection] = []
"""Connections of the parent, after a fork. SQLite forbids the child to use them, and closing them counts as use."""


class SQLiteLoan:
    """A lent connection; see `redrive.stores.loan.Loan`.

    Args:
        connection: in a transaction.
        settings: which database.
        turns: where the next transaction waits for the end of this one.
        place: of the database.
    """

    def __init__(self, connection: sqlite3.Connection, settings: Settings, turns: Turns, place: Place) -> None:
        self.connection = connection
        self.settings = settings
        self._turns = turns
        self._place = place
        self._open = True
        self._pid = os.getpid()
        connection.set_authorizer(_not_to_be_ended)

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
        self._place.check()

    def rollback(self) -> None:
        """Undo everything and close."""
        self._end("ROLLBACK")

    def _end(self, statement: str) -> None:
        if self._pid != os.getpid():
            _INHERITED.append(self.connection)
            message = "the transaction belongs to the parent of this process: a forked child cannot end it"
            raise StoreError(message)
        try:
            with translated(self.settings, commits=statement == "COMMIT"):
                self.connection.set_authorizer(None)
                if self.connection.in_transaction:  # some errors, such as a full disk, have ended it already
                    self.connection.execute(statement)
                elif statement == "COMMIT":
                    message = "cannot commit: the transaction was rolled back by SQLite"
                    raise sqlite3.OperationalError(message)
        finally:
            self._close()

    def _close(self) -> None:
        self.connection.close()
        if self._open:
            self._open = False
            self._turns.release()


class AsyncSQLiteLoan:
    """The same for ``async def`` handlers: what may wait for the file's lock or for the disk does so in a thread.

    Args:
        loan: the loan.
        thread: the lender's.
    """

    def __init__(self, loan: SQLiteLoan, thread: ThreadPoolExecutor) -> None:
        self.connection = loan.connection
        self._loan = loan
        self._thread = thread

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction, at once: the lock is held already."""
        return self._loan.run(operation)

    async def commit(self) -> None:
        """Commit and close."""
        await to_the_end(self._in_thread(self._loan.commit))

    async def rollback(self) -> None:
        """Undo everything and close."""
        await to_the_end(self._in_thread(self._loan.rollback))

    async def _in_thread(self, end: Callable[[], None]) -> None:
        await asyncio.shield(asyncio.wrap_future(self._thread.submit(end)))


class Lender:
    """Lends connections to one database, one at a time.

    Args:
        settings: which database; one in a file.
        turns: of those who write to it.
        place: of the database.
    """

    def __init__(self, settings: Settings, turns: Turns, place: Place) -> None:
        self._settings = settings
        self._turns = turns
        self._place = place
        # One is enough: only the holder of the turn uses it.
        self._thread = ThreadPoolExecutor(1, "redrive-lend")

    def lend(self) -> SQLiteLoan:
        """Open a connection and begin its transaction.

        Returns:
            The loan.

        Raises:
            StoreError: it cannot be opened, or another connection writes for longer than the busy timeout.
        """
        self._turns.take()
        loan = self._begin()
        _latest.set(loan)
        return loan

    async def alend(self) -> AsyncSQLiteLoan:
        """The same, in a thread. A task that is cancelled while it waits leaves no transaction open."""
        await self._turns.atake()
        opening = self._thread.submit(self._begin)
        try:
            loan = await asyncio.wrap_future(opening)
        except BaseException:
            opening.add_done_callback(self._give_up)
            raise
        _latest.set(loan)
        return AsyncSQLiteLoan(loan, self._thread)

    def _begin(self) -> SQLiteLoan:
        """Begin a transaction; a failure ends the turn."""
        try:
            self._place.check()
            with translated(self._settings):
                connection = connect(self._settings)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return SQLiteLoan(connection, self._settings, self._turns, self._place)
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            self._turns.release()
            raise

    def _give_up(self, opening: Future[SQLiteLoan]) -> None:
        """End a transaction whose task was cancelled before it had begun."""
        if opening.cancelled():
            self._turns.release()
        elif opening.exception() is None:
            opening.result().rollback()


def open_loan() -> SQLiteLoan | None:
    """Return the loan whose transaction is open in this thread or asyncio task, if there is one.

    Its transaction holds the lock of its file: whatever this thread or task writes to that file on another connection
    would wait for itself.
    """
    loan = _latest.get()
    return loan if loan is not None and loan.is_open else None


def _not_to_be_ended(action: int, *_names: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
