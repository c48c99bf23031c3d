"""When something is due: rules, cron expressions and single times together, on the wall clock of one place.

A `Schedule` is the union of its parts without what it excludes. "At 6:30 AM and 4 PM" needs that: hours and minutes of
one rule multiply, so it is two rules (RFC 5545, 3.3.10). Occurrences are instants, strictly increasing, each once, also
where two parts meet, and in the nights in which clocks are changed (see `redrive.schedule.timezone`).

The start (``DTSTART``) is stored once, when a person says the schedule. Whoever reckons it anew at each question gets
schedules that drift, "every two weeks" that means nothing, and counts that never end: all three are defects of the
original of seed 004.

A question costs the same however long ago the start lies; see `redrive.schedule.calendar`. A rule that never occurs is
refused when the schedule is made, after a bounded search.

Thousands of keys share a schedule and ask the same question within a second. So a schedule remembers its last answers:
between the instant that was asked about and the occurrence that was found nothing occurs, hence whoever asks about an
instant between them gets the same answer without a search. A schedule is a value nevertheless: what it remembers
changes no answer, is no part of its comparison, and does not travel with it.
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

__all__ = ["ANCHOR", "Schedule"]

MOST = 100_000
"""How many occurrences a rule with ``COUNT`` may have. They are counted once, when the schedule is made."""

_MARGIN = timedelta(days=2)
"""How far the wall clock of a place can be from where it was: a place may even leave out a day."""


ANCHOR = datetime(2001, 1, 1)  # noqa: DTZ001 - naive is the wall clock
"""Where schedules begin that say nothing of it: a Monday, at midnight, long ago. What is written in a program must mean
the same after each deployment."""


class _Source(Protocol):
    """Something that occurs."""

    def since(self, at: datetime) -> Iterator[datetime]:
        """Instants at this one and later, in order; perhaps a few before it, or twice."""
        ...


@dataclass(frozen=True, slots=True)
class _Local:
    """A rule on the wall clock."""

    anchored: AnchoredRule | DailyRule
    place: ZoneInfo
    gap: Gap
    without: frozenset[datetime]

    def since(self, at: datetime) -> Iterator[datetime]:
        shifted: list[datetime] = []  # over a gap, and so perhaps past occurrences that follow
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


class _Answers:
    """The last answers of a schedule: pairs of an instant that was asked about, in UTC, and what was found.

    They are replaced together, by one assignment: a thread that reads meanwhile sees the old ones or the new ones.
    """

    __slots__ = ("given",)

    def __init__(self) -> None:
        self.given: tuple[tuple[datetime, datetime], ...] = ()

    def find(self, at: datetime) -> datetime | None:
        for asked, found in self.given:
            if asked <= at <= found:
                return found
        return None

    def keep(self, at: datetime, found: datetime) -> None:
        # In UTC: two times of one zone are compared by the wall clock, which in a fold is wrong.
        others = [each for each in self.given if each[1] != found]
        self.given = ((at.astimezone(UTC), found), *others[: MEMORY - 1])

    def __reduce__(self) -> tuple[type[_Answers], tuple[()]]:
        return _Answers, ()


MEMORY = 4
"""Answers that a schedule remembers. A start asks about now and about its deadline, which may be a different answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When something is due.

    Attributes:
        start: the beginning, naive on the wall clock of the place; rules take from it what they leave open, and count
            every second day or third week from it.
        rules: of RFC 5545.
        crons: cron expressions; these have no start, and ``gap`` is not for them.
        times: more times, naive on the wall clock (``RDATE``).
        except_times: times at which nothing is due after all, naive on the wall clock (``EXDATE``). One that the clock
            leaps over excludes what is made up for it, and not what is due anyway at the instant that stands for it.
        tz: the place, by its name in the IANA database.
        gap: what becomes of times that its clock leaps over.

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
                raise ScheduleError(f"{each!r} is no time: write datetime(2026, 1, 31, 16, 30)")
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
        """The schedule of one cron expression.

        Args:
            text: in one of the forms of `redrive.schedule.CronExpression`.
            tz: the place whose wall clock it means, by its name in the IANA database.

        Returns:
            The schedule.

        Raises:
            ScheduleError: it is no cron expression, or there is no such place.
        """
        return cls(crons=(CronExpression.parse(text),), tz=tz)

    @property
    def place(self) -> ZoneInfo:
        """The time zone of the place."""
        return zone(self.tz)

    def since(self, at: datetime) -> Iterator[datetime]:
        """The occurrences from an instant on.

        Args:
            at: aware; one at this very instant belongs to them.

        Returns:
            Instants in UTC, strictly increasing, perhaps for a hundred years. Take what is needed.
        """
        aware("at", at)
        last: datetime | None = None
        for each in heapq.merge(*(source.since(at) for source in self._sources)):
            if each >= at and each != last and each not in self._excluded:
                last = each
                yield each

    def next(self, at: datetime, *, after: datetime | None = None) -> datetime | None:
        """The first occurrence at an instant or later.

        Args:
            at: aware.
            after: it is later than this too; by default nothing more is asked.

        Returns:
            The instant in UTC, or None where there is none any more.
        """
        aware("at", at)
        begin = at if after is None or aware("after", after) < at else after + timedelta.resolution
        known = self._answers.find(begin)
        if known is not None:
            return known
        found = next(self.since(begin), None)
        if found is not None:  # a search that found nothing has a horizon, and one from later on sees farther
            self._answers.keep(begin, found)
        return found

    def last(self, since: datetime, until: datetime) -> datetime | None:
        """The last occurrence between two instants, found by halving: some fifty questions for a month of seconds.

        Args:
            since: aware; an occurrence at this very instant counts.
            until: aware; one at this very instant counts too.

        Returns:
            The instant in UTC, or None where there is none between them.
        """
        found: datetime | None = None
        low, high = aware("since", since).astimezone(UTC), aware("until", until).astimezone(UTC)
        while low <= high:
            middle = low + (high - low) // 2
            following = self.next(middle)
            if following is None or following > high:  # from the middle to the end there is none
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
    end = _end(rule, whole, begin, place)  # COUNT counts what is excluded, too
    return source if end is None else _Ended(source, end)


def _end(rule: RecurrenceRule, source: _Source, begin: datetime, place: ZoneInfo) -> datetime | None:
    """The last instant at which a rule can occur. A count is counted once, here: it cannot be moved with the rule."""
    if rule.until is not None:
        return rule.until.astimezone(UTC) if rule.until.tzinfo else instant(rule.until, place)
    if rule.count is None:
        return None
    if rule.count > MOST:
        raise ScheduleError(
            f"the recurrence rule {str(rule)!r} has more than {MOST:,} occurrences: say UNTIL, or no end"
        )
    *_, last = itertools.islice((each for each in source.since(begin) if each >= begin), rule.count)
    return last
