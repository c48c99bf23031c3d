"""Phrases about how often: ``every 2 hours``, ``twice a day``, ``every other Monday``, ``on the 1st of the month``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NoReturn

from redrive.schedule.english import days
from redrive.schedule.english.notes import Pieces
from redrive.schedule.english.spans import SIZES, number, ordinal, span, written_ordinal
from redrive.schedule.english.times import clock
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import DAY_PARTS, DAYS, MONTHS, UNITS

# Words for an interval.
_ADVERBS = {
    "hourly": ("hour", 1), "daily": ("day", 1), "everyday": ("day", 1), "nightly": ("day", 1), "weekly": ("week", 1),
    "fortnightly": ("week", 2), "biweekly": ("week", 2), "bi-weekly": ("week", 2),
    "monthly": ("month", 1), "quarterly": ("quarter", 1), "yearly": ("year", 1),
    "annually": ("year", 1),
}  # fmt: skip
_COUNTS = {"once": 1, "twice": 2, "thrice": 3}
_PER = {
    f"{per} {unit}": unit
    for per in ("a", "an", "per", "every", "each")
    for unit in ("hour", "day", "week", "month", "quarter", "year")
} | {"daily": "day", "weekly": "week", "monthly": "month", "hourly": "hour", "yearly": "year", "a minute": "minute"}
_EVERY = ("once every", "once each", "every", "each")
_FINER = {"week": ("day", 7), "day": ("hour", 24), "hour": ("minute", 60), "minute": ("second", 60)}
_LENGTHS: Final[Mapping[str, timedelta]] = {
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
_PARTS = {f"{part}{end}": part for part in DAY_PARTS for end in ("", "s")}
_IN_PART = {f"in the {part}": part for part in ("morning", "afternoon", "evening")} | {"at night": "night"}
_FORTNIGHT = 2
# Words after an ordinal that is not a day of the month.
_NO_DAYS = frozenset({"failure", "failures", "attempt", "attempts", "retry", "refresh", "time", "error"})


def take(reader: Reader, pieces: Pieces) -> bool:
    """Take a phrase about how often or on which days; return False if none is next."""
    begin = reader.place
    adverb = reader.take(*_ADVERBS)
    if adverb:
        pieces.put("often", _ADVERBS[adverb], reader.said(begin))
        if adverb in {"biweekly", "bi-weekly"}:
            pieces.put("biweekly", adverb, reader.said(begin))
        if adverb == "nightly":
            pieces.put("part", "night", reader.said(begin))
        return True
    if _counted(reader, pieces):
        return True
    if reader.take(*_EVERY):
        _every(reader, pieces, begin)
        return True
    return _on(reader, pieces)


def _counted(reader: Reader, pieces: Pieces) -> bool:
    """Take ``twice a day``, ``3 times per week``, ``once a month``."""
    begin = reader.place
    named = reader.take(*_COUNTS)
    count = float(_COUNTS[named]) if named else number(reader)
    if count is None or not (named or reader.take("times", "time")):
        reader.place = begin
        return False
    per = reader.take(*_PER)
    if per is None and _is_daily(reader):
        # "Twice every weekday": on each of these days.
        per = "per day"
    if per is None or not count.is_integer() or count < 1:
        reader.place = begin
        if count == 1:
            return False
        reader.lost(
            "a number of times is one in a day, a week or a month", "twice a day at 6 AM and 4 PM", "every 12 hours"
        )
    pieces.put("count", (int(count), _PER[per]), reader.said(begin))
    return True


def _is_daily(reader: Reader) -> bool:
    """Return True if days of the week follow, which are left there."""
    begin = reader.place
    found = reader.take("every", "each", "on") is not None and days.week_days(reader) is not None
    reader.place = begin
    return found


def _every(reader: Reader, pieces: Pieces, begin: int) -> None:
    """Take what follows "every"."""
    other = reader.take("other")
    if other or _is_interval(reader):
        nth = 2 if other else (ordinal(reader) or 1)
        _nth(reader, pieces, begin, nth)
        return
    at = reader.place
    month_days = days.month_days(reader)
    # "Every second" alone is an interval.
    if month_days is not None and (reader.place > at + 1 or reader.line.tokens[at].word != "second"):
        pieces.put("month_days", month_days, reader.said(begin))
        return
    reader.place = at
    part = reader.take(*DAY_PARTS)
    if part:
        pieces.put("often", ("day", 1), reader.said(begin))
        pieces.put("part", part, reader.said(begin))
        return
    if _every_day_of(reader, pieces, begin):
        return
    said = clock(reader, bare=False)
    if said is not None:
        pieces.put("often", ("day", 1), reader.said(begin))
        pieces.put("clocks", [said], reader.said(begin))
        return
    _interval(reader, pieces, begin)


def _is_interval(reader: Reader) -> bool:
    """Return True if an ordinal counts intervals: every third day, but not: every second Friday of the month."""
    begin = reader.place
    nth = ordinal(reader)
    unit = UNITS.get(reader.word)
    is_named = reader.word in DAYS or reader.sees("weekend", "weekday", "business day", "working day", "workday")
    reader.place += 1
    if reader.ahead(-1) in {"business", "working"}:
        reader.place += 1
    of = reader.sees("of", "in the month") or (reader.word in MONTHS and unit == "day")
    found = nth is not None and nth > 1 and not of and (unit is not None or is_named)
    reader.place = begin
    return found


def _nth(reader: Reader, pieces: Pieces, begin: int, nth: int) -> None:
    """Take the unit or the days of "every other" and the like."""
    unit = UNITS.get(reader.word)
    if unit is not None:
        if reader.word.endswith("s") and unit != "second" and reader.word != "hrs":
            reader.lost("an ordinal has a unit in the singular", f"every {nth} {unit}s", f"every {unit}", at=begin)
        reader.place += 1
        _put_interval(reader, pieces, begin, float(nth), unit)
        return
    name = reader.next.text if reader.next else "Monday"
    if reader.sees("weekday", "business day", "working day", "workday"):
        reader.lost(
            "it is not clear which days are meant",
            "every weekday at 9 AM",
            "on Monday, Wednesday and Friday at 9 AM",
            at=begin,
        )
    found = days.listed(reader, days.week_days)
    if found is None:
        reader.lost(
            "a unit of time or a day of the week belongs here", "every other day at 9 AM", "every other Monday at 9 AM"
        )
    if nth != _FORTNIGHT:
        reader.lost(
            "it could be the day of each month or of some weeks",
            f"on the {written_ordinal(nth)} {name} of the month",
            f"every {nth} weeks on {name}",
            at=begin,
        )
    place = reader.said(begin)
    pieces.put("often", ("week", nth), place)
    pieces.put("days", found, place)
    _day_part(reader, pieces)


def _every_day_of(reader: Reader, pieces: Pieces, begin: int) -> bool:
    """Take days of the week, days of the year, or months, after "every"."""
    dates = days.listed(reader, days.year_day, "every")
    if dates is not None:
        pieces.put("month_days", dates, reader.said(begin))
        return True
    found = days.listed(reader, days.week_days, "every")
    if found is not None:
        pieces.put("days", found, reader.said(begin))
        _day_part(reader, pieces)
        return True
    months = days.month_list(reader)
    if months is None:
        return False
    pieces.put("often", ("month", 1), reader.said(begin))
    pieces.put("months", months, reader.said(begin))
    return True


def _day_part(reader: Reader, pieces: Pieces) -> None:
    """Take the part of the day after a day of the week: Monday morning."""
    begin = reader.place
    part = reader.take(*_PARTS)
    if part:
        pieces.put("part", _PARTS[part], reader.said(begin))


def _interval(reader: Reader, pieces: Pieces, begin: int) -> None:
    """Take a number and a unit, a unit alone, or a span of hours, minutes and seconds."""
    at = reader.place
    half = reader.take("half-hour", "quarter hour", "quarter-hour", "quarter of an hour", "minute and a half")
    if half:
        value = {"half-hour": 30.0, "minute and a half": 1.5}.get(half, 15.0)
        _put_interval(reader, pieces, begin, value, "minute")
        return
    count = number(reader)
    unit = UNITS.get(reader.word)
    if unit is not None and reader.kind == "word" and not reader.is_ended:
        if count is None and reader.word.endswith("s") and unit != "second":
            reader.lost("the number is missing", f"every {unit}", f"every 2 {unit}s", at=begin)
        reader.place += 1
        if count is None and reader.take("and a half"):
            _put_interval(reader, pieces, begin, 1.5, unit)
            return
        if not reader.sees("and a half") and not _goes_on(reader):
            _put_interval(reader, pieces, begin, 1.0 if count is None else count, unit)
            return
    reader.place = at
    length = _one_and(reader) if count is None and unit is not None else span(reader, commas=False)
    if length is None:
        _lost_interval(reader, at)
    name, size = next(each for each in _LENGTHS.items() if each[0] == "second" or not length % each[1])
    _put_interval(reader, pieces, begin, length / size, name)


def _one_and(reader: Reader) -> timedelta | None:
    """Take ``hour and 30 minutes``."""
    size = SIZES.get(reader.word, timedelta(0))
    reader.place += 1
    reader.take("and")
    more = span(reader, commas=False)
    return size + more if more is not None and more < size else None


def _goes_on(reader: Reader) -> bool:
    """Return True if a smaller unit follows, as in ``1 hour and 30 minutes``."""
    begin = reader.place
    reader.take("and")
    found = span(reader, commas=False) is not None
    reader.place = begin
    return found


def _lost_interval(reader: Reader, at: int) -> NoReturn:
    reader.lost("an interval is a number and a unit of time, or a day", "every 2 hours", "every Monday at 9 AM", at=at)


def _put_interval(reader: Reader, pieces: Pieces, begin: int, count: float, unit: str) -> None:
    if unit == "fortnight":
        unit, count = "week", count * _FORTNIGHT
    if count < 1 and count.is_integer():
        reader.refuse(begin, "the interval must be at least 1", f"every {unit}", f"every 2 {unit}s")
    while not count.is_integer() and unit in _FINER:
        unit, size = _FINER[unit]
        count = round(count * size, 6)
    if not count.is_integer() or count < 1:
        reader.refuse(
            begin,
            f"the interval is not a whole number of {'seconds' if unit in _LENGTHS else unit + 's'}",
            "every 30 seconds",
            "every 2 hours",
        )
    pieces.put("often", (unit, int(count)), reader.said(begin))


def _on(reader: Reader, pieces: Pieces) -> bool:
    """Take days after "on", or without a preposition."""
    begin = reader.place
    part = reader.take(*_IN_PART)
    if part:
        pieces.put("part", _IN_PART[part], reader.said(begin))
        return True
    opened = reader.take("on", "from", "between", "at")
    if opened is None and reader.word == "week":
        # "Every week, week day" is no phrase of its own.
        return False
    if opened == "at":
        return _at_month_end(reader, pieces, begin)
    if opened in {"on", None}:
        dates = days.listed(reader, _days, "on")
        if dates is not None and reader.word not in _NO_DAYS and reader.kind != "number":
            pieces.put("month_days", dates, reader.said(begin))
            return True
        reader.place = begin
        reader.take("on")
    week = _range_of_days(reader, opened)
    if week is not None:
        pieces.put("days", week, reader.said(begin))
        reader.take("only")
        _day_part(reader, pieces)
        return True
    reader.place = begin
    return _months(reader, pieces)


def _range_of_days(reader: Reader, opened: str | None) -> tuple[int, ...] | None:
    if opened != "between":
        found = days.listed(reader, days.week_days, opened or "on")
        return None if opened == "from" and found is not None and len(found) == 1 else found
    first = days.week_days(reader)
    last = days.week_days(reader) if first is not None and reader.take("and") else None
    if first is None or last is None:
        return None
    return tuple((first[0] + step) % 7 for step in range((last[-1] - first[0]) % 7 + 1))


def _days(reader: Reader) -> tuple[days.MonthDay, ...] | None:
    """Take days of the year or of the month."""
    begin = reader.place
    dates = days.year_day(reader)
    if dates is not None:
        return dates
    if reader.take("day"):
        value = number(reader)
        if value is not None and value.is_integer():
            return days.numbered(reader, begin, int(value))
    reader.place = begin
    return days.month_days(reader)


def _at_month_end(reader: Reader, pieces: Pieces, begin: int) -> bool:
    if not reader.take(
        "the end of the month", "the end of each month", "the end of every month", "month end", "month-end"
    ):
        reader.place = begin
        return False
    pieces.put("month_days", (days.MonthDay(-1),), reader.said(begin))
    return True


def _months(reader: Reader, pieces: Pieces) -> bool:
    begin = reader.place
    opened = reader.take("in", "during", "from", "between")
    found = days.month_list(reader) if opened and opened != "between" else None
    if opened == "from" and found is not None and len(found) == 1:
        found = None
    if opened == "between":
        first = days.months(reader)
        last = days.months(reader) if first is not None and reader.take("and") else None
        if first is not None and last is not None:
            found = tuple((first[0] - 1 + step) % 12 + 1 for step in range((last[-1] - first[0]) % 12 + 1))
    if found is None:
        reader.place = begin
        return False
    pieces.put("months", found, reader.said(begin))
    return True
