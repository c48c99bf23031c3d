"""The databases of the simulation: the real operations and the real SQL of SQLite, in virtual time, with faults.

* ``memory`` (`tests.simulation.server`): one database behind a network.
* ``file`` (here): SQLite in a file, by redrive's own driver, with its lanes, lending and group commits. Each process
  has connections of its own, and waits for the lock of the file in virtual time.

Every operation is *tapped*: the simulation sees each statement before it is run, where it may delay the operation or
kill its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import StoreOutcomeUnknown, StoreUnreachable
from redrive.stores.opening import open_store
from redrive.stores.query import Compound, Operation
from redrive.stores.store import Store
from redrive.stores.values.sqlite import to_micros
from tests.simulation.scheduler import EPOCH, Process

__all__ = ["BUSY", "Cursor", "SimulatedConnection", "store_of", "template", "virtual_clock"]

BUSY = 10.0
"""Seconds after which a transaction gives up waiting for the lock."""

EFFECTS = "CREATE TABLE effects (job_id INTEGER NOT NULL, attempt TEXT NOT NULL)"
"""The table that handlers write to in their transactions."""


WRITES = "CREATE TABLE writes (place TEXT NOT NULL, unit TEXT NOT NULL)"
"""The table that they write to on connections of their own, and in transactions of other kinds; see `flows`."""


def template(folder: Path) -> bytes:
    """Make an empty database with redrive's schema, and return it as bytes."""
    path = folder / "template.db"
    open_store(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(EFFECTS)
        connection.execute(WRITES)
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


class TappedStore(Store):
    """A driver of the product, or of `Server`, with statements that the simulation observes.

    Args:
        simulation: the observing simulation.
        process: the process that opened the store.
        driver: the driver that runs the statements."""

    def __init__(self, simulation: Any, process: Process, driver: Any) -> None:
        super().__init__("simulated")
        self._simulation = simulation
        self._process = process
        self._driver = driver
        self.dialect = driver.dialect
        self.lasting = driver.lasting
        self.local = driver.local

    def run(self, operation: Operation[Any], *, using: Any = None, timeout: float = math.inf) -> Any:
        """Run an operation and wait for it; give up, as with a database server, where the request takes too long."""
        generation = self._simulation.generation
        delay = self._simulation.disturbances.before(self._process, operation)
        self._simulation.scheduler.sleep(min(delay, timeout))
        if delay > timeout:
            message = f"no answer within {timeout:.1f} s"
            raise StoreUnreachable(message)
        self._check(operation, generation)
        return self._driver.run(self._tap(operation), using=using)

    async def arun(self, operation: Operation[Any], *, using: Any = None) -> Any:
        """Run an operation and await it."""
        generation = self._simulation.generation
        if delay := self._simulation.disturbances.before(self._process, operation):
            await asyncio.sleep(delay)
        self._check(operation, generation)
        return await self._driver.arun(self._tap(operation), using=using)

    def _check(self, operation: Operation[Any], generation: int) -> None:
        """Refuse a request that was on its way to a server that has gone: its process cannot know if it arrived."""
        if generation != self._simulation.generation:
            message = "the server has gone, and the session with it"
            raise (StoreOutcomeUnknown if operation.writes else StoreUnreachable)(message)

    @property
    def era(self) -> int:
        """The number of times that the process has met another server."""
        return self._driver.era

    def on_new_era(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function when another server was met."""
        return self._driver.on_new_era(listener)

    def look_at_server(self, timeout: float) -> None:
        """Read the server, where sessions do not name it."""
        self._driver.look_at_server(timeout)

    def _tap(self, operation: Operation[Any]) -> Operation[Any]:
        return replace(operation, steps=self._tapped(operation), before=None)

    def _tapped(self, operation: Operation[Any]) -> Generator[Any, Any, Any]:
        steps = operation.steps
        try:
            query = next(steps)
            while True:
                # SQLite executes the statements of a batch one after the other.
                *first, last = query.queries if isinstance(query, Compound) else (query,)
                for each in first:
                    self._simulation.statement(self._process, operation.name, each)
                    yield each
                self._simulation.statement(self._process, operation.name, last)
                try:
                    rows = yield last
                except Exception as error:  # noqa: BLE001 - the operation may answer it
                    query = steps.throw(error)
                else:
                    query = steps.send(rows)
        except StopIteration as stop:
            return stop.value

    def begin(self, asked: Operation[bool] | None = None) -> TappedTransaction:
        """Lend a connection, in a transaction."""
        return TappedTransaction(self, self._driver.begin(asked and self._tap(asked)))

    async def abegin(self, asked: Operation[bool] | None = None) -> AsyncTappedTransaction:
        """Lend a connection to a coroutine."""
        return AsyncTappedTransaction(self, await self._driver.abegin(asked and self._tap(asked)))

    async def trim_log(self) -> int:
        """Do nothing: the log of a simulation is small."""
        return 0

    def version(self) -> int:
        """Return a number that changes when the data may have changed."""
        return self._driver.version()

    def watch(
        self,
        clock: Clock,
        *,
        lock_id: int | None = None,
        idle: asyncio.Event | None = None,
        again: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[None, None]:
        """Yield whenever there may be a change."""
        return self._driver.watch(clock, lock_id=lock_id, idle=idle, again=again)

    def close(self) -> None:
        """Close the connections."""
        self._driver.close()


class TappedTransaction:
    """A lent connection with operations that the simulation observes.

    Args:
        driver: the driver that lent it.
        loan: the connection of that driver."""

    def __init__(self, driver: TappedStore, loan: Any) -> None:
        self.connection, self.is_current = loan.connection, loan.is_current
        self.commit, self.rollback = loan.commit, loan.rollback
        self._driver, self._loan = driver, loan

    def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in the transaction."""
        return self._loan.run(self._driver._tap(operation))


class AsyncTappedTransaction(TappedTransaction):
    """The same for a coroutine."""

    async def run(self, operation: Operation[Any]) -> Any:
        """Run an operation in the transaction."""
        return await self._loan.run(self._driver._tap(operation))


class Cursor(sqlite3.Cursor):
    """A cursor that waits for the lock of the file in virtual time, and reports commits."""

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        """Run a statement."""
        connection = self.connection
        simulation = connection.simulation
        scheduler = simulation.scheduler
        connection.note()
        until = scheduler.now + BUSY
        while True:
            try:
                super().execute(statement, parameters)
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or scheduler.now >= until or scheduler.current is None:
                    raise
                scheduler.sleep(connection.process.rng.uniform(0.001, 0.02))
        if statement.startswith("BEGIN"):
            connection.queries = []
            connection.begun = connection.total_changes
        elif statement == "COMMIT" and connection.begun != connection.total_changes:
            simulation.committed(connection.process, connection.queries)
        return self

    def executemany(self, statement: str, parameters: Any, /) -> Cursor:
        """Run a statement many times."""
        self.connection.note()
        return super().executemany(statement, parameters)


class SimulatedConnection(sqlite3.Connection):
    """A connection to the file, of one process."""

    simulation: Any
    process: Process
    begun = 0

    def note(self) -> None:
        """Remember the statement that the present strand is about to run on this connection."""
        strand = self.simulation.scheduler.current
        if strand is not None and strand.pending is not None:
            self.queries.append(strand.pending)
            strand.pending = None

    def cursor(self, factory: type[sqlite3.Cursor] = Cursor) -> sqlite3.Cursor:
        """Open a cursor."""
        return super().cursor(factory)

    def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run a statement on a cursor of its own."""
        return self.cursor().execute(statement, parameters)

    @classmethod
    def open(cls, simulation: Any, process: Process, path: Path) -> SimulatedConnection:
        """Open the file."""
        made = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, factory=cls)
        made.simulation, made.process, made.queries = simulation, process, []
        super(SimulatedConnection, made).cursor().executescript("PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON")
        virtual_clock(made, lambda: simulation.scheduler.now + process.offset)
        return made


def virtual_clock(connection: sqlite3.Connection, seconds: Callable[[], float]) -> None:
    """Let the database's clock be the virtual one; the view of the schema is hidden behind a temporary one."""
    begin = to_micros(EPOCH)
    connection.create_function("simulated_now", 0, lambda: begin + int(seconds() * 1e6))
    sqlite3.Connection.cursor(connection, sqlite3.Cursor).execute(
        "CREATE TEMP VIEW redrive_clock AS SELECT simulated_now() AS now"
    )


def store_of(simulation: Any, process: Process, driver: Any) -> Store:
    """Make a store of a driver."""
    return TappedStore(simulation, process, driver)
