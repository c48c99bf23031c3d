"""A fan-out by hand on PostgreSQL: a row per event and subscription, and a loop per subscription, on asyncpg.

A publish inserts the event and a row for each subscription. A loop locks a batch of its rows with ``FOR UPDATE SKIP
LOCKED``, passes the events to its handler, deletes the rows and commits. It polls every 2 ms while nothing is there. No
retry, no order beyond that of the ids, no dead events.

``python -m benchmarks.flows.topics.raw URL SUBSCRIPTIONS`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import asyncpg

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects.raw_postgres import IDLE, RawPostgres

__all__ = ["RawFanOut", "work"]

BATCH = 500
"""Its best of 100, 500 and 1,000 on two cores."""

CHUNK = 1000
"""Events per transaction of a bulk publish."""

_SCHEMA = """
CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT now(), payload bytea);
CREATE TABLE deliveries (subscription int, event_id bigint, PRIMARY KEY (subscription, event_id));
"""
_PUBLISH = """
WITH event AS (INSERT INTO events (payload) SELECT $1 FROM generate_series(1, $3) RETURNING id)
INSERT INTO deliveries SELECT subscription, event.id FROM event, generate_series(1, $2) AS subscription
"""
_TAKE = """
WITH taken AS (
    SELECT event_id FROM deliveries WHERE subscription = $1 ORDER BY event_id LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT event_id, payload FROM taken JOIN events ON events.id = taken.event_id ORDER BY event_id
"""
_DELETE = "DELETE FROM deliveries WHERE subscription = $1 AND event_id = ANY ($2::bigint[])"


class RawFanOut(RawPostgres):
    """The hand-written fan-out.

    Args:
        subscriptions: how many.
    """

    name = "raw fan-out"
    kept = "the event"

    def __init__(self, subscriptions: int) -> None:
        self._subscriptions = subscriptions

    def create(self, place: Place) -> None:
        """Make the tables."""
        super().create(place)
        self._run(self._connection.execute(_SCHEMA))

    def enqueue(self, sent_at: float) -> None:
        """Publish one event."""
        self._run(self._connection.execute(_PUBLISH, b"%r" % sent_at, self._subscriptions, 1))

    def enqueue_many(self, count: int) -> None:
        """Publish a thousand events a transaction, until there are so many deliveries."""
        events = count // self._subscriptions
        for start in range(0, events, CHUNK):
            many = min(CHUNK, events - start)
            self._run(self._connection.execute(_PUBLISH, b"0.0", self._subscriptions, many))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run this module."""
        return (sys.executable, "-m", __name__, self._place.url, str(self._subscriptions)), {}

    def unfinished(self) -> bool:
        """Return True if a delivery is left."""
        return bool(self._run(self._connection.fetchval("SELECT EXISTS (SELECT 1 FROM deliveries)")))


async def work(url: str, subscriptions: int) -> None:
    """Deliver until killed.

    Args:
        url: of the database.
        subscriptions: how many.
    """
    meter = Meter.given()
    await asyncio.gather(*(_subscription(url, meter, number + 1) for number in range(subscriptions)))


async def _subscription(url: str, meter: Meter, number: int) -> None:
    connection = await asyncpg.connect(url)
    take, delete = await connection.prepare(_TAKE), await connection.prepare(_DELETE)
    while True:
        async with connection.transaction():
            rows = await take.fetch(number, BATCH)
            for row in rows:
                await _nothing(meter, row["payload"])
            if rows:
                await delete.fetch(number, [row["event_id"] for row in rows])
        if not rows:
            await asyncio.sleep(IDLE)


async def _nothing(meter: Meter, payload: bytes) -> None:
    meter.mark(float(payload))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))
