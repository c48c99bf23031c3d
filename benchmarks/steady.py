"""Sizes under a steady load on PostgreSQL: ``python -m benchmarks.steady [--minutes 60] [--rate 1000] [--keep 5m]``.

One worker process with default settings executes no-op jobs that arrive at a steady rate, and deletes them after
``--keep``. Each line of the output shows one instant: the jobs that were enqueued, those that are kept, dead rows, and
the sizes of the largest tables with their indexes. The sizes are bounded if they stop growing once the first jobs have
been deleted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks.place import Place, fresh
from benchmarks.processes import Process, Stuck, running
from benchmarks.queue import home, server_for
from benchmarks.subjects.redrive import KEEP, PATH, URL
from redrive.app.app import App
from redrive.app.tasks.task import Task

__all__ = ["app", "define", "main"]


BEAT = 0.1
"""Seconds between two batches of jobs."""

SAMPLE = 15.0
"""Seconds between two lines."""


def define(app: App) -> Task[..., Any, Any]:
    """Register the job: one that does nothing.

    Args:
        app: where.

    Returns:
        The task.
    """

    @app.task
    async def nothing(number: int) -> None:
        pass

    return nothing


app = App(os.environ.get(URL, "memory://"), keep_for=os.environ.get(KEEP, "5m"))
"""What the worker process loads."""

define(app)


_SIZES = """
SELECT (SELECT last_value FROM redrive_job_ids), sum(n_live_tup) FILTER (WHERE relname = 'redrive_jobs'),
    sum(n_dead_tup) FILTER (WHERE relname = 'redrive_jobs'), sum(n_dead_tup),
    pg_relation_size('redrive_jobs') / 1e6, pg_indexes_size('redrive_jobs') / 1e6,
    pg_total_relation_size('redrive_payloads') / 1e6,
    sum(autovacuum_count) FILTER (WHERE relname = 'redrive_jobs'),
    (SELECT count(*) FROM redrive_jobs WHERE state = 'ready')
FROM pg_stat_user_tables WHERE schemaname = 'redrive'
"""

_HEADS = (
    "minute", "enqueued", "kept", "dead jobs", "dead rows", "jobs MB", "indexes MB", "arguments",
    "vacuums", "due",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.steady", description="Sizes under a steady load on PostgreSQL.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=1000, help="jobs per second")
    parser.add_argument("--keep", default="5m", help="the time after which a finished job is deleted")
    chosen = parser.parse_args(arguments)
    with home() as place, server_for("postgres", place) as server, fresh(place, server) as database:
        env = {URL: database.url, KEEP: chosen.keep}
        command = (sys.executable, "-m", "redrive", "worker", "benchmarks.steady:app")
        with closing(App(database.url, keep_for=chosen.keep)) as filling:
            task = define(filling)
            filling.open()
            print("  ".join(f"{head:>10}" for head in _HEADS), flush=True)
            with running(command, env, database.folder / "log") as worker:
                _load(database, worker, task, seconds=chosen.minutes * 60, rate=chosen.rate)


def _load(database: Place, worker: Process, task: Task[..., Any, Any], *, seconds: float, rate: int) -> None:
    """Enqueue at a steady rate, and print a line from time to time. Each batch has its instant, so none is left out."""
    began = time.monotonic()
    batch, shown = round(rate * BEAT), -SAMPLE
    for number in range(round(seconds / BEAT)):
        if worker.poll() is not None:
            raise Stuck(f"the worker ended with {worker.returncode}")
        time.sleep(max(0.0, began + number * BEAT - time.monotonic()))
        task.enqueue_many(range(batch))
        passed = time.monotonic() - began
        if passed - shown >= SAMPLE:
            shown = passed
            values = database.ask(PATH + _SIZES).split("|")
            print("  ".join([f"{passed / 60:>10.2f}", *(f"{float(each or 0):>10,.0f}" for each in values)]), flush=True)


if __name__ == "__main__":
    main()
