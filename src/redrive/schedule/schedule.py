"""Schedules: recurrence rules, cron expressions and single times together, on the wall clock of one time zone. PURE.

A `Schedule` is the union of its parts less its exceptions. "At 6:30 AM and 4 PM" needs two rules, because the hours and
minutes of one rule multiply (RFC 5545, 3.3.10). Occurrences are instants, strictly increasing, each once, also where
two parts meet and when clocks are changed (see `redrive.schedule.timezone`).
A query costs the same however long ago the start lies; see `redrive.schedule.calendar`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import force_setattr

from redrive.errors import ScheduleError
from redrive.schedule.calendar import AnchoredRule, DailyRule, anchored
from redrive.schedule.cron import CronExpression
from redrive.schedule.elapsed import elapsed_rule
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.timezone import Gap, aware, instant, instants, member, wall, zone

# Maximum ``COUNT`` of a rule. The occurrences are counted once, when the schedule is made.
MOST = 100_000

# Occurrences that are listed before a search by bisection.
_FEW = 10

# Maximum change of the wall clock of a time zone; some have skipped a whole day.
_MARGIN = timedelta(days=2)


# The start (``DTSTART``) is stored with the schedule. Computed anew at each query, it would make "every two weeks"
# meaningless and counts endless.
#
# The default start: midnight of a Monday long ago, so that a program means the same after each deployment.
ANCHOR = datetime(2001, 1, 1)  # naive is the wall clock


T = TypeVar("T")

# Returns the occurrences from an instant on, in order; a few before it and duplicates are allowed.
_Source: TypeAlias = Callable[[datetime], Iterator[datetime]]


class Schedule(msgspec.Struct, frozen=True, kw_only=True, dict=True, cache_hash=True):
    """The times at which a job or a refresh is due.

    Attributes:
        start: the beginning, naive on the wall clock; rules take from it what they leave open, and count intervals from
            it.
        rules: rules of RFC 5545: a list of rules or texts, kept as a tuple. The same holds for the other lists.
        crons: cron expressions, or texts; they do not use ``start`` and ``gap``.
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

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            start: datetime = ...,
            rules: Iterable[RecurrenceRule | str] = ...,
            crons: Iterable[CronExpression | str] = ...,
            times: Iterable[datetime] = ...,
            except_times: Iterable[datetime] = ...,
            tz: str = ...,
            gap: Gap | str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        zone(self.tz)
        force_setattr(self, "gap", member(Gap, "gap", self.gap))
        force_setattr(self, "rules", tuple(_parts("rules", self.rules, RecurrenceRule, RecurrenceRule.parse)))
        force_setattr(self, "crons", tuple(_parts("crons", self.crons, CronExpression, CronExpression.parse)))
        force_setattr(self, "times", tuple(_parts("times", self.times, datetime)))
        force_setattr(self, "except_times", frozenset(_parts("except_times", self.except_times, datetime)))
        for each in (*_parts("start", [self.start], datetime), *self.times, *self.except_times):
            if each.tzinfo is not None:
                raise ScheduleError(
                    f"{each} has a time zone of its own: times of a schedule are those of tz={self.tz!r}"
                )
        if not (self.rules or self.crons or self.times):
            raise ScheduleError("a schedule needs a rule, a cron expression or a time")
        _ = self._sources

    # The sources are derived from the fields once, when the schedule is made, which also finds rules that never occur.
    @cached_property
    def _sources(self) -> tuple[_Source, ...]:
        place = self.place
        skipped = frozenset(each for each in self.except_times if not instants(each, place))
        sources = [_source(each, self.start, place, self.gap, skipped) for each in self.rules]
        sources += [partial(each.since, place=place, without=skipped) for each in self.crons]
        times = sorted({found for each in {*self.times} - skipped if (found := instant(each, place, self.gap))})
        return (*sources, lambda at: (each for each in times if each >= at))

    @cached_property
    def _excluded(self) -> frozenset[datetime]:
        place = self.place
        return frozenset(found[0] for each in self.except_times if (found := instants(each, place)))

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

    @classmethod
    def parse(cls, text: str, *, tz: str = "UTC") -> Schedule:
        r"""Return the schedule of lines of iCalendar (RFC 5545): a rule, and perhaps its start and other times.

        Args:
            text: lines of ``DTSTART``, ``RRULE``, ``RDATE`` and ``EXDATE``, such as
                ``"DTSTART:20260105T090000Z\nRRULE:FREQ=HOURLY;INTERVAL=2"``, or the value of one rule.
            tz: the time zone of the schedule if no line gives one. ``DTSTART;TZID=Europe/Kyiv:...`` gives Kyiv, and a
                ``DTSTART`` that ends with ``Z`` gives UTC; ``tz`` has no effect then.

        Raises:
            ScheduleError: a line is not understood, or can never have a meaning; two lines have different time zones.
        """
        from redrive.schedule.icalendar import fields_of

        return cls(**fields_of(text, tz))

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
        for each in heapq.merge(*(source(at) for source in self._sources)):
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
        return next(self.since(begin), None)

    def last(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last occurrence between two instants, both included, in UTC; None if there is none."""
        aware("since", since)
        aware("until", until)
        listed = [each for each in itertools.islice(self.since(since), _FEW) if each <= until]
        if len(listed) < _FEW:
            return listed[-1] if listed else None
        # By bisection: about fifty queries for a month of seconds.
        found, high = listed[-1], until.astimezone(UTC)
        low = found + timedelta.resolution
        while low <= high:
            middle = low + (high - low) // 2
            following = self.next(middle)
            # None between the middle and the end.
            if following is None or following > high:
                high = middle - timedelta.resolution
            else:
                found, low = following, following + timedelta.resolution
        return found


def _parts(name: str, given: object, kind: type[T], parse: Callable[[str], T] | None = None) -> Iterator[T]:
    """Yield the parts of a schedule: values of a class, and texts if they can be parsed."""
    if isinstance(given, kind | str) or not isinstance(given, Iterable):
        raise ScheduleError(f"{name}={given!r} is not a list: write {name}=[...]")
    for each in given:
        if parse is not None and isinstance(each, str):
            yield parse(each)
        elif isinstance(each, kind):
            yield each
        else:
            right = "datetime(2026, 1, 31, 16, 30)" if parse is None else f"{kind.__name__}.parse(...)"
            raise ScheduleError(f"{name}: {each!r} is not a {kind.__name__}: write {right}")


def _source(rule: RecurrenceRule, start: datetime, place: ZoneInfo, gap: Gap, without: frozenset[datetime]) -> _Source:
    if rule.interval > rule.freq.most:
        raise ScheduleError(f"the recurrence rule {str(rule)!r} has an interval of more than a thousand years")
    begin = instant(start, place)
    assert begin is not None  # a gap is shifted
    if rule.freq.is_elapsed:
        source = whole = elapsed_rule(rule, start, place, is_default=start == ANCHOR).since
    else:
        local = anchored(rule, start)
        source, whole = (partial(_shifted, local, place, gap, each) for each in (without, frozenset[datetime]()))
    first = next(iter(whole(begin)), None)
    if first is None:
        raise ScheduleError(f"the recurrence rule {str(rule)!r} never occurs after {start}")
    # COUNT includes excluded occurrences.
    end = _end(rule, whole, begin, place)
    return source if end is None else lambda at: itertools.takewhile(lambda each: each <= end, source(at))


def _shifted(
    rule: AnchoredRule | DailyRule, place: ZoneInfo, gap: Gap, without: frozenset[datetime], at: datetime
) -> Iterator[datetime]:
    """Yield the occurrences of a rule on the wall clock, those in gaps shifted."""
    # Out of a gap, and perhaps past the occurrences that follow.
    shifted: list[datetime] = []
    begin = wall(at, place)
    for local in rule.since(begin - _MARGIN if begin.year > 1 else begin):
        if local in without:
            continue
        found = instant(local, place, gap)
        if found is None:
            continue
        if wall(found, place) != local:
            heapq.heappush(shifted, found)
            continue
        while shifted and shifted[0] < found:
            yield heapq.heappop(shifted)
        yield found
    yield from sorted(shifted)


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
    *_, last = itertools.islice((each for each in source(begin) if each >= begin), rule.count)
    return last
