"""Sums of ended attempts, for charts, and their resolution in time. PURE.

A worker adds each end of an attempt to sums in its memory: by minute, queue and task, and failures by hour and error
group. It writes the *absolute* values of its own rows, so that a repeated write counts nothing twice and no two workers
write the same row. A worker that is killed loses the sums since its last write.

Rows are *rolled up* when they are old: the rows of all workers within ten minutes, later within an hour, become one row
for each queue and task, with `ROLLED` in the place of the worker. A reader adds up the rows of each part of its
chart, at any resolution.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from redrive.engine.lifecycle import LifecycleEvent
from redrive.engine.outcome import Settlement

if TYPE_CHECKING:
    from redrive.engine.error_groups import ErrorSeen

#: Seconds, where histograms are cut: from a local query to an hour.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)

# The same as spans, which are compared without being converted.
_SPANS: Final = tuple(timedelta(seconds=each) for each in BUCKETS)

#: Retries that are counted by the number of their attempt: 2 to 7; later ones are counted as the last.
TRIES: Final = 6

#: Queues with their tasks that a worker counts in a minute, and error groups in an hour; the rest is counted as other.
MOST: Final = 100

#: The name of queues, tasks and groups beyond that number.
OTHER: Final = "other"

#: The worker of rows that were rolled up.
ROLLED: Final = 0

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)

#: The age at which rows are rolled up, and the resolution that they get.
TIERS: Final = ((timedelta(hours=2), timedelta(minutes=10)), (timedelta(days=8), HOUR))

#: The time for which rows that could not be written are kept in memory; shorter than the age of the first roll-up.
UNWRITTEN_FOR: Final = HOUR

#: The age at which rows are deleted.
KEPT_FOR: Final = timedelta(days=90)

_FIELDS: Final[Mapping[LifecycleEvent, str]] = {
    LifecycleEvent.SUCCEED: "succeeded",
    LifecycleEvent.RETRY: "retried",
    LifecycleEvent.DIE: "died",
    LifecycleEvent.SNOOZE: "snoozed",
    LifecycleEvent.LOSE: "lost",
    LifecycleEvent.CANCEL: "cancelled",
}
_SUCCEED: Final = LifecycleEvent.SUCCEED

#: The beginning of all spans.
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MinuteSums(msgspec.Struct, gc=False):
    """The attempts of a task on a queue that ended within a minute, or within a longer span after a roll-up.

    Attributes:
        at: the beginning of the span.
        worker_id: the worker that has counted; `ROLLED` for the sum of several.
        took: the number of attempts by the time that they took, in the buckets of `BUCKETS` and one more above them.
        tries: the number of retries by the number of the attempt; see `TRIES`.
    """

    at: datetime
    worker_id: int
    queue: str
    task: str
    succeeded: int
    retried: int
    died: int
    snoozed: int
    lost: int
    cancelled: int
    took: list[int]
    tries: list[int] = msgspec.field(default_factory=lambda: [0] * TRIES)


class ErrorHour(msgspec.Struct, gc=False):
    """The failures of an error group within an hour, as counted by one worker.

    Attributes:
        deaths: those of the failures after which the job gave up.
    """

    fingerprint: str
    at: datetime
    worker_id: int
    failures: int
    deaths: int


class ErrorLine(msgspec.Struct, gc=False):
    """An error group as a worker has seen it.

    Attributes:
        first_at: its first failure.
        last_at: its last failure, which was one of the job ``last_job_id``.
    """

    fingerprint: str
    task: str
    reason: str
    type: str
    title: str
    frame: str
    first_at: datetime
    last_at: datetime
    last_job_id: int


class TallyRows(msgspec.Struct, frozen=True, gc=False):
    """The rows that a worker writes at once."""

    minutes: tuple[MinuteSums, ...]
    hours: tuple[ErrorHour, ...]
    errors: tuple[ErrorLine, ...]


class Tally:
    """The sums of a worker that are not written, or may still grow."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, dict[tuple[str, str], MinuteSums]] = {}
        self._hours: dict[datetime, dict[str, tuple[ErrorHour, ErrorLine]]] = {}
        # The rows of earlier spans may have been written and dropped: a late end is counted in the first open span.
        self._minute = self._hour = EPOCH
        #: True if something was counted since the last call of `rows`.
        self.changed: bool = False

    def add(self, moved: Iterable[Settlement], worker_id: int) -> None:
        """Count the ends of attempts that were written; settlements that end none are ignored."""
        # Hot path: the settlements of a batch have the same instant, and mostly the same task.
        last: datetime | None = None
        start = self._minute
        sums: dict[tuple[str, str], MinuteSums] = {}
        found: MinuteSums | None = None
        for each in moved:
            # The hash of a member of an enumeration is a call of Python.
            succeeded = each.event is _SUCCEED
            field = "succeeded" if succeeded else _FIELDS.get(each.event)
            if field is None:
                continue
            closed, seen = each.closed, each.seen
            at = closed.finished_at if closed is not None else self._minute if seen is None else seen.at
            if at is not last:
                last, start = at, max(at.replace(second=0, microsecond=0), self._minute)
                sums, found = self._minutes.setdefault(start, {}), None
            if found is None or each.task != found.task or each.queue != found.queue:
                found = sums.get((each.queue, each.task))
                if found is None:
                    found = _new_sums(sums, start, worker_id, each.queue, each.task)
            if succeeded:
                found.succeeded += 1
            else:
                setattr(found, field, getattr(found, field) + 1)
            if closed is not None:
                found.took[bisect_left(_SPANS, at - closed.started_at)] += 1
                if closed.number > 1:
                    found.tries[min(closed.number - 2, TRIES - 1)] += 1
            if seen is not None:
                self._failed(each, seen, worker_id)
        self.changed = self.changed or last is not None

    def _failed(self, moved: Settlement, seen: ErrorSeen, worker_id: int) -> None:
        start = max(seen.at.replace(minute=0, second=0, microsecond=0), self._hour)
        groups = self._hours.setdefault(start, {})
        if seen.fingerprint not in groups and len(groups) >= MOST:
            seen = replace(seen, fingerprint=OTHER, task="", reason="", type="", title="", frame="")
        if seen.fingerprint not in groups:
            known = (seen.fingerprint, seen.task, seen.reason, seen.type, seen.title, seen.frame)
            line = ErrorLine(*known, seen.at, seen.at, moved.job_id)
            groups[seen.fingerprint] = ErrorHour(seen.fingerprint, start, worker_id, 0, 0), line
        hour, line = groups[seen.fingerprint]
        hour.failures += 1
        hour.deaths += moved.event is LifecycleEvent.DIE
        if seen.at >= line.last_at:
            line.last_at, line.last_job_id = seen.at, moved.job_id

    def rows(self) -> TallyRows:
        """Return copies of all rows; what ends from now on is counted in the latest minute and hour."""
        self._minute, self._hour = max(self._minutes, default=EPOCH), max(self._hours, default=EPOCH)
        # An old row that was written once must not be written again after its roll-up.
        for start in [each for each in self._minutes if each < self._minute - UNWRITTEN_FOR]:
            del self._minutes[start]
        for start in [each for each in self._hours if each < self._hour - UNWRITTEN_FOR]:
            del self._hours[start]
        self.changed = False
        failures = [pair for groups in self._hours.values() for pair in groups.values()]
        return TallyRows(
            tuple(
                replace(each, took=[*each.took], tries=[*each.tries])
                for sums in self._minutes.values()
                for each in sums.values()
            ),
            tuple(replace(hour) for hour, _ in failures),
            tuple(replace(line) for _, line in failures),
        )

    def written(self) -> None:
        """Drop the rows that were written and do not grow any more."""
        self._minutes = {start: sums for start, sums in self._minutes.items() if start >= self._minute}
        self._hours = {start: groups for start, groups in self._hours.items() if start >= self._hour}


def _new_sums(
    sums: dict[tuple[str, str], MinuteSums], start: datetime, worker_id: int, queue: str, task: str
) -> MinuteSums:
    """Return the sums of a task for a minute that has none for it, under another name if there are too many."""
    key = (queue, task)
    if len(sums) >= MOST:
        key = (queue if any(queue == known for known, _ in sums) else OTHER, OTHER)
    return sums.setdefault(key, MinuteSums(start, worker_id, *key, 0, 0, 0, 0, 0, 0, [0] * (len(BUCKETS) + 1)))


def rolled(rows: Sequence[MinuteSums], start: datetime) -> tuple[MinuteSums, ...]:
    """Return one row for each queue and task, with the sums of all."""
    total: dict[tuple[str, str], MinuteSums] = {}
    for row in rows:
        key = (row.queue, row.task)
        total[key] = replace(row, at=start, worker_id=ROLLED) if key not in total else _sum(total[key], row)
    return tuple(total.values())


def _sum(first: MinuteSums, second: MinuteSums) -> MinuteSums:
    counts = {field: getattr(first, field) + getattr(second, field) for field in _FIELDS.values()}
    took, tries = (
        [a + b for a, b in zip(*each, strict=True)] for each in ((first.took, second.took), (first.tries, second.tries))
    )
    return replace(first, took=took, tries=tries, **counts)


def percentile(took: Sequence[int], share: float) -> float | None:
    """Return the seconds within which a share of the attempts ended, interpolated in its bucket; None without any.

    Args:
        took: the number of attempts in each bucket.
        share: from 0 to 1.
    """
    wanted = sum(took) * share
    if not wanted:
        return None
    reached = [*accumulate(took)]
    place = bisect_left(reached, wanted)
    least, most = (0.0, *BUCKETS)[place], (*BUCKETS, BUCKETS[-1])[place]
    return most - (most - least) * (reached[place] - wanted) / took[place]


def floor(at: datetime, width: timedelta) -> datetime:
    """Return the beginning of the span of this width in which an instant lies; spans are counted from 1970 in UTC."""
    return at - (at - EPOCH) % width
