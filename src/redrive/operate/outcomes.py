"""Pictures of what became of the occurrences of a cron, and a month of them. PURE."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from http import HTTPStatus
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from redrive.operate.charts import axes, calendar, plots, sparks
from redrive.operate.charts.axes import Axis
from redrive.operate.charts.plots import Cell
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Refusal
from redrive.schedule import Schedule
from redrive.visible import visible

#: Occurrences of the small strip in a list.
SMALL: Final = 20

#: Columns for which a strip has room at least.
NARROWEST: Final = 12

#: Occurrences of a day that a month shows one by one; more are counted.
EACH: Final = 4

#: Occurrences that the page of a cron reads; a month with more is not complete.
MOST: Final = 500

_WEEK: Final = 7

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
    "ready": "due",
    "planned": "scheduled",
}


class MonthMark(msgspec.Struct, frozen=True, gc=False):
    """An occurrence in a picture or a calendar.

    Attributes:
        outcome: of its job: succeeded, retried (succeeded after failures), dead, caught, cancelled, running, ready or
            waiting; else the decision, or ``planned``.
        note: its error, or the reason of the decision.
    """

    occurs_at: datetime
    outcome: str
    job: str | None = None
    took_seconds: float | None = None
    note: str = ""


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
    marks: tuple[MonthMark, ...]
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


def strip(latest: Sequence[MonthMark], streak: int, zone: tzinfo, icons: str, base: str) -> Picture:
    """Draw a column for each occurrence, as high as the time that its job took.

    Args:
        latest: the occurrences, the latest first.
        streak: the deaths since the last success, which are tinted.
        zone: of the times.
        icons: the address of the icons.
        base: the place where the dashboard is mounted.
    """
    past = latest[::-1]
    sentence = f"Outcomes of the last {len(past)} occurrences: {_words([each.outcome for each in past])}"
    tinted = min(streak, len(past)) / len(past) if streak > 1 else 0.0
    # A column of one or two occurrences would be as wide as the page.
    ahead = max(0, NARROWEST - len(past))
    axis, cells = _axis(past, zone, base), [Cell("other", None, "")] * ahead + [_cell(each) for each in past]
    share = len(past) / len(cells)
    labels = tuple((1 - share * (1 - part), label) for part, label in axis.labels)
    paths = axis.paths and ("",) * ahead + axis.paths
    axis = replace(axis, names=("",) * ahead + axis.names, labels=labels, paths=paths)
    return plots.strip(axis, cells, sentence, icons, streak=tinted * share)


def small(words: Sequence[str]) -> Picture:
    """Draw the latest outcomes, the latest of which comes first, for a row of a table."""
    past = words[:SMALL][::-1]
    return sparks.squares([_COLUMNS.get(each, "other") for each in past], f"last {len(past)}: {_words(past)}")


def _words(past: Sequence[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in Counter(past).most_common())


def _cell(each: MonthMark) -> Cell:
    took = "" if each.took_seconds is None else f", {axes.took(each.took_seconds)}"
    more = each.note.partition("\n")[0][:120]
    tip = f"{each.outcome}{took}{f': {visible(more)}' if more else ''}"
    name = _COLUMNS.get(each.outcome, "other")
    value = max(each.took_seconds, 0.001) if each.took_seconds is not None else None
    return Cell(name, value, tip, _GLYPHS.get(each.outcome, ""))


def _axis(past: Sequence[MonthMark], zone: tzinfo, base: str) -> Axis:
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
    decided: Iterable[MonthMark],
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
    by_day: dict[date, list[MonthMark]] = {}
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


def _planned(schedule: Schedule, begin: datetime, end: datetime, known: Sequence[MonthMark]) -> list[MonthMark]:
    there = {each.occurs_at for each in known}
    following = itertools.takewhile(lambda at: at < end, schedule.since(begin))
    found = itertools.islice((at for at in following if at not in there), EACH + 1)
    return [MonthMark(at, "planned") for at in found]


def _day(
    day: date, known: Sequence[MonthMark], ahead: Sequence[MonthMark], *, in_month: bool, hours: float
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
