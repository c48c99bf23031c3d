"""The store on an SQLite database; `redrive.stores.drivers.sqlite` describes its design."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from typing import Any

from redrive import forks
from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigurationError, StoreBusy, StoreClosed, StoreOpenError
from redrive.stores.drivers import files
from redrive.stores.drivers.sqlite import external, transactions
from redrive.stores.drivers.sqlite.connection import DatabaseFile, Watcher, connect, excess_log, same_file, truncate_log
from redrive.stores.drivers.sqlite.connection_thread import GROUP, ConnectionThread, LoopBatches, QueuedItem
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.settings import SQLiteSettings
from redrive.stores.drivers.sqlite.write_queue import WriteQueue
from redrive.stores.query import Operation, R
from redrive.stores.store import Store

# Seconds between two polls for commits.
POLL = 0.003

# Seconds that a fork waits for the end of transactions.
BEFORE_FORK = 2.0

# Objects of the parent, after a fork. SQLite forbids the child to use its connections, and closing them counts as use.
_INHERITED: list[object] = []


class SQLiteStore(Store, forks.Member):
    """A store on an SQLite database.

    Attributes:
        library: library that opens the file, for `redrive.stores.drivers.files`.
        alone: True if one connection serves everything.
    """

    dialect = "sqlite"
    library = files.SQLITE
    group = GROUP
    # No session ends with its process: only workers on the same host can see that it has died.
    lasting = False
    local = True
    alone = False

    def __init__(self, url: str, settings: SQLiteSettings) -> None:
        super().__init__(url)
        self.settings = settings
        self._start = threading.Lock()
        self._pid = 0
        self._closed = False
        self._write_queue = WriteQueue(settings)
        self._file = DatabaseFile(settings)
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread | None = None
        self._watcher: Watcher | None = None
        self._transactions: transactions.SQLiteTransactions | None = None
        self._batches = LoopBatches(self._threads)
        self._fork_pauses = contextlib.ExitStack()
        self._paused = False
        self._unusable = False
        forks.register(self)

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Queue an operation and return a future of its result; raise `StoreClosed` after `close`."""
        writer, reader = self._threads()
        return (writer if operation.writes else reader).submit(operation)

    def run(self, operation: Operation[R], *, using: object = None, timeout: float = math.inf) -> R:
        """Run an operation in one transaction and return its result; see `Store.run`."""
        # A file has no server that could fail to answer; busy_timeout limits the wait for its lock.
        del timeout
        if using is not None:
            return self.run_on(using, operation)
        self._refuse_self_wait(operation)
        writer, reader = self._threads()
        return (writer if operation.writes else reader).run(operation)

    async def arun(self, operation: Operation[R], *, using: object = None) -> R:
        """Run an operation in one transaction and return its result; see `Store.run`.

        The user's connection is used in this thread, as the user does.
        """
        if using is not None:
            return self.run_on(using, operation)
        self._refuse_self_wait(operation)
        item = QueuedItem(operation.steps, writes=operation.writes)
        self._batches.add(asyncio.get_running_loop(), item)
        result: R = await asyncio.wrap_future(item.future)
        return result

    def run_on(self, connection: Any, operation: Operation[R]) -> R:  # noqa: ANN401 - checked there
        """Run an operation in the user's own transaction; see `redrive.stores.drivers.sqlite.external`."""
        return external.run_on(connection, operation, self.settings, self._file)

    def begin(self, asked: Operation[bool] | None = None) -> transactions.SQLiteTransaction:
        """Begin a transaction on a connection of its own, for a handler; see `Store.begin`."""
        return self._source().begin(asked)

    async def abegin(self, asked: Operation[bool] | None = None) -> transactions.AsyncSQLiteTransaction:
        """Begin a transaction on a connection of its own, for a coroutine; see `Store.begin`."""
        return await self._source().abegin(asked)

    def _refuse_self_wait(self, operation: Operation[Any]) -> None:
        """Raise `StoreBusy` if a write would wait for the open transaction of the handler that calls it."""
        if operation.writes and self._has_open_transaction():
            raise StoreBusy(
                f"{self.settings} is locked by the ctx.transaction() of this handler, so this call would wait for "
                "itself: pass the connection of the block, as in enqueue(..., using=connection), or call it outside "
                "the block"
            )

    def _has_open_transaction(self) -> bool:
        """Return True if this thread or asyncio task holds the lock of the file by ``ctx.transaction()``."""
        transaction, path = transactions.open_transaction(), self.settings.path
        return transaction is not None and path is not None and same_file(path, str(transaction.settings.path))

    def _source(self) -> transactions.SQLiteTransactions:
        self._threads()
        if self._transactions is None:
            raise ConfigurationError(
                f"{self.settings} has one connection, which redrive itself works on: ctx.transaction() needs "
                "sqlite:///app.db, in a file, or PostgreSQL"
            )
        return self._transactions

    def script(self, function: Callable[[sqlite3.Cursor], R]) -> R:
        """Call a function, such as a migration, with a cursor of the writing connection in autocommit mode."""
        writer, _ = self._threads()
        return writer.call(function).result()

    async def trim_log(self) -> int:
        """Truncate the log if it is large, between two transactions; see `Store.trim_log`."""
        writer, _ = self._threads()
        if self._transactions is None or not excess_log(self.settings):
            return 0
        await asyncio.wrap_future(writer.call(lambda cursor: truncate_log(cursor, self.settings)))
        return excess_log(self.settings)

    # A call costs a few microseconds: SQLite reads the shared index of the log, not the file.
    def version(self) -> int:
        """Return a number that changes when any connection of this or another process has committed a change."""
        self._threads()
        if self._watcher is None:
            return self._writer.commits if self._writer else 0
        return self._watcher.version()

    # Processes share no signal but the file. A poll costs microseconds, so there are 333 a second: an idle worker
    # spends some 7 % of a core on them and its other duties, and a job starts within 5 ms at the median. A worker
    # without a free slot does not poll: it claims what is due when a slot becomes free.
    async def watch(
        self,
        clock: Clock,
        *,
        lock_id: int | None = None,
        idle: asyncio.Event | None = None,
        again: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[None, None]:
        """Yield at once, and then when any connection of this or another process has committed a change."""
        del lock_id, again
        seen = -1
        while True:
            version = self.version()
            if version != seen:
                seen = version
                yield
            if idle is not None:
                await idle.wait()
            await clock.asleep(POLL)

    def close(self) -> None:
        """Finish queued operations and close the connections. Idempotent."""
        with self._start:
            done, self._closed = self._closed, True
            if done or self._pid != os.getpid():
                return
            for thread in {self._writer, self._reader} - {None}:
                thread.close()  # type: ignore[union-attr]
            if self._watcher is not None:
                self._watcher.close()
            if self.settings.path is not None:
                files.unregister(self.settings.path, self.library)

    # -------------------------------------------------------------------------------------------------- connections

    def _threads(self) -> tuple[ConnectionThread, ConnectionThread]:
        """Return the thread that writes and the thread that reads."""
        if self._pid != os.getpid() or self._closed:
            self._open()
        assert self._writer  # _open has set both or raised
        assert self._reader
        return self._writer, self._reader

    def _open(self) -> None:
        with self._start:
            if self._closed:
                raise StoreClosed(f"{self.settings} has been closed")
            if self._pid == os.getpid():
                return
            if self._unusable:
                raise StoreOpenError(
                    f"{self.settings} cannot be used in this process: it was forked while the parent was in the middle "
                    "of a transaction, which SQLite does not survive. Fork outside of ctx.transaction(), or start the "
                    "process with multiprocessing's 'spawn'"
                )
            first, *others = self._connections(1 if self.alone or self.settings.path is None else 3)
            self._reader = self._writer = self._thread(first, "write")
            if others:
                self._reader = self._thread(others[0], "read")
                self._watcher = Watcher(self.settings, others[1], self._file, self._reconnect)
                self._transactions = transactions.SQLiteTransactions(self.settings, self._write_queue, self._file)
            self._pid = os.getpid()

    def _thread(self, connection: sqlite3.Connection, kind: str) -> ConnectionThread:
        return ConnectionThread(
            self.settings,
            connection,
            kind,
            write_queue=self._write_queue,
            file=self._file,
            connect=self._reconnect,
            size=self.group,
        )

    def _connections(self, count: int) -> list[sqlite3.Connection]:
        """Open all connections, or none."""
        opened: list[sqlite3.Connection] = []
        if self.settings.path is not None:
            files.register(self.settings.path, self.library)
            files.create(self.settings.path)
        try:
            with translated(self.settings, opening=True):
                while len(opened) < count:
                    opened.append(self._connect())
            self._file.remember()
        except BaseException:
            for connection in opened:
                connection.close()
            if self.settings.path is not None:
                files.unregister(self.settings.path, self.library)
            raise
        return opened

    def _connect(self) -> sqlite3.Connection:
        return connect(self.settings)

    def _reconnect(self) -> sqlite3.Connection:
        """Open a connection in place of a closed one, never to another file or a new one."""
        self._file.check()
        return self._connect()

    # -------------------------------------------------------------------------------------------------------- forks

    def before_fork(self) -> None:
        """Close the connections: SQLite's locks belong to the process that took them."""
        self._fork_pauses = contextlib.ExitStack()
        self._paused = self._pause(SystemClock().monotonic() + BEFORE_FORK)

    def after_fork_in_parent(self) -> None:
        """Resume; each connection is opened again when it is used."""
        self._fork_pauses.close()

    def after_fork_in_child(self) -> None:
        """Drop the connections and threads of the parent."""
        self._unusable = not self._paused
        if self._pid:
            _INHERITED.append(
                (self._writer, self._reader, self._watcher, self._transactions, self._write_queue, self._fork_pauses)
            )
        self._writer = self._reader = self._watcher = self._transactions = None
        self._start = threading.Lock()
        self._write_queue = WriteQueue(self.settings)
        self._batches = LoopBatches(self._threads)

    def _pause(self, until: float) -> bool:
        """Pause all connections; return False if a transaction is still open at that instant."""

        def left() -> float:
            return max(until - SystemClock().monotonic(), 0.0)

        if not self._start.acquire(timeout=left()):
            return False
        self._fork_pauses.callback(self._start.release)
        if self._closed or self._pid != os.getpid():
            return True
        try:
            self._write_queue.acquire(writer=True, timeout=0 if self._has_open_transaction() else left())
        except StoreBusy:
            return False
        self._fork_pauses.callback(self._write_queue.release)
        for each in {self._writer, self._reader, self._watcher} - {None}:
            if not each.pause(left(), close=self._transactions is not None):  # type: ignore[union-attr]
                return False
            self._fork_pauses.callback(each.resume)  # type: ignore[union-attr]
        return True
