"""pgqrs on PostgreSQL: its core is Rust, and it has no runner for plain messages: this is the loop that a user writes.

Its limit of a thousand enqueues a second is lifted. Batch: its best of 10, 100 and 500 on two cores was 100.

``python -m benchmarks.subjects.pgqrs URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import pgqrs

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["PgQRS", "work"]

BATCH = 100
IDLE = 0.01
UNLIMITED = 1_000_000_000


def configure(url: str) -> Any:
    """Its configuration.

    Args:
        url: of the database.

    Returns:
        The configuration, without its limit of enqueues.
    """
    # It wants a host before the path, and takes the one from the query nevertheless.
    config = pgqrs.Config(url.replace("@/", "@localhost/"))
    config.max_enqueue_per_second = config.max_enqueue_burst = UNLIMITED
    config.default_lock_time_seconds = 60
    return config


class PgQRS(Subject):
    """One worker process."""

    name = "pgqrs"
    kept = "row, archived"

    def create(self, place: Place) -> None:
        """Install its schema."""
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._run(self._install())

    async def _install(self) -> None:
        store = await pgqrs.connect_with(configure(self._place.url))
        await pgqrs.admin(store).install()
        await store.queue("bench")
        self._producer = await store.producer("bench")

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._loop.run_until_complete(work)

    async def _enqueue(self, sent_at: float) -> None:
        await self._producer.enqueue({"sent_at": sent_at})

    async def _enqueue_many(self, count: int) -> None:
        for start in range(0, count, BATCH):
            await pgqrs.enqueue_batch(self._producer, [{"sent_at": 0.0}] * min(BATCH, count - start))

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._run(self._enqueue(sent_at))

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in, as many a call as it allows."""
        self._run(self._enqueue_many(count))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """This module."""
        return (sys.executable, "-m", __name__, self._place.url), {}

    def unfinished(self) -> bool:
        """Rows that are not archived."""
        return self._place.ask("SELECT EXISTS (SELECT 1 FROM pgqrs_messages WHERE archived_at IS NULL)") == "t"

    def close(self) -> None:
        """Forget the connection."""
        self._loop.close()


async def work(url: str) -> None:
    """Take, run and archive messages until killed.

    Args:
        url: of the database.
    """
    store, meter = await pgqrs.connect_with(configure(url)), Meter.given()
    consumer = await store.consumer("bench")
    while True:
        messages = await consumer.dequeue(batch_size=BATCH)
        for message in messages:
            await _noop(meter, message.payload)
        if messages:
            await consumer.archive_many([message.id for message in messages])
        else:
            await asyncio.sleep(IDLE)


async def _noop(meter: Meter, payload: dict[str, float]) -> None:
    meter.mark(payload["sent_at"])


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
