"""Things that are kept fresh, all due at the same instant, and the command that users type."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects import Subject
from benchmarks.subjects.redrive import BATCH, CONCURRENCY, URL
from redrive.app.app import App
from redrive.app.refresh import Refresh

__all__ = ["RefreshesOnPostgres", "RefreshesOnSQLite", "app"]

POLICY = """
- Refresh every day at 6 AM and 4 PM
- Allow 1 hour to complete
- On the first failure, retry immediately
- On the second failure, retry after 1 minute
- Give up after the final unsuccessful retry
"""

_UNFINISHED = """
SELECT EXISTS (
    SELECT 1 FROM redrive_refreshes
    WHERE schedule = 'noop' AND job_id IS NULL AND NOT paused
        AND refresh_at IS NOT NULL AND refresh_at <= (SELECT now FROM redrive_clock)
) OR EXISTS (SELECT 1 FROM redrive_refreshes WHERE sweep_at IS NOT NULL)
"""

_DUE = "UPDATE redrive_refreshes SET refresh_at = tracked_at, planned_at = tracked_at"

_PATH = "SET search_path TO redrive;"


def define(app: App) -> Refresh[Any, Any, Any]:
    """Register the refresh of the benchmark: one that does nothing.

    Args:
        app: where.

    Returns:
        The refresh.
    """
    meters: list[Meter] = []

    @app.refresh(POLICY)
    async def noop(sent_at: float) -> None:
        if not meters:
            meters.append(Meter.given())
        meters[0].mark(sent_at)

    return noop


app = App(os.environ.get(URL, "memory://"))
"""What the worker process loads."""

define(app)


class Refreshes(Subject):
    """One worker process, all settings as they are without being told; only the concurrency is chosen."""

    name = "refreshes"
    kept = "row, a line of history, and the thing"

    def create(self, place: Place) -> None:
        """Make the database by using it."""
        self._place = place
        self._url = self._locate(place)
        self._app = App(self._url)
        self._refresh = define(self._app)
        self._app.open()

    def _locate(self, place: Place) -> str:
        raise NotImplementedError

    def enqueue(self, sent_at: float) -> None:
        """Track one thing."""
        self._refresh.track("0", sent_at)

    def enqueue_many(self, count: int) -> None:
        """Track many things, a thousand a transaction; they are due at their next planned refreshes."""
        later = self._refresh.keeping(at_once=False)
        for start in range(0, count, BATCH):
            later.track_many((f"table-{n}", 0.0) for n in range(start, min(start + BATCH, count)))

    def worker(self) -> tuple[Sequence[str], dict[str, str]]:
        """``redrive worker``."""
        command = (sys.executable, "-m", "redrive", "worker", f"{__name__}:app", "--concurrency", str(CONCURRENCY))
        return command, {URL: self._url}

    def close(self) -> None:
        """Close the store."""
        self._app.close()


class RefreshesOnSQLite(Refreshes):
    """On a file."""

    def _locate(self, place: Place) -> str:
        self._path = place.folder / "redrive.sqlite"
        return f"sqlite:///{self._path}"

    def prepare(self, place: Place) -> None:  # noqa: ARG002 - it knows its file
        """The clock has reached what was planned."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute(_DUE)
            connection.commit()

    def unfinished(self) -> bool:
        """Two probes of the partial indexes: is there one that is due, or runs?"""
        with closing(sqlite3.connect(self._path)) as connection:
            return bool(connection.execute(_UNFINISHED).fetchone()[0])


class RefreshesOnPostgres(Refreshes):
    """On PostgreSQL."""

    def _locate(self, place: Place) -> str:
        return place.url

    def prepare(self, place: Place) -> None:
        """The clock has reached what was planned."""
        place.ask(_PATH + _DUE)

    def unfinished(self) -> bool:
        """Two probes of the partial indexes: is there one that is due, or runs?"""
        return self._place.ask(_PATH + _UNFINISHED) == "t"
