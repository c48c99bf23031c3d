"""The occurrences of a cron that are due: which are started, and what becomes of the others. PURE.

Usually one occurrence is due. After a downtime of the workers there are more, and ``catch_up`` of the cron decides how
many of them are started. An occurrence counts as missed if it is later than `LATE`. ``overlap`` is applied to each that
is to be started, the earliest first.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.recurring import CatchUp, CronDefinition, Overlap

#: An occurrence later than this was missed; restarts of workers and slow clocks stay below it.
LATE = timedelta(minutes=1)


class OccurrenceDecision(StrEnum):
    """The decision about an occurrence."""

    STARTED = "started"
    QUEUED = "queued"
    """It waits for the job of the occurrence before to end."""
    SKIPPED = "skipped"
    """The job of the occurrence before had not ended."""
    MISSED = "missed"
    """No worker was running in time."""


class Occurrence(msgspec.Struct, frozen=True, gc=False):
    """A decided occurrence, as the database keeps it; ``note`` is the reason for operators."""

    schedule: str
    occurs_at: datetime
    decided_at: datetime
    decision: OccurrenceDecision
    job_id: int | None = None
    note: str | None = None


class OccurrenceOutcome(Occurrence, frozen=True, gc=False):
    """A decided occurrence with what became of its job; without a job, or of a deleted one, nothing is known.

    Attributes:
        caught: True if the job is dead, and its catch task has succeeded.
        attempts: the number of attempts that were made.
        started_at: when the first of them began.
        fingerprint: the error group of its last failure.
    """

    state: State | None = None
    caught: bool = False
    attempts: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str | None = None
    error: str | None = None
    fingerprint: str | None = None


class DueOccurrence(msgspec.Struct, frozen=True, gc=False):
    """An occurrence with its decision."""

    occurs_at: datetime
    decision: OccurrenceDecision
    note: str | None = None


class FirePlan(msgspec.Struct, frozen=True, gc=False):
    """The decisions about the due occurrences of a cron."""

    due: tuple[DueOccurrence, ...]  # each decided occurrence that is recorded
    next_at: datetime | None
    queued_at: datetime | None = None  # the occurrence that waits for the running job to end
    cancels: bool = False  # True if the running job is to be cancelled first


# The database holds one instant for each cron: the next occurrence that is not decided. When it has come, `fire`
# decides it and all that have passed since, and returns the next one. The worker writes the result in one transaction
# under a lock on the row of the cron, so a fleet starts each occurrence once, without a leader. After the clock was set
# back, `redrive.stores.operations.crons.set_back` moves the instant.
def fire(
    cron: CronDefinition,
    next_at: datetime,
    now: datetime,
    *,
    running: int | None = None,
    queued_at: datetime | None = None,
    most: int = 100,
) -> FirePlan:
    """Decide the occurrences that are due, at most `most` of them; ``next_at`` is the first one that is not decided.

    ``running`` is the job of the occurrence before, if it has not ended; ``queued_at`` waits for it already.
    """
    if next_at > now:
        return FirePlan((), next_at, queued_at)
    if cron.catch_up is CatchUp.ALL:
        wanted, following = _all(cron, next_at, now, most)
    else:
        wanted, following = _last(cron, next_at, now)
    due: list[DueOccurrence] = []
    cancels = False
    for each in wanted:
        if each.decision is OccurrenceDecision.STARTED and running is not None:
            each, queued_at, cancels = _overlapping(cron.overlap, each, running, queued_at)  # noqa: PLW2901 - what became of it
        due.append(each)
    return FirePlan(tuple(due), following, queued_at, cancels)


def released(queued_at: datetime, now: datetime, *, paused: bool = False) -> DueOccurrence:
    """Decide a queued occurrence after the job before it has ended: it starts, unless the cron is paused."""
    if paused:
        return DueOccurrence(queued_at, OccurrenceDecision.SKIPPED, "the job before it ended while the cron was paused")
    note = f"waited {_span(now - queued_at)} for the one before it"
    return DueOccurrence(queued_at, OccurrenceDecision.STARTED, note)


def _last(cron: CronDefinition, next_at: datetime, now: datetime) -> tuple[list[DueOccurrence], datetime | None]:
    schedule = cron.schedule
    last = schedule.last(next_at, now) or next_at
    following = schedule.next(now, after=last)
    late = now - last
    left_out = "" if last == next_at else f"those since {_at(next_at)} are left out"
    if cron.catch_up is CatchUp.NONE and late > LATE:
        why = _joined(f"no worker ran for {_span(late)}", left_out)
        return [DueOccurrence(last, OccurrenceDecision.MISSED, why)], following
    return [DueOccurrence(last, OccurrenceDecision.STARTED, _joined(_late(late), left_out))], following


def _all(
    cron: CronDefinition, next_at: datetime, now: datetime, most: int
) -> tuple[list[DueOccurrence], datetime | None]:
    begin = max(next_at, now - cron.window)
    found = [*itertools.islice(itertools.takewhile(lambda each: each <= now, cron.schedule.since(begin)), most + 1)]
    wanted = [DueOccurrence(each, OccurrenceDecision.STARTED, _joined(_late(now - each))) for each in found[:most]]
    following = found[most] if len(found) > most else cron.schedule.next(now, after=found[-1] if found else None)
    if begin > next_at:
        note = f"more than {_span(cron.window)} ago, like all from here to {_at(begin)}"
        wanted.insert(0, DueOccurrence(next_at, OccurrenceDecision.MISSED, note))
    return wanted, following


def _overlapping(
    overlap: Overlap, due: DueOccurrence, running: int, queued_at: datetime | None
) -> tuple[DueOccurrence, datetime | None, bool]:
    """Decide an occurrence while the job before runs; also return the queued one and whether to cancel that job."""
    before = f"job {running} before it had not ended"
    match overlap:
        case Overlap.ALLOW:
            return due, queued_at, False
        case Overlap.CANCEL:
            return replace(due, note=f"{before}: it was cancelled"), queued_at, True
        case Overlap.QUEUE if queued_at is not None:
            why = f"{before}, and {_at(queued_at)} waits"
            return DueOccurrence(due.occurs_at, OccurrenceDecision.SKIPPED, why), queued_at, False
        case Overlap.QUEUE:
            return DueOccurrence(due.occurs_at, OccurrenceDecision.QUEUED, before), due.occurs_at, False
        case Overlap.SKIP:  # pragma: no branch - the last one; mypy proves that all are here
            return DueOccurrence(due.occurs_at, OccurrenceDecision.SKIPPED, before), queued_at, False


def _late(by: timedelta) -> str:
    return f"{_span(by)} late" if by > LATE else ""


def _joined(*parts: str) -> str | None:
    return "; ".join(filter(None, parts)) or None


def _span(span: timedelta) -> str:
    return str(timedelta(seconds=int(span.total_seconds())))


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
