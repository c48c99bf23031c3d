"""Measures one subject, once: jobs are enqueued, a worker process runs them, and the time is taken.

Definitions:

* *Draining* starts with jobs that are all due. The time until the last handler ran, and until the end of the last job
  was written, both count from the first handler: the start of the worker is not measured here. The second figure is
  the decisive one, because a job without a written end would run again.
* *Processor time* is that of the worker process between the same two instants.
* *Latency* is the time from just before the enqueue to the handler, at a steady rate far below the limit of the
  subject; so it contains one commit, and the worker receives each job alone.
* *Enqueueing* is measured in this process, while no worker runs.
* *The server's side*, if there is a server: bytes of log and commits per job while draining, and the rows that are left
  to be cleaned up when the last job has ended.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import METER, Meter
from benchmarks.place import DATABASE, Place, PostgresCounters, Server, fresh
from benchmarks.processes import Process, cpu_seconds, running, wait
from benchmarks.subjects import Subject

__all__ = [
    "NOTHING", "Drained", "Figures", "Sizes", "drain", "fresh_subject", "latency", "measure", "run_dry",
    "send", "singles",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        jobs: that are drained.
        singles: that are enqueued one by one.
        latencies: that are sent at a steady rate.
        rate: jobs per second of these.
    """

    jobs: int = 20_000
    singles: int = 1_000
    latencies: int = 200
    rate: float = 50.0


NOTHING = float("nan")
"""Of what a subject or its store does not have."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured.

    Attributes:
        single: enqueued one by one, per second.
        bulk: enqueued many at once, per second.
        handled: drained, per second, from the first handler to the last.
        settled: drained, per second, from the first handler until the last end was written.
        settled_by_two: the same, by two worker processes.
        cpu: processor time of the worker process per job, microseconds.
        p50: latency, milliseconds.
        p99: the same.
        wal: bytes of the server's log per job, while draining.
        commits: per job, while draining.
        dead: dead rows per job, when the last one has ended.
    """

    single: float = NOTHING
    bulk: float = NOTHING
    handled: float = NOTHING
    settled: float = NOTHING
    settled_by_two: float = NOTHING
    cpu: float = NOTHING
    p50: float = NOTHING
    p99: float = NOTHING
    wal: float = NOTHING
    commits: float = NOTHING
    dead: float = NOTHING


@dataclass(frozen=True, slots=True)
class Drained:
    """What one draining showed.

    Attributes:
        bulk: enqueued per second, before.
        handled: per second.
        settled: per second.
        cpu: microseconds per job, all workers together.
        before: the server's counts when the first job ran.
        after: the same, when the last end was written.
    """

    bulk: float
    handled: float
    settled: float
    cpu: float
    before: PostgresCounters | None
    after: PostgresCounters | None


def measure(subject: Subject, sizes: Sizes, home: Path, server: Server | None = None) -> Figures:
    """Measure one subject once.

    Args:
        subject: what.
        sizes: how much.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.

    Returns:
        The figures.

    Raises:
        Stuck: its worker got nowhere.
    """
    single = singles(subject, sizes, home, server)
    one = drain(subject, sizes, home, server)
    two = drain(subject, sizes, home, server, workers=2)
    p50, p99 = latency(subject, sizes, home, server)
    wal = commits = dead = NOTHING
    if one.before is not None and one.after is not None:
        wal = (one.after.wal - one.before.wal) / sizes.jobs
        commits = (one.after.commits - one.before.commits) / sizes.jobs
        dead = one.after.dead / sizes.jobs
    return Figures(
        single, one.bulk, one.handled, one.settled, two.settled, one.cpu, p50, p99, wal=wal, commits=commits, dead=dead
    )


@contextmanager
def fresh_subject(subject: Subject, home: Path, server: Server | None, database: str = DATABASE) -> Iterator[Place]:
    """Make a new database that contains the tables of the subject.

    Args:
        subject: what.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.
        database: its name on the server.

    Yields:
        The place.
    """
    with fresh(home, server, database) as place:
        subject.create(place)
        with closing(subject):
            yield place


def singles(subject: Subject, sizes: Sizes, home: Path, server: Server | None) -> float:
    """Enqueue jobs one by one, while no worker runs.

    Args:
        subject: what.
        sizes: how much.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.

    Returns:
        Jobs per second.
    """
    with fresh_subject(subject, home, server):
        subject.enqueue(0.0)
        began = time.monotonic()
        for _ in range(sizes.singles):
            subject.enqueue(0.0)
        return sizes.singles / (time.monotonic() - began)


def drain(subject: Subject, sizes: Sizes, home: Path, server: Server | None = None, *, workers: int = 1) -> Drained:
    """Fill a new database, and let worker processes drain it.

    Args:
        subject: what.
        sizes: how much.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.
        workers: how many processes.

    Returns:
        What it showed.

    Raises:
        Stuck: a worker got nowhere.
    """
    with fresh_subject(subject, home, server) as place:
        began = time.monotonic()
        subject.enqueue_many(sizes.jobs)
        filled = time.monotonic() - began
        subject.prepare(place)
        place.settle_down()
        return run_dry(subject, sizes, place, sizes.jobs / filled, workers)


def run_dry(subject: Subject, sizes: Sizes, place: Place, bulk: float, workers: int) -> Drained:
    """Let worker processes drain a filled database.

    Args:
        subject: what.
        sizes: how much.
        place: the database.
        bulk: the rate at which it was filled, for the result.
        workers: how many processes.

    Returns:
        What it showed.

    Raises:
        Stuck: a worker got nowhere.
    """
    meters = [Meter.create(place.folder / f"meter-{number}") for number in range(workers)]
    command, env = subject.worker()
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                running(command, {**env, METER: str(place.folder / f"meter-{number}")}, place.folder / f"log-{number}")
            )
            for number in range(workers)
        ]
        subject.started(processes)
        before = place.tally()
        wait("the first job", lambda: any(meter.count for meter in meters), *processes)
        used = _cpu(processes)
        wait("the last job", lambda: sum(meter.count for meter in meters) >= sizes.jobs, *processes)
        settled_at = wait("the end of the last job", lambda: not subject.unfinished(), *processes)
        used = _cpu(processes) - used
    # A session tells the server's statistics what it did at the latest when it ends.
    after = place.tally()
    ran = sum(meter.count for meter in meters)
    assert ran == sizes.jobs, f"{subject.name} ran {ran} of {sizes.jobs} jobs"
    first_at = min(meter.first_at for meter in meters if meter.count)
    last_at = max(meter.last_at for meter in meters)
    handled, settled = sizes.jobs / (last_at - first_at), sizes.jobs / (settled_at - first_at)
    return Drained(bulk, handled, settled, used / sizes.jobs * 1e6, before, after)


def _cpu(processes: Sequence[Process]) -> float:
    return sum(cpu_seconds(process) for process in processes)


def latency(subject: Subject, sizes: Sizes, home: Path, server: Server | None) -> tuple[float, float]:
    """Send jobs at a steady rate to one worker process.

    Args:
        subject: what.
        sizes: how many, and the rate.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.

    Returns:
        Median and 99th percentile of the latencies, milliseconds.

    Raises:
        Stuck: the worker got nowhere.
    """
    with fresh_subject(subject, home, server) as place:
        meter = Meter.create(place.folder / "meter")
        command, env = subject.worker()
        with running(command, {**env, METER: str(place.folder / "meter")}, place.folder / "log") as process:
            subject.enqueue(0.0)
            wait("the first job", lambda: meter.count > 0, process)
            send(subject, sizes)
            wait("the last job", lambda: meter.count > sizes.latencies, process)
        cuts = statistics.quantiles(meter.latencies, n=100)
        return cuts[49] * 1e3, cuts[98] * 1e3


def send(subject: Subject, sizes: Sizes) -> None:
    """Enqueue at a steady rate: each job has its instant, so that a slow one does not thin the stream out.

    Args:
        subject: what.
        sizes: how many, and the rate.
    """
    began = time.monotonic()
    for number in range(sizes.latencies):
        time.sleep(max(0.0, began + number / sizes.rate - time.monotonic()))
        subject.enqueue(time.monotonic())
