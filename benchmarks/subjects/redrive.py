"""redrive itself: the command that users type, on a module such as they write."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.meter import Meter
from redrive.app.app import App
from redrive.app.task import Task

__all__ = ["Redrive", "app"]

URL = "REDRIVE_BENCH_URL"
BATCH = 1000
CONCURRENCY = 100
"""Attempts at once: as many as the raw loop takes in a batch."""

_UNFINISHED = """
SELECT EXISTS (SELECT 1 FROM redrive_jobs WHERE state = 'ready')
    OR EXISTS (SELECT 1 FROM redrive_jobs WHERE state = 'running')
"""


def define(app: App) -> Task:
    """Register the job of the benchmark: one that does nothing.

    Args:
        app: where.

    Returns:
        The task.
    """
    meters: list[Meter] = []

    @app.task
    async def noop(sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(sent_at)

    return noop


app = App(os.environ.get(URL, "memory://"))
"""What the worker process loads."""

define(app)


class Redrive:
    """One worker process, all settings as they are without being told; only the concurrency is that of the raw loop."""

    name = "redrive"
    kept = "row, and a line of history"

    def create(self, folder: Path) -> None:
        """Make the database by using it."""
        self._path = folder / "redrive.sqlite"
        self._app = App(f"sqlite:///{self._path}")
        self._task = define(self._app)
        self._app.check()
        self._app.stats()

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._task.enqueue(sent_at)

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, a thousand a transaction."""
        for start in range(0, count, BATCH):
            self._task.enqueue_many([0.0] * min(BATCH, count - start))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """``redrive worker``."""
        command = (sys.executable, "-m", "redrive", "worker", f"{__name__}:app", "--concurrency", str(CONCURRENCY))
        return command, {URL: f"sqlite:///{self._path}"}

    def unfinished(self) -> bool:
        """Two probes of the partial indexes."""
        with closing(sqlite3.connect(self._path)) as connection:
            return bool(connection.execute(_UNFINISHED).fetchone()[0])

    def close(self) -> None:
        """Close the store."""
        self._app.close()
