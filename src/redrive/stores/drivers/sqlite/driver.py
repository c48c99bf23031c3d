"""Runs operations on one SQLite database; the essay stands in `redrive.stores.drivers.sqlite`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigurationError, StoreBusy, StoreClosed, StoreMismatch, StoreOpenError
from redrive.stores.drivers import files, forks
from redrive.stores.drivers.sqlite import log
from redrive.stores.drivers.sqlite.connection_thread import GROUP, ConnectionThread, WorkItem
from redrive.stores.drivers.sqlite.conversation import connect, drive, savepoint
from redrive.stores.drivers.sqlite.errors import translated
from redrive.stores.drivers.sqlite.external import begins_by_itself, check_same_database, same_file
from redrive.stores.drivers.sqlite.gathering import Gathering
from redrive.stores.drivers.sqlite.lending import AsyncSQLiteLoan, Lender, SQLiteLoan, open_loan
from redrive.stores.drivers.sqlite.numbers import advance, remember
from redrive.stores.drivers.sqlite.place import Place
from redrive.stores.drivers.sqlite.settings import Settings
from redrive.stores.drivers.sqlite.turns import Turns
from redrive.stores.drivers.sqlite.watcher import Watcher
from redrive.stores.query import Operation

__all__ = ["SQLiteDriver"]

R = TypeVar("R")

LOOK = 0.003
"""Seconds between two looks whether there is a change."""

BEFORE_FORK = 2.0
"""Seconds that a fork waits for the end of what is being written or read."""

_INHERITED: list[object] = []
"""What the parent had open, after a fork. SQLite forbids the child to use it, and closing it counts as use."""


class SQLiteDriver:
    """Runs operations on one SQLite database.

    Args:
        settings: which, and how.

    Attributes:
        library: who opens the file; see `redrive.stores.drivers.files`.
        group: operations that may share one transaction, each in a savepoint.
        alone: does one connection serve everything?
        lasting: no session lasts as long as its process; that it has died is seen by those on the same host.
        local: it goes by the clock of this machine.
    """

    dialect = "sqlite"
    library = files.SQLITE
    group = GROUP
    lasting = False
    local = True
    alone = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._start = threading.Lock()
        self._pid = 0
        self._closed = False
        self._turns = Turns(settings)
        self._place = Place(settings)
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread | None = None
        self._watcher: Watcher | None = None
        self._lender: Lender | None = None
        self._gathering = Gathering(self._lanes)
        self._resting = contextlib.ExitStack()
        self._rests = False
        self._unfit = False
        forks.follow(self)

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Run an operation in one transaction.

        Args:
            operation: what to run; its generator is used up.

        Returns:
            A future of its result, or of its error.

        Raises:
            StoreClosed: the driver has been closed.
        """
        writer, reader = self._lanes()
        return (writer if operation.writes else reader).submit(operation)

    def run(
        self,
        operation: Operation[R],
        *,
        using: Any = None,  # noqa: ANN401 - the user's
        timeout: float = math.inf,
    ) -> R:
        """Run an operation and wait for it; see `submit` and `run_on`.

        Args:
            operation: what to run.
            using: the user's own connection.
            timeout: not used: a file has no server that could fail to answer, and ``busy_timeout`` limits the wait for
                another process.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        del timeout
        if using is not None:
            return self.run_on(using, operation)
        self._check_loan(operation)
        return self.submit(operation).result()

    async def arun(self, operation: Operation[R], *, using: Any = None) -> R:  # noqa: ANN401 - the user's
        """Run an operation and await it; see `submit`.

        Args:
            operation: what to run.
            using: the user's own connection, used from this thread as by the user.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        if using is not None:
            return self.run_on(using, operation)
        self._check_loan(operation)
        errand = WorkItem(operation.steps, writes=operation.writes)
        self._gathering.join(asyncio.get_running_loop(), errand)
        result: R = await asyncio.wrap_future(errand.future)
        return result

    def run_on(self, connection: sqlite3.Connection, operation: Operation[R]) -> R:
        """Run an operation inside the user's own transaction.

        What it writes is there if and only if the user commits. On a connection in autocommit mode without an open
        transaction it is a transaction of its own.

        Args:
            connection: the user's, to the same database.
            operation: what to run.

        Returns:
            Its result.

        Raises:
            StoreMismatch: the connection belongs to another database.
        """
        if not isinstance(connection, sqlite3.Connection):
            message = f"using= takes a sqlite3.Connection to {self.settings}, not a {type(connection).__qualname__}"
            raise StoreMismatch(message)
        with translated(self.settings):
            cursor = connection.cursor()
            cursor.row_factory = None
            check_same_database(cursor, self.settings)
            self._place.check()
            if not connection.in_transaction and begins_by_itself(connection):
                cursor.execute(f"BEGIN {connection.isolation_level}")
            with savepoint(cursor, self.settings):
                return self._drive_on(cursor, operation)

    def _drive_on(self, cursor: sqlite3.Cursor, operation: Operation[R]) -> R:
        """Run an operation in a transaction that may be rolled back; its numbers are not given again."""
        if not operation.wakes or self.settings.path is None:
            return drive(cursor, operation.steps, self.settings)
        advance(cursor, self.settings.path)
        result = drive(cursor, operation.steps, self.settings)
        remember(cursor, self.settings.path)
        return result

    def lend(self) -> SQLiteLoan:
        """Lend a connection of its own, in a transaction; see `redrive.stores.loan.Loan`.

        Raises:
            ConfigurationError: one connection serves everything.
            StoreError: it cannot be opened, or somebody else writes for too long.
        """
        return self._lenders().lend()

    async def alend(self) -> AsyncSQLiteLoan:
        """Lend a connection of its own to a coroutine; see `lend`."""
        return await self._lenders().alend()

    def _check_loan(self, operation: Operation[Any]) -> None:
        """Refuse a write that would wait for the transaction of the handler that wants it.

        Raises:
            StoreBusy: a handler's transaction is open here, and the operation writes on another connection.
        """
        if operation.writes and self._is_lent_here():
            message = (
                f"{self.settings} is locked by the ctx.transaction() of this handler, so this call would wait for "
                "itself: pass the connection of the block, as in enqueue(..., using=connection), or call it outside "
                "the block"
            )
            raise StoreBusy(message)

    def _is_lent_here(self) -> bool:
        """Return True if this thread or asyncio task holds the lock of the file by ``ctx.transaction()``."""
        loan, path = open_loan(), self.settings.path
        return loan is not None and path is not None and same_file(path, str(loan.settings.path))

    def _lenders(self) -> Lender:
        self._lanes()
        if self._lender is None:
            message = (
                f"{self.settings} has one connection, which redrive itself works on: ctx.transaction() needs "
                "sqlite:///app.db, in a file, or PostgreSQL"
            )
            raise ConfigurationError(message)
        return self._lender

    def script(self, work: Callable[[sqlite3.Cursor], R]) -> R:
        """Run free work, such as a migration, on the writing connection, between transactions.

        Args:
            work: gets a cursor in autocommit mode.

        Returns:
            What it returned.
        """
        writer, _ = self._lanes()
        return writer.call(work).result()

    async def trim_log(self) -> int:
        """Empty the log if it is large, between two transactions.

        Returns:
            The bytes of a large log that a transaction still reads from, and else 0.
        """
        writer, _ = self._lanes()
        if self._lender is None or not log.excess(self.settings):
            return 0
        await asyncio.wrap_future(writer.call(lambda cursor: log.empty(cursor, self.settings)))
        return log.excess(self.settings)

    def version(self) -> int:
        """A number that changes when any connection, of this process or another, has committed a change.

        Costs a few microseconds: it looks at the shared index of the log, not at the file.

        Returns:
            The number; compare it with an earlier one.
        """
        self._lanes()
        if self._watcher is None:
            return self._writer.commits if self._writer else 0
        return self._watcher.version()

    async def watch(self, clock: Clock, lock_id: int | None, idle: asyncio.Event | None) -> AsyncGenerator[None, None]:
        """Yield at once, and then whenever any connection, of this process or another, has committed a change.

        The only news that crosses processes is the file itself. Looking costs microseconds, so it looks 333 times a
        second: an idle worker spends some 7 % of a core on that and its other duties, and a job is picked up within
        5 ms at the median (DESIGN, Cost). A busy one does not look: it will see for itself what is due when it has a
        free slot.

        Args:
            clock: to rest by.
            lock_id: not used; see `lasting`.
            idle: set while there is somebody who waits for news; nobody looks else.
        """
        del lock_id
        seen = -1
        while True:
            version = self.version()
            if version != seen:
                seen = version
                yield
            if idle is not None:
                await idle.wait()
            await clock.asleep(LOOK)

    def close(self) -> None:
        """Finish what is queued and close the connections. Idempotent."""
        with self._start:
            done, self._closed = self._closed, True
            if done or self._pid != os.getpid():
                return
            for lane in {self._writer, self._reader} - {None}:
                lane.close()  # type: ignore[union-attr]
            if self._watcher is not None:
                self._watcher.close()
            if self.settings.path is not None:
                files.let_go(self.settings.path, self.library)

    def _lanes(self) -> tuple[ConnectionThread, ConnectionThread]:
        if self._pid != os.getpid() or self._closed:
            self._open()
        assert self._writer  # noqa: S101 - _open has set both or raised
        assert self._reader  # noqa: S101
        return self._writer, self._reader

    def _open(self) -> None:
        with self._start:
            if self._closed:
                message = f"{self.settings} has been closed"
                raise StoreClosed(message)
            if self._pid == os.getpid():
                return
            if self._unfit:
                message = (
                    f"{self.settings} cannot be used in this process: it was forked while the parent was in the middle "
                    "of a transaction, which SQLite does not survive. Fork outside of ctx.transaction(), or start the "
                    "process with multiprocessing's 'spawn'"
                )
                raise StoreOpenError(message)
            first, *others = self._connections(1 if self.alone or self.settings.path is None else 3)
            self._reader = self._writer = self._lane(first, "write")
            if others:
                self._reader = self._lane(others[0], "read")
                self._watcher = Watcher(self.settings, others[1], self._place, self._connect_again)
                self._lender = Lender(self.settings, self._turns, self._place)
            self._pid = os.getpid()

    def _lane(self, connection: sqlite3.Connection, kind: str) -> ConnectionThread:
        return ConnectionThread(
            self.settings,
            connection,
            kind,
            turns=self._turns,
            place=self._place,
            connect=self._connect_again,
            size=self.group,
        )

    # -------------------------------------------------------------------------------------------------------- forks

    def before_fork(self) -> None:
        """Close the connections: SQLite's locks and its memory of them belong to the process that took them."""
        self._resting = contextlib.ExitStack()
        self._rests = self._rest(SystemClock().monotonic() + BEFORE_FORK)

    def after_fork_in_parent(self) -> None:
        """Go on; each connection is opened again when it is used."""
        self._resting.close()

    def after_fork_in_child(self) -> None:
        """Forget what the parent had open."""
        self._unfit = not self._rests
        if self._pid:
            _INHERITED.append((self._writer, self._reader, self._watcher, self._lender, self._turns, self._resting))
        self._writer = self._reader = self._watcher = self._lender = None
        self._start = threading.Lock()
        self._turns = Turns(self.settings)
        self._gathering = Gathering(self._lanes)

    def _rest(self, until: float) -> bool:
        """Come to rest; return False if another thread is still in the middle of something then."""

        def left() -> float:
            return max(until - SystemClock().monotonic(), 0.0)

        if not self._start.acquire(timeout=left()):
            return False
        self._resting.callback(self._start.release)
        if self._closed or self._pid != os.getpid():
            return True
        try:
            self._turns.take(own=True, timeout=0 if self._is_lent_here() else left())
        except StoreBusy:
            return False
        self._resting.callback(self._turns.release)
        for each in {self._writer, self._reader, self._watcher} - {None}:
            if not each.rest(left(), close=self._lender is not None):  # type: ignore[union-attr]
                return False
            self._resting.callback(each.resume)  # type: ignore[union-attr]
        return True

    # -------------------------------------------------------------------------------------------------- connections

    def _connections(self, count: int) -> list[sqlite3.Connection]:
        """Open so many connections, or none."""
        opened: list[sqlite3.Connection] = []
        if self.settings.path is not None:
            files.occupy(self.settings.path, self.library)
            files.make(self.settings.path)
        try:
            with translated(self.settings, opening=True):
                while len(opened) < count:
                    opened.append(self._connect())
            self._place.remember()
        except BaseException:
            for each in opened:
                each.close()
            if self.settings.path is not None:
                files.let_go(self.settings.path, self.library)
            raise
        return opened

    def _connect(self) -> sqlite3.Connection:
        return connect(self.settings)

    def _connect_again(self) -> sqlite3.Connection:
        """Open a connection in place of one that was closed; never to another file, nor to a new one."""
        self._place.check()
        return self._connect()
