"""The harness of the store tests: a store in one colour, with a clock that only tests advance.

A test of the conformance suite is written once. Its fixture `store` is a `Harness` around each store in each colour:
`Harness.do` either waits for an operation or awaits it. A new store is one line in `STORES`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import redrive
from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.outcome import Failed, Outcome, Settlement, Succeeded, Suspended
from redrive.engine.records import AttemptRecord, Claim, Filter, JobRecord, NewJob, Progress
from redrive.policy import Failure, Policy
from redrive.stores.opening import open_store
from redrive.stores.operations import admin, attempts, jobs, leases, redriving, workers
from redrive.stores.operations.leases import Claimed, Ending, LaneCursor, Settled
from redrive.stores.query import Operation
from redrive.stores.store import Store
from tests import postgres
from tests.selection import sized
from tests.stores.colours import RAN

STORES: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"sqlite:///{folder / 'jobs.db'}?synchronous=normal",
    "memory": lambda _: "memory://",
    "postgres": lambda _: postgres.url(),
    "turso": lambda folder: f"turso:///{folder / 'jobs.db'}?synchronous=normal",
}
"""URL of each kind of store, in a folder of its own."""

PACKAGE = str(Path(redrive.__file__).parent)
"""The folder of the package."""

DATABASES = {"postgresql": "PostgreSQL", "turso": "Turso"}
"""Names of the databases other than SQLite, by the scheme of their URL."""

SHARED = ("file", "postgres")
"""The stores that several openings of one URL share, in this process or in another one."""

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)

LEASE = timedelta(seconds=15)
"""The default lease of a worker."""

LONG = timedelta(days=1000)
"""The lease of the worker in tests that are not about workers."""


def seconds(count: float) -> timedelta:
    """Return a timedelta."""
    return timedelta(seconds=count)


def new(  # the fields of a job, by keyword
    task: str = "send",
    *,
    retry: str = "2 1s",
    queue: str = "default",
    priority: int = 0,
    delay: float = 0,
    payload: bytes | None = b"{}",
    **changes: Any,
) -> NewJob:
    """Return a job to be enqueued, with the policy of a directive and other changes."""
    policy = freeze(Policy.parse(retry).with_(**changes).durable()) if changes else _frozen(retry)
    return NewJob(task, queue, priority, payload, policy, seconds(delay))


@functools.cache
def _frozen(retry: str) -> FrozenPolicy:
    """Return the policy of a directive as it is stored."""
    # Parsing would be most of the work of a test that enqueues thousands of jobs.
    return freeze(Policy.parse(retry).durable())


def failed(message: str = "boom", **changes: Any) -> Failed:
    """Return an ordinary failure."""
    return Failed(Failure(("builtins.ValueError", "builtins.Exception"), message, **changes))


FATAL = replace(failed("no such user", permanent="no such user", reason="GAVE_UP"), undone=True)
"""A failure that ends its job at once, also that of a run."""


class Harness:
    """A store, one of its colours, and the current instant of its operations.

    Args:
        url: URL of the store.
        colour: ``sync`` or ``async``."""

    def __init__(self, url: str, colour: str) -> None:
        self.url = url
        self.colour = colour
        self._database = DATABASES.get(url.partition(":")[0], "SQLite")
        self.now = T0
        self._runner = asyncio.Runner()
        self._stores = [open_store(url)]
        self._me: int | None = None

    @property
    def raw(self) -> Store:
        """Return the store itself."""
        return self._stores[0]

    def renewed(self) -> Harness:
        """Return this harness as at its beginning, after its database was emptied; close the further openings."""
        self.now, self._me = T0, None
        while len(self._stores) > 1:
            self._stores.pop().close()
        return self

    def close(self) -> None:
        """Close the store, all its openings, and the event loop."""
        for each in self._stores:
            each.close()
        self._runner.close()

    # ------------------------------------------------------------------------------------------------- running

    def do(self, operation: Operation[Any]) -> Any:
        """Run an operation to its end."""
        self._note(operation)
        if self.colour == "sync":
            return self.raw.run(operation)
        return self._runner.run(self.raw.arun(operation))

    def at_once(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Run operations simultaneously, each in its own store; return results and errors."""
        openings = self._openings(len(operations))
        for operation in operations:
            self._note(operation)
        if self.colour == "sync":
            return _in_threads(openings, operations)
        return self._runner.run(_in_tasks(openings, operations))

    def trials(self, count: int) -> int:
        """Return the number of trials of a race: a quarter where one opening, which is all there is, orders them."""
        number = sized(count // 4, count)
        return number if self.url.startswith(("sqlite", "postgresql")) else number // 4

    def _note(self, operation: Operation[Any]) -> None:
        # Operations that a test has written itself are not counted.
        if operation.steps.gi_code.co_filename.startswith(PACKAGE):
            RAN.add((f"{self.colour} on {self._database}", operation.name))

    def _openings(self, count: int) -> list[Store]:
        if not self.url.startswith(("memory", "turso")):
            self._stores += [open_store(self.url) for _ in range(count - len(self._stores))]
        return [self._stores[index % len(self._stores)] for index in range(count)]

    def wait(self, count: float) -> None:
        """Advance the clock by this many seconds."""
        self.now += seconds(count)

    # ---------------------------------------------------------------------------------------------- operations

    @property
    def me(self) -> int:
        """Return a worker for tests that are not about workers."""
        if self._me is None:
            self._me = self.worker(lease_for=LONG)
        return self._me

    def worker(self, name: str = "host:1", *, lease_for: timedelta = LEASE) -> int:
        """Register a worker."""
        return self.do(workers.register(name, concurrency=4, lease_for=lease_for, now=self.now))

    def beat(self, worker: int, lease_for: timedelta = LEASE) -> workers.Pulse:
        """Send a worker's heartbeat."""
        return self.do(workers.beat(worker, lease_for, now=self.now))

    def leave(self, worker: int) -> list[int]:
        """Let a worker leave."""
        return self.do(workers.leave(worker, now=self.now))

    def give_back(self, *claims: Claim) -> list[int]:
        """Give back jobs that were claimed and have not started."""
        return self.do(workers.give_back(claims[0].worker_id, [each.lease_id for each in claims], "late", now=self.now))

    def enqueue(self, *wanted: NewJob) -> list[int]:
        """Enqueue jobs together."""
        return self.do(jobs.enqueue(wanted, now=self.now)).ids

    def put(self, wanted: NewJob | None = None) -> int:
        """Enqueue one job."""
        (number,) = self.enqueue(wanted or new())
        return number

    def claimed(
        self,
        count: int = 1,
        *,
        ahead: int = 0,
        worker: int | None = None,
        queues: Sequence[str] | None = None,
        excluded: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        cursors: Sequence[LaneCursor] = (),
    ) -> Claimed:
        """Claim jobs, and return them with the pause until the next claim."""
        worker_id, lease_for = (self.me, LONG) if worker is None else (worker, LEASE)
        return self.do(
            leases.claim(
                worker_id,
                count,
                ahead=ahead,
                lease_for=lease_for,
                queues=queues,
                excluded=excluded,
                tasks=tasks,
                cursors=cursors,
                now=self.now,
            )
        )

    def claim(self, count: int = 1, **options: Any) -> tuple[Claim, ...]:
        """Claim jobs."""
        return self.claimed(count, **options).claims

    def take(self, wanted: NewJob | None = None, *, worker: int | None = None) -> Claim:
        """Enqueue a job, if one is given, and claim the next one."""
        if wanted is not None:
            self.enqueue(wanted)
        (claim,) = self.claim(worker=worker)
        return claim

    def settle(self, *endings: tuple[Claim, Outcome], sample: float = 0.0) -> Settled:
        """Settle attempts together."""
        return self.do(leases.settle([Ending(*each, sample) for each in endings], now=self.now))

    def end(self, claim: Claim, outcome: Outcome = Succeeded()) -> Settlement:  # noqa: B008 - a frozen value
        """Settle one attempt with a current lease."""
        (moved,) = self.settle((claim, outcome)).moved
        return moved

    def sweep(self, budget: int = 100, **options: Any) -> tuple[Settlement, ...]:
        """Sweep once."""
        return self.do(leases.sweep(budget, now=self.now, **options))

    def wait_for_answer(self, wanted: NewJob | None = None, *, seconds_at_most: float = 60) -> Claim:
        """Enqueue a job, claim it, and suspend its attempt until an external answer."""
        claim = self.take(wanted or new())
        self.end(claim, Suspended(seconds(seconds_at_most)))
        return claim

    def answer(self, claim: Claim, outcome: Succeeded | Failed = Succeeded(), *, sample: float = 0.0) -> bool:  # noqa: B008
        """Answer an attempt."""
        return self.do(attempts.complete(claim.id, claim.lease_id, outcome, sample, now=self.now)) is not None

    def lapse(self, budget: int = 100) -> tuple[Settlement, ...]:
        """End the expired waits."""
        return self.do(attempts.expire_waits(budget, [0.0] * budget, now=self.now))

    def report(self, *reports: tuple[Claim, str | None]) -> frozenset[int]:
        """Write the progress of attempts, and return which are current."""
        entries = [attempts.ProgressReport(claim.id, claim.lease_id, details) for claim, details in reports]
        return self.do(attempts.report(entries, now=self.now))

    def dead(self, wanted: NewJob | None = None) -> int:
        """Enqueue a job and let it die at its first attempt."""
        claim = self.take(wanted or new())
        self.end(claim, FATAL)
        return claim.id

    def cancel(self, number: int, why: str | None = None) -> bool:
        """Cancel a job."""
        return self.do(admin.cancel(number, why=why, now=self.now))

    def retry(self, number: int) -> None:
        """Retry a job."""
        self.do(redriving.retry(number, now=self.now))

    def redrive(self, wanted: Filter | None = None, *, dry_run: bool = False, **how: Any) -> admin.BulkResult:
        """Redrive jobs."""
        if dry_run:
            return self.do(redriving.dry_run(wanted or Filter()))
        return self.do(redriving.redrive(wanted or Filter(), now=self.now, **how))

    # ------------------------------------------------------------------------------------------------- reading

    def job(self, number: int) -> JobRecord:
        """Read one job."""
        return self.do(jobs.get(number))

    def jobs(self) -> tuple[JobRecord, ...]:
        """Read all jobs, oldest first."""
        return self.do(admin.select(Filter(oldest_first=True, limit=1_000_000)))

    def history(self, number: int) -> tuple[AttemptRecord, ...]:
        """Read the closed attempts of one job."""
        return self.do(jobs.history(number))

    def progress(self, number: int) -> Progress | None:
        """Return the last progress of one job's handler."""
        return self.do(attempts.progress(number))

    def result(self, number: int) -> bytes | None:
        """Read the result of one job."""
        return self.do(jobs.result(number))

    def everything(self) -> dict[int, tuple[JobRecord, tuple[AttemptRecord, ...], bytes | None]]:
        """Read all stored data of all jobs, for comparison with a later reading."""
        return {job.id: (job, self.history(job.id), self.result(job.id)) for job in self.jobs()}


@contextlib.contextmanager
def harness(kind: str, colour: str, folder: Path) -> Iterator[Harness]:
    """Open a store of a kind in a folder, in one colour, and close it."""
    with empty(kind, folder) as url, contextlib.closing(Harness(url, colour)) as opened:
        yield opened


@contextlib.contextmanager
def empty(kind: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty store of a kind, copied from a migrated template if migrating is slow."""
    if kind == "postgres":
        with postgres.lent() as url:
            yield url
        return
    if kind != "memory":
        for name, content in _template(kind).items():
            (folder / name).write_bytes(content)
    yield STORES[kind](folder)


@functools.cache
def _template(kind: str) -> dict[str, bytes]:
    """Return the files of an empty store, by their names."""
    with tempfile.TemporaryDirectory() as name:
        open_store(STORES[kind](folder := Path(name))).close()
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def _in_threads(openings: Sequence[Store], operations: Sequence[Operation[Any]]) -> list[Any]:
    start = threading.Barrier(len(operations))

    def run(store: Store, operation: Operation[Any]) -> Any:
        start.wait()
        try:
            return store.run(operation)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error

    with ThreadPoolExecutor(len(operations)) as pool:
        return list(pool.map(run, openings, operations))


async def _in_tasks(openings: Sequence[Store], operations: Sequence[Operation[Any]]) -> list[Any]:
    running = [store.arun(operation) for store, operation in zip(openings, operations, strict=True)]
    return await asyncio.gather(*running, return_exceptions=True)
