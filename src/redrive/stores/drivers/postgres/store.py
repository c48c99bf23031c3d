"""The store on a PostgreSQL database; `redrive.stores.drivers.postgres` describes its design."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING

from redrive import forks
from redrive.clock import Clock, SystemClock
from redrive.errors import StoreClosed, StoreError, StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.drivers.postgres import listener
from redrive.stores.drivers.postgres.aio import AsyncRunner
from redrive.stores.drivers.postgres.settings import PostgresSettings
from redrive.stores.drivers.postgres.timeline import SERVER, Timeline
from redrive.stores.operations.admin import identify, server
from redrive.stores.query import Operation, R
from redrive.stores.store import Store

if TYPE_CHECKING:
    from redrive.stores.drivers.postgres.sync import MigrationCursor, SyncRunner
    from redrive.stores.drivers.postgres.transactions import (
        AsyncPostgresTransaction,
        PostgresTransaction,
        PostgresTransactions,
    )

# To import psycopg takes a worker longer than its first claim, and coroutines do not need it. So the methods that use
# psycopg import its modules.

# How often the value of `version` changes in a second.
POLLS = 20

# Connections of the parent, after a fork. The child must not close them: that would end the parent's sessions.
_INHERITED: list[object] = []


class PostgresStore(Store, forks.Member):
    """A store on a PostgreSQL database."""

    dialect = "postgres"
    local = False

    def __init__(self, url: str, settings: PostgresSettings) -> None:
        super().__init__(url)
        self.settings = settings
        self.lasting = settings.listens
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._notified = float("-inf")
        self._uid: str | None = None
        self._closed = False
        self._sync: SyncRunner | None
        self._transactions: PostgresTransactions | None
        self._open()
        forks.register(self)

    def run(self, operation: Operation[R], *, using: object = None, timeout: float = math.inf) -> R:
        """Run an operation in one transaction and return its result; see `Store.run`."""
        sync = self._blocking()
        if using is not None:
            if operation.before is not None:
                with self._preparing():
                    sync.run(operation.before, self._should_notify)
            if self._uid is None:
                self._uid = sync.run(identify("uid"))
            from redrive.stores.drivers.postgres import external

            return external.run_on(using, operation, self.settings, self._uid)
        if self._transactions is not None:
            self._transactions.close_old()
        return sync.run(operation, self._should_notify, timeout=timeout)

    async def arun(self, operation: Operation[R], *, using: object = None) -> R:
        """Run an operation in one transaction and return its result; see `Store.run`."""
        self._check()
        aio = self._aio
        if using is not None:
            if self._uid is None:
                self._uid = await aio.run(identify("uid"))
            if operation.before is not None:
                with self._preparing():
                    await aio.run(operation.before, self._should_notify)
            from redrive.stores.drivers.postgres import external

            return await external.arun_on(using, operation, self.settings, self._uid)
        return await aio.run(operation, self._should_notify)

    @property
    def era(self) -> int:
        """The number of times that the server was replaced; see `Store.era`."""
        return self._timeline.era

    def on_new_era(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function when another server has taken over; see `Store.on_new_era`."""
        # After a fork the child has others.
        listeners = self._timeline.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def look_at_server(self, timeout: float) -> None:
        """Read the server through a pool in front of it, whose connections do not show that it was replaced."""
        if self.settings.pgbouncer and self._timeline.server == SERVER:
            try:
                here = self.run(server(), timeout=timeout)
            except StoreError as error:
                self._timeline.refused(getattr(error.__cause__, "sqlstate", None))
            else:
                self._timeline.meet(here)

    def begin(self, asked: Operation[bool] | None = None) -> PostgresTransaction:
        """Begin a transaction on a connection of psycopg, for a handler; see `Store.begin`.

        Raise `StoreBusy` if ``pool`` transactions were open for longer than the timeout, or `StoreError` if it
        cannot be opened.
        """
        return self._lent().begin(asked)

    async def abegin(self, asked: Operation[bool] | None = None) -> AsyncPostgresTransaction:
        """Begin a transaction on a connection of asyncpg, for a coroutine; see `Store.begin`."""
        return await self._lent().abegin(asked)

    def migration_cursor(self) -> MigrationCursor:
        """Open a connection for a migration, which the caller closes."""
        from redrive.stores.drivers.postgres.sync import MigrationCursor, connect

        return MigrationCursor(connect(self.settings), self.settings)

    def version(self) -> int:
        """Return a number that changes several times a second: PostgreSQL has none that changes with its data."""
        return int(self._clock.monotonic() * POLLS)

    def watch(
        self,
        clock: Clock,
        *,
        lock_id: int | None = None,
        idle: asyncio.Event | None = None,
        again: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[None, None]:
        """Yield at once, and then after notifications; see `Store.watch`."""
        # To listen costs no polls, so it needs neither a clock nor pauses.
        del clock, idle
        return listener.watch(self.settings, lock_id, again)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                if self._sync is not None:
                    self._sync.close()
                if self._transactions is not None:
                    self._transactions.close()
                self._aio.close()

    def after_fork_in_child(self) -> None:
        """Replace the parent's connections, and a lock that another of its threads may have held."""
        self._lock = threading.Lock()
        _INHERITED.append((self._sync, self._aio, self._transactions))
        self._open()

    def _check(self) -> None:
        """Replace the connections of another process; raise `StoreClosed` after `close`."""
        if self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    _INHERITED.append((self._sync, self._aio, self._transactions))
                    self._open()
        if self._closed:
            raise StoreClosed(f"{self.settings} has been closed")

    def _blocking(self) -> SyncRunner:
        """Return the runner for ``run``."""
        self._check()
        if self._sync is None:
            from redrive.stores.drivers.postgres.sync import SyncRunner

            with self._lock:
                self._sync = self._sync or SyncRunner(self.settings, self._timeline)
        return self._sync

    def _lent(self) -> PostgresTransactions:
        """Return the transactions for handlers."""
        self._check()
        if self._transactions is None:
            from redrive.stores.drivers.postgres.transactions import PostgresTransactions

            with self._lock:
                self._transactions = self._transactions or PostgresTransactions(self.settings, self._timeline)
        return self._transactions

    def _open(self) -> None:
        self._sync = self._transactions = None
        self._timeline = Timeline()
        self._aio = AsyncRunner(self.settings, self._timeline)
        self._pid = os.getpid()

    @contextlib.contextmanager
    def _preparing(self) -> Iterator[None]:
        # It does not matter whether `Operation.before` took effect: the operation itself has not been sent.
        try:
            yield
        except StoreOutcomeUnknown as error:
            message = f"the connection to {self.settings} was lost before the operation was sent; it wrote nothing"
            raise StoreUnreachable(message) from error

    def _should_notify(self) -> bool:
        """Return True if this process has not notified workers within `listener.WINDOW`."""
        # Transactions that notify are committed one after the other, in the whole database server. Workers that were
        # notified claim again after the window.
        now = self._clock.monotonic()
        if now - self._notified < listener.WINDOW:
            return False
        self._notified = now
        return True
