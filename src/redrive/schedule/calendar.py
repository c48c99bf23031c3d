"""The occurrences of rules that follow the wall clock: daily and slower.

python-dateutil knows the calendar of RFC 5545 better than anybody, but it walks there from the start of the rule: a
rule that began ten years ago costs a thousand times what a new one costs. A rule repeats itself, though. Moved by a
whole number of its periods, and with what its start implied written out, it has the same occurrences from there on. So
the walk begins at the last period before the time in question, however long ago the rule began (*re-anchoring*).

A daily rule needs no calendar, but a look at each day: is it one of those that are allowed? python-dateutil takes many
times as long for that.

All of it happens on naive wall-clock times, where a day always has 24 hours. Moving a rule by instants would shift it
by an hour whenever summer time lies between (ansible/awx #15809).
"""

from __future__ import annotations

import itertools
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta

from dateutil import rrule as dateutil

from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay

__all__ = ["HORIZON", "AnchoredRule", "DailyRule", "anchored"]

HORIZON = 100
"""Years after which a rule that has not occurred never does. The rarest days of the calendar, a leap day on a certain
day of the week, come within forty years."""

_WEEK = timedelta(weeks=1)
_MONTH = timedelta(days=31)  # from the first of any month into the next one
_LAST_YEAR = 9998  # of those that a datetime can have


@dataclass(frozen=True, slots=True)
class AnchoredRule:
    """A weekly rule or a slower one with its start, ready to be walked from anywhere.

    Attributes:
        rule: with everything written out that its start implied, and without an end.
        start: naive; nothing occurs before it.
    """

    rule: RecurrenceRule
    start: datetime

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
        return itertools.dropwhile(lambda each: each < begin, iter(expanded))


@dataclass(frozen=True, slots=True)
class DailyRule:
    """A daily rule with its start, ready to be walked from anywhere.

    Attributes:
        rule: with everything written out that its start implied, and without an end.
        start: naive; nothing occurs before it.
        times: at which it occurs on a day, in order.
    """

    rule: RecurrenceRule
    start: datetime
    times: tuple[time, ...]

    def since(self, local: datetime) -> Iterator[datetime]:
        """Walk the occurrences; as `AnchoredRule.since`.

        Args:
            local: naive; where to begin.

        Returns:
            Those at this time and later, in order, until a horizon; without regard to ``COUNT`` and ``UNTIL``.
        """
        begin = max(local, self.start)
        last = date(min(begin.year + HORIZON, _LAST_YEAR), 12, 31).toordinal()
        number = self._counted(begin.toordinal())
        while number <= last:
            day = date.fromordinal(number)
            if self.rule.by_month and day.month not in self.rule.by_month:
                number = self._counted((day.replace(day=1) + _MONTH).replace(day=1).toordinal())
                continue
            if self._allows(day):
                for each in self.times:
                    found = datetime.combine(day, each)
                    if found >= begin:
                        yield found
            number += self.rule.interval

    def _counted(self, number: int) -> int:
        """The first day from a day on that the interval does not leave out."""
        return number + (self.start.toordinal() - number) % self.rule.interval

    def _allows(self, day: date) -> bool:
        rule = self.rule
        if rule.by_day and day.weekday() not in {each.day for each in rule.by_day}:
            return False
        if rule.by_month_day:
            days = monthrange(day.year, day.month)[1]
            if day.day not in rule.by_month_day and day.day - days - 1 not in rule.by_month_day:
                return False
        if rule.by_year_day:
            place, days = day.timetuple().tm_yday, 365 + isleap(day.year)
            return place in rule.by_year_day or place - days - 1 in rule.by_year_day
        return True


def anchored(rule: RecurrenceRule, start: datetime) -> AnchoredRule | DailyRule:
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
    if rule.freq is Freq.DAILY:
        return DailyRule(told, start, _times(told))
    if not any((rule.by_week_no, rule.by_year_day, rule.by_month_day, rule.by_day)):
        if rule.freq is Freq.YEARLY:
            told = replace(told, by_month=rule.by_month or (start.month,), by_month_day=(start.day,))
        elif rule.freq is Freq.MONTHLY:
            told = replace(told, by_month_day=(start.day,))
        else:
            told = replace(told, by_day=(WeekDay(start.weekday()),))
    elif rule.by_week_no and not any((rule.by_year_day, rule.by_month_day, rule.by_day)):
        told = replace(told, by_day=(WeekDay(start.weekday()),))
    return AnchoredRule(told, start)


def _times(rule: RecurrenceRule) -> tuple[time, ...]:
    """At which a daily rule occurs on a day."""
    moments = itertools.product(rule.by_hour, rule.by_minute, rule.by_second)
    found = tuple(time(*each) for each in sorted(moments))
    places = {each - 1 if each > 0 else len(found) + each for each in rule.by_set_pos}
    return tuple(each for place, each in enumerate(found) if not places or place in places)


def _anchor(rule: RecurrenceRule, start: datetime, begin: datetime) -> datetime:
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
    return first + (at - first) // (_WEEK * rule.interval) * (_WEEK * rule.interval)


def _period(rule: RecurrenceRule, local: datetime) -> datetime:
    """The beginning of the period that a time is in."""
    day = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if rule.freq is Freq.YEARLY:
        return day.replace(month=1, day=1)
    if rule.freq is Freq.MONTHLY:
        return day.replace(day=1)
    return day - timedelta(days=(day.weekday() - rule.week_start) % 7)
