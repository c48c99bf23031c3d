"""The limit: the leanest loop that claims and completes rows durably, on the standard library's ``sqlite3``.

One table, one partial index, one connection, no thread, no event loop, no handler, no history. Each transaction
completes the batch before and claims the next one, and is synced like those of redrive (WAL, ``synchronous=FULL``).
Rows are kept. A system that promises more than this loop, and runs code, is slower; the question is by how much.

``python -m benchmarks.subjects.raw_sqlite FILE`` is its worker process.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject

__all__ = ["BATCH", "CLAIM", "COMPLETE", "IDLE", "UNTIMED", "RawSQLite", "connect", "turn", "work"]

BATCH = 100
CHUNK = 1000
UNTIMED = b"0.0"
IDLE = 0.002
"""Seconds between two looks while nothing is due."""

_SCHEMA = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    scheduled_at REAL NOT NULL,
    lease REAL,
    state INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL DEFAULT 'noop',
    payload BLOB
);
CREATE INDEX jobs_due ON jobs (scheduled_at) WHERE state = 0;
"""
_INSERT = "INSERT INTO jobs (scheduled_at, payload) VALUES (?, ?)"
CLAIM = """
UPDATE jobs SET state = 1, attempt = attempt + 1, lease = :now + 30
WHERE id IN (SELECT id FROM jobs WHERE state = 0 AND scheduled_at <= :now ORDER BY scheduled_at LIMIT :count)
RETURNING id, attempt, payload
"""
COMPLETE = "UPDATE jobs SET state = 2, lease = NULL WHERE id = ?"
_UNFINISHED = """
SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 0) OR EXISTS (SELECT 1 FROM jobs WHERE state = 1)
"""


class RawSQLite(Subject):
    """The raw loop."""

    name = "raw sqlite3"
    kept = "row"

    def create(self, place: Place) -> None:
        """Make the table."""
        self._path = place.folder / "raw.sqlite"
        self._connection = connect(self._path)
        self._connection.executescript(_SCHEMA)

    def enqueue(self, sent_at: float) -> None:
        """Insert one row, in a transaction of its own."""
        self._connection.execute(_INSERT, (time.time(), b"%r" % sent_at))

    def enqueue_many(self, count: int) -> None:
        """Insert many rows, a thousand a transaction."""
        for start in range(0, count, CHUNK):
            rows = [(time.time(), UNTIMED)] * min(CHUNK, count - start)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("COMMIT")

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """This module."""
        return (sys.executable, "-m", __name__, os.fspath(self._path)), {}

    def unfinished(self) -> bool:
        """Probe the index; scan the table only at the end."""
        return bool(self._connection.execute(_UNFINISHED).fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def connect(path: Path) -> sqlite3.Connection:
    """Open the database, with synced commits.

    Args:
        path: of the file.

    Returns:
        The connection, in autocommit mode.
    """
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -65536")
    return connection


def work(path: Path) -> None:
    """Claim and complete until killed.

    Args:
        path: of the database.
    """
    connection, meter = connect(path), Meter.given()
    rows = turn(connection, [])
    while True:
        _mark(meter, [row[2] for row in rows])
        done, rows = rows, turn(connection, rows)
        if not rows and not done:
            time.sleep(IDLE)


def _mark(meter: Meter, payloads: list[bytes]) -> None:
    """There is no handler; what it would count is counted here, at once where the time of sending is of no interest."""
    sent = [float(payload) for payload in payloads if payload != UNTIMED]
    for sent_at in sent:
        meter.mark(sent_at)
    if len(sent) < len(payloads):
        meter.mark(jobs=len(payloads) - len(sent))


def turn(connection: sqlite3.Connection, done: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Complete what is done and claim what is next, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(COMPLETE, [(row[0],) for row in done])
    rows = connection.execute(CLAIM, {"now": time.time(), "count": BATCH}).fetchall()
    connection.execute("COMMIT")
    return rows


if __name__ == "__main__":
    work(Path(sys.argv[1]))
