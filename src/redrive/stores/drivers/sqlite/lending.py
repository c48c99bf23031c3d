"""Lends a connection to a handler: the handler's writes and the end of its attempt are one transaction.

While the transaction is open nobody else can write to the file, this process's own writer included: it waits, as for
another process. So the block should be short, and what it asks of redrive meanwhile (an enqueue, say) must go over the
same connection.

The transaction is redrive's to end: were the handler to commit it, its writes would be there without the completion.
SQLite itself refuses that, by an authorizer, for ``commit()``, ``with connection`` and the statement alike. Savepoints
are the handler's as it likes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextvars import ContextVar
from typing import TypeVar

from redrive.stores.drivers.sqlite.conversation import connect, drive
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.drivers.sqlite.trouble import translated
from redrive.stores.loan import to_the_end
from redrive.stores.query import Operation

__all__ = ["AsyncSQLiteLoan", "SQLiteLoan", "alend", "lend", "open_loan"]

R = TypeVar("R")

_latest: ContextVar[SQLiteLoan | None] = ContextVar("redrive_sqlite_loan", default=None)
"""The loan that was last made in this thread or asyncio task. Tasks and threads that inherit the context inherit it."""


class SQLiteLoan:
    """A lent connection; see `redrive.stores.loan.Loan`.

    Args:
        connection: in a transaction.
        settings: which database.

    Attributes:
        is_open: the transaction has not ended.
    """

    def __init__(self, connection: sqlite3.Connection, settings: Settings) -> None:
        self.connection = connection
        self.settings = settings
        self.is_open = True
        connection.set_authorizer(_not_to_be_ended)

    def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction."""
        with translated(self.settings):
            cursor = self.connection.cursor()
            cursor.row_factory = None
            return drive(cursor, operation.steps, self.settings)

    def commit(self) -> None:
        """Commit and close."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Undo everything and close."""
        self._end("ROLLBACK")

    def _end(self, statement: str) -> None:
        try:
            with translated(self.settings):
                self.connection.set_authorizer(None)
                if self.connection.in_transaction:  # some errors, such as a full disk, have ended it already
                    self.connection.execute(statement)
                elif statement == "COMMIT":
                    message = "cannot commit: the transaction was rolled back by SQLite"
                    raise sqlite3.OperationalError(message)
        finally:
            self.is_open = False
            self.connection.close()


class AsyncSQLiteLoan:
    """The same for ``async def`` handlers: what may wait for the file's lock or for the disk does so in a thread.

    Args:
        loan: the loan.
    """

    def __init__(self, loan: SQLiteLoan) -> None:
        self.connection = loan.connection
        self._loan = loan

    async def run(self, operation: Operation[R]) -> R:
        """Run an operation in the transaction, at once: the lock is held already."""
        return self._loan.run(operation)

    async def commit(self) -> None:
        """Commit and close."""
        await to_the_end(asyncio.to_thread(self._loan.commit))

    async def rollback(self) -> None:
        """Undo everything and close."""
        await to_the_end(asyncio.to_thread(self._loan.rollback))


def lend(settings: Settings) -> SQLiteLoan:
    """Open a connection and begin its transaction.

    Args:
        settings: which database; one in a file.

    Returns:
        The loan.

    Raises:
        StoreError: it cannot be opened, or somebody else writes for longer than the busy timeout.
    """
    with translated(settings):
        connection = connect(settings)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            connection.close()
            raise
        loan = SQLiteLoan(connection, settings)
        _latest.set(loan)
        return loan


async def alend(settings: Settings) -> AsyncSQLiteLoan:
    """The same, in a thread. A task that is cancelled while it waits leaves no transaction open."""
    opening = _Opening(settings)
    try:
        loan = await asyncio.to_thread(opening.lend)
    except BaseException:
        opening.abandon()
        raise
    _latest.set(loan)
    return AsyncSQLiteLoan(loan)


def open_loan() -> SQLiteLoan | None:
    """Return the loan whose transaction is open in this thread or asyncio task, if there is one.

    Its transaction holds the lock of its file: whatever this thread or task writes to that file on another connection
    would wait for itself.
    """
    loan = _latest.get()
    return loan if loan is not None and loan.is_open else None


class _Opening:
    """A loan on its way, which nobody may want any more when it comes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loan: SQLiteLoan | None = None
        self._abandoned = False

    def lend(self) -> SQLiteLoan:
        loan = lend(self._settings)
        with self._lock:
            self._loan = loan
            if self._abandoned:
                loan.rollback()
        return loan

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._loan is not None:
                self._loan.rollback()


def _not_to_be_ended(action: int, *_names: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
