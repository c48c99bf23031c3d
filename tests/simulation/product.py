"""Table of the parts of redrive that use threads, wall clocks, process ids and random numbers.

`simulated` replaces them during one simulation. If such a use in `src/redrive` moves, the table here changes with it;
no other part of the simulation depends on it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

import redrive.app.app
import redrive.app.attempts.handle
import redrive.clock
import redrive.runtime.dead_workers
import redrive.runtime.heartbeat
import redrive.runtime.registration
import redrive.runtime.rng
import redrive.runtime.worker
import redrive.stores.drivers.sqlite.connection
import redrive.stores.drivers.sqlite.connection_thread
import redrive.stores.drivers.sqlite.store
import redrive.stores.drivers.sqlite.transactions
import redrive.stores.drivers.sqlite.write_queue
import redrive.stores.values.rng
from redrive import App, CatchRequest, Context, Snooze
from redrive.clock import Clock
from redrive.engine.origin import is_feeder
from redrive.engine.records import Process as Described
from tests.simulation.database import SimulatedConnection
from tests.simulation.faults import AT_MOST_ONCE, HEARTBEAT, LEASE
from tests.simulation.flows import declare
from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import Future, Queues, SimulatedThreadPool, Threads

__all__ = ["CRON", "LIMIT", "LIMITED", "ProcessClock", "app", "forget", "simulated"]

CRON, EVERY = "tick", 2
"""The cron of the fleet, and the seconds between two of its occurrences."""

REFRESH = "renewed"
"""The refresh of the fleet."""

LIMITED, LIMIT = "narrow", 1
"""The queue with a limit, and how many of its attempts may run at once."""

LOOK = 0.1
"""Seconds between two polls of the file; the 3 ms of production would be most of the work here."""


class ProcessClock(Clock):
    """The clock of the running process.

    Args:
        scheduler: the scheduler with the virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.now = scheduler.time
        self.sleep = scheduler.sleep

    def monotonic(self) -> float:
        """Seconds of virtual time."""
        return self._scheduler.now

    async def asleep(self, seconds: float) -> None:
        """Suspend the task; the event loop runs in virtual time."""
        await redrive.clock.SystemClock.asleep(self, seconds)  # type: ignore[arg-type]


def app(perform: Any, *, flows: bool = False) -> App:
    """Create the app of one process.

    Args:
        perform: function that receives the calls of the handlers.
        flows: declare a topic, workflows and a refresh, too.

    Returns:
        The app; all processes have the same tasks."""
    made = App("memory://", heartbeat_every=HEARTBEAT, lease_for=LEASE, keep_for="forever")
    made.queue(LIMITED, concurrency=LIMIT)
    _declare_tasks(made, perform)
    if flows:
        declare(made, perform)
    made.check()
    return made


def _declare_tasks(made: App, perform: Any) -> None:
    @made.task(retry="2 500ms")
    async def plain(number: int, ctx: Context) -> int:
        return await perform.asleep(ctx, number)

    @made.task(idempotent=False, name=AT_MOST_ONCE)
    async def once(number: int, ctx: Context) -> int:
        return await perform.asleep(ctx, number)

    @made.task(retry="2 500ms", queue=LIMITED)
    async def narrow(number: int, ctx: Context) -> int:
        return await perform.asleep(ctx, number)

    @made.task(retry="2 500ms")
    def threaded(number: int, ctx: Context) -> int:
        return perform.sleep(ctx, number)

    @made.task(retry="2 500ms")
    async def keyed(number: int, ctx: Context) -> int:
        return await perform.asleep(ctx, number)

    @made.task
    async def recover(request: CatchRequest[int], ctx: Context) -> None:
        perform.catch(ctx)

    @made.task(retry="1 200ms catch recover")
    async def caught(number: int, ctx: Context) -> int:
        return await perform.asleep(ctx, number)

    @made.task(retry="2 500ms")
    async def booked(number: int, ctx: Context) -> None:
        await perform.begin(ctx)
        async with ctx.transaction() as connection:
            await perform.book(ctx, number, connection)

    @made.cron(f"*/{EVERY} * * * * *", name=CRON)
    async def tick(ctx: Context) -> None:
        perform.tick(ctx)


def snooze() -> Exception:
    """Return what a handler raises that asks to be called later."""
    return Snooze("300ms")


def topic(used: App) -> Any:
    """Return the topic of the fleet."""
    return used.topics.declared["news"]


def is_endless(row: Any) -> bool:
    """Return True for a job that has a successor for ever, or never ends."""
    return row.task in (CRON, REFRESH) or is_feeder(row.origin)


def forget(used: App) -> None:
    """Reset an app for the next simulation, after any end of its process."""
    used._lock = threading.Lock()
    used._store = used._uid = None


class _Waiting(logging.Handler):
    """Shows what the product logs, with the virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        strand = self._scheduler.current
        name = strand.process.name if strand else "-"
        print(f"{self._scheduler.now:9.3f} s  {name:8} {record.getMessage()}")


@contextlib.contextmanager
def simulated(simulation: Any, *, verbose: bool = False) -> Iterator[None]:
    """Let redrive run in virtual time.

    Args:
        simulation: that it runs in.
        verbose: show what the product logs.
    """
    scheduler: Scheduler = simulation.scheduler
    threads, time = Threads(scheduler), ProcessClock(scheduler)

    def connect(settings: Any) -> SimulatedConnection:
        return simulation.connect(settings.path)

    def here() -> Described:
        process = scheduler.current.process
        return Described("host", process.number, f"born {process.number}")

    def is_gone(described: Described) -> bool:
        return simulation.is_gone(described.pid)

    sqlite = redrive.stores.drivers.sqlite
    table: list[tuple[Any, str, Any]] = [
        (redrive.app.app, "open_store", simulation.open_store),
        (redrive.app.attempts.handle, "_monotonic", time.monotonic),
        (redrive.clock, "boot_time", lambda: ("boot", round(scheduler.now * 1e6))),
        (redrive.clock.SystemClock, "monotonic", staticmethod(time.monotonic)),
        (redrive.clock.SystemClock, "now", lambda _: time.now()),
        (redrive.clock.SystemClock, "sleep", lambda _, seconds: time.sleep(seconds)),
        (redrive.runtime.dead_workers, "is_gone", is_gone),
        (redrive.runtime.rng, "random", Random(f"dice {simulation.plan.seed}")),
        (redrive.stores.values.rng, "random", Random(f"drawn {simulation.plan.seed}")),
        (redrive.runtime.heartbeat, "threading", threads),
        (redrive.runtime.registration, "present", here),
        (redrive.runtime.worker, "ThreadPool", lambda size, _: SimulatedThreadPool(scheduler, size)),
        (sqlite.store, "POLL", LOOK),
        (sqlite.store, "connect", connect),
        (sqlite.store, "threading", threads),
        (sqlite.store.files, "unregister", lambda *_: None),
        (sqlite.store.files, "register", lambda *_: None),
        (sqlite.connection_thread, "Future", Future),
        (sqlite.connection_thread, "queue", Queues(scheduler)),
        (sqlite.connection_thread, "threading", threads),
        (sqlite.transactions, "connect", connect),
        (sqlite.transactions, "ThreadPoolExecutor", lambda size, _: SimulatedThreadPool(scheduler, size)),
        (sqlite.write_queue, "Future", Future),
        (sqlite.write_queue, "threading", threads),
        (sqlite.connection, "threading", threads),
        (Future, "scheduler", scheduler),
    ]
    log = logging.getLogger("redrive")
    handler = _Waiting(scheduler)
    before = log.level, log.propagate
    with contextlib.ExitStack() as stack:
        for place, name, value in table:
            stack.enter_context(mock.patch.object(place, name, value, create=place is Future))
        stack.callback(log.setLevel, before[0])
        log.setLevel(logging.INFO if verbose else logging.CRITICAL + 1)
        if verbose:
            log.propagate = False
            log.addHandler(handler)
            stack.callback(setattr, log, "propagate", before[1])
            stack.callback(log.removeHandler, handler)
        yield
