"""awa on PostgreSQL: its Rust core, with handlers in Python.

Workers, claimers, batch and poll interval: its best of those below on two cores.

``python -m benchmarks.subjects.awa URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import awa

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["Awa", "work"]

QUEUE = "bench"
WORKERS = 200
"""Its best of 50, 200 and 400."""

CLAIMERS, BATCH = 2, 512
"""Its best of 1, 2 and 4, and of its default and 512."""

CHUNK = 1000


@dataclass
class Noop:
    """The arguments of a job, whose class names its kind."""

    sent_at: float = 0.0


class Awa(Subject):
    """One worker process."""

    name = "awa"
    kept = "an entry, until its segment of the ring is emptied"

    def create(self, place: Place) -> None:
        """Install its schema."""
        self._loop = asyncio.new_event_loop()
        # It needs a host before the parameters, which replace it.
        self._url = place.url.replace("@/", "@localhost/")
        self._client = awa.AsyncClient(self._url)
        self._run(self._client.__aenter__())
        self._run(self._client.migrate())
        self._counts = awa.Client(self._url)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def enqueue(self, sent_at: float) -> None:
        """Put one job in."""
        self._run(self._client.insert(Noop(sent_at), queue=QUEUE))

    def enqueue_many(self, count: int) -> None:
        """Put many jobs in by COPY, a thousand a transaction."""
        for start in range(0, count, CHUNK):
            jobs = [Noop()] * min(CHUNK, count - start)
            self._run(self._client.insert_many_copy(jobs, queue=QUEUE))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run this module."""
        return (sys.executable, "-m", __name__, self._url), {}

    def unfinished(self) -> bool:
        """Ask for its own counts."""
        return any(each.queue == QUEUE and each.total_queued for each in self._counts.queue_stats())

    def close(self) -> None:
        """Close the connections."""
        self._counts.close()
        self._run(self._client.__aexit__(None, None, None))
        self._loop.close()


async def work(url: str) -> None:
    """Run jobs until stopped.

    Args:
        url: of the database.
    """
    meter, stopped = Meter.given(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with awa.AsyncClient(url) as client:

        @client.task(Noop, queue=QUEUE)
        async def noop(job: Any) -> None:
            meter.mark(job.args.sent_at)

        queue = {"name": QUEUE, "max_workers": WORKERS, "claimers": CLAIMERS, "claim_batch_size": BATCH}
        await client.start([queue], poll_interval_ms=10)
        await stopped.wait()
        await client.shutdown()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
