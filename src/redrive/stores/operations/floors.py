"""Where in each lane a claim begins to look. PURE.

In PostgreSQL a row that was changed stays in the indexes until no transaction can see its old state any more. While
some other session holds a snapshot for minutes (a backup, a report, a forgotten psql), nothing is cleaned: whatever
was claimed since then stays at the head of its lane in the index, and each claim walks over all of it again
(conformance D40). So the claimer remembers where it was: a `LaneCursor` for each lane, which is the first job that it took
there last. A claim with floors begins at them; lanes without one it looks through from their beginning.

**What may be below a floor?** A claim takes of each lane what stands first. Hence at that moment all
that was due before it was taken already, held by another claim, or not committed. And nothing comes in below it later
on: new jobs, retries, releases and redriven jobs are due at an instant that is not before the transaction which writes
them, and a floor is the due time of a job that was due already. What remains is found late:

- a job whose transaction began before the floor was set, and was committed after it;
- a job that another claim held and let go of, because its transaction was rolled back;
- the old jobs of a queue that was special for a while and is plain again.

For these the claimer looks without floors again and again: after `PATIENCE` times what the last such look took, and at
the latest after `FULL_LOOK`. So it spends a twentieth of its time on such looks at the most, as long as one takes less
than 50 ms; and while nobody holds a snapshot, when they cost next to nothing, there are many of them each second.

A floor is of one lane and not of all, since a lane of a small priority says nothing of the ones behind it. It is a due
time and an id, since jobs that were enqueued together are due at the same instant.

SQLite removes an entry from its indexes at once. Its statements take no notice of floors.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.engine.records import Claim
from redrive.stores.query import Query, Rows

__all__ = ["FULL_LOOK", "PATIENCE", "ClaimFilter", "LaneCursor", "NextDue", "next_due", "parameters", "raised"]

FULL_LOOK = timedelta(seconds=1)
"""How long at most a job below a floor waits for the next look without floors."""

PATIENCE = 20
"""How many times the duration of a look without floors it is until the next one."""

LANES = 64
"""Floors that are remembered at most: those of the lanes that jobs were taken from last."""


@dataclass(frozen=True, slots=True)
class NextDue:
    """A row of the query ``next_due``.

    Attributes:
        now: the instant of the transaction, as of the query ``clock``.
        due_at: when the earliest ready job of a plain queue is due.
        special_at: when that of a special queue is, unless it is paused.
    """

    now: datetime
    due_at: datetime | None
    special_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LaneCursor:
    """Where in a lane a claim begins to look.

    Attributes:
        queue: of the lane.
        priority: of the lane.
        task: of the lane.
        scheduled_at: when the job was due that was taken first.
        id: of that job.
    """

    queue: str
    priority: int
    task: str
    scheduled_at: datetime
    id: int


class ClaimFilter:
    """What a worker claims.

    Args:
        queues: from which queues; None means all.
        tasks: which tasks, by the names under which jobs are stored; None means all.

    Attributes:
        parameters: both, as the statements of a claim take them.
    """

    def __init__(self, queues: Sequence[str] | None, tasks: Collection[str] | None) -> None:
        self.parameters: dict[str, list[str] | None] = {
            "queues": None if queues is None else list(queues),
            "tasks": None if tasks is None else list(tasks),
        }
        self._tasks = tasks

    def has(self, task: str) -> bool:
        """Return True if jobs of this task may be claimed."""
        return self._tasks is None or task in self._tasks


def raised(floors: Iterable[LaneCursor], claims: Iterable[Claim]) -> tuple[LaneCursor, ...]:
    """Set the floors of the lanes from which jobs were just taken; keep those of the others.

    Args:
        floors: as they were.
        claims: what was taken.

    Returns:
        The floors for the next claim, those that were set last at the end.
    """
    first: dict[tuple[str, int, str], tuple[datetime, int]] = {}
    for claim in claims:
        if claim.scheduled_at is None or claim.partition is not None:
            continue
        lane, place = (claim.queue, claim.priority, claim.task), (claim.scheduled_at, claim.id)
        if lane not in first or place < first[lane]:
            first[lane] = place
    kept = [floor for floor in floors if (floor.queue, floor.priority, floor.task) not in first]
    return tuple([*kept, *(LaneCursor(*lane, *place) for lane, place in first.items())][-LANES:])


def parameters(floors: Sequence[LaneCursor]) -> Mapping[str, Sequence[object]]:
    """Write floors as parameters of a statement.

    Args:
        floors: of the claim.

    Returns:
        One array for each attribute, and none of what is no floor.
    """
    return {
        "floor_queues": [floor.queue for floor in floors],
        "floor_priorities": [floor.priority for floor in floors],
        "floor_tasks": [floor.task for floor in floors],
        "floor_times": [floor.scheduled_at for floor in floors],
        "floor_ids": [floor.id for floor in floors],
    }


def next_due(where: Mapping[str, object], now: datetime | None) -> Generator[Query, Rows, NextDue]:
    """Ask when the next job is due.

    Args:
        where: the queues, the tasks and the floors, as parameters.
        now: the instant, in tests.

    Returns:
        The instant of the transaction, and when jobs of plain and of special queues are due.
    """
    rows: Sequence[NextDue] = yield Query("next_due", {**where, "now": now}, into=NextDue, free=True)
    return rows[0]
