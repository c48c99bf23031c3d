"""Absurd on PostgreSQL: tasks without steps. Its SQL comes from ``absurdctl``, the package with its command.

A client has one connection, on which all its statements stand in line, so the process has several clients, which look
for tasks often. `benchmarks.flows.runs.absurd` measures tasks with steps in the same way.

``python -m benchmarks.subjects.absurd URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["AbsurdTasks", "serve"]

CLIENTS = 10
"""Its best of 5, 10, 20 and 40 on two cores."""

LOOK_EVERY = 0.01
QUEUE = "bench"


class AbsurdTasks(Subject):
    """One worker process for one task.

    Attributes:
        task: its name.
        module: registers and runs it.
    """

    name = "absurd"
    kept = "rows of task and run"
    task = "noop"
    module = __name__

    def create(self, place: Place) -> None:
        """Install its schema."""
        self._place = place
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute(BUNDLED_SCHEMA_SQL.encode())
        self._app = Absurd(place.url, queue_name=QUEUE)
        self._app.create_queue()

    def enqueue(self, sent_at: float) -> None:
        """Put one task in."""
        self._app.spawn(self.task, {"sent_at": sent_at}, queue=QUEUE)

    def enqueue_many(self, count: int) -> None:
        """Put many tasks in, in one transaction: it has no call for several."""
        with psycopg.connect(self._place.url) as connection:
            app = Absurd(connection, queue_name=QUEUE)
            for _ in range(count):
                app.spawn(self.task, {"sent_at": 0.0}, queue=QUEUE)

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run the module of the task."""
        return (sys.executable, "-m", self.module, self._place.url), {}

    def unfinished(self) -> bool:
        """Return True if a task is not completed."""
        return self._place.ask(f"SELECT EXISTS (SELECT 1 FROM absurd.t_{QUEUE} WHERE state <> 'completed')") == "t"

    def close(self) -> None:
        """Close the connection."""
        self._app.close()


async def serve(url: str, register: Callable[[AsyncAbsurd, Meter], object]) -> None:
    """Run tasks until killed.

    Args:
        url: of the database.
        register: gives a client the task.
    """
    meter = Meter.given()
    await asyncio.gather(*(_client(url, meter, register, f"client {number}") for number in range(CLIENTS)))


async def _client(url: str, meter: Meter, register: Callable[[AsyncAbsurd, Meter], object], name: str) -> None:
    app = AsyncAbsurd(url, queue_name=QUEUE)
    register(app, meter)
    await app.start_worker(worker_id=name, poll_interval=LOOK_EVERY)


def _noop(app: AsyncAbsurd, meter: Meter) -> None:
    @app.register_task(AbsurdTasks.task)
    async def noop(params: Any, ctx: Any) -> None:  # noqa: ARG001 - its context
        meter.mark(params["sent_at"])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], _noop))
