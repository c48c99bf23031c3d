"""redrive itself: the command that users type, on a module such as they write."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject
from redrive.app.app import App
from redrive.app.tasks.task import Task

__all__ = [
    "BATCH",
    "PATH",
    "URL",
    "PlainOnPostgres",
    "PlainOnSQLite",
    "Redrive",
    "RedriveOnPostgres",
    "RedriveOnSQLite",
    "app",
]

URL = "REDRIVE_BENCH_URL"
KEEP = "REDRIVE_BENCH_KEEP"
BATCH = 1000
CONCURRENCY = 400
"""Attempts at once: its best of 100, 200 and 400 on two cores, as the peers have theirs."""

_UNFINISHED = """
SELECT EXISTS (
    SELECT 1 FROM redrive_jobs
    WHERE state = 'ready' AND partition IS NULL
        AND queue = 'default' AND priority = 0 AND scheduled_at <= (SELECT now FROM redrive_clock)
) OR EXISTS (SELECT 1 FROM redrive_jobs WHERE state = 'running')
"""

PATH = "SET search_path TO redrive;"

WAITING, FINISHED = 1_000_000, 10_000_000
"""How many jobs there are besides those that are measured, with ``--deep``."""


def define(app: App, *, plain: bool = False) -> Task[..., Any, Any]:
    """Register the job of the benchmark: one that does nothing.

    Args:
        app: where.
        plain: True for the task with a ``def`` handler, False for the one with an ``async def`` handler.

    Returns:
        The task.
    """
    meters: list[Meter] = []
    one_at_a_time = threading.Lock()

    @app.task
    async def noop(sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(sent_at)

    @app.task
    def plain_noop(sent_at: float) -> None:
        with one_at_a_time:
            if not meters:
                meters.append(Meter.given())
            meters[0].mark(sent_at)

    return plain_noop if plain else noop


app = App(os.environ.get(URL, "memory://"), keep_for=os.environ.get(KEEP, "7d"))
"""What the worker process loads."""

define(app)


class Redrive(Subject):
    """One worker process with the settings that a user gets."""

    name = "redrive"
    concurrency: int | None = None  # that of `redrive worker` itself
    kept = "row, and a line of history"
    module = __name__
    unfinished_sql = _UNFINISHED

    def create(self, place: Place) -> None:
        """Make the database by using it."""
        self._place = place
        self.url = self._locate(place)
        self._app = App(self.url)
        self.define(self._app)
        self._app.open()

    def define(self, app: App) -> None:
        """Register what is measured.

        Args:
            app: where.
        """
        self._task = define(app)

    def _locate(self, place: Place) -> str:
        raise NotImplementedError

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._task.enqueue(sent_at)

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, a thousand a transaction."""
        for start in range(0, count, BATCH):
            self._task.enqueue_many([0.0] * min(BATCH, count - start))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """``redrive worker``."""
        chosen = () if self.concurrency is None else ("--concurrency", str(self.concurrency))
        return (sys.executable, "-m", "redrive", "worker", f"{self.module}:app", *chosen), {URL: self.url}

    def close(self) -> None:
        """Close the store."""
        self._app.close()


class RedriveOnSQLite(Redrive):
    """On a file."""

    def _locate(self, place: Place) -> str:
        self._path = place.folder / "redrive.sqlite"
        return f"sqlite:///{self._path}"

    def unfinished(self) -> bool:
        """Two probes of the partial indexes."""
        with closing(sqlite3.connect(self._path)) as connection:
            return bool(connection.execute(self.unfinished_sql).fetchone()[0])


class BestOnSQLite(RedriveOnSQLite):
    """On a file, with a concurrency that was chosen for these handlers."""

    name = "redrive, best concurrency"
    concurrency = CONCURRENCY


class PlainOnSQLite(RedriveOnSQLite):
    """On a file, with a ``def`` handler, which runs in a thread."""

    name = "redrive, def handlers"

    def define(self, app: App) -> None:
        """Register the task with a ``def`` handler."""
        self._task = define(app, plain=True)


class RedriveOnPostgres(Redrive):
    """On PostgreSQL."""

    def _locate(self, place: Place) -> str:
        return place.url

    def unfinished(self) -> bool:
        """Two probes of the partial indexes."""
        return self._place.ask(PATH + self.unfinished_sql) == "t"


class BestOnPostgres(RedriveOnPostgres):
    """On PostgreSQL, with a concurrency that was chosen for these handlers."""

    name = "redrive, best concurrency"
    concurrency = CONCURRENCY


class PlainOnPostgres(RedriveOnPostgres):
    """On PostgreSQL, with a ``def`` handler, which runs in a thread."""

    name = "redrive, def handlers"

    def define(self, app: App) -> None:
        """Register the task with a ``def`` handler."""
        self._task = define(app, plain=True)


class _Awaited(Redrive):
    """Coroutines enqueue."""

    name = "redrive, awaited"

    def create(self, place: Place) -> None:
        """Make the database, and an event loop."""
        self._loop = asyncio.new_event_loop()
        super().create(place)

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._loop.run_until_complete(self._task.aenqueue(sent_at))

    def close(self) -> None:
        """Close the store and the loop."""
        super().close()
        self._loop.close()


class AwaitedOnSQLite(_Awaited, RedriveOnSQLite):
    """On a file."""


class AwaitedOnPostgres(_Awaited, RedriveOnPostgres):
    """On PostgreSQL."""


def _copies(numbers: str, instant: str, state: str) -> str:
    """Copies of the job with the smallest id, which the subject has enqueued, under ids that no sequence reaches."""
    due, columns, values = f"{instant} + 86400 * {{second}}", "", ""
    if state == "succeeded":
        due = instant
        columns = ", attempt, started_at, claimed_at, finished_at, success_lease_id, success_worker_id"
        values = f", 1, {instant}, {instant}, {instant}, n, 1"
    return f"""
INSERT INTO redrive_jobs (id, task, queue, priority, state, policy, salt, enqueued_at, scheduled_at{columns})
SELECT n, task, queue, priority, '{state}', policy, salt, {instant}, {due}{values}
FROM redrive_jobs CROSS JOIN {numbers} WHERE redrive_jobs.id = (SELECT min(id) FROM redrive_jobs)
"""


FAR = 1_000_000_000
"""Added to the ids of those jobs."""


class _OnSQLiteAmong(RedriveOnSQLite):
    count: int
    state: str

    def prepare(self, place: Place) -> None:
        """Put the others in, by SQL: what is measured is what they cost later."""
        numbers = (
            f"(WITH RECURSIVE counter (n) AS (SELECT {FAR} UNION ALL SELECT n + 1 FROM counter "
            f"WHERE n < {FAR + self.count - 1}) SELECT n FROM counter)"
        )
        statement = _copies(numbers, "enqueued_at", self.state).format(second=1_000_000)
        with closing(sqlite3.connect(place.folder / "redrive.sqlite")) as connection:
            connection.execute(statement)
            connection.commit()


class SQLiteWithWaiting(_OnSQLiteAmong):
    """Among a million jobs that are due tomorrow."""

    name, count, state = "redrive, a million waiting", WAITING, "ready"


class SQLiteWithFinished(_OnSQLiteAmong):
    """Among ten million jobs that have succeeded."""

    name, count, state = "redrive, ten million finished", FINISHED, "succeeded"


class _OnPostgresAmong(RedriveOnPostgres):
    count: int
    state: str

    def prepare(self, place: Place) -> None:
        """Put the others in, by SQL: what is measured is what they cost later."""
        numbers = f"generate_series({FAR}, {FAR + self.count - 1}) AS n"
        place.ask(PATH + _copies(numbers, "enqueued_at", self.state).format(second="interval '1 second'"))


class PostgresWithWaiting(_OnPostgresAmong):
    """Among a million jobs that are due tomorrow."""

    name, count, state = "redrive, a million waiting", WAITING, "ready"


class PostgresWithFinished(_OnPostgresAmong):
    """Among ten million jobs that have succeeded."""

    name, count, state = "redrive, ten million finished", FINISHED, "succeeded"


class PostgresWithSnapshot(RedriveOnPostgres):
    """While another session holds a snapshot open, so that no dead row can be cleaned up."""

    name = "redrive, held snapshot"

    def prepare(self, place: Place) -> None:
        """Open the snapshot; it is held until `close`."""
        assert place.server is not None
        self._holder = subprocess.Popen(
            [place.server.psql, "-X", "-q", place.url], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self._holder.stdin is not None
        self._holder.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM redrive.redrive_jobs;\n")
        self._holder.stdin.flush()

    def close(self) -> None:
        """Let go of the snapshot, and close the store."""
        if hasattr(self, "_holder"):
            self._holder.terminate()
            self._holder.wait()
        super().close()
