"""PgQueuer on PostgreSQL, by asyncpg.

Batch size: its best of 10, 100 and 500 on two cores was 500.

``python -m benchmarks.subjects.pgqueuer URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pgqueuer
from pgqueuer import AsyncpgDriver, Queries

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["PgQueuer", "work"]

BATCH = 500
CHUNK = 1000


class PgQueuer(Subject):
    """One worker process."""

    name = "pgqueuer"
    kept = "a line of its log; the row is deleted"

    def create(self, place: Place) -> None:
        """Install its schema."""
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(place.url))
        self._queries = Queries(AsyncpgDriver(self._connection))
        self._run(self._queries.install())

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._loop.run_until_complete(work)

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._run(self._queries.enqueue("noop", b"%r" % sent_at))

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, a thousand a statement."""
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            self._run(self._queries.enqueue(["noop"] * size, [b"0.0"] * size, [0] * size))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """This module."""
        return (sys.executable, "-m", __name__, self._place.url), {}

    def unfinished(self) -> bool:
        """Rows that are left."""
        return self._place.ask("SELECT EXISTS (SELECT 1 FROM pgqueuer)") == "t"

    def close(self) -> None:
        """Close the connection."""
        self._run(self._connection.close())
        self._loop.close()


async def work(url: str) -> None:
    """Run jobs until stopped.

    Args:
        url: of the database.
    """
    queue = pgqueuer.PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))
    meter = Meter.given()

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:
        meter.mark(float(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await queue.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
