"""The expansion of rules in elapsed time: hourly and faster. PURE.

"Every two hours" means two hours of elapsed time, also when the clock is changed: libraries that count such rules on
the wall clock then repeat an instant, go backwards, or skip a real hour (dateutil #1351). So periods are instants,
computed from the start in closed form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from redrive.schedule.calendar import AnchoredRule, DailyRule, anchored
from redrive.schedule.rule import Freq, RecurrenceRule
from redrive.schedule.timezone import instant, instants, wall

# Maximum number of days of a search. Steps of hours and minutes repeat within 1,440 days, so a rule that has not met
# its filter by then never does.
DAYS = 4000

_HOUR = 3600  # seconds
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_SETTLED = datetime(2050, 1, 1)  # naive is the wall clock; the rules that are known hold by then
_UNITS: Final[Mapping[Freq, timedelta]] = {
    Freq.HOURLY: timedelta(hours=1),
    Freq.MINUTELY: timedelta(minutes=1),
    Freq.SECONDLY: timedelta(seconds=1),
}


class ElapsedRule(msgspec.Struct, frozen=True):
    """A rule with its start."""

    rule: RecurrenceRule
    place: ZoneInfo
    # The instant of the beginning of the first period.
    base: datetime
    # No occurrence is earlier.
    start: datetime
    # The length of a period.
    step: timedelta
    # Positions of the occurrences in a period; in an hour of the wall clock if ``is_by_clock``.
    offsets: tuple[timedelta, ...]
    # True if the wall clock determines the position in an hour.
    is_by_clock: bool
    # Which of the occurrences of a period, from its end if negative; empty means all.
    places: tuple[int, ...]
    # The days that the rule allows; None means all.
    days: AnchoredRule | DailyRule | None
    # The positions in an hour at which a period may begin; None means all.
    slots: HourSlots | None

    # The other parts of the rule, days, hours and minutes, filter by the wall clock: "between 9 and 5 on weekdays", "at
    # minute 15 of each hour". If a filter refuses, the search jumps to the next allowed day or hour; within an hour, to
    # the period that meets an allowed second, which is a congruence. If none ever does, it jumps from day to day up to
    # the next clock change, so a rule that never occurs is found within milliseconds.
    def since(self, at: datetime) -> Iterator[datetime]:
        """Return the occurrences from an instant on, in order, up to a horizon; ``COUNT`` and ``UNTIL`` are ignored."""
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
        """Return the wall-clock times at the beginning of a period and at its last relevant second."""
        local = wall(period, self.place)
        return local, wall(period + _UNITS[Freq.HOURLY] - _SECOND, self.place) if self.is_by_clock else local

    def _within(self, period: datetime, local: datetime, until: datetime) -> list[datetime]:
        """Return the occurrences of a period, given the wall-clock times at its beginning and end."""
        if self.is_by_clock:
            # After a change by half an hour, one period shows two hours of the clock.
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
        """Return the first allowed day, from that of a time on."""
        assert self.days is not None  # the caller asks only then
        return next(self.days.since(local.replace(hour=0, minute=0, second=0, microsecond=0)), None)

    def _at(self, local: datetime, number: int) -> int:
        """Return the first later period that begins at a time or later, or contains it."""
        at = instant(local, self.place) or self.base
        first = -((self.base - at) // self.step)
        return max(first - 1 if self.is_by_clock else first, number + 1)

    def _next_hour(self, local: datetime) -> datetime | None:
        """Return the next time with an allowed hour; None if the hour is allowed."""
        hours = self.rule.by_hour
        if not hours or local.hour in hours:
            return None
        day = local.replace(hour=0, minute=0, second=0, microsecond=0)
        later = next((hour for hour in hours if hour > local.hour), None)
        return day + timedelta(days=1) if later is None else day.replace(hour=later)

    def _second(self, local: datetime) -> int:
        """Return the second of its hour at which a period begins."""
        return local.minute * 60 + (local.second if self.rule.freq is Freq.SECONDLY else 0)

    def _leap(self, slots: HourSlots, second: int, period: datetime) -> int:
        """Return the number of periods to the next one that may be allowed."""
        most = max(_DAY // self.step, 1)
        periods = min(slots.until(second, self.step // _SECOND) or most, most)
        # The result holds until the clock is changed, at most once a day: halve it until no change lies between.
        while periods > 1 and self._is_changed(period, period + periods * self.step):
            periods //= 2
        return periods

    def _is_changed(self, at: datetime, later: datetime) -> bool:
        """Return True if the clock is changed between two instants."""
        return wall(later, self.place) - wall(at, self.place) != later - at


class HourSlots(msgspec.Struct, frozen=True):
    """The seconds of an hour at which periods may begin."""

    # From 0 to 3599.
    seconds: frozenset[int]
    # Their residues modulo ``divisor``.
    residues: frozenset[int]
    # Greatest common divisor of the step and an hour, in seconds.
    divisor: int

    def until(self, second: int, step: int) -> int | None:
        """Return the number of steps from a second to an allowed one; None if the steps never meet one."""
        if second % self.divisor not in self.residues:
            return None
        return next(number for number in itertools.count(1) if (second + number * step) % _HOUR in self.seconds)


# If ``is_default``, the start is the default of all schedules. Then periods are counted from midnight by the present
# winter offset of the time zone, and an hourly rule occurs at full hours of the wall clock: the offset may have changed
# since the start.
def elapsed_rule(rule: RecurrenceRule, start: datetime, place: ZoneInfo, *, is_default: bool) -> ElapsedRule:
    """Return an hourly or faster rule with its naive start."""
    first = start.replace(
        minute=0 if rule.freq is Freq.HOURLY else start.minute,
        second=start.second if rule.freq is Freq.SECONDLY else 0,
        microsecond=0,
    )
    begun = instant(start, place)
    base = instant(_SETTLED, place) if is_default else instant(first, place)
    assert begun is not None  # a gap is shifted
    assert base is not None
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
    """Return the filter for periods that are shorter than an hour."""
    minutes = rule.by_minute if rule.freq >= Freq.MINUTELY else ()
    seconds = rule.by_second if rule.freq is Freq.SECONDLY else ()
    if not minutes and not seconds:
        return None
    ends = (0,) if rule.freq is Freq.MINUTELY else seconds or range(60)
    found = frozenset(minute * 60 + second for minute in minutes or range(60) for second in ends)
    divisor = math.gcd(_UNITS[rule.freq] * rule.interval // _SECOND, _HOUR)
    return HourSlots(found, frozenset(each % divisor for each in found), divisor)


def _offsets(rule: RecurrenceRule, start: datetime) -> tuple[timedelta, ...]:
    """Return the positions of the occurrences in each period; the start supplies missing values."""
    minutes = (rule.by_minute or (start.minute,)) if rule.freq is Freq.HOURLY else (0,)
    seconds = (rule.by_second or (start.second,)) if rule.freq < Freq.SECONDLY else (0,)
    return tuple(timedelta(minutes=minute, seconds=second) for minute in minutes for second in seconds)


def _days(rule: RecurrenceRule, start: datetime) -> AnchoredRule | DailyRule:
    """Return the days that a rule allows, as a daily rule."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    daily = replace(
        rule, freq=Freq.DAILY, interval=1, count=None, until=None, by_hour=(), by_minute=(), by_second=(), by_set_pos=()
    )
    return anchored(daily, midnight)
