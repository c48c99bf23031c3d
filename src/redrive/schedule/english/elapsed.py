"""Recurrences of hours, minutes or seconds, perhaps in a window of the day, as rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec.structs import replace

from redrive.schedule.english.days import chosen_days
from redrive.schedule.english.notes import Pieces, wrong
from redrive.schedule.english.times import DayWindow, check_halves, sure
from redrive.schedule.english.words import WORKDAYS
from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay

# Hours and minutes of a day, in this order.
_Times: TypeAlias = Sequence[tuple[int, int]]

_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_HOUR, _DAY = 60, 24 * 60
# Business hours, unless the text has its own: Monday to Friday, 9:00 to 17:00.
_BUSINESS = (WORKDAYS, (9 * _HOUR, 17 * _HOUR))


def elapsed(part: Pieces, whole: Pieces, base: RecurrenceRule, unit: str) -> list[RecurrenceRule]:
    """Return rules of hours, minutes or seconds, perhaps within a window."""
    for name, problem in (
        ("clocks", '"at" needs a period of a day or longer'),
        ("part", "a part of the day needs a period of a day or longer"),
        ("month_days", "days of the month need a period of a day or longer"),
    ):
        if name in part:
            forms = (
                ("every hour at :15", "every day at 6 AM")
                if name != "month_days"
                else ("every month on the 1st at 6 AM", "every hour on Mondays")
            )
            wrong(part.place(name), f"{problem}: {part.place(name)}", *forms)
    if "minutes" in part and unit != "hour":
        wrong(part.place("minutes"), "minutes of an hour belong to hours", "every hour at :15", "every 2 hours at :30")
    if "count" in part and part.get("count")[0] != len(part.get("minutes", (0,))):
        count, per = part.get("count")
        wrong(
            part.place("count"),
            f"{count} times an {per}, but it is not said at which minutes",
            "every 30 minutes",
            "twice an hour at :00 and :30",
        )
    days = tuple(WeekDay(each) for each in chosen_days(part))
    minutes: tuple[int, ...] = part.get("minutes", ())
    if "window" not in part:
        return [replace(base, by_day=days, by_minute=minutes)]
    return _in_window(part, whole, replace(base, by_day=days, by_minute=minutes), base.interval * _SECONDS[unit])


def _in_window(part: Pieces, whole: Pieces, base: RecurrenceRule, step: int) -> list[RecurrenceRule]:
    """Return rules that occur in a window of the wall clock, counted from its beginning."""
    days, (begin, end) = _hours(part, whole)
    if days and not base.by_day:
        left = tuple(each for each in days if each not in part.get("except_days", ()))
        base = replace(base, by_day=tuple(WeekDay(each) for each in left))
    place = part.place("window")
    if end <= begin:
        if base.by_day:
            wrong(
                place,
                "it is not clear to which days the hours after midnight belong",
                "on weekdays every hour between 9 AM and 5 PM",
                "every hour from 10 PM to 2 AM",
            )
        end += _DAY
    if not base.by_minute and (end - begin) * _HOUR % step == 0:
        whole.remark(f"{end % _DAY // _HOUR:02}:{end % _HOUR:02} is outside of the window {place}")
    if not base.by_minute and _is_steady(begin, end, step, whole):
        hours = tuple(sorted(hour % 24 for hour in range(begin // _HOUR, end // _HOUR)))
        return [replace(base, by_hour=hours)]
    if step % _HOUR:
        wrong(
            place,
            "seconds in a window are counted from full hours and divide half an hour",
            "every 30 seconds between 9:00 and 17:00",
            "every minute between 9:30 and 17:00",
        )
    return _listed(base, _slots(base, begin, end, step // _HOUR), place_of=part)


def _is_steady(begin: int, end: int, step: int, whole: Pieces) -> bool:
    """Return True if steps that are counted from midnight meet the beginning of the window in each season."""
    start: datetime | None = whole.get("start")
    is_midnight = start is None or start.time() == datetime.min.time()
    return is_midnight and begin % _HOUR == 0 and end % _HOUR == 0 and 30 * 60 % step == 0


def _slots(base: RecurrenceRule, begin: int, end: int, step: int) -> _Times:
    minutes = base.by_minute
    if not minutes:
        return [divmod(each % _DAY, _HOUR) for each in range(begin, end, step)]
    hours = range(begin // _HOUR, -(-end // _HOUR), step // _HOUR)
    found = [hour * _HOUR + minute for hour in hours for minute in minutes]
    return [divmod(each % _DAY, _HOUR) for each in found if begin <= each < end]


def _listed(base: RecurrenceRule, slots: _Times, *, place_of: Pieces) -> list[RecurrenceRule]:
    """Return rules for times of day: hours with the same minutes together."""
    if not slots:
        wrong(place_of.place("window"), "no time is in this window", "every hour between 9 AM and 5 PM")
    minutes: dict[int, set[int]] = {}
    for hour, minute in slots:
        minutes.setdefault(hour, set()).add(minute)
    groups: dict[tuple[int, ...], list[int]] = {}
    for hour in sorted(minutes):
        groups.setdefault(tuple(sorted(minutes[hour])), []).append(hour)
    freq = Freq.WEEKLY if base.by_day else Freq.DAILY
    return [
        replace(base, freq=freq, interval=1, by_hour=tuple(hours), by_minute=each, by_second=(0,))
        for each, hours in groups.items()
    ]


def _hours(part: Pieces, whole: Pieces) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Return the days that a window implies, and its first and last minute."""
    window: DayWindow = part.get("window")
    days: tuple[int, ...] = ()
    if window.begin is None or window.end is None:
        days, found = whole.get("business", _BUSINESS)
        return (() if "days" in part else days), found
    return days, bounds(window)


def bounds(window: DayWindow) -> tuple[int, int]:
    """Return the first minute of a window in its day, and the first one after it."""
    assert window.begin is not None  # it is no window of business hours
    assert window.end is not None
    check_halves([window.begin, window.end])
    (hour, minute), (last_hour, last_minute) = (sure(each, None) for each in (window.begin, window.end))
    begin, end = hour * _HOUR + minute, last_hour * _HOUR + last_minute
    if begin == end:
        wrong(window.end.place, "the window has no length", "between 9 AM and 5 PM", "every hour")
    return begin, end or _DAY
