"""How far the occurrences of a schedule lie apart, and when the clocks of a place leap; for warnings. PURE.

Nobody can say in general how far apart they are: "every minute between 9 and 5 on weekdays" has gaps of a minute, of a
night and of a weekend. Some hundred occurrences are looked at, one after the other. Where that covers a few days only,
it is asked what comes next after each hour of a week and after each day of a year: where that is farther off than any
gap so far, a longer one was found, without a walk through what lies between.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from redrive.schedule.schedule import Schedule
from redrive.schedule.timezone import wall

__all__ = ["Gaps", "gaps", "leaps"]

MOST = 300
"""Occurrences that are looked at one after the other."""

_HOUR, _DAY, _SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)
_LONG = timedelta(days=800)  # two years and more, so that a yearly rule shows a gap
_LOOKS = ((_HOUR, timedelta(days=8)), (_DAY, timedelta(days=366)))


@dataclass(frozen=True, slots=True)
class Gaps:
    """How far occurrences lie apart, as far as was seen.

    Attributes:
        shortest: the least.
        longest: the most.
    """

    shortest: timedelta
    longest: timedelta


def gaps(schedule: Schedule, begin: datetime) -> Gaps | None:
    """Find the shortest and the longest gap.

    Args:
        schedule: whose occurrences.
        begin: aware; where to look from.

    Returns:
        What was seen; None if fewer than two occurrences are to come.
    """
    listed = list(_first(schedule, begin))
    found = [later - earlier for earlier, later in itertools.pairwise(listed)]
    if not found:
        return None
    longest = max(found)
    if len(listed) == MOST:
        at = listed[-1]
        for step, end in _LOOKS:
            while at < begin + end:
                at += step
                longest = max(longest, _around(schedule, at, step, longest))
    return Gaps(min(found), longest)


def _first(schedule: Schedule, begin: datetime) -> Iterator[datetime]:
    first: datetime | None = None
    for number, each in enumerate(itertools.islice(schedule.since(begin), MOST)):
        yield each
        first = first or each
        if number > 1 and each - first > _LONG:
            return


def _around(schedule: Schedule, at: datetime, step: timedelta, known: timedelta) -> timedelta:
    """The gap around an instant, if it is longer than what is known, and began within the last step."""
    following = schedule.next(at)
    if following is None or following - at <= known:
        return known
    before = schedule.last(at - step, at)
    return known if before is None else following - before


def leaps(place: ZoneInfo, begin: datetime, years: int) -> Iterator[tuple[datetime, datetime]]:
    """Find the nights in which clocks are advanced.

    Args:
        place: whose clocks.
        begin: aware; where to look from.
        years: how far.

    Yields:
        The first time of the clock that does not exist, and the first one after it that does; naive.
    """
    for number in range(366 * years):
        before, after = begin + number * _DAY, begin + (number + 1) * _DAY
        if _advance(place, before, after) <= timedelta(0):
            continue
        while after - before > _SECOND:
            middle = before + (after - before) // 2
            if _advance(place, before, middle) > timedelta(0):
                after = middle
            else:
                before = middle
        found = wall(after, place).replace(microsecond=0)
        yield found - _advance(place, before, after), found


def _advance(place: ZoneInfo, before: datetime, after: datetime) -> timedelta:
    """By how much clocks are advanced between two instants."""
    return wall(after, place) - wall(before, place) - (after - before)
