"""Execution of a plan: clients, workers with their duties, operators and faults, in one process, in virtual time.

A simulation has three phases. During the plan faults occur. Then all faults end, and the fleet has to bring every
job to its end (`not_drained` otherwise). Finally the workers are stopped, and have to end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import warnings
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from redrive import App
from redrive.errors import StoreError
from redrive.runtime.worker import Worker
from redrive.stores.query import Query
from redrive.stores.store import Store
from tests.simulation import product
from tests.simulation.database import SimulatedConnection, store_of
from tests.simulation.director import Director
from tests.simulation.disturbances import Disturbances
from tests.simulation.faults import PROFILES, Plan
from tests.simulation.flow_invariants import FlowObserver
from tests.simulation.flows import FlowHandlers
from tests.simulation.handlers import Handlers
from tests.simulation.invariants import Observer, Violation, reader
from tests.simulation.loop import run
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.server import ConnectionQueue, SimulatedServer, replicated

__all__ = ["Member", "Report", "Simulation", "simulate"]

AGAIN = 0.5
"""Seconds after which a supervisor starts a worker again that has ended."""

LINGERING = 0.05
"""The share of transactions that pause between statements, so that others run in between."""


@dataclass(frozen=True)
class Report:
    """The result of a simulation.

    Attributes:
        plan: the plan that was run.
        violation: the first invariant that did not hold, or None.
        commits: transactions that changed a row.
        starts: starts of handlers.
        took: seconds of virtual time.
        trace: a digest of all commits and starts, in their order: the same for each run of the same plan.
        lost: jobs, events and runs that failovers have lost although their clients had an answer.
        kept: those that are in the database in the end."""

    plan: Plan
    violation: Violation | None
    commits: int
    starts: int
    took: float
    trace: int
    lost: int = 0
    kept: int = 0


class Member:
    """A place in the fleet, in which one process follows another.

    Args:
        name: name of its processes.
        app: app that they use, one after the other.

    Attributes:
        process: the present one.
        worker: the worker of the process; the client has none.
        loop: the event loop of the worker.
        stopping: True once the worker has been stopped."""

    def __init__(self, name: str, app: App) -> None:
        self.name = name
        self.app = app
        self.process: Process | None = None
        self.worker: Worker | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping = False

    @property
    def number(self) -> int | None:
        """The id of the present worker, once it has registered."""
        registration = None if self.worker is None else self.worker._registration
        return None if registration is None else registration.id


_APPS: dict[bool, list[App]] = {False: [], True: []}
"""One app for each place, used again by the next simulation: their functions ask `_PERFORMER` what to do."""


class _Performer:
    """The target of the handlers of all apps, which passes their calls to the present simulation."""

    handlers: Handlers | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handlers, name)


_PERFORMER = _Performer()


class Simulation:
    """A run of a plan.

    Args:
        plan: the plan.
        image: the empty database, as bytes.
        folder: the folder for a store in a file.
        verbose: print each step."""

    def __init__(self, plan: Plan, image: bytes, folder: Path, *, verbose: bool = False) -> None:
        self.plan = plan
        self.profile = PROFILES[plan.profile]
        self.scheduler = Scheduler(Random(f"scheduler {plan.seed}"))
        self.truth = self.scheduler.process("truth")
        self.disturbances = Disturbances(self)
        self.lingering = LINGERING
        self.violation: Violation | None = None
        self.commits = self.starts = self.trace = 0
        self._verbose = verbose
        self._image = image
        self.path = folder / "fleet.db"
        self._connections: list[SimulatedConnection] = []
        self.members: dict[str, Member] = {}
        self.processes: dict[int, Process] = {}
        self._pauses = Random(f"pauses {plan.seed}")
        self.phase = "active"
        self.connection_queue: ConnectionQueue | None = None
        if plan.store == "memory":
            self.connection_queue = ConnectionQueue(self, image)
            self._eye = self.connection_queue.connection
        else:
            self._write_file()
            self._eye = sqlite3.connect(self.path, isolation_level=None, timeout=0)
            self._eye.execute("PRAGMA journal_mode = WAL")
        self.observer = Observer(self, reader(self._eye))
        self.flows = FlowObserver(self, reader(self._eye)) if self.profile.flows else None

    def _write_file(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.path.write_bytes(self._image)

    # ---------------------------------------------------------------- what the product meets instead of the world

    def open_store(self, _: str) -> Store:
        """Open the store for the process that runs."""
        process = self.scheduler.current.process
        if self.connection_queue is not None:
            return store_of(self, process, SimulatedServer(self, process, self.connection_queue))
        from redrive.stores.drivers.sqlite import SQLiteSettings, SQLiteStore

        return store_of(self, process, SQLiteStore("simulated", SQLiteSettings(self.path)))

    def connect(self, path: Path) -> SimulatedConnection:
        """Open a connection for the process that runs."""
        made = SimulatedConnection.open(self, self.scheduler.current.process, path)
        self._connections.append(made)
        return made

    @property
    def generation(self) -> int:
        """The number of times that another server has taken over."""
        return 0 if self.connection_queue is None else self.connection_queue.generation

    def fail_over(self, lost: int) -> None:
        """Let another server take over that lacks the last commits."""
        assert self.connection_queue is not None
        self.note("failover", self.connection_queue.fail_over(lost))
        self.observer.replaced()
        if self.flows is not None:
            self.flows.replaced()

    def by_pid(self, number: int | None) -> Process | None:
        """Find a process of this fleet."""
        return self.processes.get(number or 0)

    def database_time(self, process: Process) -> datetime:
        """Read the clock of the transactions of a process: on SQLite in a file, that of its own host."""
        return self.scheduler.time(self.truth if self.connection_queue is not None else process)

    def is_gone(self, number: int) -> bool:
        """Return True if a process of the same host has ended."""
        process = self.by_pid(number)
        return process is not None and process.dead

    def was_frozen(self, process: Process) -> bool:
        """Return True if the process was ever stopped."""
        return bool(process.frozen)

    def statement(self, process: Process, operation: str, query: Query) -> None:
        """Take note of a statement that is about to be run; perhaps its process dies before it."""
        strand = self.scheduler.current
        if self.connection_queue is not None:
            self.connection_queue.queries.append((operation, query))
        else:
            strand.pending = (operation, query)
        if process.name in self.disturbances.crashes:
            self.disturbances.crashes[process.name] -= 1
            if self.disturbances.crashes[process.name] <= 0:
                del self.disturbances.crashes[process.name]
                self.crash(process)
        if strand.lingering or (
            self.connection_queue is None and strand.loop is None and self._pauses.random() < LINGERING
        ):
            generation = self.generation
            self.scheduler.sleep(process.rng.expovariate(100))
            if self.connection_queue is not None:
                self.connection_queue.check(generation)

    def committed(self, process: Process, queries: list[tuple[str, Query]]) -> None:
        """Take note of a commit."""
        self.commits += 1
        self.note(process.name, *(name for name, _ in queries))
        self.observer.committed(process, queries)
        if self.flows is not None:
            self.flows.committed()
        if "overlap" in self.profile.strict:
            self.observer.overlapping()

    def violated(self, violation: Violation) -> None:
        """End the simulation: an invariant does not hold."""
        if self.violation is None:
            self.violation = violation

    def note(self, *what: object) -> None:
        """Add what has happened to the trace."""
        self.trace = zlib.crc32(repr((round(self.scheduler.now * 1e6), what)).encode(), self.trace)
        if self._verbose:
            print(f"{self.scheduler.now:9.3f} s  {' '.join(map(str, dict.fromkeys(what)))}")

    # ---------------------------------------------------------------- the fleet

    def run(self) -> Report:
        """Run the plan to its end."""
        flows = self.profile.flows
        _PERFORMER.handlers = (FlowHandlers if flows else Handlers)(self)
        names = [f"w{index}" for index in range(self.plan.workers)]
        apps = _APPS[flows]
        while len(apps) <= len(names):
            apps.append(product.app(_PERFORMER, flows=flows))
        scheduler = self.scheduler
        with product.simulated(self, verbose=self._verbose), replicated() if flows else contextlib.nullcontext():
            try:
                for name, app in zip(["client", *names], apps, strict=False):
                    self.members[name] = Member(name, app)
                self._start_client()
                for name in names:
                    self._start(self.members[name])
                director = scheduler.spawn(self.truth, Director(self).run, "director")
                ended = scheduler.run(lambda: self.violation is not None or director.done, 1e6)
                if director.error is not None:
                    raise director.error
                if not ended and self.violation is None:
                    self.observer.violated("not_drained", "nothing will ever happen any more")
            finally:
                scheduler.close()
                for each in [*self._connections, self._eye]:
                    each.close()
                if self.connection_queue is not None:
                    self.connection_queue.drop_images()
                _PERFORMER.handlers = None
        ledger = self.observer.ledger
        counts = self.commits, self.starts, scheduler.now, self.trace, ledger.lost, ledger.kept
        return Report(self.plan, self.violation, *counts)

    def _process(self, member: Member) -> Process:
        process = self.scheduler.process(member.name)
        if member.process is not None:
            process.offset = member.process.offset
        self.processes[process.number] = process
        member.process = process
        product.forget(member.app)
        return process

    def _start_client(self) -> None:
        member = self.members["client"]
        self._process(member)

    def _start(self, member: Member) -> None:
        process = self._process(member)
        member.stopping = False
        self.scheduler.spawn(process, lambda: self._work(member, process), "main")

    def _work(self, member: Member, process: Process) -> None:
        """Run the main thread of a worker process."""
        error: BaseException | None = None
        try:
            member.app.open()
            member.worker = Worker(
                member.app,
                concurrency=self.plan.slots,
                shutdown_timeout=timedelta(seconds=self.profile.shutdown),
                clock=product.ProcessClock(self.scheduler),
            )
            run(self.scheduler, self._main(member))
        except BaseException as raised:  # noqa: BLE001 - as the interpreter would
            error = raised
        if self.scheduler.closing:
            return
        process.dead = True
        self._lost(process)
        if error is not None and not isinstance(error, StoreError):
            self.observer.violated("worker_died", f"{member.name} ended with {type(error).__name__}: {error}")
        elif error is None and not member.stopping:
            self.observer.violated("worker_died", f"{member.name} ended without a stop")
        if self.phase != "stopping":
            self.scheduler.spawn(self.truth, lambda: self._again(member), "supervisor")

    async def _main(self, member: Member) -> None:
        member.loop = asyncio.get_running_loop()
        await member.worker.run()

    def _again(self, member: Member) -> None:
        self.scheduler.sleep(AGAIN)
        if self.phase != "stopping":
            self._start(member)

    def _lost(self, process: Process) -> None:
        """Close what the operating system closes when a process has ended."""
        if self.connection_queue is not None:
            self.connection_queue.lost(process)
        for each in self._connections:
            if each.process is process:
                # While a cursor holds a statement, closing alone would leave the transaction and its lock open.
                # The process may have closed it already.
                with contextlib.suppress(sqlite3.ProgrammingError):
                    if each.in_transaction:
                        each.rollback()
                each.close()
        self._connections = [each for each in self._connections if each.process is not process]

    def crash(self, process: Process) -> None:
        """Kill a process; a supervisor starts another one."""
        member = self.members[process.name]
        self.note(process.name, "is killed")
        process.dead = True
        self._lost(process)
        self.scheduler.spawn(self.truth, lambda: self._again(member), "supervisor")
        self.scheduler.kill(process)


def simulate(plan: Plan, image: bytes, folder: Path, *, verbose: bool = False) -> Report:
    """Run a plan.

    Args:
        plan: the plan.
        image: the empty database; see `database.template`.
        folder: the folder for a store in a file.
        verbose: print each step.

    Returns:
        The result of the simulation."""
    # Coroutines of killed processes are never awaited to their end. They are collected here, where that is no warning.
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            report = Simulation(plan, image, folder, verbose=verbose).run()
            gc.collect(0)
        return report
    finally:
        gc.enable()
