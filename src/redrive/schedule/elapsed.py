"""The occurrences of rules that count elapsed time: hourly and faster.

"Every two hours" means two hours, in the night of a clock change too: libraries that count such rules on the wall clock
then repeat an instant, go backwards, or leave a real hour without any (dateutil #1351). So these are instants, reckoned
from the start in closed form, whatever lies between.

What the rule says of days, hours and minutes beside that is about the wall clock: "between 9 and 5 on weekdays", "at
minute 15 of each hour". Minutes are those of the hour that the clock shows, also after it was changed by half an hour.
Where a filter refuses, the search leaps to the next day or hour that it allows; and within an hour to the
period that meets an allowed second, which is a congruence. If none ever does, it leaps from day to day, to the next
change of the clock: so a rule that never occurs is found out in milliseconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from redrive.schedule.calendar import AnchoredRule, DailyRule, anchored
from redrive.schedule.rule import Freq, RecurrenceRule
from redrive.schedule.timezone import instant, instants, wall

__all__ = ["ElapsedRule", "elapsed_rule"]

DAYS = 4000
"""Days that a search looks at, at most: a rule whose steps have not met its filter by then never does. What is counted
in hours and minutes comes round within 1,440 days."""

_HOUR = 3600  # seconds
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_SETTLED = datetime(2050, 1, 1)  # noqa: DTZ001 - naive is the wall clock; the rules that are known hold by then
_UNITS = {Freq.HOURLY: timedelta(hours=1), Freq.MINUTELY: timedelta(minutes=1), Freq.SECONDLY: timedelta(seconds=1)}


@dataclass(frozen=True, slots=True)
class ElapsedRule:
    """A rule with its start, ready to be counted from anywhere.

    Attributes:
        rule: which.
        place: whose wall clock it filters by.
        base: the instant of the beginning of the first period.
        start: nothing occurs before it.
        step: from one period to the next.
        offsets: where in each period occurrences are; if ``is_by_clock``, in an hour that the clock shows.
        is_by_clock: whether the wall clock says where in an hour occurrences are.
        places: which of the occurrences of a period, from its end if negative; empty means all.
        days: the days that the rule allows; None means all.
        slots: where in an hour a period may begin; None means everywhere.
    """

    rule: RecurrenceRule
    place: ZoneInfo
    base: datetime
    start: datetime
    step: timedelta
    offsets: tuple[timedelta, ...]
    is_by_clock: bool
    places: tuple[int, ...]
    days: AnchoredRule | DailyRule | None
    slots: HourSlots | None

    def since(self, at: datetime) -> Iterator[datetime]:
        """Count the occurrences.

        Args:
            at: where to begin.

        Returns:
            Those at this instant and later, in order, until a horizon; without regard to ``COUNT`` and ``UNTIL``.
        """
        begin = max(at, self.start)
        # An occurrence may lie in a period that began before.
        number = max((begin - self.base) // self.step, 0)
        last = begin + timedelta(days=DAYS)
        allowed: date | None = None
        while (period := self.base + number * self.step) <= last:
            local, until = self._shown(period)
            if self.days is not None and allowed not in {local.date(), until.date()}:
                day = self._next_day(local)
                if day is None:
                    return
                if day.date() not in {local.date(), until.date()}:
                    number = self._at(day, number)
                    continue
                allowed = day.date()
            following = self._next_hour(local)
            if following is not None and until.hour not in self.rule.by_hour:
                number = self._at(following, number)
                continue
            if self.slots is not None and (second := self._second(local)) not in self.slots.seconds:
                number += self._leap(self.slots, second, period)
                continue
            for each in self._within(period, local, until):
                if each >= begin:
                    last = each + timedelta(days=DAYS)
                    yield each
            number += 1

    def _shown(self, period: datetime) -> tuple[datetime, datetime]:
        """Return what the clock shows at the beginning of a period, and at the last second that is looked at."""
        local = wall(period, self.place)
        return local, wall(period + _UNITS[Freq.HOURLY] - _SECOND, self.place) if self.is_by_clock else local

    def _within(self, period: datetime, local: datetime, until: datetime) -> list[datetime]:
        """Return the occurrences of a period, given what the clock shows at its beginning and end."""
        if self.is_by_clock:
            # After a change by half an hour, it shows two hours in one period.
            hours = {each.replace(minute=0, second=0) for each in (local, until)}
            listed = (each for hour in hours for offset in self.offsets for each in instants(hour + offset, self.place))
            end = period + _UNITS[Freq.HOURLY]
            found = sorted(each for each in listed if period <= each < end and self._is_allowed(each))
        else:
            found = [period + offset for offset in self.offsets]
        if not self.places:
            return found
        places = {each - 1 if each > 0 else len(found) + each for each in self.places}
        return [each for place, each in enumerate(found) if place in places]

    def _is_allowed(self, at: datetime) -> bool:
        local = wall(at, self.place)
        day = self._next_day(local) if self.days is not None else local
        return self._next_hour(local) is None and day is not None and day.date() == local.date()

    def _next_day(self, local: datetime) -> datetime | None:
        """Return the first allowed day from that of a time on."""
        assert self.days is not None  # noqa: S101 - the caller asks only then
        return next(self.days.since(local.replace(hour=0, minute=0, second=0, microsecond=0)), None)

    def _at(self, local: datetime, number: int) -> int:
        """Return the first period that begins at a time or later, or contains it, and is a later one than this."""
        at = instant(local, self.place) or self.base
        first = -((self.base - at) // self.step)
        return max(first - 1 if self.is_by_clock else first, number + 1)

    def _next_hour(self, local: datetime) -> datetime | None:
        """When the wall clock shows an hour that is allowed; None if it does."""
        hours = self.rule.by_hour
        if not hours or local.hour in hours:
            return None
        day = local.replace(hour=0, minute=0, second=0, microsecond=0)
        later = next((hour for hour in hours if hour > local.hour), None)
        return day + timedelta(days=1) if later is None else day.replace(hour=later)

    def _second(self, local: datetime) -> int:
        """Which second of its hour a period begins at."""
        return local.minute * 60 + (local.second if self.rule.freq is Freq.SECONDLY else 0)

    def _leap(self, slots: HourSlots, second: int, period: datetime) -> int:
        """How many periods on the next one is that may be allowed."""
        most = max(_DAY // self.step, 1)
        periods = min(slots.until(second, self.step // _SECOND) or most, most)
        # What was reckoned holds until the clock is changed, at most once a day: up to there then, by halves.
        while periods > 1 and self._is_changed(period, period + periods * self.step):
            periods //= 2
        return periods

    def _is_changed(self, at: datetime, later: datetime) -> bool:
        """Whether the clock is changed between two instants."""
        return wall(later, self.place) - wall(at, self.place) != later - at


@dataclass(frozen=True, slots=True)
class HourSlots:
    """The seconds of an hour at which periods may begin. Whether steps ever meet one of them is a matter of arithmetic.

    Attributes:
        seconds: from 0 to 3599.
        residues: what remains of them when they are divided by the common divisor of the step and an hour.
        divisor: that divisor.
    """

    seconds: frozenset[int]
    residues: frozenset[int]
    divisor: int

    def until(self, second: int, step: int) -> int | None:
        """How many steps of so many seconds it is from a second to an allowed one; None if they never meet one."""
        if second % self.divisor not in self.residues:
            return None
        return next(number for number in itertools.count(1) if (second + number * step) % _HOUR in self.seconds)


def elapsed_rule(rule: RecurrenceRule, start: datetime, place: ZoneInfo, *, is_default: bool) -> ElapsedRule:
    """Make a rule countable.

    Args:
        rule: hourly or faster.
        start: naive.
        place: whose wall clock it starts and filters by.
        is_default: whether nobody has chosen the start. Then periods are counted from midnight by the offset from UTC
            that the place has on a 1 January by its present rules, and an hourly rule occurs when the clock shows a
            full hour: a place may have changed its offset since the start.

    Returns:
        What can be counted from anywhere.
    """
    first = start.replace(
        minute=0 if rule.freq is Freq.HOURLY else start.minute,
        second=start.second if rule.freq is Freq.SECONDLY else 0,
        microsecond=0,
    )
    begun = instant(start, place)
    base = instant(_SETTLED, place) if is_default else instant(first, place)
    assert begun is not None  # noqa: S101 - a gap is shifted
    assert base is not None  # noqa: S101
    if is_default:
        base -= _SETTLED - first
    selects = (rule.by_month, rule.by_month_day, rule.by_year_day, rule.by_day)
    return ElapsedRule(
        rule,
        place,
        base,
        begun,
        _UNITS[rule.freq] * rule.interval,
        _offsets(rule, start),
        rule.freq is Freq.HOURLY and (bool(rule.by_minute) or is_default),
        rule.by_set_pos,
        _days(rule, start) if any(selects) else None,
        _slots(rule),
    )


def _slots(rule: RecurrenceRule) -> HourSlots | None:
    """What filters periods that are shorter than an hour."""
    minutes = rule.by_minute if rule.freq >= Freq.MINUTELY else ()
    seconds = rule.by_second if rule.freq is Freq.SECONDLY else ()
    if not minutes and not seconds:
        return None
    ends = (0,) if rule.freq is Freq.MINUTELY else seconds or range(60)
    found = frozenset(minute * 60 + second for minute in minutes or range(60) for second in ends)
    divisor = math.gcd(_UNITS[rule.freq] * rule.interval // _SECOND, _HOUR)
    return HourSlots(found, frozenset(each % divisor for each in found), divisor)


def _offsets(rule: RecurrenceRule, start: datetime) -> tuple[timedelta, ...]:
    """Where in each period occurrences are: what is finer than the frequency expands, and the start stands for it."""
    minutes = (rule.by_minute or (start.minute,)) if rule.freq is Freq.HOURLY else (0,)
    seconds = (rule.by_second or (start.second,)) if rule.freq < Freq.SECONDLY else (0,)
    return tuple(timedelta(minutes=minute, seconds=second) for minute in minutes for second in seconds)


def _days(rule: RecurrenceRule, start: datetime) -> AnchoredRule | DailyRule:
    """The days that a rule allows, as a daily rule of their own."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    daily = replace(
        rule,
        freq=Freq.DAILY,
        interval=1,
        count=None,
        until=None,
        by_hour=(),
        by_minute=(),
        by_second=(),
        by_set_pos=(),
    )
    return anchored(daily, midnight)
