"""What recurs: what the code declares of it, when something of it is due, and what people do with it. PURE."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.engine.occurrence import Occurrence
from redrive.engine.origin import Kind
from redrive.engine.recurring import CronDefinition, Definition, ScheduleRecord
from redrive.errors import ScheduleNotFound, StoreError
from redrive.stores.operations.audit import NOBODY, record
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Rows, Steps, reads, wakes, writes

__all__ = [
    "ScheduleStatus",
    "declare",
    "ensure",
    "forget_occurrences",
    "get",
    "introduce",
    "lock",
    "look",
    "move",
    "occurrences",
    "pause",
    "readable",
    "resume",
    "select",
]


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A row of the query ``schedules_due``.

    Attributes:
        name: of a schedule.
        kind: cron or refresh.
        due_at: when something of it is due; None where nothing is planned, or it is paused.
        is_stale: were things of it reckoned by an older policy?
        sweep_at: when time alone makes a difference to a thing of whatever refresh; the same in all rows.
        now: the instant of the transaction.
    """

    name: str
    kind: Kind
    due_at: datetime | None
    is_stale: bool
    sweep_at: datetime | None
    now: datetime


@writes
def declare(definitions: Sequence[Definition], *, now: datetime | None = None) -> Steps[None]:
    """Write what the code says of schedules; it replaces what an earlier deployment has said.

    What is planned stays where only the jobs are made otherwise: so a deployment loses no occurrence.

    Args:
        definitions: what the code says.
        now: the instant, in tests.
    """
    at = yield from instant(now)
    yield from _put(definitions, at, replaces=True)


def ensure(definition: Definition, at: datetime) -> Generator[Query, Rows, None]:
    """Write what the code says of a schedule, unless that is there already.

    Args:
        definition: what the code says.
        at: the instant of the transaction.
    """
    yield from _put([definition], at, replaces=False)


@writes
def introduce(definition: Definition, *, now: datetime | None = None) -> Steps[None]:
    """Write what the code says of a schedule in a transaction of its own, unless that is there already.

    Args:
        definition: what the code says.
        now: the instant, in tests.
    """
    if not (yield Query("schedules_select", {"names": [definition.name]}, into=ScheduleRecord, free=True)):
        at = yield from instant(now)
        yield from ensure(definition, at)


def _put(definitions: Sequence[Definition], at: datetime, *, replaces: bool) -> Generator[Query, Rows, None]:
    rows = [
        {
            "name": each.name,
            "kind": each.kind,
            "document": each.document,
            "timing": each.timing,
            "declared_at": at,
            "next_at": each.schedule.next(at) if isinstance(each, CronDefinition) else None,
            "replaces": replaces,
        }
        for each in sorted(definitions, key=lambda each: each.name)
    ]
    if rows:
        yield Query("schedule_put", many=rows)


@reads
def look(*, now: datetime | None = None) -> Steps[tuple[ScheduleStatus, ...]]:
    """Ask of all schedules when something of them is due.

    Args:
        now: the instant, in tests.

    Returns:
        A line for each.
    """
    return tuple((yield Query("schedules_due", {"now": now}, into=ScheduleStatus, free=True)))


@reads
def select(names: Sequence[str] | None = None) -> Steps[tuple[ScheduleRecord, ...]]:
    """Read schedules, by name.

    Args:
        names: which; None means all.

    Returns:
        Those that are there.
    """
    wanted = None if names is None else list(names)
    return tuple((yield Query("schedules_select", {"names": wanted}, into=ScheduleRecord)))


@reads
def get(name: str) -> Steps[ScheduleRecord]:
    """Read one schedule.

    Args:
        name: which.

    Returns:
        It.

    Raises:
        ScheduleNotFound: the database has none of this name.
    """
    return _only((yield Query("schedules_select", {"names": [name]}, into=ScheduleRecord)), name)


def lock(name: str) -> Generator[Query, Rows, ScheduleRecord]:
    """Read one schedule that is to be changed, as a part of a larger operation: nobody else changes it meanwhile.

    Args:
        name: which.

    Returns:
        It.

    Raises:
        ScheduleNotFound: the database has none of this name.
    """
    return _only((yield Query("schedule_lock", {"name": name}, into=ScheduleRecord)), name)


def _only(rows: Rows, name: str) -> ScheduleRecord:
    if not rows:
        message = f"there is no schedule {name!r}; a schedule is there when a worker has started whose code declares it"
        raise ScheduleNotFound(message)
    found: ScheduleRecord = rows[0]
    return found


def readable(row: ScheduleRecord) -> Definition:
    """Read what was declared, where somebody wants something of it.

    Args:
        row: the schedule.

    Returns:
        What was declared.

    Raises:
        StoreError: this redrive cannot read it.
    """
    if row.definition is None:
        message = f"what is declared of the schedule {row.name!r} cannot be read by this redrive: a newer one may"
        raise StoreError(message)
    return row.definition


def move(row: ScheduleRecord) -> Generator[Query, Rows, None]:
    """Write where a schedule stands, as a part of a larger operation.

    Args:
        row: as it is to be; it is locked.
    """
    names = ("name", "paused_at", "resumed_at", "next_at", "job_id", "queued_at")
    yield Query("schedule_move", {name: getattr(row, name) for name in names})


@writes
def pause(name: str, *, actor: str = NOBODY, now: datetime | None = None) -> Steps[ScheduleRecord]:
    """Start nothing of a schedule until it is resumed; what runs goes on.

    Args:
        name: which.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        The schedule as it is now.

    Raises:
        ScheduleNotFound: the database has none of this name.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    if row.paused_at is not None:
        return row
    row = replace(row, paused_at=at)
    yield from move(row)
    yield from record(at, actor, "pause", schedule=name)
    return row


@wakes
def resume(name: str, *, actor: str = NOBODY, now: datetime | None = None) -> Steps[ScheduleRecord]:
    """Go on with a schedule. What was planned for the time of the pause is left out; a retry that became due is made.

    Args:
        name: which.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        The schedule as it is now.

    Raises:
        ScheduleNotFound: the database has none of this name.
        StoreError: what is declared of it cannot be read by this redrive.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    if row.paused_at is None:
        return row
    definition = readable(row)
    next_at = definition.schedule.next(at) if isinstance(definition, CronDefinition) else None
    row = replace(row, paused_at=None, resumed_at=at, next_at=next_at)
    yield from move(row)
    yield from record(at, actor, "resume", schedule=name)
    return row


@reads
def occurrences(name: str, *, before: datetime | None = None, limit: int = 100) -> Steps[tuple[Occurrence, ...]]:
    """Read what became of the occurrences of a cron, the latest first.

    Args:
        name: of the cron.
        before: only earlier ones.
        limit: at most so many.

    Returns:
        The occurrences.
    """
    params = {"schedule": name, "before": before, "count": limit}
    return tuple((yield Query("occurrences_select", params, into=Occurrence)))


@writes
def forget_occurrences(kept_for: timedelta, *, limit: int = 1000, now: datetime | None = None) -> Steps[int]:
    """Delete what became of occurrences that were decided long ago.

    Args:
        kept_for: how long ago.
        limit: at most so many.
        now: the instant, in tests.

    Returns:
        How many were deleted; as many as the limit if there may be more.
    """
    at = yield from instant(now)
    return len((yield Query("occurrences_forget", {"until": at - kept_for, "count": limit})))
