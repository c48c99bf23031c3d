"""The gaps between the occurrences of a schedule, and the clock changes of a time zone; for warnings. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from redrive.schedule.schedule import Schedule
from redrive.schedule.timezone import wall

# Number of occurrences that are listed.
MOST = 300

_HOUR, _DAY, _SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)
# Two years and more, so that a yearly rule shows a gap.
_LONG = timedelta(days=800)
_LOOKS = ((_HOUR, timedelta(days=8)), (_DAY, timedelta(days=366)))


@dataclass(frozen=True, slots=True)
class Gaps:
    """The shortest and the longest gap that was seen."""

    shortest: timedelta
    longest: timedelta


# Gaps cannot be computed in general: "every minute between 9 and 5 on weekdays" has gaps of a minute, of a night and of
# a weekend. The first `MOST` occurrences are listed. If they cover a few days only, the next occurrence is also
# computed after each hour of a week and after each day of a year, which finds longer gaps without listing all
# occurrences between.
def gaps(schedule: Schedule, begin: datetime) -> Gaps | None:
    """Return the gaps from an instant on; None if fewer than two occurrences follow."""
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
    """Return the gap around an instant, if it is longer than the known one and began within the last step."""
    following = schedule.next(at)
    if following is None or following - at <= known:
        return known
    before = schedule.last(at - step, at)
    return known if before is None else following - before


def leaps(place: ZoneInfo, begin: datetime, years: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield the nights in which the clocks are advanced.

    Each is the first wall-clock time that does not exist, and the first one after it that does; both are naive.
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
    """Return by how much the clocks are advanced between two instants."""
    return wall(after, place) - wall(before, place) - (after - before)
