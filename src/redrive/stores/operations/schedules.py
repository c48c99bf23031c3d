"""Schedules, which are crons and refreshes: their declarations, their due times, and how operators pause them. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.occurrence import Occurrence, OccurrenceOutcome
from redrive.engine.origin import Kind
from redrive.engine.recurring import CronDefinition, Definition, ScheduleRecord
from redrive.errors import ScheduleNotFound, StoreError
from redrive.stores.operations.audit import SYSTEM, UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Rows, Statements, reads, wakes, writes


class ScheduleStatus(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``schedules_due``."""

    name: str
    kind: Kind
    created: bool  # at run time: every worker starts it
    due_at: datetime | None  # when an occurrence or an item of it is due; None if nothing is planned or it is paused
    is_stale: bool  # True if an older policy has set the times of some items
    sweep_at: datetime | None  # when the first item of any refresh must be swept; the same in all rows
    now: datetime


# A schedule with an unchanged timing keeps its planned instants, so a deployment loses no occurrence.
@writes
def declare(definitions: Sequence[Definition], *, now: datetime | None = None) -> Statements[tuple[str, ...]]:
    """Write the definitions in the code; they replace those of an earlier deployment, and those created at run time.

    Return the names of the replaced ones that were created at run time.
    """
    at = yield from instant(now)
    names = [each.name for each in definitions]
    known: Sequence[ScheduleRecord] = yield Query("schedules_select", {"names": names}, into=ScheduleRecord)
    taken = tuple(row.name for row in known if row.created)
    yield from put(definitions, at, replaces=True)
    for name in taken:
        yield from record(at, SYSTEM, "declare", schedule=name, why="the code declares it now")
    return taken


@writes
def introduce(definition: Definition, *, now: datetime | None = None) -> Statements[None]:
    """Write a definition in a transaction of its own, unless the schedule exists."""
    if not (yield Query("schedules_select", {"names": [definition.name]}, into=ScheduleRecord)):
        at = yield from instant(now)
        yield from put([definition], at, replaces=False)


def put(definitions: Sequence[Definition], at: datetime, *, replaces: bool, created: bool = False) -> Statements[None]:
    """Write definitions as a part of a larger operation; if they do not replace others, only those of new schedules."""
    rows = [
        {
            "name": each.name,
            "kind": each.kind,
            "document": each.document,
            "timing": each.timing,
            "declared_at": at,
            "next_at": each.schedule.next(at) if isinstance(each, CronDefinition) else None,
            "created": created,
            "replaces": replaces,
        }
        for each in sorted(definitions, key=lambda each: each.name)
    ]
    if rows:
        yield Query("schedule_put", many=rows)


@reads
def status(*, now: datetime | None = None) -> Statements[tuple[ScheduleStatus, ...]]:
    """Return the due time of each schedule."""
    return tuple((yield Query("schedules_due", {"now": now}, into=ScheduleStatus)))


@reads
def select(names: Sequence[str] | None = None) -> Statements[tuple[ScheduleRecord, ...]]:
    """Return schedules, by name; None means all."""
    wanted = None if names is None else list(names)
    return tuple((yield Query("schedules_select", {"names": wanted}, into=ScheduleRecord)))


@reads
def get(name: str) -> Statements[ScheduleRecord]:
    """Return a schedule, or raise `ScheduleNotFound`."""
    return _only((yield Query("schedules_select", {"names": [name]}, into=ScheduleRecord)), name)


def lock(name: str) -> Statements[ScheduleRecord]:
    """Lock a schedule until the transaction ends, and return it; raise `ScheduleNotFound`."""
    return _only((yield Query("schedule_lock", {"name": name}, into=ScheduleRecord)), name)


def _only(rows: Rows, name: str) -> ScheduleRecord:
    if not rows:
        message = f"there is no schedule {name!r}; a worker creates it when it starts with code that declares it"
        raise ScheduleNotFound(message)
    found: ScheduleRecord = rows[0]
    return found


def readable(row: ScheduleRecord) -> Definition:
    """Return the definition of a schedule; raise `StoreError` if this version cannot read it."""
    if row.definition is None:
        message = f"what is declared of the schedule {row.name!r} cannot be read by this redrive: a newer one may"
        raise StoreError(message)
    return row.definition


def move(row: ScheduleRecord) -> Statements[None]:
    """Write the state of a locked schedule."""
    names = ("name", "paused_at", "paused_by", "resumed_at", "next_at", "job_id", "queued_at")
    yield Query("schedule_move", {name: getattr(row, name) for name in names})


@writes
def pause(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[ScheduleRecord]:
    """Start nothing of a schedule until it is resumed; running jobs go on. Raise `ScheduleNotFound`."""
    at = yield from instant(now)
    row = yield from lock(name)
    if row.paused_at is not None:
        return row
    row = replace(row, paused_at=at, paused_by=actor)
    yield from move(row)
    yield from record(at, actor, "pause", schedule=name)
    return row


@wakes
def resume(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[ScheduleRecord]:
    """Resume a schedule. Occurrences that were planned during the pause are skipped; a retry that became due is made.

    Raise `ScheduleNotFound` if the database has no schedule of this name, or `StoreError` if this version cannot
    read its definition.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    if row.paused_at is None:
        return row
    definition = readable(row)
    next_at = definition.schedule.next(at) if isinstance(definition, CronDefinition) else None
    row = replace(row, paused_at=None, paused_by=None, resumed_at=at, next_at=next_at)
    yield from move(row)
    yield from record(at, actor, "resume", schedule=name)
    return row


@reads
def occurrences(name: str, *, before: datetime | None = None, limit: int = 100) -> Statements[tuple[Occurrence, ...]]:
    """Return the decided occurrences of a cron before an instant, the latest first."""
    params = {"schedule": name, "before": before, "count": limit}
    return tuple((yield Query("occurrences_select", params, into=Occurrence)))


@reads
def outcomes(
    names: Sequence[str] | None = None, *, before: datetime | None = None, most: int = 1
) -> Statements[tuple[OccurrenceOutcome, ...]]:
    """Return the latest decided occurrences of each cron with their jobs, at most a number of each, by name."""
    params = {"names": None if names is None else list(names), "before": before, "count": most}
    return tuple((yield Query("occurrences_outcomes", params, into=OccurrenceOutcome)))


@writes
def forget_occurrences(kept_for: timedelta, *, limit: int = 1000, now: datetime | None = None) -> Statements[int]:
    """Delete occurrences that were decided longer ago than `kept_for`; return their number.

    There may be more if it equals the limit.
    """
    at = yield from instant(now)
    return len((yield Query("occurrences_forget", {"until": at - kept_for, "count": limit})))
