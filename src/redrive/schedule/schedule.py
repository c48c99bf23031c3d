"""Schedules: recurrence rules, cron expressions and single times together, on the wall clock of one time zone. PURE.

A `Schedule` is the union of its parts less its exceptions. "At 6:30 AM and 4 PM" needs two rules, because the hours and
minutes of one rule multiply (RFC 5545, 3.3.10). Occurrences are instants, strictly increasing, each once, also where
two parts meet and when clocks are changed (see `redrive.schedule.timezone`).

A query costs the same however long ago the start lies; see `redrive.schedule.calendar`. A rule that never occurs is
refused when the schedule is made, after a bounded search.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from redrive.errors import ScheduleError
from redrive.schedule.calendar import AnchoredRule, DailyRule, anchored
from redrive.schedule.cron import CronExpression
from redrive.schedule.elapsed import elapsed_rule
from redrive.schedule.member import member
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.timezone import Gap, aware, instant, instants, wall, zone

# Maximum ``COUNT`` of a rule. The occurrences are counted once, when the schedule is made.
MOST = 100_000

# Maximum change of the wall clock of a time zone; some have skipped a whole day.
_MARGIN = timedelta(days=2)


# The start (``DTSTART``) is stored with the schedule. Computed anew at each query, it would make "every two weeks"
# meaningless and counts endless.
#
# The default start: midnight of a Monday long ago, so that a program means the same after each deployment.
ANCHOR = datetime(2001, 1, 1)  # noqa: DTZ001 - naive is the wall clock


class _Source(Protocol):
    """A source of occurrences."""

    def since(self, at: datetime) -> Iterator[datetime]:
        """Return the occurrences from an instant on, in order; a few before it and duplicates are allowed."""
        ...


@dataclass(frozen=True, slots=True)
class _Local:
    """A rule on the wall clock."""

    anchored: AnchoredRule | DailyRule
    place: ZoneInfo
    gap: Gap
    without: frozenset[datetime]

    def since(self, at: datetime) -> Iterator[datetime]:
        # Out of a gap, and perhaps past the occurrences that follow.
        shifted: list[datetime] = []
        for local in self.anchored.since(_earlier(wall(at, self.place))):
            if local in self.without:
                continue
            found = instant(local, self.place, self.gap)
            if found is None:
                continue
            if wall(found, self.place) != local:
                heapq.heappush(shifted, found)
                continue
            while shifted and shifted[0] < found:
                yield heapq.heappop(shifted)
            yield found
        yield from sorted(shifted)


def _earlier(local: datetime) -> datetime:
    return local - _MARGIN if local.year > 1 else local


@dataclass(frozen=True, slots=True)
class _Ended:
    """A source with an end."""

    source: _Source
    until: datetime

    def since(self, at: datetime) -> Iterator[datetime]:
        return itertools.takewhile(lambda each: each <= self.until, self.source.since(at))


@dataclass(frozen=True, slots=True)
class _Cron:
    """A cron expression."""

    cron: CronExpression
    place: ZoneInfo
    without: frozenset[datetime]

    def since(self, at: datetime) -> Iterator[datetime]:
        return self.cron.since(at, self.place, without=self.without)


@dataclass(frozen=True, slots=True)
class _Times:
    """Single times."""

    at: tuple[datetime, ...]

    def since(self, at: datetime) -> Iterator[datetime]:
        return (each for each in self.at if each >= at)


# Thousands of keys share a schedule and send the same query within a second. No occurrence lies between a queried
# instant and the occurrence found, so queries between them get the same answer without a search. The cache changes no
# answer, and is not compared or pickled. It is replaced by one assignment, so concurrent threads see either the old or
# the new answers.
class _Answers:
    """The last answers of a schedule: pairs of a queried instant, in UTC, and the occurrence found."""

    __slots__ = ("given",)

    def __init__(self) -> None:
        self.given: tuple[tuple[datetime, datetime], ...] = ()

    def find(self, at: datetime) -> datetime | None:
        for asked, found in self.given:
            if asked <= at <= found:
                return found
        return None

    def keep(self, at: datetime, found: datetime) -> None:
        # In UTC, because Python compares two times of one zone by the wall clock, which is wrong in a fold.
        others = [each for each in self.given if each[1] != found]
        self.given = ((at.astimezone(UTC), found), *others[: MEMORY - 1])

    def __reduce__(self) -> tuple[type[_Answers], tuple[()]]:
        return _Answers, ()


# Answers that a schedule keeps. A start queries now and its deadline, which may have different answers.
MEMORY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The times at which a job or a refresh is due.

    Attributes:
        start: the beginning, naive on the wall clock; rules take from it what they leave open, and count intervals from
            it.
        rules: rules of RFC 5545.
        crons: cron expressions; they do not use ``start`` and ``gap``.
        times: more times, naive on the wall clock (``RDATE``).
        except_times: excluded times, naive on the wall clock (``EXDATE``). One in a gap excludes the occurrence that is
            shifted from it, and not another one at the instant to which it is shifted.
        tz: the time zone, by its name in the IANA database.
        gap: the treatment of times that do not exist.

    Raises:
        ScheduleError: a part can never occur, or there is no part.
    """

    start: datetime = ANCHOR
    rules: tuple[RecurrenceRule, ...] = ()
    crons: tuple[CronExpression, ...] = ()
    times: tuple[datetime, ...] = ()
    except_times: frozenset[datetime] = frozenset()
    tz: str = "UTC"
    gap: Gap = Gap.SHIFT
    _sources: tuple[_Source, ...] = field(init=False, repr=False, compare=False)
    _excluded: frozenset[datetime] = field(init=False, repr=False, compare=False)
    _answers: _Answers = field(init=False, repr=False, compare=False, default_factory=_Answers)

    def __post_init__(self) -> None:
        place = zone(self.tz)
        object.__setattr__(self, "gap", member(Gap, "gap", self.gap))
        for each in (self.start, *self.times, *self.except_times):
            if not isinstance(each, datetime):
                raise ScheduleError(f"{each!r} is not a time: write datetime(2026, 1, 31, 16, 30)")
            if each.tzinfo is not None:
                raise ScheduleError(
                    f"{each} has a time zone of its own: times of a schedule are those of tz={self.tz!r}"
                )
        if not (self.rules or self.crons or self.times):
            raise ScheduleError("a schedule needs a rule, a cron expression or a time")
        skipped = frozenset(each for each in self.except_times if not instants(each, place))
        sources: list[_Source] = [_source(each, self.start, place, self.gap, skipped) for each in self.rules]
        sources += [_Cron(each, place, skipped) for each in self.crons]
        single = {found for each in {*self.times} - skipped if (found := instant(each, place, self.gap))}
        object.__setattr__(self, "_sources", (*sources, _Times(tuple(sorted(single)))))
        excluded = [instants(each, place)[0] for each in self.except_times - skipped]
        object.__setattr__(self, "_excluded", frozenset(excluded))

    @classmethod
    def cron(cls, text: str, *, tz: str = "UTC") -> Schedule:
        """Return the schedule of one cron expression.

        Args:
            text: in one of the forms of `redrive.schedule.CronExpression`.
            tz: its time zone, by its name in the IANA database.

        Raises:
            ScheduleError: the expression or the time zone is not valid.
        """
        return cls(crons=(CronExpression.parse(text),), tz=tz)

    @property
    def place(self) -> ZoneInfo:
        """Return the time zone."""
        return zone(self.tz)

    def since(self, at: datetime) -> Iterator[datetime]:
        """Return the occurrences from an instant on, that instant included.

        Args:
            at: aware.

        Returns:
            Instants in UTC, strictly increasing, perhaps for a hundred years; take only what is needed.
        """
        aware("at", at)
        last: datetime | None = None
        for each in heapq.merge(*(source.since(at) for source in self._sources)):
            if each >= at and each != last and each not in self._excluded:
                last = each
                yield each

    def next(self, at: datetime, *, after: datetime | None = None) -> datetime | None:
        """Return the first occurrence at an instant or later, in UTC; None if there is none.

        Args:
            at: aware.
            after: if given, the occurrence is later than this, too.
        """
        aware("at", at)
        begin = at if after is None or aware("after", after) < at else after + timedelta.resolution
        known = self._answers.find(begin)
        if known is not None:
            return known
        found = next(self.since(begin), None)
        # A search without result has a horizon; one from a later instant sees farther.
        if found is not None:
            self._answers.keep(begin, found)
        return found

    # It is found by bisection: about fifty queries for a month of seconds.
    def last(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last occurrence between two instants, both included, in UTC; None if there is none."""
        found: datetime | None = None
        low, high = aware("since", since).astimezone(UTC), aware("until", until).astimezone(UTC)
        while low <= high:
            middle = low + (high - low) // 2
            following = self.next(middle)
            # None between the middle and the end.
            if following is None or following > high:
                high = middle - timedelta.resolution
            else:
                found, low = following, following + timedelta.resolution
        return found


def _source(rule: RecurrenceRule, start: datetime, place: ZoneInfo, gap: Gap, without: frozenset[datetime]) -> _Source:
    if rule.interval > rule.freq.most:
        raise ScheduleError(f"the recurrence rule {str(rule)!r} has an interval of more than a thousand years")
    begin = instant(start, place)
    assert begin is not None  # noqa: S101 - a gap is shifted
    source: _Source
    whole: _Source
    if rule.freq.is_elapsed:
        source = whole = elapsed_rule(rule, start, place, is_default=start == ANCHOR)
    else:
        walked = anchored(rule, start)
        source, whole = _Local(walked, place, gap, without), _Local(walked, place, gap, frozenset())
    first = next(iter(whole.since(begin)), None)
    if first is None:
        raise ScheduleError(f"the recurrence rule {str(rule)!r} never occurs after {start}")
    # COUNT includes excluded occurrences.
    end = _end(rule, whole, begin, place)
    return source if end is None else _Ended(source, end)


def _end(rule: RecurrenceRule, source: _Source, begin: datetime, place: ZoneInfo) -> datetime | None:
    """Return the last instant at which a rule can occur."""
    # COUNT is counted once, here: unlike the other parts it cannot be moved with the rule.
    if rule.until is not None:
        return rule.until.astimezone(UTC) if rule.until.tzinfo else instant(rule.until, place)
    if rule.count is None:
        return None
    if rule.count > MOST:
        raise ScheduleError(
            f"the recurrence rule {str(rule)!r} has more than {MOST:,} occurrences: give UNTIL, or no end"
        )
    *_, last = itertools.islice((each for each in source.since(begin) if each >= begin), rule.count)
    return last
