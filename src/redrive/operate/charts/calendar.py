"""The occurrences of a cron in a week, a line for each day. PURE.

The place of a mark is its time on the wall clock, so that "daily at 3:00" is a column also where clocks are changed. A
day with more occurrences than can be distinguished is one stripe.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
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

_ROW: Final = 28

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
    """Draw the days, as wide as their box."""
    names, parts, words = [], [], []
    bottom: float = 0
    for day in days:
        names.append(svg.text(f"{day.date:%a %d %b}", "100%", bottom + 17, text_anchor="end"))
        tip = [svg.title(day.change)] if day.change else []
        parts.append(
            svg.element("rect", *tip, y=svg.short(bottom + 2), width="100%", height=_ROW - 4, class_=_class(day), rx=3)
        )
        parts += [_stripe(day, bottom)] if day.dense else []
        parts += [_mark(each, bottom) for each in (day.exceptions if day.dense else day.marks)]
        words.append(f"{day.date:%A %d %B}: {_sentence(day)}")
        bottom += _ROW
    hours = [svg.element("line", x1=at, x2=at, y2="100%", class_="grid") for at in map(_hour, range(3, 24, 3))]
    labels = [
        svg.text(f"{hour:02}", _hour(hour), 12, text_anchor="middle" if hour else None) for hour in range(0, 24, 3)
    ]
    left = svg.element("svg", *names, class_="y", height=svg.short(bottom), aria_hidden="true")
    plot = svg.element(
        "svg", *parts, *hours, width="100%", height=svg.short(bottom), role="img", aria_label="; ".join(words)
    )
    below = svg.element("svg", *labels, class_="x", width="100%", height=16, overflow="visible", aria_hidden="true")
    return Picture(svg.element("figure", left, plot, below, class_="chart week"))


def _hour(number: float) -> str:
    return svg.place(number / 24)


def _class(day: Day) -> str:
    return "row changed" if day.change else "row"


def _sentence(day: Day) -> str:
    number = f"more than {MOST}" if day.dense else str(len(day.marks))
    return f"{number} occurrences{f', {day.change}' if day.change else ''}"


def _stripe(day: Day, top: float) -> str:
    first = _hours(day.marks[0].local)
    tip = svg.title(f"more than {MOST} occurrences")
    return svg.element(
        "rect", tip, x=_hour(first), y=svg.short(top + 9), width=_hour(24 - first), height=_ROW - 18, class_="stripe"
    )


def _mark(each: Mark, top: float) -> str:
    tip = f"{each.local:%H:%M:%S %Z} {each.state}{f': {each.note}' if each.note else ''}"
    return svg.element(
        "text",
        svg.title(tip),
        _GLYPHS[each.state],
        x=_hour(_hours(each.local)),
        # The second of two equal times on the wall clock stands a little to the right.
        dx=6 if each.local.fold else None,
        y=svg.short(top + 18),
        text_anchor="middle",
        class_=f"mark {each.state}",
    )


def _hours(local: datetime) -> float:
    return local.hour + local.minute / 60 + local.second / 3600
