"""The occurrences of a cron in a week, a line for each day. PURE.

The place of a mark is its time on the wall clock, so that "daily at 3:00" is a column also where clocks are changed. A
day with more occurrences than can be distinguished is one stripe.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from html import escape
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from redrive.operate.charts import svg
from redrive.operate.charts.svg import Picture
from redrive.schedule import Schedule

#: Days of a calendar, and marks of a day that are drawn one by one.
DAYS: Final = 7
MOST: Final = 140

#: Years that a calendar has; before and after them time zones are guesses.
YEARS: Final = range(1970, 2100)

_LABEL: Final = 96
_HOUR: Final = 28
_ROW: Final = 26
_TOP: Final = 20

# Shapes, so that no meaning depends on colours.
_GLYPHS: Final = {"started": "●", "queued": "◐", "skipped": "○", "missed": "✖", "planned": "◇"}


class Mark(msgspec.Struct, frozen=True, gc=False):
    """An occurrence.

    Attributes:
        local: on the wall clock of the calendar, with its offset.
        state: started, queued, skipped, missed or planned.
        note: why.
    """

    at: datetime
    local: datetime
    state: str
    note: str | None = None


class Day(msgspec.Struct, frozen=True, gc=False):
    """A day of the calendar.

    Attributes:
        hours: its length: 23 or 25 where clocks are changed.
        change: what the clocks do on this day; None on most days.
        marks: the occurrences by time; the first of them if there are too many.
        dense: True if there are more.
        exceptions: the decided occurrences that were not started at once, the first 140.
    """

    date: date
    hours: float
    change: str | None
    marks: tuple[Mark, ...]
    dense: bool
    exceptions: tuple[Mark, ...] = ()


def week(
    schedule: Schedule, decided: Iterable[Mark], first: date, place: ZoneInfo, *, now: datetime, paused: bool
) -> tuple[Day, ...]:
    """Return the days of a week.

    Args:
        schedule: the occurrences to come.
        decided: the decided occurrences of the week, by time.
        first: the first day.
        place: the time zone of the days.
        now: the present instant; occurrences after it are planned.
        paused: True if nothing is planned.
    """
    past = list(decided)
    days = []
    for number in range(DAYS):
        begin, end = (midnight(first + timedelta(days=number + each), place) for each in (0, 1))
        known = [each for each in past if begin <= each.at < end]
        ahead = [] if paused else _planned(schedule, max(begin, now), end, place, {each.at for each in known})
        marks = list(itertools.islice(itertools.chain(known, ahead), MOST + 1))
        hours = (end - begin) / timedelta(hours=1)
        dense = len(marks) > MOST
        others = tuple(each for each in known if each.state != "started")[:MOST]
        days.append(Day(first + timedelta(days=number), hours, change(hours), tuple(marks[:MOST]), dense, others))
    return tuple(days)


def midnight(day: date, place: ZoneInfo) -> datetime:
    """Return the instant at which a day begins."""
    return datetime.combine(day, time(), place).astimezone(UTC)


def change(hours: float) -> str | None:
    """Return what the clocks do on a day of so many hours."""
    if hours == 24:  # noqa: PLR2004 - most days
        return None
    return f"clocks go {'forward' if hours < 24 else 'back'}: {hours:g} hours"  # noqa: PLR2004


def _planned(
    schedule: Schedule, begin: datetime, end: datetime, place: ZoneInfo, known: set[datetime]
) -> Iterator[Mark]:
    for at in schedule.since(begin):
        if at >= end:
            return
        if at not in known:
            yield Mark(at, at.astimezone(place), "planned")


def draw(days: Iterable[Day]) -> Picture:
    """Draw the days."""
    width = _LABEL + 24 * _HOUR + 8
    parts = [svg.text(f"{hour:02}", _LABEL + hour * _HOUR, 12, class_="label") for hour in range(0, 24, 3)]
    words = []
    bottom: float = _TOP
    for day in days:
        parts.append(svg.text(f"{day.date:%a %d %b}", 0, bottom + 16, class_="day"))
        parts.append(svg.rectangle(_LABEL, bottom + 2, 24 * _HOUR, _ROW - 4, day.change or "", class_=_class(day)))
        parts += [_stripe(day, bottom)] if day.dense else []
        parts += [_mark(each, bottom) for each in (day.exceptions if day.dense else day.marks)]
        words.append(f"{day.date:%A %d %B}: {_sentence(day)}")
        bottom += _ROW
    return svg.picture(width, bottom, "; ".join(words), *parts, class_="calendar")


def _class(day: Day) -> str:
    return "row changed" if day.change else "row"


def _sentence(day: Day) -> str:
    number = f"more than {MOST}" if day.dense else str(len(day.marks))
    return f"{number} occurrences{f', {day.change}' if day.change else ''}"


def _stripe(day: Day, top: float) -> str:
    tip = f"more than {MOST} occurrences"
    first = _x(day.marks[0].local)
    return svg.rectangle(first, top + 8, _LABEL + 24 * _HOUR - first, _ROW - 16, tip, class_="stripe")


def _mark(each: Mark, top: float) -> str:
    tip = f"{each.local:%H:%M:%S %Z} {each.state}{f': {each.note}' if each.note else ''}"
    title = svg.element("title", escape(tip))
    return svg.element(
        "text",
        title,
        _GLYPHS[each.state],
        x=f"{_x(each.local) - 5:.1f}",
        y=f"{top + 17:.1f}",
        class_=f"mark {each.state}",
    )


def _x(local: datetime) -> float:
    hours = local.hour + local.minute / 60 + local.second / 3600
    # The second of two equal times on the wall clock stands a little to the right.
    return _LABEL + hours * _HOUR + (6 if local.fold else 0)
