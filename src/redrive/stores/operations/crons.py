"""Crons that programs create, and the jobs of all crons. PURE.

A cron fires under the lock of its row, and the transaction that creates the job moves the row to the next occurrence.
Each occurrence is a row with a unique key, so one that is planned twice (by a backfill, or since the clock was set
back) is not started twice.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.lifecycle import FINAL
from redrive.engine.occurrence import DueOccurrence, Occurrence, OccurrenceDecision, released
from redrive.engine.occurrence import fire as fired
from redrive.engine.origin import OriginResult, of_cron
from redrive.engine.records import JobRecord, NewJob
from redrive.engine.recurring import CronDefinition, Overlap, ScheduleRecord
from redrive.errors import IllegalMove, ScheduleError
from redrive.schedule import refresh
from redrive.stores.operations import jobs
from redrive.stores.operations.audit import CLOCK_SET_BACK, SYSTEM, UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.schedules import lock, move, put, readable
from redrive.stores.operations.settlements import end
from redrive.stores.query import Query, Statements, wakes, writes


@writes
def create(
    cron: CronDefinition, *, replace: bool = False, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[ScheduleRecord]:
    """Write a cron, and return its row; one with the same values stays as it is.

    Raise `ScheduleError` if the code declares the name, if a cron with other values exists and is not to be replaced,
    or if all occurrences lie in the past.
    """
    at = yield from instant(now)
    changed = not (yield Query("schedule_lock", {"name": cron.name}, into=ScheduleRecord))
    if changed:
        # Another process may create it at the same time: then this one does not replace it.
        yield from _write(cron, at, replaces=False)
    row = yield from lock(cron.name)
    _check_created(row, "choose another name")
    if row.document != cron.document:
        if not replace:
            raise ScheduleError(
                f"the cron {cron.name!r} exists with other values: replace=True (--replace) changes them"
            )
        yield from _write(cron, at, replaces=True)
        row, changed = (yield from lock(cron.name)), True
    if changed:
        yield from record(at, actor, "create", schedule=cron.name)
    return row


def _write(cron: CronDefinition, at: datetime, *, replaces: bool) -> Statements[None]:
    if cron.schedule.next(at) is None:
        raise ScheduleError(f"cron {cron.name!r}: {cron.pattern!r} does not occur again: all its instants are past")
    yield from put([cron], at, replaces=replaces, created=True)


@writes
def delete(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[None]:
    """Delete a cron that was created at run time; its jobs and its past occurrences stay.

    Raise `ScheduleNotFound` if the database has no schedule of this name, or `ScheduleError` if the code declares it.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    _check_created(row, "remove it there, or pause it")
    yield Query("schedule_delete", {"name": name})
    yield from record(at, actor, "delete", schedule=name)


def _check_created(row: ScheduleRecord, otherwise: str) -> None:
    if not row.created:
        raise ScheduleError(f"the {row.kind} {row.name!r} is declared by the code of a worker: {otherwise}")


# The largest number of occurrences in one backfill.
MOST = 10_000


class NewOccurrence(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``occurrence_put``."""

    occurs_at: datetime


@wakes
def fire(name: str, *, now: datetime | None = None) -> Statements[tuple[Occurrence, ...]]:
    """Decide on the occurrences of a cron that are due; there are none if another worker has fired it.

    Raise `ScheduleNotFound` if the database has no schedule of this name.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    cron = row.definition
    if not isinstance(cron, CronDefinition) or row.paused_at is not None or row.next_at is None or row.next_at > at:
        return ()
    before = yield from _running(row)
    done: tuple[Occurrence, ...] = ()
    # Its predecessor was ended without a notification.
    if before is None and row.queued_at is not None:
        row, done = yield from _apply(replace(row, queued_at=None), cron, [released(row.queued_at, at)], at)
        before = yield from _running(row)
    running = None if before is None else before.id
    result = fired(cron, row.next_at or at, at, running=running, queued_at=row.queued_at)
    row = replace(row, next_at=result.next_at, queued_at=result.queued_at)
    row, more = yield from _apply(row, cron, result.due, at)
    # An occurrence that was started before the clock was set back is not started again, and cancels nothing.
    if result.cancels and before is not None and any(each.decision is OccurrenceDecision.STARTED for each in more):
        yield from _end(before.id, at, f"the next occurrence of {name} has come")
    return done + more


def _running(row: ScheduleRecord) -> Statements[JobRecord | None]:
    """Return the last job of a cron if it has not ended."""
    if row.job_id is None:
        return None
    rows: Sequence[JobRecord] = yield Query("job_get", {"id": row.job_id}, into=JobRecord)
    return next((job for job in rows if job.state not in FINAL), None)


def _end(number: int, at: datetime, why: str) -> Statements[None]:
    locked: Sequence[JobRecord] = yield Query("job_lock", {"id": number}, into=JobRecord)
    for job in locked:
        yield from end(job, at, why)


def _apply(
    row: ScheduleRecord, cron: CronDefinition, due: Sequence[DueOccurrence], at: datetime
) -> Statements[tuple[ScheduleRecord, tuple[Occurrence, ...]]]:
    """Write decisions on occurrences, and create the jobs of those that start; none is started twice."""
    starts = [each for each in due if each.decision is OccurrenceDecision.STARTED]
    ids = dict(zip(starts, (yield from jobs.take("job", len(starts))), strict=True)) if starts else {}
    decided = [Occurrence(cron.name, each.occurs_at, at, each.decision, ids.get(each), each.note) for each in due]
    new = yield from _put(decided)
    made = [each for each in decided if each.job_id is not None and each in new]
    yield from jobs.put(
        [each.job_id for each in made if each.job_id is not None], [_job(cron, each) for each in made], at
    )
    last = max((each.job_id for each in made if each.job_id is not None), default=row.job_id)
    row = replace(row, job_id=last)
    yield from move(row)
    return row, tuple(each for each in decided if each in new)


def _put(decided: Sequence[Occurrence]) -> Statements[set[Occurrence]]:
    """Write decisions, and return those on occurrences that had not been started before."""
    if not decided:
        return set()
    names = ("schedule", "occurs_at", "decided_at", "decision", "job_id", "note")
    rows: Sequence[NewOccurrence] = yield Query(
        "occurrence_put", many=[{name: getattr(each, name) for name in names} for each in decided], into=NewOccurrence
    )
    new = {row.occurs_at for row in rows}
    return {each for each in decided if each.occurs_at in new}


def _job(cron: CronDefinition, occurrence: Occurrence) -> NewJob:
    made = cron.job
    origin = of_cron(cron.name, occurrence.occurs_at)
    arguments = made.payload.encode()
    return NewJob(
        made.task,
        made.queue,
        made.priority,
        arguments,
        made.policy,
        due_at=cron.starts_at(occurrence.occurs_at) if cron.jitter else None,
        origin=origin,
        search=made.search,
    )


@wakes
def trigger(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[Occurrence]:
    """Start a cron now, even if it is not due, paused or running; the occurrence is the present instant.

    Raise `ScheduleNotFound` if the database has no schedule of this name, `IllegalMove` if the schedule is a
    refresh, or `StoreError` if this version cannot read its definition.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    immediate = replace(_cron(row, "name its key"), jitter=timedelta(0))
    # A planned occurrence at this instant stays planned.
    for step in itertools.count(row.next_at == at):
        due = DueOccurrence(at + step * timedelta.resolution, OccurrenceDecision.STARTED, f"triggered by {actor}")
        _, done = yield from _apply(row, immediate, [due], at)
        # None if an occurrence at this instant exists.
        if done:
            yield from record(at, actor, "trigger", schedule=name, ids=[done[0].job_id])
            return done[0]
    raise AssertionError  # pragma: no cover - the loop does not end


def _cron(row: ScheduleRecord, otherwise: str) -> CronDefinition:
    definition = readable(row)
    if not isinstance(definition, CronDefinition):
        raise IllegalMove(f"the schedule {row.name!r} is a refresh: {otherwise}")
    return definition


@wakes
def backfill(
    name: str, since: datetime, until: datetime, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[tuple[Occurrence, ...]]:
    """Start all occurrences in an aware time range, both ends included, that were not started before; return them.

    Raise `ScheduleNotFound` if the database has no schedule of this name, `ScheduleError` if the range has more
    than `MOST` occurrences, or does not end in the past, `IllegalMove` if the schedule is a refresh, or
    `StoreError` if this version cannot read its definition.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    cron = _cron(row, "it has no occurrences")
    if until > at:
        raise ScheduleError(f"backfill until {until}: that is not past; occurrences to come are started when they come")
    found = [*itertools.islice(itertools.takewhile(lambda each: each <= until, cron.schedule.since(since)), MOST + 1)]
    if len(found) > MOST:
        message = f"backfill of {name!r}: there are more than {MOST:,} occurrences from {since} to {until}; take less"
        raise ScheduleError(message)
    due = [DueOccurrence(each, OccurrenceDecision.STARTED, f"backfilled by {actor}") for each in found]
    _, done = yield from _apply(row, cron, due, at)
    if done:
        yield from record(at, actor, "backfill", schedule=name, ids=[each.job_id for each in done])
    return done


# An occurrence that waits for its predecessor (``overlap="queue"``) is started in the transaction that ends the
# predecessor.
def finish_all(reports: Iterable[OriginResult], at: datetime) -> Statements[None]:
    """Start the occurrences that wait for jobs that have just ended."""
    ended: dict[str, set[int]] = defaultdict(set)
    for each in reports:
        ended[each.origin.name].add(each.job_id)
    rows: Sequence[ScheduleRecord] = yield Query("schedules_select", {"names": sorted(ended)}, into=ScheduleRecord)
    for row in rows:
        cron = row.definition
        if not isinstance(cron, CronDefinition) or cron.overlap is not Overlap.QUEUE:
            continue
        # The cron may have been deleted in between.
        found: Sequence[ScheduleRecord] = yield Query("schedule_lock", {"name": row.name}, into=ScheduleRecord)
        for locked in found:
            yield from _start_queued(locked, cron, ended[row.name], at)


def _start_queued(locked: ScheduleRecord, cron: CronDefinition, ended: set[int], at: datetime) -> Statements[None]:
    if locked.queued_at is not None and locked.job_id in ended:
        due = [released(locked.queued_at, at, paused=locked.paused_at is not None)]
        yield from _apply(replace(locked, queued_at=None), cron, due, at)


# A clock that was an hour ahead would otherwise suspend the cron for an hour. Occurrences that were started are not
# started again when the clock shows their instants again.
@wakes
def set_back(name: str, *, now: datetime | None = None) -> Statements[timedelta | None]:
    """Plan a cron from now on if it waits for a later occurrence than that, because the clock was set back.

    Return how much earlier the next occurrence is; None if nothing has changed.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    definition = row.definition
    if not isinstance(definition, CronDefinition) or row.next_at is None or row.paused_at is not None:
        return None
    late = at + refresh.TOLERANCE
    latest = definition.schedule.next(late, after=late)
    if latest is None or row.next_at <= latest:
        return None
    next_at = definition.schedule.next(at, after=at)
    assert next_at is not None  # there is one a minute later
    yield from move(replace(row, next_at=next_at))
    yield from record(
        at, SYSTEM, CLOCK_SET_BACK, schedule=name, why=f"waited for {row.next_at}, waits for {next_at} now"
    )
    return row.next_at - next_at
