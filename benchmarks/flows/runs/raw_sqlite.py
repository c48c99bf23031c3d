"""The limit on SQLite: the leanest loop that records five steps of each run durably.

One transaction completes a batch of runs and claims the next one, and one inserts the rows of a step for the whole
batch; each is synced. No fence, no replay, no history.

``python -m benchmarks.flows.runs.raw_sqlite FILE`` is its worker process.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects.raw_sqlite import IDLE, UNTIMED, RawSQLite, connect, turn

__all__ = ["RawRunsOnSQLite", "work"]

_STEPS = """
CREATE TABLE steps (
    run_id INTEGER, path TEXT, name TEXT NOT NULL, lease INTEGER NOT NULL, at REAL NOT NULL, result BLOB,
    PRIMARY KEY (run_id, path)
) WITHOUT ROWID
"""
_RECORD = "INSERT INTO steps VALUES (?, ?, 'nothing', 1, ?, 'null')"


class RawRunsOnSQLite(RawSQLite):
    """The raw loop, with steps."""

    def create(self, place: Place) -> None:
        """Make the tables."""
        super().create(place)
        self._connection.execute(_STEPS)

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """Run this module."""
        return (sys.executable, "-m", __name__, os.fspath(self._path)), {}


def work(path: Path) -> None:
    """Claim runs, record their steps and complete them until killed.

    Args:
        path: of the database.
    """
    connection, meter = connect(path), Meter.given()
    rows = turn(connection, [])
    while True:
        timed = [row for row in rows if row[2] != UNTIMED]
        if len(rows) > len(timed):
            meter.mark(jobs=len(rows) - len(timed))
        for position in range(1, STEPS + 1 if rows else 0):
            began = time.monotonic()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_RECORD, [(row[0], str(position), time.time()) for row in rows])
            connection.execute("COMMIT")
            for _ in timed:
                meter.mark(began)
        done, rows = rows, turn(connection, rows)
        if not rows and not done:
            time.sleep(IDLE)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
