"""DBOS workflows, on PostgreSQL and on SQLite; synchronous ones, which were faster on two cores.

``python -m benchmarks.flows.runs.dbos URL`` is its worker process.
"""

from __future__ import annotations

import sys
import time

from dbos import DBOS

from benchmarks.flows.runs import STEPS
from benchmarks.meter import Meter
from benchmarks.subjects.dbos import DBOSOnPostgres, DBOSOnSQLite, work

__all__ = ["DBOSRunsOnPostgres", "DBOSRunsOnSQLite"]

CONCURRENCY = 50
"""Its best of 10, 50 and 200 on two cores."""

_meters: list[Meter] = []


@DBOS.step()
def nothing() -> None:
    """Do nothing."""


@DBOS.workflow()
def five_steps(sent_at: float) -> None:
    """Run five steps."""
    if not _meters:
        _meters.append(Meter.given())
    if not sent_at:
        _meters[0].mark()
    for _ in range(STEPS):
        began = time.monotonic()
        nothing()
        if sent_at:
            _meters[0].mark(began)


class DBOSRunsOnPostgres(DBOSOnPostgres):
    """One worker process."""

    module, workflow = __name__, "five_steps"


class DBOSRunsOnSQLite(DBOSOnSQLite):
    """One worker process."""

    module, workflow = __name__, "five_steps"


if __name__ == "__main__":
    work(sys.argv[1], CONCURRENCY)
