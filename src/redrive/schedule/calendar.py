"""The expansion of rules on the wall clock: daily and slower. PURE.

python-dateutil expands a rule from its start, so a rule that began ten years ago costs a thousand times what a new one
costs. But a rule is periodic: moved by a whole number of its periods, and with the values that its start implies
written out, it has the same occurrences from there on. So the expansion begins at the last period before the instant in
question (*re-anchoring*).
"""

from __future__ import annotations

import itertools
from calendar import isleap, monthrange
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

import msgspec
from dateutil import rrule as dateutil
from msgspec.structs import replace

from redrive.schedule.rule import Freq, RecurrenceRule, WeekDay

# Years after which a rule without an occurrence never has one. The rarest day, a leap day on a certain weekday,
# occurs within forty years.
HORIZON = 100

# All of it uses naive wall-clock times, where a day always has 24 hours. Moving a rule by instants would shift it by an
# hour whenever a clock change lies between (ansible/awx #15809).
_WEEK = timedelta(weeks=1)
# From the first of any month into the next one.
_MONTH = timedelta(days=31)
# Of those that a datetime can have.
_LAST_YEAR = 9998


class AnchoredRule(msgspec.Struct, frozen=True):
    """A weekly or slower rule with its start."""

    # With the values that its start implies, without ``COUNT`` and ``UNTIL``.
    rule: RecurrenceRule
    # Naive; no occurrence is earlier.
    start: datetime

    def since(self, local: datetime) -> Iterator[datetime]:
        """Return the occurrences from a naive time on, in order, up to a horizon."""
        begin = max(local, self.start)
        anchor = _anchor(self.rule, self.start, begin)
        years = max(HORIZON, 2 * self.rule.interval if self.rule.freq is Freq.YEARLY else 0)
        end = min(begin.year + years, _LAST_YEAR)
        expanded = dateutil.rrule(
            self.rule.freq.value,
            dtstart=anchor,
            interval=self.rule.interval,
            until=datetime(end, 12, 31),  # naive is the wall clock
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


class DailyRule(msgspec.Struct, frozen=True):
    """A daily rule with its start and its times of day; see `AnchoredRule`."""

    rule: RecurrenceRule
    start: datetime
    times: tuple[time, ...]

    def since(self, local: datetime) -> Iterator[datetime]:
        """Return the occurrences from a naive time on, in order, up to a horizon."""
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
        """Return the first day, from this one on, that is a multiple of the interval."""
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
    """Return a daily or slower rule with the values that its naive start implies."""
    complete = replace(
        rule,
        count=None,
        until=None,
        by_hour=rule.by_hour or (start.hour,),
        by_minute=rule.by_minute or (start.minute,),
        by_second=rule.by_second or (start.second,),
    )
    if rule.freq is Freq.DAILY:
        return DailyRule(complete, start, _times(complete))
    if not any((rule.by_week_no, rule.by_year_day, rule.by_month_day, rule.by_day)):
        if rule.freq is Freq.YEARLY:
            complete = replace(complete, by_month=rule.by_month or (start.month,), by_month_day=(start.day,))
        elif rule.freq is Freq.MONTHLY:
            complete = replace(complete, by_month_day=(start.day,))
        else:
            complete = replace(complete, by_day=(WeekDay(start.weekday()),))
    elif rule.by_week_no and not any((rule.by_year_day, rule.by_month_day, rule.by_day)):
        complete = replace(complete, by_day=(WeekDay(start.weekday()),))
    return AnchoredRule(complete, start)


def _times(rule: RecurrenceRule) -> tuple[time, ...]:
    """Return the times of day of a daily rule."""
    moments = itertools.product(rule.by_hour, rule.by_minute, rule.by_second)
    found = tuple(time(*each) for each in sorted(moments))
    places = {each - 1 if each > 0 else len(found) + each for each in rule.by_set_pos}
    return tuple(each for place, each in enumerate(found) if not places or place in places)


def _anchor(rule: RecurrenceRule, start: datetime, begin: datetime) -> datetime:
    """Return the beginning of the last period before a time, or of the first one."""
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
    """Return the beginning of the period that contains a time."""
    day = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if rule.freq is Freq.YEARLY:
        return day.replace(month=1, day=1)
    if rule.freq is Freq.MONTHLY:
        return day.replace(day=1)
    return day - timedelta(days=(day.weekday() - rule.week_start) % 7)
