"""Warnings about refresh policies that are valid but questionable. PURE.

A contradictory policy is refused when it is made. These warnings cover policies with an improbable meaning: an example
of the refresh-with-retry-policy document allows two hours for a refresh every two hours, so that no retry can ever fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from redrive.schedule.english.spans import written
from redrive.schedule.options import Exhausted, GiveUpSince, PolicyFields, Strategy
from redrive.schedule.rule import Freq
from redrive.schedule.schedule import Schedule
from redrive.schedule.timezone import Gap, instant, wall

# Number of occurrences that are listed.
MOST = 300

_HOUR, _DAY, _SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)
# Two years and more, so that a yearly rule shows a gap.
_LONG = timedelta(days=800)
_LOOKS = ((_HOUR, timedelta(days=8)), (_DAY, timedelta(days=366)))

# The days that each month has.
_SHORTEST = 28
_STEPS: Final[Mapping[Freq, timedelta]] = {
    Freq.HOURLY: _HOUR,
    Freq.MINUTELY: timedelta(minutes=1),
    Freq.SECONDLY: _SECOND,
}

# Years searched for planned refreshes at times that do not exist. A weekly one may meet no such night in one year.
LEAP_YEARS = 5

# A schedule that ends within this time causes a warning.
SOON = timedelta(days=30)

# The strategies under which a retry has to fit.
_ALIGNING = frozenset({Strategy.ALIGN, Strategy.UNTIL_PLANNED})
# The effect of a chain of retries that is longer than the gap between two planned refreshes.
_OVER: Final[Mapping[Strategy, str]] = {
    Strategy.ALIGN: "later retries wait for a planned refresh",
    Strategy.UNTIL_PLANNED: "the next planned refresh counts its attempts anew before all retries are made",
    Strategy.WHICHEVER_FIRST: "some retries are made at a planned refresh, and sooner",
    Strategy.UNTIL_SUCCESS: "planned refreshes are left out until then",
}


# A warning is a sentence with the figures and a remedy. The figures are taken from a sample of the occurrences (`gaps`)
# and can be wrong for schedules with rare, irregular gaps.
def lint(policy: PolicyFields, now: datetime | None) -> tuple[str, ...]:
    """Return the warnings about a policy; without ``now`` those that depend on it are left out."""
    schedule = policy.schedule
    if schedule is None:
        return (*_endless(policy, None), *_early(policy, None), *_contradictory(policy))
    found = gaps(schedule, now or _beginning(schedule))
    warnings = [*(_of_gaps(policy, found) if found is not None else ()), *_endless(policy, found)]
    warnings += [*_contradictory(policy), *_left_out(schedule)]
    if now is not None:
        warnings += [*_leapt_over(schedule, now), *_ending(schedule, now)]
    return tuple(warnings)


def _beginning(schedule: Schedule) -> datetime:
    found = instant(schedule.start, schedule.place)
    assert found is not None  # a schedule that never occurs was refused
    return found


def _of_gaps(policy: PolicyFields, found: Gaps) -> Iterator[str]:
    if _never_fits(policy, found):
        yield (
            "No retry can ever be made between two planned refreshes: the shortest delay, "
            f"{written(min(policy.delays))}, and the timeout, {written(policy.timeout)}, are together no shorter than "
            f"the gap, {written(found.longest)}. Allow less time, or keep retrying until it succeeds."
        )
    elif _is_overlong(policy, found) and isinstance(policy.strategy, Strategy):
        yield (
            f"If each attempt times out, the last one ends after {written(_chain(policy))}, and planned refreshes lie "
            f"{written(found.shortest)} apart: {_OVER[policy.strategy]}. A shorter timeout, shorter delays or fewer "
            "retries avoid that."
        )
    if policy.give_up_after is not None and policy.give_up_after <= found.longest:
        yield from _early(policy, found)


def _early(policy: PolicyFields, found: Gaps | None) -> Iterator[str]:
    """Warn about a limit that ends before the next planned refresh."""
    if policy.give_up_after is None:
        return
    limit = written(policy.give_up_after)
    is_since_success = policy.give_up_since is GiveUpSince.LAST_SUCCESS
    if found is None and is_since_success:
        yield (
            f"It gives up {limit} after the last success, and has no schedule: if it is started later than that, the "
            "first failure is final, and no retry is made. Count from the first failure, or add a schedule."
        )
    elif found is not None and is_since_success:
        yield (
            f"It gives up {limit} after the last success, and planned refreshes lie up to {written(found.longest)} "
            "apart: the first failure can be final, and no retry is made. Wait longer than that, or count from the "
            "first failure."
        )
    elif found is not None:
        yield (
            f"It gives up after {limit} without success, and planned refreshes lie up to {written(found.longest)} "
            "apart: it can be given up before the next one is tried. Wait longer than that."
        )


def _never_fits(policy: PolicyFields, found: Gaps) -> bool:
    if not policy.delays or policy.strategy not in _ALIGNING:
        return False
    # An attempt takes some time, too.
    return min(policy.delays) + policy.timeout >= found.longest


def _is_overlong(policy: PolicyFields, found: Gaps) -> bool:
    if not policy.delays or policy.repeat_last or policy.strategy not in _OVER:
        return False
    return _chain(policy) > found.shortest


def _chain(policy: PolicyFields) -> timedelta:
    """Return how long all attempts take if each one times out."""
    return sum(policy.delays, policy.timeout * (len(policy.delays) + 1))


def _endless(policy: PolicyFields, found: Gaps | None) -> Iterator[str]:
    if policy.give_up_after is not None:
        return
    why = None
    if policy.repeat_last:
        why = f"it retries every {written(policy.delays[-1])} for ever"
    elif policy.on_exhausted is Exhausted.WAIT_NEXT:
        why = "after the last retry it waits for the next planned refresh, and counts anew"
    elif policy.strategy is Strategy.UNTIL_PLANNED and found is not None and _is_overlong(policy, found):
        why = "planned refreshes count anew before all retries are used up"
    if why is not None:
        yield f'Nothing ends it when nothing succeeds: {why}. Add a limit, such as "Give up after one week".'


def _contradictory(policy: PolicyFields) -> Iterator[str]:
    """Warn about two endings of which one comes long before the other, or at the first failure."""
    if policy.on_exhausted is not Exhausted.GIVE_UP or policy.repeat_last:
        return
    count = len(policy.delays) + 1
    retries = "there are no retries" if count == 1 else f"the retries are used up after {count} failures"
    limit = policy.give_up_after
    if limit is not None and sum(policy.delays, timedelta(0)) < limit:
        help_ = "Wait for the next scheduled refresh after the last one" if policy.schedule else "Add a schedule"
        yield (
            f"It has two endings, and the first one counts: {retries}, and then it gives up, although "
            f"{written(limit)} without success are allowed. {help_}, or leave out the limit in time."
        )
    elif limit is None and count == 1:
        yield (
            "The first failure is final: there are no retries, and it is disabled until an update. Add a retry, "
            'such as "On the first failure, retry after 5 minutes", or how long to go on, such as "Give up after one '
            'week".'
        )


def _left_out(schedule: Schedule) -> Iterator[str]:
    """Warn about months and windows in which a rule has fewer times than its words promise."""
    for rule in schedule.rules:
        days = [each for each in rule.by_month_day if each > _SHORTEST]
        if days and rule.freq is Freq.MONTHLY and -1 not in rule.by_month_day:
            yield (
                f"Months without a day {days[0]} are left out. The last day of the month exists in each month: "
                '"on the last day of the month".'
            )
        if rule.freq.is_elapsed and rule.by_hour and _DAY % (_STEPS[rule.freq] * rule.interval):
            yield (
                f"The times of {str(rule)!r} differ from day to day, and its hours leave out some of them: its "
                "steps do not divide a day. A window in English is counted from its beginning: "
                '"every 50 minutes between 9 AM and 5 PM".'
            )


def _leapt_over(schedule: Schedule, now: datetime) -> Iterator[str]:
    """Warn about planned refreshes at times that do not exist in nights in which the clock is advanced."""
    clock = _by_the_clock(schedule)
    if clock is None:
        return
    slots = []
    for begin, end in leaps(schedule.place, now, LEAP_YEARS):
        slot = clock.next(begin.replace(tzinfo=UTC))
        if slot is not None and slot < end.replace(tzinfo=UTC):
            slots.append((slot, begin, end))
    if slots:
        slot, begin, end = slots[0]
        left_out = schedule.gap is Gap.SKIP and not schedule.crons
        are_at = "1 planned refresh is at a time" if len(slots) == 1 else f"{len(slots)} planned refreshes are at times"
        yield (
            f"Within {LEAP_YEARS} years {are_at} that the clocks of {schedule.tz} leap over, the first on "
            f"{slot:%Y-%m-%d at %H:%M}: it {'is left out' if left_out else 'comes after the leap'}. Times before "
            f"{begin:%H:%M} and from {end:%H:%M} on exist each day."
        )


def _by_the_clock(schedule: Schedule) -> Schedule | None:
    """Return the part of a schedule that follows the wall clock, in UTC, where no time is left out."""
    rules = tuple(each for each in schedule.rules if not each.freq.is_elapsed)
    crons = tuple(each for each in schedule.crons if not each.is_elapsed)
    if not (rules or crons or schedule.times):
        return None
    return replace(schedule, rules=rules, crons=crons, tz="UTC")


def _ending(schedule: Schedule, now: datetime) -> Iterator[str]:
    if schedule.next(now + SOON) is not None:
        return
    last = schedule.last(now, now + SOON)
    if last is None:
        yield "The schedule has ended: nothing is planned any more. Give a later end, or none."
        return
    yield (
        f"The schedule ends soon: its last planned refresh is on {wall(last, schedule.place):%Y-%m-%d at %H:%M}. "
        "Give a later end, or none."
    )


class Gaps(msgspec.Struct, frozen=True):
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
