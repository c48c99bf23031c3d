"""Huey on SQLite, as its documentation sets it up: WAL, the default ``synchronous`` (FULL).

Its promise is a smaller one: a job's row is deleted when it is taken, so a crash loses what was running. Its default is
one worker thread; a peer is measured at its best, and on two cores that were four threads (of 1, 2, 4 and 8; medians of
seven rounds on a busy machine: 2,613, 2,509 and 3,300 jobs a second with 1, 2 and 4; 3,279 and 3,007 with 4 and 8).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from huey import SqliteHuey
from huey.api import TaskWrapper

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["Huey", "huey"]

FILE = "REDRIVE_BENCH_HUEY"
THREADS = 4


def connect(path: str) -> SqliteHuey:
    """Open a database.

    Args:
        path: of the file.

    Returns:
        Huey's application object.
    """
    return SqliteHuey("bench", filename=path)


def define(application: SqliteHuey) -> TaskWrapper:
    """Register the job of the benchmark: one that does nothing.

    Args:
        application: where.

    Returns:
        The task.
    """
    meters: list[Meter] = []

    @application.task(name="noop")
    def noop(sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(sent_at)

    return noop


if FILE in os.environ:
    huey = connect(os.environ[FILE])
    define(huey)


class Huey(Subject):
    """One consumer process."""

    name = "huey"
    kept = "nothing; the row is gone before the handler runs"

    def create(self, place: Place) -> None:
        """Make the database."""
        self._path = os.fspath(place.folder / "huey.sqlite")
        self._huey = connect(self._path)
        self._task = define(self._huey)

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._task(sent_at)

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, one by one: Huey has no other way."""
        for _ in range(count):
            self._task(0.0)

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """``huey_consumer``, without its scheduler of periodic tasks."""
        consumer = (sys.executable, "-m", "huey.bin.huey_consumer", f"{__name__}.huey")
        return (*consumer, "--workers", str(THREADS), "--no-periodic", "--quiet"), {FILE: self._path}

    def unfinished(self) -> bool:
        """Return the number of rows that are left; running jobs have no row."""
        return bool(self._huey.storage.queue_size())

    def close(self) -> None:
        """Close the connection."""
        self._huey.storage.close()
