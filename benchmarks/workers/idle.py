"""Idle workers: the statements that they send, and the latency of a job that one of them runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import Sizes, fresh_subject, send
from benchmarks.meter import METER, Meter
from benchmarks.place import Place, Server
from benchmarks.processes import running, wait
from benchmarks.workers.subjects import REGISTERED, fleet

__all__ = ["IDLE", "idle"]

WORKERS = 32

IDLE = f"redrive, {WORKERS} workers"

REST = 5.0
"""Seconds for which the workers rest before they are measured: a full round of heartbeats."""

FOR = 10.0
"""Seconds over which statements are counted."""

FIRST = Sizes(latencies=20, rate=20.0)
"""Jobs before those that are measured: the first calls of the sender open its connections."""

SENT = Sizes(latencies=200, rate=20.0)


def idle(_: str, home: Path, server: Server | None) -> Mapping[str, float]:
    """Count the statements of idle workers, and then measure the latency of single jobs.

    Args:
        home: a folder on the disk that is meant.
        server: PostgreSQL.

    Returns:
        Statements per second, and the latencies in milliseconds.

    Raises:
        Stuck: a worker got nowhere.
    """
    subject = fleet("postgres", "async")
    with fresh_subject(subject, home, server) as place, ExitStack() as stack:
        meters = [Meter.create(place.folder / f"meter-{number}") for number in range(WORKERS)]
        command, env = subject.worker()
        processes = [
            stack.enter_context(
                running(command, {**env, METER: str(place.folder / f"meter-{number}")}, place.folder / f"log-{number}")
            )
            for number in range(WORKERS)
        ]
        wait("the registration of all workers", lambda: int(place.ask(REGISTERED)) == WORKERS, *processes)
        time.sleep(REST)
        before = _statements(place)
        time.sleep(FOR)
        counted = _statements(place) - before
        send(subject, FIRST)
        wait("the first jobs", lambda: sum(each.count for each in meters) >= FIRST.latencies, *processes)
        first = [len(each.latencies) for each in meters]
        send(subject, SENT)
        jobs = FIRST.latencies + SENT.latencies
        wait("the last job", lambda: sum(each.count for each in meters) >= jobs, *processes)
        latencies = [late for meter, done in zip(meters, first, strict=True) for late in meter.latencies[done:]]
        cuts = statistics.quantiles(latencies, n=100)
        return {"statements": counted / FOR, "p50": cuts[49] * 1e3, "p99": cuts[98] * 1e3}


def _statements(place: Place) -> int:
    """Return the statements of this database so far: without a transaction block, each is one transaction."""
    return int(place.ask("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"))
