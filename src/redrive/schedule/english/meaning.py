"""What the phrases of a recurrence mean, as rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from redrive.schedule.english.days import MonthDay, chosen_days
from redrive.schedule.english.elapsed import elapsed
from redrive.schedule.english.notes import Pieces, wrong
from redrive.schedule.english.times import TimeOfDay, check_halves, sure
from redrive.schedule.english.words import WORKDAYS
from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay

# Hours and minutes of a day, in this order.
_Times: TypeAlias = Sequence[tuple[int, int]]

_FREQS = {
    "second": Freq.SECONDLY, "minute": Freq.MINUTELY, "hour": Freq.HOURLY, "day": Freq.DAILY, "week": Freq.WEEKLY,
    "month": Freq.MONTHLY, "quarter": Freq.MONTHLY, "year": Freq.YEARLY,
}  # fmt: skip
_TWICE = 2
_ALL_MONTHS = frozenset(range(1, 13))
_HOW_OFTEN = ("every day at 9 AM", "every Monday at 9 AM")


def rules(part: Pieces, whole: Pieces) -> list[RecurrenceRule]:
    """Return the rules of a part; raise `ScheduleSyntaxError` if its pieces contradict each other."""
    unit, interval = _often(part)
    base = RecurrenceRule(freq=_FREQS[unit], interval=interval, until=whole.get("until"))
    base = _limited(part, base)
    if base.freq.is_elapsed:
        return elapsed(part, whole, base, unit)
    for name, form in (("window", "every 15 minutes between 9 AM and 5 PM"), ("minutes", "every hour at :15")):
        if name in part:
            belongs = (
                "a window of hours belongs to minutes or hours"
                if name == "window"
                else "minutes of an hour belong to hours"
            )
            wrong(part.place(name), belongs, form, "every day at 9:15 AM")
    _check_count(part, unit)
    times = _clocks(part)
    return [
        replace(dated, by_hour=hours, by_minute=(minute,), by_second=(0,))
        for dated in _dated(part, base, unit)
        for minute, hours in grouped(dated, times)
    ]


def _often(part: Pieces) -> tuple[str, int]:
    """Return the unit and the interval; raise `ScheduleSyntaxError` if it is not clear how often."""
    if "often" in part and "count" in part:
        wrong(part.place("count"), f"two intervals: {part.place('often')} and {part.place('count')}", *_HOW_OFTEN)
    if "often" in part:
        found: tuple[str, int] = part.get("often")
        return found
    if "count" in part:
        return part.get("count")[1], 1
    if "days" in part and "month_days" not in part:
        return "week", 1
    if "month_days" in part:
        days: tuple[MonthDay, ...] = part.get("month_days")
        if any(each.of_quarter for each in days):
            return "quarter", 1
        return "year" if all(each.months for each in days) else "month", 1
    if "window" in part and part.get("window").begin is None:
        wrong(
            part.place("window"),
            "it is missing how often",
            "every 15 minutes during business hours",
            "every hour during business hours",
        )
    place = part.place(*part)
    return wrong(place, f"not understood: {place.text!r}: it is missing how often", *_forms_with(part))


def _forms_with(part: Pieces) -> tuple[str, str]:
    clocks = part.get("clocks")
    at = f" at {clocks[0].place.text}" if clocks and not clocks[0].is_bare else " at 9 AM"
    at = at.replace(" at at ", " at ")
    return f"every day{at}", f"every weekday{at}"


def _limited(part: Pieces, base: RecurrenceRule) -> RecurrenceRule:
    """Return a rule for the months that are named, or not left out."""
    named = frozenset(part.get("months", ()))
    left_out: frozenset[int] = part.get("except_months", frozenset())
    if named and left_out and not left_out <= named:
        wrong(
            part.place("except_months"),
            f"{part.place('except_months')} is not in {part.place('months')}",
            "in March and September",
        )
    if not named and not left_out:
        return base
    found = tuple(sorted((named or _ALL_MONTHS) - left_out))
    if not found:
        wrong(part.place("except_months"), "no month is left", "except August")
    return replace(base, by_month=found)


def _dated(part: Pieces, base: RecurrenceRule, unit: str) -> list[RecurrenceRule]:
    """Return rules for the days."""
    days = tuple(WeekDay(each) for each in chosen_days(part))
    if "month_days" in part:
        return _of_month(part, base, unit)
    if unit in {"month", "quarter", "year"}:
        what = "of the month" if unit != "year" else "of the year"
        which = "say which one of the month" if days else f"say on which day {what}"
        wrong(
            part.place("often", "count"),
            which,
            *(
                ("on the first Monday of the month", "every Monday at 9 AM")
                if days
                else (
                    ("every year on March 1 at 9 AM", "on the first Monday of March")
                    if unit == "year"
                    else ("on the 1st of the month", "on the last Friday of the month")
                )
            ),
        )
    if unit == "week" and "days" not in part:
        wrong(
            part.place("often", "count"),
            "say on which day of the week",
            "every week on Monday at 9 AM",
            "every Monday at 9 AM",
        )
    if "biweekly" in part and len(part.get("days", ())) != 1:
        wrong(
            part.place("biweekly"),
            "it is not clear whether it is twice a week or every two weeks",
            "every 2 weeks on Monday",
            "twice a week on Monday and Thursday",
        )
    if unit == "day" and days and base.interval > 1:
        wrong(
            part.place("days", "except_days"),
            "days of the week go with weeks: every 2 weeks on Friday"
            if "days" in part
            else "it is not clear whether a day that is left out is counted",
            "every 2 weeks on Friday",
            "every 2 days",
        )
    return [replace(base, freq=Freq.WEEKLY if days else base.freq, by_day=days)]


def _of_month(part: Pieces, base: RecurrenceRule, unit: str) -> list[RecurrenceRule]:
    """Return rules for days of a month, of a quarter, or of a year."""
    days: tuple[MonthDay, ...] = part.get("month_days")
    place = part.place("month_days")
    if "days" in part:
        wrong(
            place,
            f"days of the week and of the month: {part.place('days')} and {place}",
            "on the first Monday of the month",
            "every Monday at 9 AM",
        )
    if unit in {"day", "week"}:
        wrong(
            part.place("often", "count"),
            f"two intervals: {part.place('often', 'count')} and {place}",
            f"every month {place.text}",
            "every day at 9 AM",
        )
    kinds = {(each.week_day is None, each.business is None, each.months, each.of_quarter) for each in days}
    if (
        len({each[:2] for each in kinds}) > 1
        or len({each[3] for each in kinds}) > 1
        or len({bool(each[2]) for each in kinds}) > 1
    ):
        wrong(
            place,
            "say days of the month by their number or by their name, not both at once",
            "on the 1st and 15th of the month",
            "on the first and third Monday of the month",
        )
    if days[0].months and ("months" in part or unit == "quarter"):
        wrong(
            part.place("months", "often"),
            f"two lists of months: {part.place('months', 'often')} and {place}",
            "on March 1",
            "on the 1st of the month in March",
        )
    weekly = chosen_days(part)
    if weekly and days[0].number is None:
        wrong(
            part.place("except_days"),
            "days of the week cannot be left out of days that have a name",
            "on the 1st of the month except Sundays",
            "on the last business day of the month",
        )
    groups: dict[tuple[int, ...], list[MonthDay]] = {}
    for each in days:
        groups.setdefault(each.months, []).append(each)
    return [_one(_in_months(part, base, unit, months, group), group, weekly) for months, group in _same_days(groups)]


def _same_days(groups: dict[tuple[int, ...], list[MonthDay]]) -> list[tuple[tuple[int, ...], list[MonthDay]]]:
    """Return groups of days, those with the same days in different months as one."""
    found: dict[tuple[tuple[object, ...], ...], tuple[tuple[int, ...], list[MonthDay]]] = {}
    for months, group in groups.items():
        key = tuple((each.number, each.week_day, each.business) for each in group)
        before = found.get(key, ((), group))
        found[key] = (tuple(sorted({*before[0], *months})), group)
    return list(found.values())


def _in_months(
    part: Pieces, base: RecurrenceRule, unit: str, months: tuple[int, ...], group: list[MonthDay]
) -> RecurrenceRule:
    """Return a rule with its months."""
    if months:
        excepted: frozenset[int] = part.get("except_months", frozenset())
        left = tuple(each for each in months if each not in excepted)
        if not left:
            wrong(part.place("except_months"), "no month is left", "except August")
        is_each_month = group[0].business is not None and len(left) > 1
        if is_each_month and base.interval > 1:
            wrong(
                part.place("often"),
                "a business day of several months is one of each year",
                "every 2 years on the first business day of March",
                "on the first business day of March and May",
            )
        return replace(base, by_month=left, freq=Freq.MONTHLY if is_each_month else base.freq)
    if unit == "quarter":
        return _quarterly(part, base, group)
    if unit == "year" and not base.by_month:
        wrong(
            part.place("often", "count"),
            "say in which month",
            "every year on March 1 at 9 AM",
            "every month on the 1st at 9 AM",
        )
    return base


def _quarterly(part: Pieces, base: RecurrenceRule, group: list[MonthDay]) -> RecurrenceRule:
    """Return a rule for a day of each quarter: in its first month, or in its last one for a day from its end."""
    place = part.place("month_days")
    if base.by_month:
        wrong(
            part.place("months", "except_months"),
            "quarters and months exclude each other",
            "on the 1st of January, April, July and October",
        )
    if base.interval > 1:
        wrong(
            part.place("often"),
            "only each quarter can be named",
            "every 6 months on the 1st",
            "every quarter on the 1st",
        )
    ends = {(each.number or each.business or (each.week_day.nth if each.week_day else 0) or 0) < 0 for each in group}
    if len(ends) > 1 or (True in ends and not all(each.of_quarter for each in group)):
        wrong(
            place,
            "it is not clear of which month of the quarter",
            "on the last day of the quarter",
            "on the last day of March, June, September and December",
        )
    return replace(base, freq=Freq.MONTHLY, interval=1, by_month=(3, 6, 9, 12) if True in ends else (1, 4, 7, 10))


def _one(base: RecurrenceRule, group: list[MonthDay], weekly: tuple[int, ...]) -> RecurrenceRule:
    """Return a rule with its days."""
    business = [each.business for each in group if each.business is not None]
    if business:
        return replace(base, by_day=tuple(WeekDay(each) for each in WORKDAYS), by_set_pos=tuple(sorted(business)))
    numbers = sorted({each.number for each in group if each.number is not None})
    if numbers:
        return replace(base, by_month_day=tuple(numbers), by_day=tuple(WeekDay(each) for each in weekly))
    named = {each.week_day for each in group if each.week_day is not None}
    return replace(base, by_day=tuple(sorted(named, key=lambda each: (each.day, each.nth or 0))))


def _clocks(part: Pieces) -> _Times:
    """Return the times of day in order; midnight if none is given."""
    said: list[TimeOfDay] = part.get("clocks", [])
    of_day: str | None = part.get("part")
    if not said and of_day not in {None, "night"}:
        place = part.place("part")
        wrong(
            place,
            f"not understood: {place.text!r}: say at what time",
            f"every {of_day} at {'7 AM' if of_day == 'morning' else '7 PM' if of_day == 'evening' else '3 PM'}",
            "every day at 9 AM",
        )
    found = [sure(each, of_day) for each in said]
    if of_day == "night" and "days" in part and (not found or any(hour < 12 for hour, _ in found)):  # noqa: PLR2004
        wrong(
            part.place("part"),
            "it is not clear to which day the night belongs",
            "on Saturday at 2 AM",
            "on Friday at 11 PM",
        )
    twice = next((place for place, each in enumerate(found) if each in found[:place]), None)
    if twice is not None:
        first = said[found.index(found[twice])].place
        wrong(
            said[twice].place, f"two times are the same: {first} and {said[twice].place}", "at 6 AM and 4 PM", "at 6 AM"
        )
    if of_day is None:
        check_halves(said)
    return sorted(found) or [(0, 0)]


def _check_count(part: Pieces, unit: str) -> None:
    """Check that "twice a day" has two times, and "twice a week" two days."""
    if "count" not in part:
        return
    count, _ = part.get("count")
    clocks = len(part.get("clocks", ()))
    place = part.place("count")
    if unit == "day":
        if not clocks and count > 1:
            wrong(
                place,
                "say at what times",
                f"{place.text} at 6 AM and 4 PM" if count == _TWICE else f"every {max(24 // count, 1)} hours",
                "every 12 hours",
            )
        if clocks not in {0, count} or (count > 1 and clocks != count):
            wrong(
                place,
                f"{count} time{'' if count == 1 else 's'} a day, but {clocks} time(s) given",
                "twice a day at 6 AM and 4 PM",
                "once a day at 6 AM",
            )
        return
    if unit == "week":
        days = len(chosen_days(part))
    else:
        # In a year, or in a quarter or a month.
        days = sum((len(each.months) if unit == "year" else 0) or 1 for each in part.get("month_days", ()))
    if days and days * max(clocks, 1) != count:
        wrong(
            place,
            f"{count} times a {unit}, but {days * max(clocks, 1)} given",
            f"twice a {unit} on {'Monday and Thursday' if unit == 'week' else 'the 1st and 15th'}",
            "every Monday at 9 AM",
        )


def grouped(rule: RecurrenceRule, times: _Times) -> list[tuple[int, tuple[int, ...]]]:
    """Return the hours that share their minute; each time alone if positions in a month are counted."""
    if rule.by_set_pos:
        return [(minute, (hour,)) for hour, minute in times]
    groups: dict[int, list[int]] = {}
    for hour, minute in times:
        groups.setdefault(minute, []).append(hour)
    return [(minute, tuple(hours)) for minute, hours in groups.items()]
