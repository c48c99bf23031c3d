"""What a sentence about time means, as rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from redrive.schedule.cron import CronExpression
from redrive.schedule.english.tokens import Reader
from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay
from redrive.schedule.schedule import ANCHOR
from redrive.schedule.timezone import Gap

# Units that have a frequency.
FREQS = {
    "second": Freq.SECONDLY, "minute": Freq.MINUTELY, "hour": Freq.HOURLY, "day": Freq.DAILY, "week": Freq.WEEKLY,
    "month": Freq.MONTHLY,
}  # fmt: skip


@dataclass
class Heard:
    """The parts of a recurrence parsed so far."""

    unit: str | None = None
    # Number of ``unit`` in a period.
    interval: int = 1
    # Number of occurrences a day, if given.
    times_a_day: int | None = None
    # Hours and minutes.
    clocks: list[tuple[int, int]] = field(default_factory=list)
    # Days of the week; 0 is Monday.
    days: set[int] = field(default_factory=set)
    # Days of the month, from the end if negative.
    month_days: list[int] = field(default_factory=list)
    # Days of the week in a month, such as its first Monday.
    month_week_days: list[WeekDay] = field(default_factory=list)
    # The hours of a window.
    hours: tuple[int, ...] = ()
    tz: str = "UTC"
    start: datetime = ANCHOR
    gap: Gap = Gap.SHIFT
    # Quoted rules; likewise ``crons``, ``times`` and ``exceptions``.
    rules: list[RecurrenceRule] = field(default_factory=list)
    crons: list[CronExpression] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    exceptions: list[datetime] = field(default_factory=list)


def rules(reader: Reader, heard: Heard) -> tuple[RecurrenceRule, ...]:
    """Return the rules for a recurrence; raise `ScheduleSyntaxError` if its parts contradict each other."""
    unit = heard.unit or "day"
    if FREQS[unit].is_elapsed:
        return (_elapsed(reader, heard, unit),)
    if heard.hours:
        reader.fail("a window of hours belongs to minutes or hours: every 15 minutes between 9 AM and 5 PM")
    _check_times(reader, heard)
    days = tuple(WeekDay(each) for each in sorted(heard.days))
    base = RecurrenceRule(freq=FREQS[unit], interval=heard.interval)
    if unit == "month":
        if not (heard.month_days or heard.month_week_days):
            reader.fail("say on which day of the month")
        if heard.month_days and heard.month_week_days:
            reader.fail("say days of the month by their number or by their name, not both at once")
        chosen = tuple(sorted(set(heard.month_week_days), key=lambda each: (each.day, each.nth or 0)))
        base = replace(base, by_month_day=tuple(sorted(set(heard.month_days))), by_day=chosen)
    elif unit == "week" or days:
        if unit == "week" and not days:
            reader.fail("say on which day of the week")
        if unit == "day" and heard.interval > 1:
            reader.fail("days of the week go with weeks: every 2 weeks on Friday")
        base = replace(base, freq=Freq.WEEKLY, by_day=days)
    return tuple(replace(base, by_hour=hours, by_minute=(minute,), by_second=(0,)) for minute, hours in _grouped(heard))


def _elapsed(reader: Reader, heard: Heard, unit: str) -> RecurrenceRule:
    if heard.clocks:
        reader.fail('"at" needs a period of a day or longer')
    if heard.month_days or heard.month_week_days:
        reader.fail("days of the month need a period of a day or longer")
    days = tuple(WeekDay(each) for each in sorted(heard.days))
    return RecurrenceRule(freq=FREQS[unit], interval=heard.interval, by_day=days, by_hour=heard.hours)


def _check_times(reader: Reader, heard: Heard) -> None:
    if heard.times_a_day is None:
        return
    if not heard.clocks:
        reader.fail("say at what times")
    if len(heard.clocks) != heard.times_a_day:
        reader.fail(f"{heard.times_a_day} times a day, but {len(heard.clocks)} time(s) given")


def _grouped(heard: Heard) -> Sequence[tuple[int, tuple[int, ...]]]:
    """Hours that share their minute, the earliest of them first."""
    clocks: Sequence[tuple[int, int]] = heard.clocks or [(0, 0)]
    groups: dict[int, set[int]] = {}
    for hour, minute in sorted(clocks):
        groups.setdefault(minute, set()).add(hour)
    return [(minute, tuple(sorted(hours))) for minute, hours in groups.items()]
