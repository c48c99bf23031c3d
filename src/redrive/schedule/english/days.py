"""Days: of the week, of the month, of the year, and dates."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from redrive.schedule.english.notes import Pieces, wrong
from redrive.schedule.english.spans import number, ordinal
from redrive.schedule.english.tokens import Reader
from redrive.schedule.english.words import DAY_NAMES, DAYS, MONTH_NAMES, MONTHS, WEEKEND, WORKDAYS
from redrive.schedule.rule import WeekDay

T = TypeVar("T")

_BUSINESS = ("business day", "working day", "work day", "workday", "weekday", "week day")
_SETS = {f"{each}{end}": WORKDAYS for each in _BUSINESS for end in ("", "s")}
_SETS |= {"m-f": WORKDAYS, "mo-fr": WORKDAYS, "weekend": WEEKEND, "weekends": WEEKEND, "the weekend": WEEKEND}
_ALL = frozenset(range(7))
_TO = ("to", "through", "thru", "until", "till", "-")
# A year that a date may have; others are refused by their form.
_YEARS = range(1900, 10_000)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class MonthDay(msgspec.Struct, frozen=True):
    """A day of a month: one of its three fields is given."""

    # From its end if negative.
    number: int | None = None
    week_day: WeekDay | None = None
    # Which of the days from Monday to Friday; from the end if negative.
    business: int | None = None
    # Of these months; empty means each.
    months: tuple[int, ...] = ()
    # True for a day of a quarter.
    of_quarter: bool = False


def listed(reader: Reader, read: Callable[[Reader], tuple[T, ...] | None], opener: str = "") -> tuple[T, ...] | None:
    """Take groups of items separated by commas and "and", each perhaps after an opening word.

    Return None if no item is next. Raise `ScheduleSyntaxError` if an item is there twice.
    """
    found = read(reader)
    if found is None:
        return None
    while True:
        begin = reader.place
        if not reader.take(",", "and", ", and"):
            return found
        if opener:
            reader.take(opener)
        at = reader.place
        following = read(reader)
        if following is None:
            reader.place = begin
            return found
        if set(found) & set(following):
            reader.refuse(at, f"{reader.said(at)} is there twice", "each of them once")
        found += following


def week_days(reader: Reader) -> tuple[int, ...] | None:
    """Take days of the week, such as ``weekdays``, ``Monday``, ``Mon-Fri``; return None if none is next."""
    for name, found in ((reader.take(*_SETS), _SETS),):
        if name:
            return found[name]
    if reader.kind != "word" or reader.word not in DAYS:
        return None
    first = DAYS[reader.word]
    reader.place += 1
    begin = reader.place
    if reader.take(*_TO) and reader.word in DAYS:
        last = DAYS[reader.word]
        reader.place += 1
        if first == last:
            reader.refuse(begin - 1, "a range from a day to itself", "Monday to Friday", "every day")
        return tuple((first + step) % 7 for step in range((last - first) % 7 + 1))
    reader.place = begin
    return (first,)


def chosen_days(part: Pieces) -> tuple[int, ...]:
    """Return the days of the week, without those that are left out; none if all are meant."""
    named = frozenset(part.get("days", ()))
    left_out: frozenset[int] = part.get("except_days", frozenset())
    if not left_out:
        return tuple(sorted(named))
    if named and not left_out & named:
        wrong(
            part.place("except_days"),
            f"{part.place('except_days')} is not in {part.place('days')}",
            "every day except Sunday",
            "every weekday except Friday",
        )
    found = (named or _ALL) - left_out
    if not found:
        wrong(part.place("except_days"), "no day is left", "except Sunday", "except weekends")
    return tuple(sorted(found))


def months(reader: Reader) -> tuple[int, ...] | None:
    """Take a month or a range of months; return None if none is next."""
    if reader.kind != "word" or reader.word not in MONTHS:
        return None
    first = MONTHS[reader.word]
    reader.place += 1
    begin = reader.place
    if reader.take(*_TO) and reader.word in MONTHS:
        last = MONTHS[reader.word]
        reader.place += 1
        # "In March until October 9, 2026" has an end.
        if reader.kind in {"number", "ordinal"}:
            reader.place = begin
            return (first,)
        return tuple((first - 1 + step) % 12 + 1 for step in range((last - first) % 12 + 1))
    reader.place = begin
    return (first,)


def month_list(reader: Reader) -> tuple[int, ...] | None:
    """Take months in a list; raise `ScheduleSyntaxError` for a year or a day after them."""
    begin = reader.place
    found = listed(reader, months)
    if found is not None and (reader.kind in {"number", "ordinal"}):
        reader.lost("a list of months has no days and no years", "in March", "on March 1", at=begin)
    return found


def year_day(reader: Reader) -> tuple[MonthDay, ...] | None:
    """Take a day of the year, such as ``March 1st``, ``1 March``, ``the 1st of March``; return None if none is next."""
    begin = reader.place
    reader.take("the")
    if reader.word in MONTHS and reader.kind == "word":
        month = MONTHS[reader.word]
        reader.place += 1
        reader.take("the")
        day = ordinal(reader) if reader.kind != "number" else _number(reader)
    else:
        day = ordinal(reader) if reader.kind != "number" else _number(reader)
        if reader.take("of"):
            # "The 1st of March and September" is a day of both.
            reader.place = begin
            return None
        month = MONTHS.get(reader.word, 0) if reader.kind == "word" else 0
        reader.place += 1
    if not day or not month or (reader.kind == "number" and reader.word.isdecimal() and int(reader.word) in _YEARS):
        reader.place = begin
        return None
    if day > _LONGEST[month - 1]:
        reader.refuse(
            begin,
            f"{MONTH_NAMES[month - 1]} has no day {day}",
            f"on {MONTH_NAMES[month - 1]} 1",
            "on the last day of the month",
        )
    return (MonthDay(day, months=(month,)),)


def _number(reader: Reader) -> int | None:
    value = number(reader)
    return int(value) if value is not None and value.is_integer() else None


def month_days(reader: Reader) -> tuple[MonthDay, ...] | None:
    """Take days of a month, such as ``the 1st and 15th of the month``; return None if none is next.

    An ordinal alone takes the noun that follows in its list: the first and third Monday.
    """
    begin = reader.place
    reader.take("the")
    first = _month_day(reader)
    if first is None:
        reader.place = begin
        return None
    found = [first]
    repeated = False
    while True:
        before = reader.place
        if not reader.take(",", "and", ", and"):
            break
        is_anew = reader.take("the", "on the") is not None
        following = _month_day(reader)
        if following is None:
            reader.place = before
            break
        repeated = repeated or is_anew
        found.append(following)
    return _with_nouns(reader, begin, found, repeated=repeated)


def _with_nouns(reader: Reader, begin: int, found: list[tuple[int, str]], *, repeated: bool) -> tuple[MonthDay, ...]:
    nouns = [noun for _, noun in found if noun not in {"", "day"}]
    bare = [each for each in found if not each[1]]
    if bare and nouns:
        if repeated or found[-1][1] != nouns[0] or len(set(nouns)) > 1:
            reader.refuse(
                begin,
                "days of the month by their number or by their name, not both at once: it is not clear which is meant",
                "on the first and third Monday of the month",
                "on the 1st and 15th of the month",
            )
        found = [(nth, noun or nouns[0]) for nth, noun in found]
    days = tuple(_made(reader, begin, nth, noun) for nth, noun in found)
    if len(set(days)) < len(days):
        reader.refuse(begin, f"{reader.said(begin)} has a day twice", "each of them once")
    return scoped(reader, days)


def _made(reader: Reader, begin: int, nth: int, noun: str) -> MonthDay:
    if noun in _BUSINESS:
        if abs(nth) > 23:  # noqa: PLR2004 - at most in a month
            reader.refuse(
                begin, f"a month has no business day {nth}", "on the last business day of the month", "on the 1st"
            )
        return MonthDay(business=nth)
    if noun in DAYS:
        if abs(nth) > 5:  # noqa: PLR2004 - at most in a month
            name = DAY_NAMES[DAYS[noun]]
            reader.refuse(begin, f"a month has no {nth}th {name}", f"on the last {name} of the month", f"every {name}")
        return MonthDay(week_day=WeekDay(DAYS[noun], nth))
    if not 1 <= abs(nth) <= 31:  # noqa: PLR2004 - days of a month
        reader.refuse(begin, f"a month has no day {nth}", "on the 1st of the month", "on the last day of the month")
    return MonthDay(nth)


def _month_day(reader: Reader) -> tuple[int, str] | None:
    """Take an ordinal or ``last``, and its noun if it has one."""
    begin = reader.place
    if reader.take("second to last", "second-to-last", "second last", "next to last", "penultimate"):
        nth = -2
    else:
        found = -1 if reader.take("last") else ordinal(reader)
        if found is None:
            reader.place = begin
            return None
        nth = found
    noun = reader.take("day", "days", *_BUSINESS, *(f"{each}s" for each in _BUSINESS))
    noun = None if noun is None else noun.removesuffix("s")
    if noun is None and reader.word in DAYS and reader.kind == "word":
        noun = reader.word
        reader.place += 1
    return nth, noun or ("day" if nth < 0 else "")


def numbered(reader: Reader, begin: int, day: int) -> tuple[MonthDay, ...]:
    """Return a day of the month by its number, with its months."""
    return scoped(reader, (_made(reader, begin, day, "day"),))


def scoped(reader: Reader, days: tuple[MonthDay, ...]) -> tuple[MonthDay, ...]:
    """Take of what the days are, such as ``of the month``, ``of March``."""
    begin = reader.place
    if reader.take(*(f"{of} {every} month" for of in ("of", "in") for every in ("the", "each", "every", "a"))):
        return days
    if reader.take("of the quarter", "of each quarter", "of every quarter"):
        return tuple(MonthDay(each.number, each.week_day, each.business, of_quarter=True) for each in days)
    of = reader.take("of")
    found = month_list(reader) if of or reader.word in MONTHS else None
    if found is None:
        reader.place = begin
        return days
    reader.take("of each year", "of every year")
    return tuple(MonthDay(each.number, each.week_day, each.business, found) for each in days)


def date(reader: Reader) -> datetime | None:
    """Take a date, such as ``2026-01-31`` or ``January 31, 2026``; return None if none is next."""
    begin = reader.place
    token = reader.take_kind("date") or reader.take_kind("quoted")
    if token is not None:
        text = reader.unquoted(token) if token.kind == "quoted" else token.text
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            reader.refuse(
                begin, f"{text!r} is not a time; write it as 2026-01-31T16:30:00", "2026-01-31", "January 31, 2026"
            )
    found = year_month_day(reader)
    if found is None:
        reader.place = begin
    return found


def year_month_day(reader: Reader) -> datetime | None:
    """Take a date in words; return None if none is next."""
    begin = reader.place
    reader.take("the")
    is_month = reader.word in MONTHS and reader.kind == "word"
    month = MONTHS[reader.word] if is_month else 0
    reader.place += is_month
    day = ordinal(reader) if reader.kind != "number" else _number(reader)
    if not is_month:
        reader.take("of")
        month = MONTHS.get(reader.word, 0) if reader.kind == "word" else 0
        reader.place += 1
    reader.take(",")
    year = _number(reader) if day and month else None
    if year is None or day is None:
        reader.place = begin
        return None
    if year not in _YEARS or not 1 <= day <= monthrange(year, month)[1]:
        reader.lost("it is not a date", "2026-01-31", "January 31, 2026", at=begin)
    return datetime(year, month, day)  # naive is the wall clock


def last_day(year: int, month: int) -> datetime:
    """Return the last day of a month."""
    return datetime(year, month, monthrange(year, month)[1])  # naive is the wall clock
