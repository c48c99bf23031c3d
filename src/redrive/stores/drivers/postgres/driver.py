"""Runs operations on one PostgreSQL database; the essay stands in `redrive.stores.drivers.postgres`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any, TypeVar

from redrive.clock import Clock, SystemClock
from redrive.errors import StoreClosed, StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.drivers import forks
from redrive.stores.drivers.postgres import external as _using
from redrive.stores.drivers.postgres import listener
from redrive.stores.drivers.postgres.aio import AsyncRunner
from redrive.stores.drivers.postgres.lending import AsyncPostgresLoan, Lender, PostgresLoan
from redrive.stores.drivers.postgres.script import Script
from redrive.stores.drivers.postgres.settings import Settings
from redrive.stores.drivers.postgres.sync import SyncRunner, connect
from redrive.stores.operations.admin import identify
from redrive.stores.query import Operation

__all__ = ["PostgresDriver"]

R = TypeVar("R")

LOOKS = 20
"""How often a second somebody should look who waits for a change and has nobody to tell him."""

_INHERITED: list[object] = []
"""Connections of the parent, after a fork. The child must not close them: that would end the parent's session."""


class PostgresDriver:
    """Runs operations on one PostgreSQL database.

    Args:
        settings: which, and how.
    """

    dialect = "postgres"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._told = float("-inf")
        self._uid: str | None = None
        self._closed = False
        self._open()
        forks.follow(self)

    @property
    def local(self) -> bool:
        """The server has a clock of its own."""
        return False

    @property
    def lasting(self) -> bool:
        """Has a worker a session that lasts as long as its process, so that it can hold a lock?"""
        return self.settings.listens

    def run(
        self,
        operation: Operation[R],
        *,
        using: Any = None,  # noqa: ANN401 - a connection of any library
        timeout: float = math.inf,
    ) -> R:
        """Run an operation in one transaction, and wait for it.

        Args:
            operation: what to run; its generator is used up.
            using: the user's own connection, whose transaction the operation becomes a part of.
            timeout: seconds after which it is given up, if not ``using`` a connection.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        sync, _ = self._runners()
        if using is not None:
            if operation.before is not None:
                with self._preparing():
                    sync.run(operation.before, self._is_news)
            return _using.run_on(using, operation, self.settings, self._name())
        return sync.run(operation, self._is_news, timeout=timeout)

    async def arun(self, operation: Operation[R], *, using: Any = None) -> R:  # noqa: ANN401 - a connection of any library
        """Run an operation in one transaction, and await it; see `run`.

        Args:
            operation: what to run; its generator is used up.
            using: the user's own connection, whose transaction the operation becomes a part of.

        Returns:
            Its result.

        Raises:
            StoreError: the database refused.
        """
        _, aio = self._runners()
        if using is not None:
            if self._uid is None:
                self._uid = await aio.run(identify("uid"))
            if operation.before is not None:
                with self._preparing():
                    await aio.run(operation.before, self._is_news)
            return await _using.arun_on(using, operation, self.settings, self._uid)
        return await aio.run(operation, self._is_news)

    def lend(self) -> PostgresLoan:
        """Lend a connection of psycopg, in a transaction; see `redrive.stores.loan.Loan`.

        Raises:
            StoreBusy: ``pool`` connections are lent, for longer than the timeout.
            StoreError: it cannot be opened.
        """
        self._runners()
        return self._lender.lend()

    async def alend(self) -> AsyncPostgresLoan:
        """Lend a connection of asyncpg, in a transaction; see `redrive.stores.loan.AsyncLoan`."""
        self._runners()
        return await self._lender.alend()

    def script(self) -> Script:
        """Open a connection for a migration; the caller closes it.

        Returns:
            Something to run statements on.
        """
        return Script(connect(self.settings), self.settings)

    async def trim_log(self) -> int:
        """Do nothing: the server takes care of its log.

        Returns:
            0.
        """
        return 0

    def version(self) -> int:
        """A number that differs when it is time to look again whether something has changed.

        PostgreSQL has no number that says so; whoever is to be told, listens.

        Returns:
            The number; compare it with an earlier one.
        """
        return int(self._clock.monotonic() * LOOKS)

    def watch(self, clock: Clock, lock_id: int | None, idle: asyncio.Event | None) -> AsyncGenerator[None, None]:
        """Yield at once, and then whenever somebody may have committed a change that workers wait for.

        Args:
            clock: not used: what is waited for comes from outside.
            lock_id: the number of a lock to be held meanwhile, by which others see that this process lives.
            idle: not used: to listen costs nothing.

        Returns:
            What to iterate over; it raises `StoreError` where the connection is lost.
        """
        del clock, idle
        return listener.watch(self.settings, lock_id)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                self._sync.close()
                self._aio.close()

    def before_fork(self) -> None:
        """Do nothing: a connection belongs to its socket, and the parent goes on using it."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork_in_child(self) -> None:
        """Leave the parent its connections, and a lock that another of its threads may have held."""
        self._lock = threading.Lock()
        _INHERITED.append((self._sync, self._aio))
        self._open()

    def _runners(self) -> tuple[SyncRunner, AsyncRunner]:
        if self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    _INHERITED.append((self._sync, self._aio))
                    self._open()
        if self._closed:
            message = f"{self.settings} has been closed"
            raise StoreClosed(message)
        return self._sync, self._aio

    def _open(self) -> None:
        self._sync = SyncRunner(self.settings)
        self._aio = AsyncRunner(self.settings)
        self._lender = Lender(self.settings)
        self._pid = os.getpid()

    def _name(self) -> str:
        """What names the database and no other; compared with what a user's connection says."""
        if self._uid is None:
            self._uid = self._sync.run(identify("uid"))
        return self._uid

    @contextlib.contextmanager
    def _preparing(self) -> Iterator[None]:
        """Whether `Operation.before` took effect is of no concern: the operation itself has not been sent."""
        try:
            yield
        except StoreOutcomeUnknown as error:
            message = f"the connection to {self.settings} was lost before the operation was sent; it wrote nothing"
            raise StoreUnreachable(message) from error

    def _is_news(self) -> bool:
        """Are workers to be told, or have they just been, and will look again by themselves?

        All that notify are committed one after the other, in the whole database server: hence not every one does.
        """
        now = self._clock.monotonic()
        if now - self._told < listener.WINDOW:
            return False
        self._told = now
        return True
