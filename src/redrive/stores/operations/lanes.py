"""Cursors that a claimer keeps for each lane: the position at which the next claim starts its index scan. PURE.

A lane is a queue, a priority and a task. PostgreSQL keeps a changed row in its indexes until no transaction can see the
old version. While another session holds a snapshot for minutes (a backup, a report, an idle psql), vacuum removes
nothing: the entries of claimed jobs stay at the head of each lane, and every claim scans them again. A claimer
therefore remembers for each lane the first job of its last claim (`LaneCursor`) and starts there. Lanes without a
cursor are scanned from their beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.engine.records import Claim
from redrive.stores.query import Query, Steps

# **Jobs before a cursor.** A claim takes the first jobs of each lane. At that moment every earlier due job was taken,
# locked by another claim, or not committed. No job is inserted before a cursor later: new jobs, retries, releases and
# redriven jobs become due no earlier than the start of the transaction that writes them, and a cursor is the due time
# of a job that was due already. Three kinds of jobs remain:
#
# - a job of a transaction that began before the cursor was set and committed afterwards;
# - a job that another claim locked and released, because its transaction was rolled back;
# - the old jobs of a queue that was limited and no longer is.
#
# To find these, the claimer scans without cursors from time to time: after `PATIENCE` times the duration of the last
# such scan, and at the latest after `FULL_SCAN_AFTER`. A scan below 50 ms thus takes at most a twentieth of the time;
# without an old snapshot it costs almost nothing and runs many times per second.
#
# The longest time between two scans without cursors.
FULL_SCAN_AFTER = timedelta(seconds=1)

# The time between two scans without cursors, in multiples of the duration of such a scan.
PATIENCE = 20

# The number of cursors that are kept: those of the lanes with the latest claims.
LANES = 64


@dataclass(frozen=True, slots=True)
class NextDue:
    """A row of the query ``next_due``."""

    # The instant of the transaction.
    now: datetime
    # The due time of the earliest ready job in plain queues.
    due_at: datetime | None
    # The same for limited queues that are not paused.
    special_at: datetime | None = None


# Cursors are kept per lane because a position in one priority gives no information about the others. A cursor has a due
# time and an id because jobs that are enqueued together are due at the same instant.
#
# SQLite removes index entries at once; its statements ignore cursors.
@dataclass(frozen=True, slots=True)
class LaneCursor:
    """The position in a lane, given by a job's due time and id, at which a claim starts."""

    queue: str
    priority: int
    task: str
    scheduled_at: datetime
    id: int


class ClaimFilter:
    """The queues and tasks that a worker serves; None means all."""

    def __init__(self, queues: Sequence[str] | None, tasks: Collection[str] | None) -> None:
        self.parameters: dict[str, list[str] | None] = {
            "queues": None if queues is None else list(queues),
            "tasks": None if tasks is None else list(tasks),
        }
        self._tasks = tasks

    def has(self, task: str) -> bool:
        """Return True if jobs of this task may be claimed."""
        return self._tasks is None or task in self._tasks


def advanced(cursors: Iterable[LaneCursor], claims: Iterable[Claim]) -> tuple[LaneCursor, ...]:
    """Return the cursors for the next claim: those of the lanes of `claims` are moved, and the latest stand last."""
    first: dict[tuple[str, int, str], tuple[datetime, int]] = {}
    for claim in claims:
        if claim.scheduled_at is None or claim.partition is not None:
            continue
        lane, position = (claim.queue, claim.priority, claim.task), (claim.scheduled_at, claim.id)
        if lane not in first or position < first[lane]:
            first[lane] = position
    kept = [cursor for cursor in cursors if (cursor.queue, cursor.priority, cursor.task) not in first]
    return tuple([*kept, *(LaneCursor(*lane, *position) for lane, position in first.items())][-LANES:])


def parameters(cursors: Sequence[LaneCursor]) -> Mapping[str, Sequence[object]]:
    """Return the cursors as parameters of a statement: one array for each attribute."""
    return {
        "cursor_queues": [cursor.queue for cursor in cursors],
        "cursor_priorities": [cursor.priority for cursor in cursors],
        "cursor_tasks": [cursor.task for cursor in cursors],
        "cursor_times": [cursor.scheduled_at for cursor in cursors],
        "cursor_ids": [cursor.id for cursor in cursors],
    }


def next_due(where: Mapping[str, object], now: datetime | None) -> Steps[NextDue]:
    """Return the instant of the transaction and the next due times; `where` has queues, tasks and cursors."""
    rows: Sequence[NextDue] = yield Query("next_due", {**where, "now": now}, into=NextDue)
    return rows[0]
