"""The occurrences of rules that follow the wall clock: daily and slower.

python-dateutil knows the calendar of RFC 5545 better than anybody, but it walks there from the start of the rule: a
rule that began ten years ago costs a thousand times what a new one costs. A rule repeats itself, though. Moved by a
whole number of its periods, and with what its start implied written out, it has the same occurrences from there on. So
the walk begins at the last period before the time in question, however long ago the rule began (*re-anchoring*).

All of it happens on naive wall-clock times, where a day always has 24 hours. Moving a rule by instants would shift it
by an hour whenever summer time lies between (ansible/awx #15809).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dateutil import rrule as dateutil

from redrive.schedule.rule import Freq, Rule, WeekDay

__all__ = ["HORIZON", "Walk", "walk"]

HORIZON = 100
"""Years after which a rule that has not occurred never does. The rarest days of the calendar, a leap day on a certain
day of the week, come within forty years."""

_WEEK = timedelta(weeks=1)
_LAST_YEAR = 9998  # of those that a datetime can have


@dataclass(frozen=True, slots=True)
class Walk:
    """A rule with its start, ready to be walked from anywhere.

    Attributes:
        rule: with everything written out that its start implied, and without an end.
        start: naive; nothing occurs before it.
        every: of the days of the rule only every so many-th, counted from the start.
    """

    rule: Rule
    start: datetime
    every: int = 1

    def since(self, local: datetime) -> Iterator[datetime]:
        """Walk the occurrences.

        Args:
            local: naive; where to begin.

        Returns:
            Those at this time and later, in order, until a horizon; without regard to ``COUNT`` and ``UNTIL``.
        """
        begin = max(local, self.start)
        anchor = _anchor(self.rule, self.start, begin)
        years = max(HORIZON, 2 * self.rule.interval if self.rule.freq is Freq.YEARLY else 0)
        end = min(begin.year + years, _LAST_YEAR)
        expanded = dateutil.rrule(
            self.rule.freq.value,
            dtstart=anchor,
            interval=self.rule.interval,
            until=datetime(end, 12, 31),  # noqa: DTZ001 - naive is the wall clock
            wkst=self.rule.week_start,
            bysetpos=self.rule.by_set_pos or None,
            bymonth=self.rule.by_month or None,
            bymonthday=self.rule.by_month_day or None,
            byyearday=self.rule.by_year_day or None,
            byweekno=self.rule.by_week_no or None,
            byweekday=[dateutil.weekday(each.day, each.nth) for each in self.rule.by_day] or None,
            byhour=self.rule.by_hour,
            byminute=self.rule.by_minute,
            bysecond=self.rule.by_second,
        )
        found = itertools.dropwhile(lambda each: each < begin, iter(expanded))
        if self.every == 1:
            return found
        return (each for each in found if (each.date() - self.start.date()).days % self.every == 0)


def walk(rule: Rule, start: datetime) -> Walk:
    """Write out what a rule leaves to its start.

    Args:
        rule: daily or slower.
        start: naive.

    Returns:
        What can be walked from anywhere.
    """
    told = replace(
        rule,
        count=None,
        until=None,
        by_hour=rule.by_hour or (start.hour,),
        by_minute=rule.by_minute or (start.minute,),
        by_second=rule.by_second or (start.second,),
    )
    if rule.freq is Freq.DAILY and any((rule.by_month, rule.by_month_day, rule.by_year_day, rule.by_day)):
        return _chosen_days(told, start)
    if not any((rule.by_week_no, rule.by_year_day, rule.by_month_day, rule.by_day)):
        if rule.freq is Freq.YEARLY:
            told = replace(told, by_month=rule.by_month or (start.month,), by_month_day=(start.day,))
        elif rule.freq is Freq.MONTHLY:
            told = replace(told, by_month_day=(start.day,))
        elif rule.freq is Freq.WEEKLY:
            told = replace(told, by_day=(WeekDay(start.weekday()),))
    elif rule.by_week_no and not any((rule.by_year_day, rule.by_month_day, rule.by_day)):
        told = replace(told, by_day=(WeekDay(start.weekday()),))
    return Walk(told, start)


def _chosen_days(rule: Rule, start: datetime) -> Walk:
    """Walk a daily rule that allows some days only as a yearly one that lists these.

    It is the same, but python-dateutil looks at a year once and not at each of its days, which takes it as long again.
    """
    named = any((rule.by_month_day, rule.by_year_day, rule.by_day))
    days = rule.by_month_day if named else tuple(range(1, 32))
    listed = replace(rule, freq=Freq.YEARLY, interval=1, by_month_day=days)
    if not rule.by_set_pos:
        return Walk(listed, start, rule.interval)
    return Walk(rule, start)


def _anchor(rule: Rule, start: datetime, begin: datetime) -> datetime:
    """The beginning of the last period of a rule that began before a time, or of its first one."""
    first = _period(rule, start)
    at = _period(rule, begin)
    if rule.freq is Freq.YEARLY:
        # A week that belongs to a year by its number may begin in the year before.
        passed = max(at.year - first.year - 1, 0) // rule.interval * rule.interval
        return first.replace(year=first.year + passed)
    if rule.freq is Freq.MONTHLY:
        months = (at.year - first.year) * 12 + at.month - first.month
        year, month = divmod(first.month - 1 + months // rule.interval * rule.interval, 12)
        return first.replace(year=first.year + year, month=month + 1)
    length = _WEEK if rule.freq is Freq.WEEKLY else timedelta(days=1)
    return first + (at - first) // (length * rule.interval) * (length * rule.interval)


def _period(rule: Rule, local: datetime) -> datetime:
    """The beginning of the period that a time is in."""
    day = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if rule.freq is Freq.YEARLY:
        return day.replace(month=1, day=1)
    if rule.freq is Freq.MONTHLY:
        return day.replace(day=1)
    if rule.freq is Freq.WEEKLY:
        return day - timedelta(days=(day.weekday() - rule.week_start) % 7)
    return day
