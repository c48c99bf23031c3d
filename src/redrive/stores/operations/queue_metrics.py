"""How full the queues are, at a price that does not grow with the table. PURE.

`redrive.stores.operations.admin.stats` counts every job, and its price is the whole table's; here the indexes of jobs
that have not ended are walked, and no further than `MOST` entries of each queue, of the first `WIDEST` queues by name.
A number that says `MOST` means: so many, or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Steps, reads

__all__ = ["MOST", "WIDEST", "Depth", "DepthState", "Depths", "depths"]

MOST = 10_000
WIDEST = 100


class DepthState(StrEnum):
    """What the jobs of a queue are doing that have not ended, or have died and were not caught."""

    DUE = "due"
    """They could run now."""
    LATER = "later"
    """They wait for their time: for a retry, for example."""
    RUNNING = "running"
    """A worker has them."""
    WAITING = "waiting"
    """Somebody outside is to say how they ended."""
    DEAD = "dead"
    """They gave up, and nobody has caught them."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs of one queue stand so.

    Attributes:
        queue: its name.
        standing: what they are doing.
        jobs: how many, `MOST` at most.
        oldest_at: of due ones, when the first was due.
    """

    queue: str
    standing: DepthState
    jobs: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class Depths:
    """How full the queues are.

    Attributes:
        at: at which instant, by the store's clock.
        queues: a line for each queue and standing that has jobs.
    """

    at: datetime
    queues: tuple[Depth, ...]


@reads
def depths(*, now: datetime | None = None) -> Steps[Depths]:
    """Count the jobs of each queue, so far as that is cheap.

    Args:
        now: the instant, in tests.

    Returns:
        The counts.
    """
    at = yield from instant(now)
    rows = yield Query("depths", {"now": at, "most": MOST, "widest": WIDEST}, into=Depth)
    return Depths(at, tuple(row for row in rows if row.jobs))
