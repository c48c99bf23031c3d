"""Helpers of the runtime tests: claims without a worker, and a worker that runs beside the test.

No test sleeps for a fixed time: handlers set events when they start, and `until` polls conditions without an event."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from redrive import App
from redrive.app.tasks.job import Job
from redrive.clock import Clock, SystemClock
from redrive.engine.lifecycle import FINAL
from redrive.engine.outcome import Failed, Lost, Outcome
from redrive.engine.records import Claim, Process
from redrive.policy import Failure
from redrive.runtime.executor import Executor
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty, Supervisor
from redrive.runtime.threads import ThreadPool
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases, workers
from redrive.stores.operations.leases import Ending

LONG = timedelta(days=1000)
"""Lease of the worker in tests that are not about leases."""

LOOK = 0.001
"""Seconds between two polls of `until`."""

PATIENCE = 90
"""Seconds after which a waiting test fails."""


class ManualClock:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Return the present second."""
        return self.seconds


class UserBaseException(BaseException):
    """An exception of a user that does not derive from Exception."""


def app_on(folder: Path, **options: Any) -> App:
    """Return an app on a file, with leases so short that a test can see them expire."""
    terms = {"heartbeat_every": "50ms", "lease_for": "200ms"} | options
    return App(f"sqlite:///{folder}/jobs.db?synchronous=normal", **terms)


class Registered(WorkerRegistration):
    """The registration of a worker that only sends heartbeats and claims.

    Args:
        app: the app with the store.
        worker: its id.
        queues: the queues that it serves."""

    def __init__(self, app: App, worker: int = 1, queues: Sequence[str] | None = None) -> None:
        super().__init__(app, concurrency=9, queues=queues)
        self.app, self.id, self.renewals = app, worker, 0
        # It has registered without a process.
        self._process = Process("here", 1, None)

    def renew_soon(self, number: int) -> None:
        """Count it."""
        assert self.id == number
        self.renewals += 1


class Recorded:
    """The attempts of a worker that starts none, with a record of every call.

    Args:
        leases: the leases that it holds."""

    def __init__(self, leases: Iterable[int] = ()) -> None:
        self.leases = frozenset(leases)
        self.free, self.count, self.runs_suspect, self.doubted = 10, 0, False, False
        self.claim_again = asyncio.Event()
        self.calls_lost: list[frozenset[int]] = []
        self.calls_asked: list[Mapping[int, str]] = []
        self.on_expired: Callable[[], object] = lambda: None
        self.waiting: list[Any] = []

    def held(self) -> frozenset[int]:
        """Return the leases."""
        return self.leases

    def lost(self, leases: frozenset[int]) -> None:
        """Record them."""
        self.calls_lost.append(leases)

    def asked(self, asked: Mapping[int, str]) -> None:
        """Record what operators ask of runs."""
        self.calls_asked.append(asked)

    def doubt(self) -> None:
        """Record it."""
        self.doubted = True

    def expired(self) -> None:
        """Call the function of the test."""
        self.on_expired()

    def reports(self) -> list[Any]:
        """Return what waits to be written."""
        return self.waiting


def register(app: App, *, lease_for: timedelta = LONG) -> int:
    """Register a worker that runs no jobs."""
    return app.store.run(workers.register("test:1", concurrency=9, lease_for=lease_for, now=app.now()))


def take(app: App, count: int = 1, *, worker: int | None = None, lease_for: timedelta = LONG) -> tuple[Claim, ...]:
    """Claim jobs for a worker that runs none."""
    holder = register(app, lease_for=lease_for) if worker is None else worker
    return app.store.run(leases.claim(holder, count, lease_for=lease_for, now=app.now())).claims


def crash(app: App, times: int) -> None:
    """Let the worker of all due jobs vanish this number of times."""
    for _ in range(times):
        lost = [Ending(claim, Lost("vanished"), 0.0) for claim in take(app, 100)]
        app.store.run(leases.settle(lost, now=app.now()))


def run_due(app: App, pool: ThreadPool | None = None) -> Outcome:
    """Claim the job that is due and run its handler."""
    (claim,) = take(app)
    return asyncio.run(Executor(app, pool).run(claim))


def failure(outcome: Outcome) -> Failure:
    """Return the failure of a failed attempt."""
    assert isinstance(outcome, Failed)
    return outcome.failure


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a handler that raises this exception."""

    async def handler() -> None:
        """Raise it."""
        raise error

    return handler


async def repeat(duty: Duty, clock: Clock) -> None:
    """Repeat a duty as a worker does."""
    await Supervisor(clock).run(duty)


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds that no event announces."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await SystemClock().asleep(LOOK)


async def ended(*jobs: Job[Any]) -> None:
    """Wait until these jobs have ended."""
    for job in jobs:
        with contextlib.suppress(Exception):
            await job.aresult(timeout=PATIENCE)
        assert (await job.arefresh()).state in FINAL


async def came(event: threading.Event) -> None:
    """Wait for an event of a thread."""
    assert await asyncio.to_thread(event.wait, PATIENCE)


@contextlib.asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker beside the test, and stop it at once at the end."""
    worker = Worker(app, **options)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        worker.stop()
        async with asyncio.timeout(PATIENCE):
            await running
