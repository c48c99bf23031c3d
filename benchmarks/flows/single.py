"""Measures five-step runs of one subject once, in the interpreter that has its packages.

It prints one line of JSON. Definitions:

* *Runs per second* count from the start of the first run until the end of the last one was written; all are due when
  the worker starts, whose start is not measured. *WAL and commits per step* count between the same instants; they
  contain the claim and the end of the run.
* *Commits per step, idle* count from the first to the last of runs that come one by one, transactions that only read
  included, and so also those of polling.
* *Step latency* is the time from the call of a step in the body until the body goes on, for runs that come one by one,
  so that the engine has nothing to put together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import closing
from pathlib import Path

from benchmarks.flows.runs import COUNTS, STEPS, SUBJECTS, subject
from benchmarks.measure import NOTHING, Sizes, drain
from benchmarks.meter import METER, Meter
from benchmarks.place import Server, fresh
from benchmarks.processes import running, wait
from benchmarks.subjects import Subject

__all__ = ["main", "measure"]

TIMED = 60
"""Runs that come one by one."""

APART = 0.1
"""Seconds between two of these."""


def measure(name: str, chosen: Subject, home: Path, server: Server | None = None) -> dict[str, float]:
    """Measure one subject once.

    Args:
        name: of the subject.
        chosen: the subject.
        home: a folder on the disk that is meant.
        server: PostgreSQL, where the subject wants it.

    Returns:
        The figures.
    """
    count = COUNTS[name]
    drained = drain(chosen, Sizes(jobs=count), home, server)
    wal = commits = NOTHING
    if drained.before is not None and drained.after is not None:
        wal = (drained.after.wal - drained.before.wal) / count / STEPS
        commits = (drained.after.commits - drained.before.commits) / count / STEPS
    p50, p99, idle = _latency(chosen, home, server)
    return {
        "runs": drained.settled,
        "cpu": drained.cpu,
        "wal": wal,
        "commits": commits,
        "idle_commits": idle,
        "p50": p50,
        "p99": p99,
    }


def _latency(chosen: Subject, home: Path, server: Server | None) -> tuple[float, float, float]:
    """Return median and 99th percentile in milliseconds, and the commits per step."""
    with fresh(home, server) as place:
        chosen.create(place)
        with closing(chosen):
            meter = Meter.create(place.folder / "meter")
            command, env = chosen.worker()
            with running(command, {**env, METER: str(place.folder / "meter")}, place.folder / "log") as process:
                chosen.enqueue(0.0)
                wait("the first run", lambda: meter.count > 0, process)
                before = place.tally()
                began = time.monotonic()
                for number in range(TIMED):
                    time.sleep(max(0.0, began + number * APART - time.monotonic()))
                    chosen.enqueue(time.monotonic())
                wait("the last step", lambda: meter.count > TIMED * STEPS, process)
            after = place.tally()
    cuts = statistics.quantiles(meter.latencies, n=100)
    idle = NOTHING
    if before is not None and after is not None:
        idle = (after.commits - before.commits) / TIMED / STEPS
    return cuts[49] * 1e3, cuts[98] * 1e3, idle


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.flows.single")
    parser.add_argument("store", choices=sorted(SUBJECTS))
    parser.add_argument("subject")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--server", type=json.loads)
    given = parser.parse_args()
    server = Server(**given.server) if given.server else None
    print(json.dumps(measure(given.subject, subject(given.store, given.subject), given.home, server)))


if __name__ == "__main__":
    main()
