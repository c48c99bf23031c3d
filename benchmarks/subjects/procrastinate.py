"""Procrastinate on PostgreSQL, by psycopg, woken by NOTIFY.

Concurrency: its best of 1, 5 and 20 on two cores was 5.

``python -m benchmarks.subjects.procrastinate URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import procrastinate
from procrastinate import PsycopgConnector

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["Procrastinate", "work"]

CONCURRENCY = 5
CHUNK = 1000


def define(url: str) -> tuple[procrastinate.App, Any]:
    """Make its application, with the job of the benchmark.

    Args:
        url: of the database.

    Returns:
        The application and the task.
    """
    app = procrastinate.App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=10))
    meters: list[Meter] = []

    @app.task(name="noop", queue="default")
    async def noop(sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(sent_at)

    return app, noop


class Procrastinate(Subject):
    """One worker process."""

    name = "procrastinate"
    kept = "row, and its events"

    def create(self, place: Place) -> None:
        """Make the schema."""
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._app, self._task = define(place.url)
        self._run(self._app.open_async())
        self._run(self._app.schema_manager.apply_schema_async())

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._loop.run_until_complete(work)

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._run(self._task.defer_async(sent_at=sent_at))

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, a thousand a statement."""
        for start in range(0, count, CHUNK):
            self._run(self._task.batch_defer_async(*[{"sent_at": 0.0}] * min(CHUNK, count - start)))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """This module."""
        return (sys.executable, "-m", __name__, self._place.url), {}

    def unfinished(self) -> bool:
        """Rows that are to be done or are being done."""
        return (
            self._place.ask("SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))") == "t"
        )

    def close(self) -> None:
        """Close the pool."""
        self._run(self._app.close_async())
        self._loop.close()


async def work(url: str) -> None:
    """Run jobs until killed.

    Args:
        url: of the database.
    """
    app, _ = define(url)
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, listen_notify=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
