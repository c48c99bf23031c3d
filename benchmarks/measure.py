"""Measures one subject, once: jobs go in, a worker process runs them, and the clock is read.

What is counted and what is not:

* *Draining* starts with jobs that are all due. The time until the last handler ran, and until the end of the last job
  was written, both count from the first handler: a worker's start-up is not measured here. The second figure is the
  honest one, since a job whose end is not written would run again.
* *Processor time* is that of the worker process between the same two instants.
* *Latency* runs from just before the call that enqueues to the handler, at a steady rate far below what the subject can
  do; so it contains one commit, and the worker finds each job alone.
* *Enqueueing* is measured in this process, while no worker runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import METER, Meter
from benchmarks.processes import cpu_seconds, running, wait
from benchmarks.subjects import Subject

__all__ = ["Figures", "Sizes", "measure"]


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


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured.

    Attributes:
        single: enqueued one by one, per second.
        bulk: enqueued many at once, per second.
        handled: drained, per second, from the first handler to the last.
        settled: drained, per second, from the first handler until the last end was written.
        cpu: processor time of the worker process per job, microseconds.
        p50: latency, milliseconds.
        p99: the same.
    """

    single: float
    bulk: float
    handled: float
    settled: float
    cpu: float
    p50: float
    p99: float


def measure(subject: Subject, sizes: Sizes, home: Path) -> Figures:
    """Measure one subject once.

    Args:
        subject: what.
        sizes: how much.
        home: a folder on the disk that is meant.

    Returns:
        The figures.

    Raises:
        Stuck: its worker got nowhere.
    """
    single = _singles(subject, sizes, home)
    bulk, handled, settled, cpu = _drain(subject, sizes, home)
    p50, p99 = _latency(subject, sizes, home)
    return Figures(single, bulk, handled, settled, cpu, p50, p99)


@contextmanager
def _fresh(subject: Subject, home: Path) -> Iterator[Path]:
    """A new database in a folder of its own, removed afterwards."""
    with tempfile.TemporaryDirectory(dir=home) as name:
        subject.create(Path(name))
        with closing(subject):
            yield Path(name)


def _singles(subject: Subject, sizes: Sizes, home: Path) -> float:
    with _fresh(subject, home):
        began = time.monotonic()
        for _ in range(sizes.singles):
            subject.enqueue(0.0)
        return sizes.singles / (time.monotonic() - began)


def _drain(subject: Subject, sizes: Sizes, home: Path) -> tuple[float, float, float, float]:
    """Answers: enqueued in bulk per second, handled per second, settled per second, microseconds of CPU per job."""
    with _fresh(subject, home) as folder:
        began = time.monotonic()
        subject.enqueue_many(sizes.jobs)
        filled = time.monotonic() - began
        meter = Meter.create(folder / "meter")
        command, env = subject.worker()
        with running(command, {**env, METER: str(folder / "meter")}, folder / "log") as process:
            wait("the first job", lambda: meter.count > 0, process)
            before = cpu_seconds(process)
            wait("the last job", lambda: meter.count >= sizes.jobs, process)
            settled_at = wait("the end of the last job", lambda: not subject.unfinished(), process)
            used = cpu_seconds(process) - before
        assert meter.count == sizes.jobs, f"{subject.name} ran {meter.count} of {sizes.jobs} jobs"
        handled, settled = meter.last_at - meter.first_at, settled_at - meter.first_at
        return sizes.jobs / filled, sizes.jobs / handled, sizes.jobs / settled, used / sizes.jobs * 1e6


def _latency(subject: Subject, sizes: Sizes, home: Path) -> tuple[float, float]:
    """Answers: median and 99th percentile, milliseconds."""
    with _fresh(subject, home) as folder:
        meter = Meter.create(folder / "meter")
        command, env = subject.worker()
        with running(command, {**env, METER: str(folder / "meter")}, folder / "log") as process:
            subject.enqueue(0.0)
            wait("the first job", lambda: meter.count > 0, process)
            _send(subject, sizes)
            wait("the last job", lambda: meter.count > sizes.latencies, process)
        cuts = statistics.quantiles(meter.latencies, n=100)
        return cuts[49] * 1e3, cuts[98] * 1e3


def _send(subject: Subject, sizes: Sizes) -> None:
    """Enqueue at a steady rate: each job has its instant, so that a slow one does not thin the stream out."""
    began = time.monotonic()
    for number in range(sizes.latencies):
        time.sleep(max(0.0, began + number / sizes.rate - time.monotonic()))
        subject.enqueue(time.monotonic())
