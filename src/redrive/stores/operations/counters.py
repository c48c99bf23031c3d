"""Writes and reads the sums of ended attempts, the depths of queues by minute, and error groups. PURE.

The rows are defined in `redrive.engine.counters`. They are for charts and lists; no decision about a job reads them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import asdict

from redrive.engine import counters
from redrive.errors import ConfigurationError
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.queues import MOST, Depth, DepthState, read_depths
from redrive.stores.operations.topics.lag import read_lags
from redrive.stores.query import Query, Statements, reads, writes

_EMPTY: Final[Mapping[str, object]] = {
    **dict.fromkeys(("due", "later", "running", "waiting", "dead"), 0),
    "oldest_for": None,
    "due_capped": False,
    "lag": None,
    "lag_for": None,
}

_NOTHING: Final = timedelta(0)

#: The time for which `groups` returns failures by hour.
HOURS = timedelta(hours=24)


class SpanSums(msgspec.Struct, frozen=True, gc=False):
    """The attempts of a task on a queue that ended within a span which begins at an instant."""

    at: datetime
    queue: str
    task: str
    succeeded: int
    retried: int
    died: int
    snoozed: int
    lost: int
    cancelled: int


class PastDepth(msgspec.Struct, frozen=True, gc=False):
    """The largest depth of a queue within a span: jobs by state, and the time since which the first one was due.

    Attributes:
        due_capped: True if there may have been more due jobs, since a count had reached its limit.
        dead: those that were neither caught nor skipped.
    """

    at: datetime
    queue: str
    due: int
    oldest_for: timedelta | None
    due_capped: bool
    later: int
    running: int
    dead: int


class BucketRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``minutes_buckets``: of a queue and a task, of a span, or of retries by their number."""

    at: datetime | None
    queue: str | None
    task: str | None
    place: int
    jobs: int


class Throughput(msgspec.Struct, frozen=True, gc=False):
    """What `throughput` returns.

    Attributes:
        since: the beginning of the first span.
        sums: by span, queue and task; spans without attempts are left out.
        took: the number of attempts by the time that they took, in buckets, by queue and task.
        took_in: the same of all queues and tasks together, by span.
        tries: the number of retries by their number, as `redrive.engine.counters.MinuteSums` has them.
        depths: by span and queue.
    """

    now: datetime
    since: datetime
    sums: tuple[SpanSums, ...]
    took: dict[tuple[str, str], list[int]]
    took_in: dict[datetime, list[int]]
    tries: list[int]
    depths: tuple[PastDepth, ...]


@writes
def write_counters(rows: counters.TallyRows) -> Statements[None]:
    """Write what a worker has counted; a repeated write changes nothing."""
    if rows.minutes:
        yield Query("minutes_put", many=[asdict(each) for each in rows.minutes])
    if rows.errors:
        yield Query("errors_put", many=[asdict(each) for each in rows.errors])
    if rows.hours:
        yield Query("error_hours_put", many=[asdict(each) for each in rows.hours])


class NotedDepths(msgspec.Struct, frozen=True, gc=False):
    """What `note_depths` returns.

    Attributes:
        left: the time until the next minute.
        depths: what was read; empty if another worker had written this minute.
    """

    at: datetime
    left: timedelta
    depths: tuple[Depth, ...]


@writes
def note_depths(*, now: datetime | None = None) -> Statements[NotedDepths]:
    """Write the depths of the queues and the lags of subscriptions for this minute, if no other worker has."""
    at = yield from instant(now)
    minute = counters.floor(at, counters.MINUTE)
    found: tuple[Depth, ...] = ()
    if not (yield Query("depths_noted", {"at": minute})):
        found = yield from read_depths(at)
        rows: dict[str, dict[str, object]] = {}
        for each in found:
            if each.standing is DepthState.SKIPPED:
                continue
            row = rows.setdefault(each.queue, {**_EMPTY, "at": minute, "queue": each.queue})
            row[each.standing.value] = each.jobs
            if each.standing is DepthState.DUE:
                row["due_capped"] = each.is_capped
            if each.oldest_at is not None:
                row["oldest_for"] = at - each.oldest_at
        for task, lag in (yield from read_lags()).items():
            row = rows.setdefault(task, {**_EMPTY, "at": minute, "queue": task})
            row["lag"] = lag.events
            row["lag_for"] = None if lag.oldest_at is None else max(at - lag.oldest_at, _NOTHING)
        if rows:
            yield Query("depths_put", many=list(rows.values()))
    return NotedDepths(at, minute + counters.MINUTE - at, found)


@reads
def throughput(
    span: timedelta, width: timedelta, *, queue: str | None = None, now: datetime | None = None
) -> Statements[Throughput]:
    """Return what ended within the last ``span``, and how deep the queues were, by spans of ``width``."""
    at = now or (yield from instant(None))
    since = counters.floor(at, width) - span + width
    where = {"since": since, "queue": queue}
    sums: Sequence[SpanSums] = yield Query("minutes_sums", {**where, "width": width}, into=SpanSums)
    depths: Sequence[PastDepth] = yield Query("depths_past", {**where, "width": width}, into=PastDepth)
    took: dict[tuple[str, str], list[int]] = defaultdict(_no_buckets)
    took_in: dict[datetime, list[int]] = defaultdict(_no_buckets)
    tries = [0] * counters.TRIES
    rows: Sequence[BucketRow] = yield Query("minutes_buckets", {**where, "width": width}, into=BucketRow)
    for row in rows:
        if row.at is not None:
            took_in[row.at][row.place] = row.jobs
        elif row.queue is not None and row.task is not None:
            took[row.queue, row.task][row.place] = row.jobs
        else:
            tries[row.place] = row.jobs
    return Throughput(at, since, tuple(sums), dict(took), dict(took_in), tries, tuple(depths))


class Sides(msgspec.Struct, frozen=True, gc=False):
    """The two sides of a comparison.

    A row of a worker that is named belongs to the side of the worker, and one of another worker, or of several
    together, to that of its time.

    Attributes:
        begin: of all rows that count, and ``until`` their end.
        before_until: rows of others are before if they begin earlier, and after if they begin at ``after_from`` or
            later; those between are left out.
        before: workers.
        after: workers.
        others: workers whose rows are left out.
    """

    begin: datetime
    until: datetime
    before_until: datetime
    after_from: datetime
    before: Sequence[int]
    after: Sequence[int]
    others: Sequence[int]


class TaskSums(msgspec.Struct, frozen=True, gc=False):
    """The ended attempts of a task on one side of a comparison."""

    task: str
    is_after: bool
    succeeded: int
    retried: int
    died: int
    snoozed: int
    cancelled: int


@reads
def compared(sides: Sides) -> Statements[tuple[TaskSums, ...]]:
    """Return the ended attempts of each task on both sides of a comparison."""
    return tuple((yield Query("minutes_compared", asdict(sides), into=TaskSums)))


class LagRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``lag_past``: the present instant, a build, or the lag within a part of the span."""

    kind: str
    at: datetime
    build: str | None
    lag: int | None
    lag_for: timedelta | None


class PastLags(msgspec.Struct, frozen=True, gc=False):
    """What `past_lags` returns.

    Attributes:
        since: the beginning of the first part of the span.
        lags: by the beginning of a part: the largest number of events that were not finished, and the longest time
            since which the first of them was published.
        builds: that workers began to run within the span, with their first starts.
    """

    now: datetime
    since: datetime
    lags: dict[datetime, tuple[int, timedelta | None]]
    builds: tuple[tuple[str, datetime], ...]


@reads
def past_lags(task: str, span: timedelta, width: timedelta, *, now: datetime | None = None) -> Statements[PastLags]:
    """Return the lag of a subscription within the last ``span``, in parts of ``width``.

    Args:
        task: that of its deliveries.
        span: until now.
        width: of a part.
        now: by default the present instant.
    """
    params = {"queue": task, "span": span, "width": width, "now": now}
    rows: Sequence[LagRow] = yield Query("lag_past", params, into=LagRow)
    at = next(each.at for each in rows if each.kind == "clock")
    return PastLags(
        at,
        counters.floor(at, width) - span + width,
        {each.at: (each.lag, each.lag_for) for each in rows if each.lag is not None},
        tuple((each.build, each.at) for each in rows if each.build is not None),
    )


def _no_buckets() -> list[int]:
    return [0] * (len(counters.BUCKETS) + 1)


class FirstRow(msgspec.Struct, frozen=True, gc=False):
    """The row of the query ``minutes_unrolled``."""

    at: datetime | None


# Two workers may roll up the same span at once: both write the same sums, since they read the same rows or none.
@writes
def roll_up(tier: int, after: datetime, *, now: datetime | None = None) -> Statements[datetime | None]:
    """Roll up the first span after an instant that is old enough for a tier; return its end, or None."""
    at = yield from instant(now)
    age, width = counters.TIERS[tier]
    before = counters.floor(at - age, width)
    first: Sequence[FirstRow] = yield Query(
        "minutes_unrolled", {"after": after, "before": before, "width": width}, into=FirstRow
    )
    if first[0].at is None:
        return None
    start = counters.floor(first[0].at, width)
    window = {"start": start, "until": start + width}
    rows: Sequence[counters.MinuteSums] = yield Query("minutes_span", window, into=counters.MinuteSums)
    yield Query("minutes_drop", window)
    yield Query("minutes_put", many=[asdict(each) for each in counters.rolled(rows, start)])
    return start + width


@writes
def forget_counters(*, now: datetime | None = None) -> Statements[None]:
    """Delete old sums, all but some of the old depths, and error groups that neither fail nor have dead jobs."""
    at = yield from instant(now)
    yield from forget_before(at - counters.KEPT_FOR)
    for age, width in counters.TIERS:
        yield Query("depths_thin", {"before": at - age, "width": width})


def forget_before(oldest: datetime) -> Statements[None]:
    """Delete all that was counted before an instant, and the builds before it, as a part of a larger operation."""
    yield Query("minutes_drop", {"start": counters.EPOCH, "until": oldest})
    yield Query("depths_forget", {"before": oldest})
    yield Query("error_hours_forget", {"before": oldest})
    yield Query("errors_forget", {"before": oldest})
    yield Query("builds_forget", {"before": oldest})


class ErrorGroup(counters.ErrorLine, gc=False):
    """An error group with its last 24 hours.

    Attributes:
        dead: the number of its dead jobs that were neither caught nor skipped, at most 10,000.
        hours: the failures of each hour, the present one last.
        deaths: the failures after which a job gave up.
        muted_at: when it was muted; None if it was not.
        muted_until: the end of that; None for until it fails again.
    """

    muted_at: datetime | None
    muted_until: datetime | None
    dead: int
    hours: list[int]
    deaths: int

    @property
    def name(self) -> str:
        """The class of the exception and the title, for a reader."""
        kind = self.type.removeprefix("builtins.") or self.reason
        return ": ".join(each for each in (kind, self.title) if each) or "errors beyond the limit of groups"

    @property
    def place(self) -> str:
        """Its place in the list of all groups, as a parameter of the list that goes on behind it."""
        return f"{self.last_at.isoformat()}/{self.fingerprint}"

    def is_muted(self, now: datetime) -> bool:
        """Return True if it is muted at an instant."""
        if self.muted_at is None:
            return False
        return self.last_at <= self.muted_at if self.muted_until is None else self.muted_until > now

    @property
    def failures(self) -> int:
        """The failures of the last 24 hours."""
        return sum(self.hours)


def read_place(text: str) -> tuple[datetime, str] | None:
    """Return the last failure and the fingerprint of an `ErrorGroup.place`; None for another text."""
    begin, _, fingerprint = text.partition("/")
    try:
        # A plus sign that is not escaped in a URL is a space.
        at = datetime.fromisoformat(begin.replace(" ", "+"))
        return None if at.utcoffset() is None else (at.astimezone(UTC), fingerprint)
    except (ValueError, OverflowError):
        return None


class FailedGroup(msgspec.Struct, frozen=True, gc=False):
    """An error group with its failures since an instant.

    Attributes:
        deaths: of these, the failures after which a job gave up.
    """

    group: ErrorGroup
    failures: int
    deaths: int


class FailedWithin(msgspec.Struct, frozen=True, gc=False):
    """What `failed_within` returns.

    Attributes:
        since: the beginning of the hour in which the span begins, since failures are counted by the hour.
    """

    since: datetime
    groups: tuple[FailedGroup, ...]


@reads
def failed_within(
    span: timedelta, *, task: str | None = None, dead: bool = False, limit: int = 20, now: datetime | None = None
) -> Statements[FailedWithin]:
    """Return the error groups that failed within the last ``span``, those with most failures first.

    Args:
        span: until now; it begins with a whole hour, that is up to an hour earlier.
        task: only those of a task.
        dead: only those with dead jobs that were neither caught nor skipped.
        limit: the number of groups.
        now: by default the present instant.
    """
    at = now or (yield from instant(None))
    since = counters.floor(at - span, counters.HOUR)
    rows = yield Query("errors_within", {"since": since, "task": task, "count": MOST if dead else limit})
    counts = {fingerprint: (failures, deaths) for fingerprint, failures, deaths in rows}
    found: dict[str, ErrorGroup] = {}
    if counts:
        read = yield from _groups(at, {"fingerprints": list(counts), "dead": dead}, len(counts))
        found = {each.fingerprint: each for each in read}
    ranked = (FailedGroup(found[name], *numbers) for name, numbers in counts.items() if name in found)
    return FailedWithin(since, tuple(itertools.islice(ranked, limit)))


@reads
def groups(
    *,
    fingerprint: str | None = None,
    task: str | None = None,
    dead: bool = False,
    unmuted: bool = False,
    before: tuple[datetime, str] | None = None,
    limit: int = 20,
    now: datetime | None = None,
) -> Statements[tuple[ErrorGroup, ...]]:
    """Return error groups, the latest failure first.

    Args:
        fingerprint: only this one.
        task: only those of a task.
        dead: only those with dead jobs that were neither caught nor skipped.
        unmuted: only those that are not muted.
        before: the last failure and the fingerprint of the last group of the page before; see `read_place`.
        limit: the number of groups.
        now: the instant at which the 24 hours end; by default the present one.
    """
    at = now or (yield from instant(None))
    before_at, last = before or (None, None)
    params = {
        "fingerprints": None if fingerprint is None else [fingerprint],
        "task": task,
        "dead": dead,
        "unmuted": unmuted,
        "before_at": before_at,
        "before": last,
    }
    return tuple((yield from _groups(at, params, limit)))


# The parameters of the query `errors_select` that select nothing.
_ALL_GROUPS: Final[Mapping[str, object]] = {
    **dict.fromkeys(("fingerprints", "task", "before_at", "before")),
    "dead": False,
    "unmuted": False,
}


def _groups(at: datetime, params: Mapping[str, object], limit: int) -> Statements[Sequence[ErrorGroup]]:
    hours = {"now": at, "since": counters.floor(at, counters.HOUR) - HOURS + counters.HOUR}
    given = {**_ALL_GROUPS, **params, **hours, "most": MOST, "count": limit}
    found: Sequence[ErrorGroup] = yield Query("errors_select", given, into=ErrorGroup)
    return found


@writes
def mute(
    fingerprint: str, *, span: timedelta | None = None, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[bool]:
    """Mute an error group for a span, or without one until it fails again; return False if there is none.

    It still counts its failures; lists of what needs attention leave it out.
    """
    if span is not None and not span:
        raise ConfigurationError("a group is muted for longer than 0s: give a span such as 24h")
    at = yield from instant(now)
    return (yield from _mute(fingerprint, at, actor, "mute", at, None if span is None else at + span))


@writes
def unmute(fingerprint: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[bool]:
    """Take the muting of an error group back; return False if there is none."""
    at = yield from instant(now)
    return (yield from _mute(fingerprint, at, actor, "unmute"))


def _mute(  # noqa: PLR0917 - the columns, and the entry of the audit log
    fingerprint: str,
    at: datetime,
    actor: str,
    action: str,
    muted_at: datetime | None = None,
    until: datetime | None = None,
) -> Statements[bool]:
    values = {"fingerprint": fingerprint, "muted_at": muted_at, "muted_until": until}
    found = yield Query("errors_mute", values)
    if found:
        yield from record(at, actor, action, group=fingerprint, until=until)
    return bool(found)
