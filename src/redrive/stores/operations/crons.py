"""Making jobs of the occurrences of crons. PURE.

A cron is fired under a lock on its row, and its row moves on to the next occurrence in the transaction that makes the
job. Each occurrence is a row too, which is there once: so one that comes again, because somebody has put the cron back
or backfills, is not started a second time.

An occurrence that waits for its predecessor (``overlap="queue"``) is started where that one ends, in the transaction
that ends it.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.engine.lifecycle import FINAL
from redrive.engine.occurrence import DueOccurrence, Occurrence, OccurrenceDecision, released
from redrive.engine.occurrence import fire as fired
from redrive.engine.origin import of_cron
from redrive.engine.records import JobRecord, NewJob
from redrive.engine.recurring import CronDefinition, Overlap, ScheduleRecord
from redrive.errors import IllegalMove, ScheduleError
from redrive.stores.operations import jobs
from redrive.stores.operations.audit import NOBODY, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import end
from redrive.stores.operations.numbers import take
from redrive.stores.operations.schedules import lock, move, readable
from redrive.stores.query import Query, Rows, Steps, wakes

__all__ = ["MOST", "backfill", "fire", "follow", "trigger"]

MOST = 10_000
"""Occurrences that are backfilled at once, at most."""


@dataclass(frozen=True, slots=True)
class NewOccurrence:
    """A row of the query ``occurrence_put``."""

    occurs_at: datetime


@wakes
def fire(name: str, *, now: datetime | None = None) -> Steps[tuple[Occurrence, ...]]:
    """Decide on the occurrences of a cron that have come.

    Args:
        name: of the cron.
        now: the instant, in tests.

    Returns:
        What became of each; empty where another worker was faster, or nothing is due.

    Raises:
        ScheduleNotFound: the database has no schedule of this name.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    cron = row.definition
    if not isinstance(cron, CronDefinition) or row.paused_at is not None or row.next_at is None or row.next_at > at:
        return ()
    before = yield from _running(row)
    done: tuple[Occurrence, ...] = ()
    if before is None and row.queued_at is not None:  # whoever has ended its predecessor did not tell
        row, done = yield from _carry_out(replace(row, queued_at=None), cron, [released(row.queued_at, at)], at)
        before = yield from _running(row)
    running = None if before is None else before.id
    result = fired(cron, row.next_at or at, at, running=running, queued_at=row.queued_at)
    row = replace(row, next_at=result.next_at, queued_at=result.queued_at)
    row, more = yield from _carry_out(row, cron, result.due, at)
    # One that was started before, by a clock that was set back since, is not started, and cancels nothing.
    if result.cancels and before is not None and any(each.decision is OccurrenceDecision.STARTED for each in more):
        yield from _end(before.id, at, f"the next occurrence of {name} has come")
    return done + more


def _running(row: ScheduleRecord) -> Generator[Query, Rows, JobRecord | None]:
    """The job that was made last, if it has not ended."""
    if row.job_id is None:
        return None
    rows: Sequence[JobRecord] = yield Query("job_get", {"id": row.job_id}, into=JobRecord)
    return next((job for job in rows if job.state not in FINAL), None)


def _end(number: int, at: datetime, why: str) -> Generator[Query, Rows, None]:
    locked: Sequence[JobRecord] = yield Query("job_lock", {"id": number}, into=JobRecord)
    for job in locked:
        yield from end(job, at, why)


def _carry_out(
    row: ScheduleRecord, cron: CronDefinition, due: Sequence[DueOccurrence], at: datetime
) -> Generator[Query, Rows, tuple[ScheduleRecord, tuple[Occurrence, ...]]]:
    """Write what becomes of occurrences, and make the jobs of those that are started; but none a second time."""
    starts = [each for each in due if each.decision is OccurrenceDecision.STARTED]
    ids = dict(zip(starts, (yield from take("job", len(starts))), strict=True)) if starts else {}
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


def _put(decided: Sequence[Occurrence]) -> Generator[Query, Rows, set[Occurrence]]:
    """Write what became of occurrences; answer those that had not been started before."""
    if not decided:
        return set()
    names = ("schedule", "occurs_at", "decided_at", "decision", "job_id", "note")
    rows: Sequence[NewOccurrence] = yield Query(
        "occurrence_put", many=[{name: getattr(each, name) for name in names} for each in decided], into=NewOccurrence
    )
    fresh = {row.occurs_at for row in rows}
    return {each for each in decided if each.occurs_at in fresh}


def _job(cron: CronDefinition, occurrence: Occurrence) -> NewJob:
    made = cron.job
    origin = of_cron(cron.name, occurrence.occurs_at)
    return NewJob(made.task, made.queue, made.priority, b"{}", made.policy, origin=origin)


@wakes
def trigger(name: str, *, actor: str = NOBODY, now: datetime | None = None) -> Steps[Occurrence]:
    """Start a cron now, due or not, paused or not, and whatever runs.

    Args:
        name: of the cron.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        The occurrence, which is this very instant.

    Raises:
        ScheduleNotFound: the database has no schedule of this name.
        IllegalMove: it is no cron.
        StoreError: what is declared of it cannot be read by this redrive.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    cron = _cron(row, "say of which key")
    for step in itertools.count(row.next_at == at):  # the planned one is not taken
        due = DueOccurrence(at + step * timedelta.resolution, OccurrenceDecision.STARTED, f"triggered by {actor}")
        _, done = yield from _carry_out(row, cron, [due], at)
        if done:  # or there is an occurrence at this very instant
            yield from record(at, actor, "trigger", schedule=name, ids=[done[0].job_id])
            return done[0]
    raise AssertionError  # pragma: no cover - it is counted without end


def _cron(row: ScheduleRecord, otherwise: str) -> CronDefinition:
    definition = readable(row)
    if not isinstance(definition, CronDefinition):
        message = f"the schedule {row.name!r} is a refresh: {otherwise}"
        raise IllegalMove(message)
    return definition


@wakes
def backfill(
    name: str, since: datetime, until: datetime, *, actor: str = NOBODY, now: datetime | None = None
) -> Steps[tuple[Occurrence, ...]]:
    """Start all occurrences of a span that were not started; a second time there are none.

    Args:
        name: of the cron.
        since: aware; one at this very instant belongs to them.
        until: aware; likewise.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        Those that were started by this call.

    Raises:
        ScheduleNotFound: the database has no schedule of this name.
        ScheduleError: these are more than `MOST`, or the end is not past.
        IllegalMove: it is no cron.
        StoreError: what is declared of it cannot be read by this redrive.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    cron = _cron(row, "it has no occurrences")
    if until > at:
        message = f"backfill until {until}: that is not past; occurrences to come are started when they come"
        raise ScheduleError(message)
    found = [*itertools.islice(itertools.takewhile(lambda each: each <= until, cron.schedule.since(since)), MOST + 1)]
    if len(found) > MOST:
        message = f"backfill of {name!r}: there are more than {MOST:,} occurrences from {since} to {until}; take less"
        raise ScheduleError(message)
    due = [DueOccurrence(each, OccurrenceDecision.STARTED, f"backfilled by {actor}") for each in found]
    _, done = yield from _carry_out(row, cron, due, at)
    if done:
        yield from record(at, actor, "backfill", schedule=name, ids=[each.job_id for each in done])
    return done


def follow(ended: dict[str, set[int]], at: datetime) -> Generator[Query, Rows, None]:
    """Start what has waited for jobs that have just ended.

    Args:
        ended: ids of jobs by the cron that has made them.
        at: the instant of the transaction.
    """
    rows: Sequence[ScheduleRecord] = yield Query("schedules_select", {"names": sorted(ended)}, into=ScheduleRecord)
    for row in rows:
        cron = row.definition
        if not isinstance(cron, CronDefinition) or cron.overlap is not Overlap.QUEUE:
            continue
        locked = yield from lock(row.name)
        if locked.queued_at is not None and locked.job_id in ended[row.name]:
            due = [released(locked.queued_at, at, paused=locked.paused_at is not None)]
            yield from _carry_out(replace(locked, queued_at=None), cron, due, at)
