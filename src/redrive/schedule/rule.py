"""Recurrence rules of RFC 5545 (iCalendar), parsed strictly. PURE.

Users write rules, so a rule that cannot be obeyed is an error that names the wrong part: libraries loop without end
over ``INTERVAL=0``, and search up to the year 9999 for a thirtieth of February. `Schedule` checks whether a rule ever
occurs, since that depends on its start.

The text is the ``RRULE`` value alone, with or without its name. A start (``DTSTART``) belongs to the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final

import msgspec
from msgspec.structs import fields

from redrive.errors import ScheduleError

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


class Freq(IntEnum):
    """The frequency of a rule, the rarest first."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6

    @property
    def is_elapsed(self) -> bool:
        """Return True if the rule counts elapsed time instead of the wall clock."""
        return self >= Freq.HOURLY

    @property
    def most(self) -> int:
        """Return the number of periods in a thousand years, the maximum interval."""
        return 1000 * (1, 12, 52, 366, 8784, 527_040, 31_622_400)[self]


class WeekDay(msgspec.Struct, frozen=True, order=True):
    """A day of the week, or the n-th one of a month or year."""

    day: int
    # Which one, from the end if negative; None means each.
    nth: int | None = None

    def __str__(self) -> str:
        """Return the day as in a rule: ``MO``, ``-1FR``."""
        return f"{self.nth or ''}{DAYS[self.day]}"


class RecurrenceRule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurrence rule.

    Attributes:
        interval: every n-th period.
        count: number of occurrences; None means no end.
        until: the last possible occurrence: aware, or naive on the wall clock of the schedule.
        by_week_no: weeks of the year, from its end if negative.
        by_year_day: days of the year, from its end if negative.
        by_month_day: days of the month, from its end if negative.
        by_day: days of the week.
        by_set_pos: which of the occurrences of a period, from its end if negative.
        week_start: the first day of a week; 0 is Monday.
    """

    freq: Freq
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    by_month: tuple[int, ...] = ()
    by_week_no: tuple[int, ...] = ()
    by_year_day: tuple[int, ...] = ()
    by_month_day: tuple[int, ...] = ()
    by_day: tuple[WeekDay, ...] = ()
    by_hour: tuple[int, ...] = ()
    by_minute: tuple[int, ...] = ()
    by_second: tuple[int, ...] = ()
    by_set_pos: tuple[int, ...] = ()
    week_start: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.freq, Freq):
            raise ScheduleError(
                f"freq is a redrive.schedule.rule.Freq, not {self.freq!r}; RecurrenceRule.parse reads texts"
            )

    @classmethod
    def parse(cls, text: str) -> RecurrenceRule:
        """Parse a rule such as ``FREQ=DAILY;BYHOUR=6,16``, perhaps after ``RRULE:``; repeated values count once.

        Raises:
            ScheduleError: the text is not a rule, or can never have a meaning.
        """
        given: dict[str, Any] = {}
        for part in _parts(text):
            name, equals, value = part.partition("=")
            name = name.strip().upper()
            if not equals or name not in _PARTS:
                raise _wrong(text, f"{part!r} is not a part of a rule; parts: {', '.join(_PARTS)}")
            field, read, allowed = _PARTS[name]
            if field in given:
                raise _wrong(text, f"{name} is there twice")
            try:
                given[field] = read(value.strip().upper())
            except (ValueError, KeyError, IndexError) as error:
                raise _wrong(text, f"{part!r}: {allowed}") from error
        if "freq" not in given:
            raise _wrong(text, f"FREQ is missing; {_PARTS['FREQ'][-1]}")
        rule = cls(**given)
        _check(rule, text)
        return rule

    def __str__(self) -> str:
        """Return the rule as in iCalendar, in the usual order."""
        parts = [f"FREQ={self.freq.name}"]
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if value != each.default:
                parts.append(f"{_NAMES[each.name]}={_WRITERS.get(each.name, _list)(value)}")
        return ";".join(parts)


def _parts(text: str) -> list[str]:
    bare = text.strip()
    if "\n" in bare:
        raise _wrong(text, "write one rule without other lines; Schedule.parse reads one with its DTSTART")
    bare = bare.removeprefix("RRULE:").strip().rstrip(";")
    if not bare:
        raise _wrong(text, "it is empty; write FREQ=DAILY;BYHOUR=6, for example")
    return bare.split(";")


def _wrong(text: str, why: str) -> ScheduleError:
    return ScheduleError(f"the recurrence rule {text.strip()!r} is not understood: {why}")


def _check(rule: RecurrenceRule, text: str) -> None:
    if rule.count is not None and rule.until is not None:
        raise _wrong(text, "COUNT and UNTIL exclude each other (RFC 5545, 3.3.10)")
    selects = (rule.by_month, rule.by_week_no, rule.by_year_day, rule.by_month_day, rule.by_day)
    if rule.by_set_pos and not any((*selects, rule.by_hour, rule.by_minute, rule.by_second)):
        raise _wrong(text, "BYSETPOS chooses among what another BY... part gives, and there is none")
    if rule.by_week_no and rule.freq is not Freq.YEARLY:
        raise _wrong(text, "BYWEEKNO belongs to FREQ=YEARLY (RFC 5545, 3.3.10)")
    if rule.by_year_day and rule.freq in {Freq.MONTHLY, Freq.WEEKLY, Freq.DAILY}:
        raise _wrong(text, "BYYEARDAY does not go with FREQ=MONTHLY, WEEKLY or DAILY (RFC 5545, 3.3.10)")
    if rule.by_month_day and rule.freq is Freq.WEEKLY:
        raise _wrong(text, "BYMONTHDAY does not go with FREQ=WEEKLY (RFC 5545, 3.3.10)")
    if rule.by_set_pos and min(map(abs, rule.by_set_pos)) > _most(rule):
        raise _wrong(text, f"BYSETPOS: no period has more occurrences than {_most(rule)}")
    numbered = any(each.nth for each in rule.by_day)
    if numbered and (rule.freq not in {Freq.YEARLY, Freq.MONTHLY} or rule.by_week_no):
        raise _wrong(text, "a numbered day such as 1MO is one of a month or of a year: FREQ=MONTHLY or YEARLY")


def _most(rule: RecurrenceRule) -> int:
    """Return the maximum number of occurrences in a period."""
    days = {Freq.YEARLY: 366, Freq.MONTHLY: 31, Freq.WEEKLY: len(rule.by_day) or 1}.get(rule.freq, 1)
    finer = (rule.by_hour, rule.by_minute, rule.by_second)[max(rule.freq - Freq.DAILY, 0) :]
    return days * math.prod(len(each) or 1 for each in finer)


def _numbers(low: int, high: int, *, negative: bool = False) -> Callable[[str], tuple[int, ...]]:
    def read(value: str) -> tuple[int, ...]:
        found = {int(each) for each in value.split(",")}
        for each in found:
            if not (low <= each <= high or (negative and -high <= each <= -low)):
                raise ValueError
        return tuple(sorted(found))

    return read


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _until(value: str) -> datetime:
    zone = UTC if value.endswith("Z") else None
    bare = value.removesuffix("Z")
    form = "%Y%m%dT%H%M%S" if "T" in bare else "%Y%m%d"
    read = datetime.strptime(bare, form).replace(tzinfo=zone)
    return read if "T" in bare else read.replace(hour=23, minute=59, second=59)


def _week_day(value: str) -> WeekDay:
    nth, day = value[:-2], value[-2:]
    number = int(nth) if nth else None
    if number is not None and not 1 <= abs(number) <= 53:  # noqa: PLR2004 - weeks of a year
        raise ValueError
    return WeekDay(DAYS.index(day), number)


def _week_days(value: str) -> tuple[WeekDay, ...]:
    return tuple(sorted({_week_day(each) for each in value.split(",")}, key=lambda each: (each.day, each.nth or 0)))


# The parts of a rule: the field, the reader of its text, and what is allowed.
_PARTS: Mapping[str, tuple[str, Callable[[str], Any], str]] = {
    "FREQ": ("freq", lambda value: Freq[value], f"a frequency is one of {', '.join(each.name for each in Freq)}"),
    "INTERVAL": ("interval", _positive, "an interval is a whole number, at least 1"),
    "COUNT": ("count", _positive, "a count is a whole number, at least 1"),
    "UNTIL": ("until", _until, "an end is written 20301231T235959Z, without the Z on the wall clock, or 20301231"),
    "BYMONTH": ("by_month", _numbers(1, 12), "months are numbers from 1 to 12"),
    "BYWEEKNO": ("by_week_no", _numbers(1, 53, negative=True), "weeks are numbers from 1 to 53, or from -1 to -53"),
    "BYYEARDAY": (
        "by_year_day",
        _numbers(1, 366, negative=True),
        "days of a year are numbers from 1 to 366, or from -1 to -366",
    ),
    "BYMONTHDAY": (
        "by_month_day",
        _numbers(1, 31, negative=True),
        "days of a month are numbers from 1 to 31, or from -1 to -31",
    ),
    "BYDAY": (
        "by_day",
        _week_days,
        "days are MO, TU, WE, TH, FR, SA, SU, perhaps with a number before them: 1MO, -1FR",
    ),
    "BYHOUR": ("by_hour", _numbers(0, 23), "hours are numbers from 0 to 23"),
    "BYMINUTE": ("by_minute", _numbers(0, 59), "minutes are numbers from 0 to 59"),
    "BYSECOND": ("by_second", _numbers(0, 59), "seconds are numbers from 0 to 59"),
    "BYSETPOS": (
        "by_set_pos",
        _numbers(1, 366, negative=True),
        "positions are numbers from 1 to 366, or from -1 to -366",
    ),
    "WKST": ("week_start", DAYS.index, "a week starts on one of MO, TU, WE, TH, FR, SA, SU"),
}
_NAMES: Final[Mapping[str, str]] = {field: name for name, (field, *_) in _PARTS.items()}


def _list(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _end(value: datetime) -> str:
    text = f"{value:%Y%m%dT%H%M%S}"
    return text if value.tzinfo is None else f"{text}Z"


_WRITERS: Mapping[str, Callable[[Any], str]] = {"until": _end, "week_start": lambda value: DAYS[value]}
