"""Items of a refresh, all due at the same instant, and the command that users type."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

from benchmarks.meter import Meter
from benchmarks.place import Place
from benchmarks.subjects.redrive import BATCH, PATH, URL, Redrive, RedriveOnPostgres, RedriveOnSQLite
from redrive.app.app import App
from redrive.app.recurring.refresh import Refresh

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


class _Refreshes(Redrive):
    """One worker process with the settings that a user gets."""

    name = "refreshes"
    kept = "row, a line of history, and the thing"
    module = __name__

    def define(self, app: App) -> None:
        """Register the refresh."""
        self._refresh = define(app)

    def enqueue(self, sent_at: float) -> None:
        """Track one item."""
        self._refresh.track("0", sent_at)

    def enqueue_many(self, count: int) -> None:
        """Track many items, a thousand a transaction; they are due at their next planned refreshes."""
        later = self._refresh.keeping(at_once=False)
        for start in range(0, count, BATCH):
            later.track_many((f"table-{n}", 0.0) for n in range(start, min(start + BATCH, count)))


class RefreshesOnSQLite(_Refreshes, RedriveOnSQLite):
    """On a file."""

    unfinished_sql = _UNFINISHED

    def prepare(self, place: Place) -> None:  # noqa: ARG002 - it knows its file
        """Make all items due, as if the planned time had come."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute(_DUE)
            connection.commit()


class RefreshesOnPostgres(_Refreshes, RedriveOnPostgres):
    """On PostgreSQL."""

    unfinished_sql = _UNFINISHED

    def prepare(self, place: Place) -> None:
        """Make all items due, as if the planned time had come."""
        place.ask(PATH + _DUE)
