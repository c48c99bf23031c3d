"""What became of the occurrences of a cron: their decisions and their jobs, how many failed, and a month of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from http import HTTPStatus
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.lifecycle import State
from redrive.engine.occurrence import Occurrence
from redrive.operate.charts import axes, calendar, plots, sparks
from redrive.operate.charts.axes import Axis
from redrive.operate.charts.plots import Cell
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Refusal, Site
from redrive.operate.shown import Shown
from redrive.schedule import Schedule
from redrive.stores.operations import jobs
from redrive.stores.operations.jobs import NO_DOCUMENTS, Documents
from redrive.stores.operations.schedules import Outcome
from redrive.visible import visible

#: Occurrences of a strip, and of the small one in a list.
STRIP: Final = 60
SMALL: Final = 20

#: Occurrences of a day that a month shows one by one; more are counted.
EACH: Final = 4

#: Occurrences that the page of a cron reads; a month with more is not complete.
MOST: Final = 500

_WEEK: Final = 7
_ENDED: Final = frozenset({"succeeded", "retried", "dead", "caught", "cancelled"})
_FAILED: Final = frozenset({"dead", "caught"})

# Classes of columns, and icons below them.
_COLUMNS: Final[Mapping[str, str]] = {
    "succeeded": "succeeded",
    "retried": "retried",
    "dead": "dead",
    "caught": "dead",
    "running": "running",
}
_GLYPHS: Final[Mapping[str, str]] = {
    "retried": "retrying",
    "dead": "dead",
    "caught": "caught",
    "cancelled": "cancelled",
    "skipped": "cancelled",
    "missed": "warn",
    "queued": "waiting",
    "running": "running",
    "waiting": "waiting",
    "planned": "scheduled",
}


class OccurrenceLine(msgspec.Struct, frozen=True, gc=False):
    """A decided occurrence of a cron.

    Attributes:
        decision: started, queued, skipped or missed.
        note: why.
        outcome: of its job: succeeded, retried (succeeded after failures), dead, caught, cancelled, running or waiting;
            the decision, if it has no job, or if the job was deleted.
        attempts: of its job.
        took_seconds: from the start of the first attempt to the end of the job; None if it has not ended.
        reason: why its last attempt failed.
        error: its last error.
    """

    occurs_at: datetime
    decided_at: datetime
    decision: str
    job: str | None
    note: str | None
    outcome: str
    attempts: int | None = None
    took_seconds: float | None = None
    reason: str | None = None
    error: str | None = None


class Outcomes(msgspec.Struct, frozen=True, gc=False):
    """What became of the latest occurrences of a cron, at most 60.

    Attributes:
        counts: by outcome.
        failed_percent: of the jobs that have ended, those that gave up; None without any.
        streak: the deaths since the last success.
        succeeded_at: the latest occurrence that succeeded.
        p50_seconds: half of the jobs took no longer.
        p95_seconds: 95 of 100 jobs took no longer.
        dead: the jobs that gave up and were not caught.
        latest: the occurrences, the latest first.
    """

    counts: dict[str, int]
    failed_percent: float | None
    streak: int
    succeeded_at: datetime | None
    p50_seconds: float | None
    p95_seconds: float | None
    dead: tuple[str, ...]
    latest: tuple[OccurrenceLine, ...]

    def strip(self, zone: tzinfo, icons: str, base: str) -> Picture:
        """Draw a column for each occurrence, as high as the time that its job took, with times in a zone.

        Args:
            zone: of the times.
            icons: the address of the icons.
            base: the place where the dashboard is mounted.
        """
        past = self.latest[::-1]
        cells = [_cell(each) for each in past]
        words = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        streak = self.streak / len(past) if self.streak > 1 else 0.0
        return plots.strip(
            _axis(past, zone, base),
            cells,
            f"Outcomes of the last {len(past)} occurrences: {words}",
            icons,
            streak=streak,
        )

    @property
    def small(self) -> Picture:
        """The latest outcomes, for a row of a table."""
        past = self.latest[:SMALL][::-1]
        words = ", ".join(f"{number} {name}" for name, number in Counter(each.outcome for each in past).items())
        return sparks.squares([_COLUMNS.get(each.outcome, "other") for each in past], f"last {len(past)}: {words}")


class MonthDay(msgspec.Struct, frozen=True, gc=False):
    """A day of a month.

    Attributes:
        in_month: False for the days before and after it that fill the weeks.
        change: what the clocks do on this day; None on most days.
        marks: its occurrences by time, if they are at most 4; those to come have the outcome ``planned``.
        counts: by outcome, if they are more; the planned ones are not counted.
        failed: True if a job gave up.
    """

    date: date
    in_month: bool
    change: str | None
    marks: tuple[OccurrenceLine, ...]
    counts: dict[str, int]
    failed: bool


class Month(msgspec.Struct, frozen=True, gc=False):
    """A month of a cron, in its time zone.

    Attributes:
        month: its first day.
        days: whole weeks, from Monday on.
        before: the parameter ``month`` of the month before, and ``after`` that of the next one.
        read_from: occurrences before this instant were not read; None if all were.
    """

    month: date
    today: date
    days: tuple[MonthDay, ...]
    before: str
    after: str
    read_from: datetime | None


def read_lines(site: Site, found: Sequence[Outcome]) -> Procedure[tuple[OccurrenceLine, ...]]:
    """Return occurrences as lines, without the values that are not shown."""
    ids = [each.job_id for each in found if each.job_id is not None and each.error is not None]
    documents: dict[int, Documents] = yield jobs.documents(dict.fromkeys(ids))
    return tuple(
        line(each, Shown.of(site.payloads, repeated=documents.get(each.job_id or 0, NO_DOCUMENTS).all))
        for each in found
    )


def line(each: Occurrence, shown: Shown | None = None) -> OccurrenceLine:
    """Return an occurrence as a line; errors need what is shown of their job."""
    job = None if each.job_id is None else str(each.job_id)
    plain = OccurrenceLine(each.occurs_at, each.decided_at, each.decision.value, job, each.note, each.decision.value)
    if not isinstance(each, Outcome) or each.state is None:
        return plain
    took = None if each.finished_at is None or each.started_at is None else each.finished_at - each.started_at
    return msgspec.structs.replace(
        plain,
        outcome=_outcome(each),
        attempts=each.attempt,
        took_seconds=None if took is None else took.total_seconds(),
        reason=each.reason,
        error=None if shown is None else shown.clear(each.error),
    )


def _outcome(each: Outcome) -> str:
    match each.state:
        case State.SUCCEEDED:
            return "retried" if (each.attempt or 0) > 1 else "succeeded"
        case State.DEAD:
            return "caught" if each.caught else "dead"
        case State.RUNNING | State.CANCELLED:
            return each.state.value
        case _:
            return "waiting"


def summary(latest: Sequence[OccurrenceLine]) -> Outcomes:
    """Return what became of the latest occurrences, the latest first."""
    counts = Counter(each.outcome for each in latest)
    ended = sum(counts[each] for each in _ENDED)
    took = sorted(each.took_seconds for each in latest if each.took_seconds is not None)
    succeeded = next((each.occurs_at for each in latest if each.outcome in ("succeeded", "retried")), None)
    known = [each for each in latest if each.outcome in _ENDED]
    streak = sum(1 for _ in itertools.takewhile(lambda each: each.outcome in _FAILED, known))
    return Outcomes(
        counts=dict(counts.most_common()),
        failed_percent=100 * sum(counts[each] for each in _FAILED) / ended if ended else None,
        streak=streak,
        succeeded_at=succeeded,
        p50_seconds=took[(len(took) - 1) // 2] if took else None,
        p95_seconds=took[(len(took) - 1) * 95 // 100] if took else None,
        dead=tuple(each.job for each in latest if each.outcome == "dead" and each.job is not None),
        latest=tuple(latest),
    )


def _cell(each: OccurrenceLine) -> Cell:
    took = "" if each.took_seconds is None else f", {axes.took(each.took_seconds)}"
    more = each.error or each.note or ""
    tip = f"{each.outcome}{took}{f': {visible(more.partition(chr(10))[0][:120])}' if more else ''}"
    name = _COLUMNS.get(each.outcome, "other")
    value = max(each.took_seconds, 0.001) if each.took_seconds is not None else None
    return Cell(name, value, tip, _GLYPHS.get(each.outcome, ""))


def _axis(past: Sequence[OccurrenceLine], zone: tzinfo, base: str) -> Axis:
    local = [each.occurs_at.astimezone(zone) for each in past]
    is_long = bool(local) and local[-1] - local[0] > timedelta(days=2)
    step = max(1, -(-len(local) // 5))
    labels = [
        (number / len(local), f"{local[number]:{'%d %b' if is_long else '%H:%M'}}")
        for number in range(0, len(local), step)
    ]
    paths = tuple(f"{base}/jobs/{each.job}" if each.job else "" for each in past)
    return Axis(tuple(f"{each:%a %d %b, %H:%M}" for each in local), tuple(labels), paths=paths)


def first_of(text: str, today: date) -> date:
    """Return the first day of the month of a text such as ``2026-11``; without one, of today.

    Raises:
        Refusal: it is no month of a calendar.
    """
    try:
        day = date.fromisoformat(f"{text}-01") if text else today.replace(day=1)
    except ValueError:
        day = date.min
    if day.year not in calendar.YEARS:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"month={text[:40]!r} is not a month such as 2026-11, from 1970 to 2099")
    return day


def bounds(first: date, place: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the begin of the first week of a month and the end of its last week."""
    begin = first - timedelta(days=first.weekday())
    after = _next(first)
    end = after + timedelta(days=-after.weekday() % _WEEK)
    return calendar.midnight(begin, place), calendar.midnight(end, place)


def _next(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


def month(
    schedule: Schedule,
    decided: Iterable[OccurrenceLine],
    first: date,
    place: ZoneInfo,
    *,
    now: datetime,
    paused: bool,
    read_from: datetime | None,
) -> Month:
    """Return a month.

    Args:
        schedule: the occurrences to come.
        decided: the decided occurrences.
        first: its first day.
        place: the time zone of the days.
        now: the present instant; occurrences after it are planned.
        paused: True if nothing is planned.
        read_from: occurrences before it were not read.
    """
    begin, end = bounds(first, place)
    by_day: dict[date, list[OccurrenceLine]] = {}
    for each in decided:
        if begin <= each.occurs_at < end:
            by_day.setdefault(each.occurs_at.astimezone(place).date(), []).append(each)
    days, day = [], begin.astimezone(place).date()
    while (start := calendar.midnight(day, place)) < end:
        until = calendar.midnight(day + timedelta(days=1), place)
        known = sorted(by_day.get(day, ()), key=lambda each: each.occurs_at)
        ahead = [] if paused or until <= now else _planned(schedule, max(start, now), until, known)
        days.append(
            _day(day, known, ahead, in_month=day.month == first.month, hours=(until - start) / timedelta(hours=1))
        )
        day += timedelta(days=1)
    last = (first - timedelta(days=1)).replace(day=1)
    return Month(
        first, now.astimezone(place).date(), tuple(days), f"{last:%Y-%m}", f"{_next(first):%Y-%m}",
        read_from if read_from is not None and read_from > begin else None,
    )  # fmt: skip


def _planned(
    schedule: Schedule, begin: datetime, end: datetime, known: Sequence[OccurrenceLine]
) -> list[OccurrenceLine]:
    there = {each.occurs_at for each in known}
    following = itertools.takewhile(lambda at: at < end, schedule.since(begin))
    found = itertools.islice((at for at in following if at not in there), EACH + 1)
    return [OccurrenceLine(at, at, "planned", None, None, "planned") for at in found]


def _day(
    day: date, known: Sequence[OccurrenceLine], ahead: Sequence[OccurrenceLine], *, in_month: bool, hours: float
) -> MonthDay:
    marks = (*known, *ahead)
    is_dense = len(marks) > EACH
    return MonthDay(
        date=day,
        in_month=in_month,
        change=calendar.change(hours),
        marks=() if is_dense else marks,
        counts=dict(Counter(each.outcome for each in known).most_common()) if is_dense else {},
        failed=any(each.outcome == "dead" for each in known),
    )
