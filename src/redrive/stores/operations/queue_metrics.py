"""Counts the jobs of each queue at a bounded cost. PURE.

`redrive.stores.operations.admin.stats` counts every job and reads the whole table. This operation reads only the
indexes of jobs that have not ended, at most `MOST` entries per queue and state, for the first `WIDEST` queues by name.
A count of `MOST` means that many or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Steps, reads

MOST = 10_000
WIDEST = 100


class DepthState(StrEnum):
    """The state of a job in a queue that has not ended, or has died and was not caught."""

    DUE = "due"
    """It could run now."""
    LATER = "later"
    """It waits for its due time, for example for a retry."""
    RUNNING = "running"
    """A worker runs it."""
    WAITING = "waiting"
    """Its attempt waits for an external completion."""
    DEAD = "dead"
    """It gave up and was not caught."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of jobs of one queue in one state.

    Attributes:
        jobs: the number, at most `MOST`.
        oldest_at: when the first of the due jobs became due.
    """

    queue: str
    standing: DepthState
    jobs: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class Depths:
    """The numbers of jobs in all queues."""

    at: datetime
    queues: tuple[Depth, ...]


@reads
def depths(*, now: datetime | None = None) -> Steps[Depths]:
    """Count the jobs of each queue."""
    at = yield from instant(now)
    rows = yield Query("depths", {"now": at, "most": MOST, "widest": WIDEST}, into=Depth)
    return Depths(at, tuple(row for row in rows if row.jobs))
