"""Absurd tasks on PostgreSQL. Its SQL comes from ``absurdctl``, the package with its command.

A client has one connection, on which all its statements stand in line, so the process has several clients.

``python -m benchmarks.flows.runs.absurd URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["AbsurdRuns", "work"]

CLIENTS = 10
"""Its best of 5, 10, 20 and 40 on two cores."""

LOOK_EVERY = 0.01
QUEUE = "bench"


class AbsurdRuns(Subject):
    """One worker process."""

    name = "absurd"
    kept = "rows of task, run and checkpoints"

    def create(self, place: Place) -> None:
        """Install its schema."""
        self._place = place
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute(BUNDLED_SCHEMA_SQL.encode())
        self._app = Absurd(place.url, queue_name=QUEUE)
        self._app.create_queue()

    def enqueue(self, sent_at: float) -> None:
        """Put one run in."""
        self._app.spawn("five_steps", {"sent_at": sent_at}, queue=QUEUE)

    def enqueue_many(self, count: int) -> None:
        """Put many runs in, in one transaction."""
        with psycopg.connect(self._place.url) as connection:
            app = Absurd(connection, queue_name=QUEUE)
            for _ in range(count):
                app.spawn("five_steps", {"sent_at": 0.0}, queue=QUEUE)

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run this module."""
        return (sys.executable, "-m", __name__, self._place.url), {}

    def unfinished(self) -> bool:
        """Return True if a task is not completed."""
        return self._place.ask(f"SELECT EXISTS (SELECT 1 FROM absurd.t_{QUEUE} WHERE state <> 'completed')") == "t"

    def close(self) -> None:
        """Close the connection."""
        self._app.close()


async def work(url: str) -> None:
    """Run tasks until killed.

    Args:
        url: of the database.
    """
    meter = Meter.given()
    await asyncio.gather(*(_client(url, meter, f"client {number}") for number in range(CLIENTS)))


async def _client(url: str, meter: Meter, name: str) -> None:
    app = AsyncAbsurd(url, queue_name=QUEUE)

    @app.register_task("five_steps")
    async def five_steps(params: Any, ctx: Any) -> None:
        if not params["sent_at"]:
            meter.mark()
        for _ in range(STEPS):
            began = time.monotonic()
            await ctx.step("nothing", _nothing)
            if params["sent_at"]:
                meter.mark(began)

    await app.start_worker(worker_id=name, poll_interval=LOOK_EVERY)


async def _nothing() -> None:
    pass


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
