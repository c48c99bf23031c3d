"""The store in memory: one SQLite database, which all processes reach over a network that delays, loses and stalls.

Transactions are committed or not, independently of their replies. The store models a database server: one clock,
one queue. In a failover another server takes its place, which has all commits but the last ones."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from redrive.clock import Clock
from redrive.errors import StoreBusy, StoreError, StoreUnreachable
from redrive.stores.drivers.postgres.timeline import Timeline
from redrive.stores.drivers.sqlite import SQLiteSettings
from redrive.stores.drivers.sqlite.connection import drive
from redrive.stores.query import Operation, Query
from redrive.stores.statements import loader
from tests.simulation.database import BUSY, virtual_clock
from tests.simulation.faults import DIRECT, LOST, POOLED
from tests.simulation.scheduler import Process
from tests.simulation.threads import Condition, Future

__all__ = ["ConnectionQueue", "SimulatedServer", "replicated"]


# The statements of SQLite do not look for the row before a step, because a database in a file has no standby. Here they
# do, by the condition of those of PostgreSQL.
_ANCHORED = """(:before IS NULL OR EXISTS (
    SELECT 1 FROM redrive_steps WHERE run_id = :run_id AND path = :before AND at >= :before_at
))"""
_LEASED = "WHERE id = :run_id AND lease_id = :lease_id AND state = 'running'\n-- A recorded"


def replicated() -> AbstractContextManager[None]:
    """Let the statements be those of a database with a standby."""
    statements: Any = loader.statements("sqlite")
    put, asked = statements["steps_put"], statements["steps_asked"]
    assert _LEASED in put
    assert "true AS is_anchored" in asked
    leased = _LEASED.replace("\n", f"\n    AND {_ANCHORED}\n")
    changed = {
        "steps_put": put.replace(_LEASED, leased),
        "steps_asked": asked.replace("true AS is_anchored", f"{_ANCHORED} AS is_anchored"),
    }
    return mock.patch.dict(statements, changed)


class SimulatedServer:
    """The database in memory, from the view of one process.

    Args:
        simulation: the simulation that it belongs to.
        process: the process that opened it.
        connection_queue: the part that all processes share."""

    dialect = "sqlite"
    lasting = False
    local = False

    def __init__(self, simulation: Any, process: Process, connection_queue: ConnectionQueue) -> None:
        self._simulation = simulation
        self._process = process
        self._connection_queue = connection_queue
        self._timeline = Timeline()

    def run(self, operation: Operation[Any], *, using: Any = None) -> Any:
        """Run an operation and wait for its reply."""
        assert using is None
        result = self._connection_queue.transact(self._process, operation, self._meet)
        self._simulation.scheduler.sleep(self._simulation.disturbances.after(self._process, operation))
        return result

    async def arun(self, operation: Operation[Any], *, using: Any = None) -> Any:
        """Run an operation and await its reply."""
        assert using is None
        if self._connection_queue.owner is None and self._process.rng.random() > self._simulation.lingering:
            result = self._connection_queue.transact(self._process, operation, self._meet)
        else:
            result = await self._beside(
                lambda: self._connection_queue.transact(self._process, operation, self._meet, lingering=True)
            )
        if delay := self._simulation.disturbances.after(self._process, operation):
            await asyncio.sleep(delay)
        return result

    # A session is of one server, and names it when it begins. A failover ends all sessions, so that the next operation
    # of a process has one of the new server; those of a pool go on, and know nothing of the server behind it.
    def _meet(self, era: int | None) -> None:
        sessions = self._simulation.plan.sessions
        if sessions == DIRECT or (sessions == POOLED and self._timeline.present is None):
            self._timeline.meet(self._connection_queue.server)
        self._timeline.check(era, self._connection_queue.server)

    @property
    def era(self) -> int:
        """The number of times that the process has met another server."""
        return self._timeline.era

    def on_new_era(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function when another server was met."""
        self._timeline.listeners.append(listener)
        return lambda: self._timeline.listeners.remove(listener)

    def look_at_server(self, timeout: float) -> None:
        """Read the server through the pool."""
        if self._simulation.plan.sessions == POOLED:
            with contextlib.suppress(StoreError):
                self._simulation.disturbances.travel(self._process, timeout)
                self._timeline.meet(self._connection_queue.server)

    def begin(self, asked: Operation[bool] | None = None) -> QueuedTransaction:
        """Lend the connection, in a transaction."""
        if self._simulation.disturbances.is_away(self._process):
            message = "the database is away"
            raise StoreUnreachable(message)
        self._connection_queue.acquire(self._process)
        loan = QueuedTransaction(self._connection_queue, self._meet)
        if asked is not None:
            try:
                loan.is_current = loan.run(asked)
            except BaseException:
                loan.rollback()
                raise
        return loan

    async def abegin(self, asked: Operation[bool] | None = None) -> AsyncQueuedTransaction:
        """Lend the connection to a coroutine."""
        loan = self._future(lambda: self.begin(asked))
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
        seen, generation = -1, self._connection_queue.generation
        while True:
            if seen != self._connection_queue.wakes:
                seen = self._connection_queue.wakes
                yield
            future = self._connection_queue.news()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.wrap_future(future)
            await asyncio.sleep(self._process.rng.expovariate(200))
            if self._simulation.disturbances.is_away(self._process) or self._connection_queue.generation != generation:
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
        queries: the statements of the open transaction, each with the name of its operation.
        generation: the number of failovers."""

    def __init__(self, simulation: Any, image: bytes) -> None:
        self._simulation = simulation
        self._free = Condition(simulation.scheduler)
        self._settings = SQLiteSettings(None)
        self._news: list[Future] = []
        self.owner: Process | None = None
        self.queries: list[tuple[str, Query]] = []
        self.commits = self.wakes = self.generation = 0
        # The database after each of the last commits. A copy costs more than most commits.
        self._images: deque[bytes] | None = None
        if any(step.kind == "failover" for step in simulation.plan.steps):
            self._images = deque([image], maxlen=LOST + 1)
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
        self.connection.deserialize(image)
        self.connection.execute("PRAGMA foreign_keys = ON")
        virtual_clock(self.connection, lambda: simulation.scheduler.now)
        self.cursor = self.connection.cursor()

    def acquire(self, process: Process) -> None:
        """Wait for the queue, and begin a transaction."""
        generation = self.generation
        if not self._free.wait_for(lambda: self.owner is None, BUSY):
            message = f"the database is locked for more than {BUSY:g} s"
            raise StoreBusy(message)
        self.check(generation)
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
                if self._images is not None:
                    self._images.append(self.connection.serialize())
                self._simulation.committed(process, self.queries)
        elif self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")
            self.commits = self.connection.total_changes
        self._free.notify()
        if changed and wakes:
            self.wakes += 1
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, []
        for each in news:
            if not each.done():
                each.set_result(None)

    @property
    def server(self) -> str:
        """The system identifier and the timeline of the server."""
        return f"7 {self.generation + 1:08X}"

    def check(self, generation: int) -> None:
        """Raise `StoreUnreachable` if the session began before the last failover."""
        if generation != self.generation:
            message = "the server has gone, and the session with it"
            raise StoreUnreachable(message)

    def fail_over(self, lost: int) -> int:
        """Let a server take over that lacks the last commits; return how many it lacks.

        The open transaction is rolled back, and all sessions end.
        """
        assert self._images is not None
        self.owner = None
        if self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")
        lost = min(lost, len(self._images) - 1)
        for _ in range(lost):
            self._images.pop()
        # To deserialize it into the connection itself would leave its prepared statements with the old pages.
        with contextlib.closing(sqlite3.connect(":memory:")) as standby:
            standby.deserialize(self._images[-1])
            standby.backup(self.connection)
        self.commits = self.connection.total_changes
        self.generation += 1
        self._free.notify()
        self._tell()
        return lost

    def drop_images(self) -> None:
        """Give up the copies of the database, which would last until the collector of garbage finds them."""
        self._images = None

    def news(self) -> Future:
        """Return a future that ends at the next commit for which workers wait."""
        future = Future()
        self._news.append(future)
        return future

    def transact(
        self,
        process: Process,
        operation: Operation[Any],
        meet: Callable[[int | None], None],
        *,
        lingering: bool = False,
    ) -> Any:
        """Run an operation in a transaction, after ``meet`` has accepted its era."""
        self.acquire(process)
        generation = self.generation
        try:
            meet(operation.era)
            self._simulation.scheduler.current.lingering = lingering
            result = drive(self.cursor, operation.steps, self._settings)
        except BaseException:
            if self.owner is process and self.generation == generation:
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
        meet: accepts the era of an operation.
    """

    is_current = True

    def __init__(self, connection_queue: ConnectionQueue, meet: Callable[[int | None], None]) -> None:
        self.connection = LentConnection(connection_queue)
        self._meet = meet
        self._connection_queue = connection_queue
        self._generation = connection_queue.generation
        self._ended = False

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in the transaction."""
        self._connection_queue.check(self._generation)
        self._meet(operation.era)
        return drive(self._connection_queue.cursor, operation.steps, self._connection_queue._settings)

    def commit(self) -> None:
        """Commit and give back."""
        self._end(commit=True)

    def rollback(self) -> None:
        """Roll back and give back."""
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if self._ended:
            return
        self._ended = True
        if commit:
            self._connection_queue.check(self._generation)
        if self._connection_queue.generation == self._generation:
            self._connection_queue.release(commit=commit)


class LentConnection:
    """The connection as a handler has it: of no use after a failover.

    Args:
        connection_queue: the queue that lends it.
    """

    def __init__(self, connection_queue: ConnectionQueue) -> None:
        self._connection_queue = connection_queue
        self._generation = connection_queue.generation

    def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run a statement."""
        if self._connection_queue.generation != self._generation:
            message = "the server has gone"
            raise ConnectionError(message)
        return self._connection_queue.connection.execute(statement, parameters)


class AsyncQueuedTransaction:
    """The same for a coroutine.

    Args:
        loan: the loan.
    """

    def __init__(self, loan: QueuedTransaction) -> None:
        self.connection, self.is_current = loan.connection, loan.is_current
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
