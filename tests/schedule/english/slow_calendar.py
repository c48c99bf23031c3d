"""A slow calendar: the occurrences of a reading, day by day. It shares no code with `redrive.schedule`.

A reading of a recurrence is written down as ``DAYS @ TIMES``, followed by limits after semicolons:

* days: ``daily``, ``every 3 days``, ``mon thu``, ``every 2 weeks mon``, ``month 1 15 -1`` (days of the month, from its
  end if negative), ``month 1:mon -1:fri`` (the first Monday and the last Friday), ``every 2 months 1``, ``business -1``
  (Monday to Friday, counted within the month);
* times: ``06:00 16:00``; ``every 15m from 09:00 to 17:00`` (on the wall clock, the end excluded, 30:00 is 6 AM of the
  next day); ``every 2h`` and ``every 1h past 15m`` (elapsed time since the start);
* limits: ``months 3 9``, ``except sat sun``, ``from 2026-04-01`` (instead of the start), ``until 2026-12-31``
  (included).
"""

from __future__ import annotations

import calendar
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = timedelta(days=1)
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def span(text: str) -> timedelta:
    """Return the span that is written as ``1h30m``."""
    return timedelta(seconds=sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text)))


def occurrences(readings: Iterable[str], tz: str, start: date, end: date) -> Iterator[datetime]:
    """Yield the instants of all readings together from the start on, increasing, each once, up to the end."""
    place = ZoneInfo(tz)
    parts = [Reading(each, start) for each in readings]
    last = None
    for number in range((end - start).days):
        found = {at for part in parts for at in part.on(start + number * DAY, place)}
        # Times of a window past midnight may be later than the first times of the next day.
        for at in sorted(found):
            if last is None or at > last:
                last = at
                yield at


class Reading:
    """A recurrence as it was understood by a reader."""

    def __init__(self, text: str, start: date) -> None:
        main, *limits = text.split("; ")
        days, self.times = main.split(" @ ")
        given = dict(each.split(" ", 1) for each in limits)
        self.start = date.fromisoformat(given.pop("from", str(start)))
        self.until = date.fromisoformat(given.pop("until", "9999-12-31"))
        self.months = {int(each) for each in given.pop("months", "1 2 3 4 5 6 7 8 9 10 11 12").split()}
        self.excluded = {WEEK.index(each) for each in given.pop("except", "").split()}
        assert not given, f"unknown limits: {given}"
        self.is_day = days_of(days, self.start)

    def fits(self, day: date) -> bool:
        """Return True if the recurrence has occurrences on a day."""
        inside = self.start <= day <= self.until and day.month in self.months
        return inside and day.weekday() not in self.excluded and self.is_day(day)

    def on(self, day: date, place: ZoneInfo) -> list[datetime]:
        """Return the instants of a day, times in a gap shifted and the first of two in a fold."""
        if not self.fits(day):
            return []
        if self.times.startswith("every") and " from " not in self.times:
            return self._elapsed(day, place)
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - naive is the wall clock
        return [(midnight + each).replace(tzinfo=place).astimezone(UTC) for each in wall_times(self.times)]

    def _elapsed(self, day: date, place: ZoneInfo) -> list[datetime]:
        found = re.fullmatch(r"every (\w+)(?: past (\w+))?", self.times)
        assert found, self.times
        step, begin = span(found[1]), _midnight(self.start, place) + span(found[2] or "")
        first, after = _midnight(day, place), _midnight(day + DAY, place)
        number = -((begin - first) // step)
        listed = (begin + (number + each) * step for each in itertools.count(-1))
        return [at for at in itertools.takewhile(lambda at: at < after, listed) if at >= first]


def _midnight(day: date, place: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=place).astimezone(UTC)


def wall_times(text: str) -> list[timedelta]:
    """Return the times of a day: ``06:00 16:00``, or ``every 15m from 09:00 to 17:00``."""
    window = re.fullmatch(r"every (\w+) from (\S+) to (\S+)", text)
    if window is None:
        return [_clock(each) for each in text.split()]
    step, begin, end = span(window[1]), _clock(window[2]), _clock(window[3])
    return list(itertools.takewhile(lambda each: each < end, (begin + number * step for number in itertools.count())))


def _clock(text: str) -> timedelta:
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def days_of(text: str, start: date) -> Callable[[date], bool]:
    """Return a test of days for a text such as ``every 2 weeks mon``."""
    every = re.fullmatch(r"every (\d+) (days|weeks|months) ?(.*)", text)
    if every is None:
        return _plain(text)
    interval, unit, rest = int(every[1]), every[2], every[3]
    if unit == "days":
        return lambda day: (day - start).days % interval == 0
    if unit == "weeks":
        monday, is_day = start - start.weekday() * DAY, _plain(rest)
        return lambda day: (day - monday).days // 7 % interval == 0 and is_day(day)
    is_day = _plain(f"month {rest}")
    return lambda day: ((day.year - start.year) * 12 + day.month - start.month) % interval == 0 and is_day(day)


def _plain(text: str) -> Callable[[date], bool]:
    if text == "daily":
        return lambda _: True
    kind, *wanted = text.split()
    if kind == "business":
        return lambda day: day in {_business_days(day)[_index(each)] for each in wanted}
    if kind == "month":
        return lambda day: any(_is_month_day(day, each) for each in wanted)
    numbers = {WEEK.index(each) for each in text.split()}
    return lambda day: day.weekday() in numbers


def _index(text: str) -> int:
    number = int(text)
    return number - 1 if number > 0 else number


def _month(day: date) -> list[date]:
    return [day.replace(day=number + 1) for number in range(calendar.monthrange(day.year, day.month)[1])]


def _business_days(day: date) -> list[date]:
    return [each for each in _month(day) if each.weekday() < WEEK.index("sat")]


def _is_month_day(day: date, text: str) -> bool:
    number, _, name = text.partition(":")
    days = [each for each in _month(day) if not name or each.weekday() == WEEK.index(name)]
    position = _index(number)
    return -len(days) <= position < len(days) and days[position] == day
