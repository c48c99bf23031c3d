"""Which occurrences of a cron are started, and what becomes of the others. PURE.

The database holds one instant of each cron: the next occurrence that nobody has looked at. When it has come, `fire`
says what is to be done with it and with all that have passed since, and which is the next one. Whoever carries that out
writes it in one transaction, under a lock on the row of the cron: so a fleet fires each occurrence once, and nobody has
to lead. An instant that was passed over is not looked at again, and one that has not come yet is waited for; after a
clock was set back, `redrive.stores.operations.set_back` moves the instant, and what was started stays started.

Usually one occurrence is due, and hardly late. There are more after the workers were away, and then the cron's
``catch_up`` says how many of them are wanted. An occurrence counts as missed when it is later than `LATE`: workers that
are restarted, or have a clock that is a little slow, miss nothing.

``overlap`` is asked for each of those that are wanted, the earliest first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from redrive.engine.recurring import CatchUp, CronDefinition, Overlap
from redrive.schedule import Schedule

__all__ = ["LATE", "DueOccurrence", "FirePlan", "Occurrence", "OccurrenceDecision", "fire", "released"]

LATE = timedelta(minutes=1)
"""An occurrence that is later than this was missed (the grace that sidekiq-cron gives too)."""


class OccurrenceDecision(StrEnum):
    """What became of an occurrence."""

    STARTED = "started"
    QUEUED = "queued"
    """It waits for the job before it to end."""
    SKIPPED = "skipped"
    """Its predecessor had not ended."""
    MISSED = "missed"
    """No worker was there in time."""


class Occurrence(msgspec.Struct, frozen=True, gc=False):
    """What became of one occurrence, as the database keeps it.

    Attributes:
        schedule: name of the cron.
        occurs_at: when it was due.
        decided_at: when that was decided.
        decision: what became of it.
        job_id: the job that was made of it.
        note: why, for people.
    """

    schedule: str
    occurs_at: datetime
    decided_at: datetime
    decision: OccurrenceDecision
    job_id: int | None = None
    note: str | None = None


class DueOccurrence(msgspec.Struct, frozen=True, gc=False):
    """An occurrence that was decided on.

    Attributes:
        occurs_at: when it was due.
        decision: what becomes of it.
        note: why, for people.
    """

    occurs_at: datetime
    decision: OccurrenceDecision
    note: str | None = None


class FirePlan(msgspec.Struct, frozen=True, gc=False):
    """What is to be done.

    Attributes:
        due: what becomes of each occurrence that is not simply left out.
        next_at: the next one; None where there is none any more.
        queued_at: the one that waits for the present job to end.
        cancels: is the present job to be cancelled first?
    """

    due: tuple[DueOccurrence, ...]
    next_at: datetime | None
    queued_at: datetime | None = None
    cancels: bool = False


def fire(  # noqa: PLR0913 - where a cron stands
    cron: CronDefinition,
    next_at: datetime,
    now: datetime,
    *,
    running: int | None = None,
    queued_at: datetime | None = None,
    most: int = 100,
) -> FirePlan:
    """Say what is to be done with the occurrences that have come.

    Args:
        cron: which.
        next_at: the first that nobody has looked at.
        now: the present instant, aware.
        running: the job of its predecessor, if that has not ended.
        queued_at: an occurrence that waits for that already.
        most: so many are decided at once; the rest is due at once again.

    Returns:
        What is to be done.
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
    """Say what becomes of an occurrence whose predecessor has ended.

    Args:
        queued_at: which.
        now: the present instant, aware.
        paused: is the cron paused?

    Returns:
        It is started, unless its turn comes in a pause.
    """
    if paused:
        return DueOccurrence(queued_at, OccurrenceDecision.SKIPPED, "its turn came while the cron was paused")
    return DueOccurrence(
        queued_at, OccurrenceDecision.STARTED, f"waited {_span(now - queued_at)} for the one before it"
    )


def _last(cron: CronDefinition, next_at: datetime, now: datetime) -> tuple[list[DueOccurrence], datetime | None]:
    schedule = cron.schedule
    last = schedule.last(next_at, now) or next_at
    following = schedule.next(now, after=last)
    late = now - last
    left_out = "" if last == next_at else f"those since {_at(next_at)} are left out"
    if cron.catch_up is CatchUp.NONE and late > LATE:
        return [
            DueOccurrence(last, OccurrenceDecision.MISSED, _said(f"no worker was there for {_span(late)}", left_out))
        ], following
    return [DueOccurrence(last, OccurrenceDecision.STARTED, _said(_late(late), left_out))], following


def _all(
    cron: CronDefinition, next_at: datetime, now: datetime, most: int
) -> tuple[list[DueOccurrence], datetime | None]:
    begin = max(next_at, now - cron.window)
    found = [*itertools.islice(_until(cron.schedule, begin, now), most + 1)]
    wanted = [DueOccurrence(each, OccurrenceDecision.STARTED, _said(_late(now - each))) for each in found[:most]]
    following = found[most] if len(found) > most else cron.schedule.next(now, after=found[-1] if found else None)
    if begin > next_at:
        note = f"more than {_span(cron.window)} ago, like all from here to {_at(begin)}"
        wanted.insert(0, DueOccurrence(next_at, OccurrenceDecision.MISSED, note))
    return wanted, following


def _until(schedule: Schedule, begin: datetime, end: datetime) -> Iterator[datetime]:
    return itertools.takewhile(lambda each: each <= end, schedule.since(begin))


def _overlapping(
    overlap: Overlap, due: DueOccurrence, running: int, queued_at: datetime | None
) -> tuple[DueOccurrence, datetime | None, bool]:
    """What becomes of an occurrence while its predecessor runs; which one waits then; is the predecessor cancelled?"""
    before = f"job {running} before it had not ended"
    match overlap:
        case Overlap.ALLOW:
            return due, queued_at, False
        case Overlap.CANCEL:
            return (
                DueOccurrence(due.occurs_at, OccurrenceDecision.STARTED, f"{before}: it was cancelled"),
                queued_at,
                True,
            )
        case Overlap.QUEUE if queued_at is not None:
            return (
                DueOccurrence(due.occurs_at, OccurrenceDecision.SKIPPED, f"{before}, and {_at(queued_at)} waits"),
                queued_at,
                False,
            )
        case Overlap.QUEUE:
            return DueOccurrence(due.occurs_at, OccurrenceDecision.QUEUED, before), due.occurs_at, False
        case Overlap.SKIP:  # pragma: no branch - the last one; mypy proves that all are here
            return DueOccurrence(due.occurs_at, OccurrenceDecision.SKIPPED, before), queued_at, False


def _late(by: timedelta) -> str:
    return f"{_span(by)} late" if by > LATE else ""


def _said(*parts: str) -> str | None:
    return "; ".join(filter(None, parts)) or None


def _span(span: timedelta) -> str:
    return str(timedelta(seconds=int(span.total_seconds())))


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
