"""The store in memory: one SQLite database, which all processes reach over a network that delays, loses and stalls.

Transactions are committed or not, independently of their replies. The store models a database server: one clock,
one queue."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Callable
from typing import Any

from redrive.clock import Clock
from redrive.errors import StoreBusy, StoreUnreachable
from redrive.stores.drivers.sqlite import SQLiteSettings
from redrive.stores.drivers.sqlite.connection import drive
from redrive.stores.query import Operation, Query
from tests.simulation.database import BUSY, virtual_clock
from tests.simulation.scheduler import Process
from tests.simulation.threads import Condition, Future

__all__ = ["ConnectionQueue", "SimulatedServer"]


class SimulatedServer:
    """The database in memory, from the view of one process.

    Args:
        simulation: the simulation that it belongs to.
        process: the process that opened it.
        connection_queue: the part that all processes share."""

    dialect = "sqlite"
    lasting = False
    local = False
    era = 0

    def __init__(self, simulation: Any, process: Process, connection_queue: ConnectionQueue) -> None:
        self._simulation = simulation
        self._process = process
        self._connection_queue = connection_queue

    def run(self, operation: Operation[Any], *, using: Any = None) -> Any:
        """Run an operation and wait for its reply."""
        assert using is None
        result = self._connection_queue.transact(self._process, operation)
        self._simulation.scheduler.sleep(self._simulation.disturbances.after(self._process, operation))
        return result

    async def arun(self, operation: Operation[Any], *, using: Any = None) -> Any:
        """Run an operation and await its reply."""
        assert using is None
        if self._connection_queue.owner is None and self._process.rng.random() > self._simulation.lingering:
            result = self._connection_queue.transact(self._process, operation)
        else:
            result = await self._beside(
                lambda: self._connection_queue.transact(self._process, operation, lingering=True)
            )
        if delay := self._simulation.disturbances.after(self._process, operation):
            await asyncio.sleep(delay)
        return result

    def on_new_era(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does nothing: this server is never replaced."""
        del listener
        return lambda: None

    def look_at_server(self, timeout: float) -> None:
        """Do nothing."""

    def begin(self) -> QueuedTransaction:
        """Lend the connection, in a transaction."""
        self._connection_queue.acquire(self._process)
        return QueuedTransaction(self._connection_queue)

    async def abegin(self) -> AsyncQueuedTransaction:
        """Lend the connection to a coroutine."""
        loan = self._future(self.begin)
        try:
            return AsyncQueuedTransaction(await asyncio.wrap_future(loan))
        except asyncio.CancelledError:
            loan.add_done_callback(lambda done: done.cancelled() or done.exception() or done.result().rollback())
            raise

    def version(self) -> int:
        """Return the number of commits so far."""
        return self._connection_queue.commits

    async def watch(
        self,
        clock: Clock,
        *,
        lock_id: int | None = None,
        idle: asyncio.Event | None = None,
        again: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[None, None]:
        """Yield after each commit that workers may wait for, a moment later."""
        seen = -1
        while True:
            if seen != self._connection_queue.wakes:
                seen = self._connection_queue.wakes
                yield
            future = self._connection_queue.news()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.wrap_future(future)
            await asyncio.sleep(self._process.rng.expovariate(200))
            if self._simulation.disturbances.away_until > self._simulation.scheduler.now:
                message = "the connection that listens was cut"
                raise StoreUnreachable(message)

    def close(self) -> None:
        """Do nothing: the database ends with the simulation."""

    async def _beside(self, call: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._future(call))

    def _future(self, call: Callable[[], Any]) -> Future:
        future = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except Exception as error:  # noqa: BLE001 - it belongs to the caller
                    future.set_exception(error)
                else:
                    future.set_result(result)

        self._simulation.scheduler.spawn(self._process, work, "connection")
        return future


class ConnectionQueue:
    """The database in memory: one connection, and a queue of strands that wait for it.

    Args:
        simulation: the simulation that it belongs to.
        image: the empty database.

    Attributes:
        connection: the connection to the database.
        owner: the process with the open transaction.
        commits: transactions so far.
        wakes: those after which a worker should poll.
        queries: the statements of the open transaction, each with the name of its operation."""

    def __init__(self, simulation: Any, image: bytes) -> None:
        self._simulation = simulation
        self._free = Condition(simulation.scheduler)
        self._settings = SQLiteSettings(None)
        self._news: list[Future] = []
        self.owner: Process | None = None
        self.queries: list[tuple[str, Query]] = []
        self.commits = self.wakes = 0
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
        self.connection.deserialize(image)
        self.connection.execute("PRAGMA foreign_keys = ON")
        virtual_clock(self.connection, lambda: simulation.scheduler.now)
        self.cursor = self.connection.cursor()

    def acquire(self, process: Process) -> None:
        """Wait for the queue, and begin a transaction."""
        if not self._free.wait_for(lambda: self.owner is None, BUSY):
            message = f"the database is locked for more than {BUSY:g} s"
            raise StoreBusy(message)
        self.owner = process
        self.queries = []
        self.cursor.execute("BEGIN IMMEDIATE")

    def release(self, *, commit: bool, wakes: bool = True) -> None:
        """End the transaction."""
        process, self.owner = self.owner, None
        changed = False
        if commit:
            changed = self.connection.total_changes != self.commits
            self.cursor.execute("COMMIT")
            self.commits = self.connection.total_changes
            if changed:
                self._simulation.committed(process, self.queries)
        elif self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")
            self.commits = self.connection.total_changes
        self._free.notify()
        if changed and wakes:
            self.wakes += 1
            news, self._news = self._news, []
            for each in news:
                if not each.done():
                    each.set_result(None)

    def news(self) -> Future:
        """Return a future that ends at the next commit for which workers wait."""
        future = Future()
        self._news.append(future)
        return future

    def transact(self, process: Process, operation: Operation[Any], *, lingering: bool = False) -> Any:
        """Run an operation in a transaction."""
        self.acquire(process)
        try:
            self._simulation.scheduler.current.lingering = lingering
            result = drive(self.cursor, operation.steps, self._settings)
        except BaseException:
            if self.owner is process:
                self.release(commit=False)
            raise
        finally:
            self._simulation.scheduler.current.lingering = False
        self.release(commit=True, wakes=operation.wakes)
        return result

    def lost(self, process: Process) -> None:
        """Roll back the transaction of a process that was killed."""
        if self.owner is process:
            self.release(commit=False)


class QueuedTransaction:
    """The connection of `ConnectionQueue`, lent in a transaction.

    Args:
        connection_queue: the queue that lends it.
    """

    def __init__(self, connection_queue: ConnectionQueue) -> None:
        self.connection = connection_queue.connection
        self._connection_queue = connection_queue
        self._ended = False

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in the transaction."""
        return drive(self._connection_queue.cursor, operation.steps, self._connection_queue._settings)

    def commit(self) -> None:
        """Commit and give back."""
        self._end(commit=True)

    def rollback(self) -> None:
        """Roll back and give back."""
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if not self._ended:
            self._ended = True
            self._connection_queue.release(commit=commit)


class AsyncQueuedTransaction:
    """The same for a coroutine.

    Args:
        loan: the loan.
    """

    def __init__(self, loan: QueuedTransaction) -> None:
        self.connection = loan.connection
        self._loan = loan

    async def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in the transaction."""
        return self._loan.run(operation)

    async def commit(self) -> None:
        """Commit and give back."""
        self._loan.commit()

    async def rollback(self) -> None:
        """Roll back and give back."""
        self._loan.rollback()
