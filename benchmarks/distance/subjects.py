"""The operations that are measured, and the app that they belong to."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import redrive
from benchmarks.distance.proxy import Distance
from redrive.runtime.worker import Worker

__all__ = ["CONNECTIONS", "ROWS", "Measured", "Subject"]


class Measured(NamedTuple):
    """What an operation costs: round trips, and milliseconds."""

    trips: float
    ms: float


SINGLES = 40
"""Calls of an operation."""

ALONE = 15
"""Jobs that are measured one by one."""

DRAINED = 300
"""Jobs that are drained."""

BATCH = 500

REST = 0.02
"""Seconds after the end of a job within which its worker polls again."""

FIRST = 1.5
"""Seconds after which a worker has made its first polls, besides the time of a hundred round trips."""


class Subject:
    """An app, near to the server or distant, and its tasks."""

    def __init__(self, url: str) -> None:
        self.ran = 0
        self.app = redrive.App(url)

        @self.app.task
        async def noop(number: int) -> None:
            self.ran += number >= 0

        @self.app.task
        def transacted(ctx: redrive.Context, number: int) -> None:
            with ctx.transaction() as connection:
                connection.execute(f"SELECT {number}")

        @self.app.task
        async def awaited(ctx: redrive.Context, number: int) -> None:
            async with ctx.transaction() as connection:
                await connection.execute(f"SELECT {number}")

        async def step(number: int) -> int:
            return number

        @self.app.workflow()
        async def flow(run: redrive.Flow, number: int) -> int:
            for _ in range(3):
                number = await run.step(step, number)
            return number

        self.noop, self.transacted, self.awaited, self.flow = noop, transacted, awaited, flow
        self.topic = self.app.topic("events", int)


@contextlib.contextmanager
def working(subject: Subject, **options: Any) -> Iterator[Worker]:
    """Run a worker in a thread for the length of a ``with`` block."""
    begun, worker, loop = threading.Event(), None, asyncio.new_event_loop()

    async def run() -> None:
        nonlocal worker
        worker = Worker(subject.app, **options)
        begun.set()
        await worker.run()

    thread = threading.Thread(target=lambda: asyncio.Runner(loop_factory=lambda: loop).run(run()), daemon=True)
    thread.start()
    begun.wait()
    assert worker is not None
    try:
        yield worker
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(worker.stop)
        thread.join()


def _timed(proxy: Distance, count: int, call: Callable[[int], object]) -> Measured:
    before, began = proxy.trips, time.monotonic()
    for number in range(count):
        call(number)
    return Measured((proxy.trips - before) / count, (time.monotonic() - began) * 1e3 / count)


def _repeated(count: int, call: Callable[[Distance, Subject], Callable[[int], object]]) -> Callable[..., Measured]:
    def measure(proxy: Distance, near: Subject, far: Subject) -> Measured:
        del near
        prepared = call(proxy, far)
        for number in range(8):  # the libraries prepare statements, and open connections
            prepared(-1 - number)
        return _timed(proxy, count, prepared)

    return measure


def _aenqueue(proxy: Distance, near: Subject, far: Subject) -> Measured:
    del near
    with asyncio.Runner() as runner:
        for number in range(8):
            runner.run(far.noop.aenqueue(number))
        return _timed(proxy, SINGLES, lambda number: runner.run(far.noop.aenqueue(number)))


def _alone(start: Callable[[Subject, int], Any]) -> Callable[..., Measured]:
    """Measure jobs that a distant worker runs one by one: from the enqueue until it polls for the next one."""

    def measure(proxy: Distance, near: Subject, far: Subject) -> Measured:
        trips, times = [], []
        with working(far):
            for number in range(ALONE + 5):
                _quiet(proxy)
                before, began = proxy.trips, time.monotonic()
                started = start(near, number)
                while str(near.app.job(started).state) != "succeeded":
                    time.sleep(0.001)
                ended = time.monotonic()
                time.sleep(REST)
                if number >= 5:
                    trips.append(proxy.trips - before)
                    times.append((ended - began) * 1e3)
        return Measured(statistics.median(trips), statistics.median(times))

    return measure


def _quiet(proxy: Distance) -> None:
    """Wait until no poll of the worker is under way."""
    until = time.monotonic() + 1.0
    while time.monotonic() < min(until, proxy.last_at + REST):
        time.sleep(0.001)


def _drained(start: Callable[[Subject, int], Any]) -> Callable[..., Measured]:
    """Measure jobs that wait for a distant worker, without its start and its end."""

    def measure(proxy: Distance, near: Subject, far: Subject) -> Measured:
        for number in range(DRAINED):
            start(near, number)
        with working(far, until_empty=True) as worker:
            while (left := _unfinished(near)) > DRAINED - 50:
                time.sleep(0.001)
            before, began = proxy.trips, time.monotonic()
            while not worker.stopping.is_set() and _unfinished(near):
                time.sleep(0.001)
            return Measured((proxy.trips - before) / left, (time.monotonic() - began) * 1e3 / left)

    return measure


def _unfinished(near: Subject) -> int:
    return near.app.jobs.stats().unfinished


def _start(proxy: Distance, near: Subject, far: Subject) -> Measured:
    """Measure the start of a worker, until it has begun a job that waits for it."""
    near.noop.enqueue(0)
    before, ran, began = proxy.trips, far.ran, time.monotonic()
    with working(far):
        while far.ran == ran:
            time.sleep(0.0002)
        return Measured(proxy.trips - before, (time.monotonic() - began) * 1e3)


def _end(proxy: Distance, near: Subject, far: Subject) -> Measured:
    """Measure the end of an idle worker."""
    del near
    with working(far) as worker:
        while not worker.registered.is_set():
            time.sleep(0.001)
        time.sleep(FIRST + 200 * proxy.seconds)
        before, began = proxy.trips, time.monotonic()
    return Measured(proxy.trips - before, (time.monotonic() - began) * 1e3)


def _whole(proxy: Distance, near: Subject, far: Subject) -> Measured:
    """Measure a worker that has nothing to do, and ends."""
    del near
    before, began = proxy.trips, time.monotonic()
    with working(far, until_empty=True) as worker:
        while not worker.stopping.is_set():
            time.sleep(0.001)
    return Measured(proxy.trips - before, (time.monotonic() - began) * 1e3)


def _connections(proxy: Distance, near: Subject, far: Subject) -> Measured:
    """Count the connections of an idle worker that has run jobs of each kind."""
    with working(far):
        for number in range(60):
            near.noop.enqueue(number)
            near.transacted.enqueue(number)
            near.awaited.enqueue(number)
        while _unfinished(near):
            time.sleep(0.01)
        time.sleep(IDLE)
        return Measured(proxy.open, 0.0)


CONNECTIONS = "connections of an idle worker"
"""The one row that has no round trips."""

IDLE = 75.0
"""Seconds of idleness after which the connections of a worker are counted."""

ROWS: dict[str, Callable[[Distance, Subject, Subject], Measured]] = {
    "enqueue": _repeated(SINGLES, lambda _, far: far.noop.enqueue),
    "aenqueue": _aenqueue,
    f"enqueue_many of {BATCH}": _repeated(4, lambda _, far: lambda _: far.noop.enqueue_many(range(BATCH))),
    "publish": _repeated(SINGLES, lambda _, far: far.topic.publish),
    "start of a run": _repeated(SINGLES, lambda _, far: far.flow.start),
    "a job": _alone(lambda near, number: near.noop.enqueue(number).id),
    "a job with ctx.transaction(), def": _alone(lambda near, number: near.transacted.enqueue(number).id),
    "a job with ctx.transaction(), async": _alone(lambda near, number: near.awaited.enqueue(number).id),
    "a run of three steps": _alone(lambda near, number: near.flow.start(number).job.id),
    f"a job, of {DRAINED}": _drained(lambda near, number: near.noop.enqueue(number)),
    f"with ctx.transaction(), of {DRAINED}": _drained(lambda near, number: near.transacted.enqueue(number)),
    "start of a worker, to its first job": _start,
    "end of a worker": _end,
    "a worker with nothing to do, that ends": _whole,
    CONNECTIONS: _connections,
}
"""The operations, each with the function that measures it: the proxy, an app near to the server, one behind it."""
