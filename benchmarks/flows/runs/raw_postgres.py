"""The limit on PostgreSQL: the leanest loop that records five steps of each run durably, on asyncpg.

One statement claims a batch of runs, one inserts the rows of a step for the whole batch, and another one completes it;
each is a transaction of its own and is synced. No fence, no replay, no history.

``python -m benchmarks.flows.runs.raw_postgres URL`` is its worker process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import asyncpg

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects.raw_postgres import BATCH, CLAIM, COMPLETE, IDLE, RawPostgres

__all__ = ["RawRunsOnPostgres", "work"]

_STEPS = """
CREATE TABLE steps (
    run_id bigint, path text COLLATE "C", name text NOT NULL, lease bigint NOT NULL, at timestamptz NOT NULL,
    result bytea, PRIMARY KEY (run_id, path)
)
"""
_RECORD = "INSERT INTO steps SELECT id, $2, 'nothing', 1, now(), 'null' FROM unnest($1::bigint[]) AS id"


class RawRunsOnPostgres(RawPostgres):
    """The raw loop, with steps."""

    def create(self, place: Place) -> None:
        """Make the tables."""
        super().create(place)
        place.ask(_STEPS)

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run this module."""
        return (sys.executable, "-m", __name__, self._place.url), {}


async def work(url: str) -> None:
    """Claim runs, record their steps and complete them until killed.

    Args:
        url: of the database.
    """
    connection, meter = await asyncpg.connect(url), Meter.given()
    claim, record, complete = [await connection.prepare(each) for each in (CLAIM, _RECORD, COMPLETE)]
    while True:
        rows = await claim.fetch(BATCH)
        ids, timed = [row["id"] for row in rows], [row for row in rows if float(row["payload"])]
        if len(rows) > len(timed):
            meter.mark(jobs=len(rows) - len(timed))
        for position in range(1, STEPS + 1 if rows else 0):
            began = time.monotonic()
            await record.fetch(ids, str(position))
            for _ in timed:
                meter.mark(began)
        if rows:
            await complete.fetch(ids)
        else:
            await asyncio.sleep(IDLE)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
