"""The recent past of the queues, for charts: ended attempts and the time that due jobs wait, as counted by workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.counters import BUCKETS, percentile
from redrive.operate.charts import axes, plots, sparks
from redrive.operate.charts.axes import Axis
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Request, Site
from redrive.stores.operations import counters
from redrive.stores.operations.counters import SpanSums, Throughput


class Span(StrEnum):
    """A span of the charts."""

    HOUR = "1h"
    HOURS = "8h"
    DAYS = "3d"
    MONTHS = "90d"


#: The length of each span, and the width of its bars.
SPANS: Final[Mapping[Span, tuple[timedelta, timedelta]]] = {
    Span.HOUR: (timedelta(hours=1), timedelta(minutes=1)),
    Span.HOURS: (timedelta(hours=8), timedelta(minutes=10)),
    Span.DAYS: (timedelta(days=3), timedelta(hours=1)),
    Span.MONTHS: (timedelta(days=90), timedelta(days=1)),
}


class HistoryQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a page with charts.

    Attributes:
        span: of the charts; by default ``1h``.
    """

    span: Span | None = None


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Ended attempts, by what became of them.

    Attributes:
        died: after which the job gave up.
        lost: of workers that died.
    """

    succeeded: int = 0
    retried: int = 0
    died: int = 0
    snoozed: int = 0
    lost: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(msgspec.structs.astuple(self))


class Moment(msgspec.Struct, frozen=True, gc=False):
    """A bar of the charts.

    Attributes:
        at: its beginning.
        due: the largest number of due jobs; None if it was not noted.
        capped: True if there may have been more due jobs.
        oldest_seconds: the longest time since which the first due job was due; None if none was due, or not noted.
    """

    at: datetime
    ended: Ended
    due: int | None
    oldest_seconds: float | None
    capped: bool = False


class Pace(msgspec.Struct, frozen=True, gc=False):
    """The attempts of a queue, or of a task on it, within the span of the charts.

    Attributes:
        task: None for all tasks of the queue.
        per_minute: the average number of ended attempts.
        p50_seconds: half of the attempts took no longer; None without any.
        p95_seconds: 95 of 100 attempts took no longer.
        bars: the number of ended attempts of each bar.
    """

    queue: str
    task: str | None
    ended: Ended
    per_minute: float
    p50_seconds: float | None
    p95_seconds: float | None
    bars: tuple[int, ...]

    @property
    def picture(self) -> Picture:
        """The bars, as a small picture."""
        sentence = f"{self.ended.total:,} attempts ended, {self.ended.died:,} of them with the death of their job"
        return sparks.bars("ended", self.bars, sentence)


class History(msgspec.Struct, frozen=True, gc=False):
    """The recent past, as counted by workers; they write every 10 seconds.

    Attributes:
        width_seconds: the width of a bar.
        ended: within the span.
    """

    span: Span
    width_seconds: float
    ended: Ended
    moments: tuple[Moment, ...]

    def throughput(self, zone: tzinfo) -> Picture:
        """Draw the ended attempts, with times in a zone."""
        shown = {"succeeded": "succeeded", "retried": "retried", "dead": "died", "cancelled": "cancelled"}
        series = {name: [getattr(each.ended, field) for each in self.moments] for name, field in shown.items()}
        ended = self.ended
        words = f"{ended.succeeded:,} attempts succeeded, {ended.retried:,} were retried, {ended.died:,} jobs died"
        return plots.columns(self._axis(zone), series, f"Ended attempts in the last {self.span}: {words}")

    def oldest(self, zone: tzinfo) -> Picture:
        """Draw the time since which the first due job was due."""
        ages = [None if each.due is None else each.oldest_seconds or 0.0 for each in self.moments]
        longest = max((each for each in ages if each is not None), default=0.0)
        sentence = f"Longest time that a due job had waited, in the last {self.span}: at most {axes.took(longest)}"
        return plots.area(self._axis(zone), "waiting", ages, sentence, scale=plots.spans(longest))

    def _axis(self, zone: tzinfo) -> Axis:
        return axes.times([each.at for each in self.moments], timedelta(seconds=self.width_seconds), zone)


Past: TypeAlias = tuple[History, dict[str, Pace], tuple[Pace, ...]]
"""The recent past: for the charts, of each queue by name, and of each task."""


def read(site: Site, request: Request, now: datetime) -> Procedure[Past]:
    """Read the recent past of all queues, for all viewers."""
    name = request.choice("span", Span) or Span.HOUR
    return (yield from site.shared.read(("past", name), _read(name, None, now)))


def read_queue(request: Request, queue: str, now: datetime) -> Procedure[Past]:
    """Read the recent past of a queue."""
    return (yield from _read(request.choice("span", Span) or Span.HOUR, queue, now))


def _read(name: Span, queue: str | None, now: datetime) -> Procedure[Past]:
    whole, width = SPANS[name]
    found: Throughput = yield counters.throughput(whole, width, queue=queue, now=now)
    starts = [found.since + width * number for number in range(whole // width)]
    by_start: dict[datetime, list[SpanSums]] = defaultdict(list)
    for each in found.sums:
        by_start[each.at].append(each)
    due: dict[datetime, int] = defaultdict(int)
    oldest: dict[datetime, float] = {}
    capped = {depth.at for depth in found.depths if depth.due_capped}
    for depth in found.depths:
        due[depth.at] += depth.due
        if depth.oldest_for is not None:
            oldest[depth.at] = max(oldest.get(depth.at, 0.0), depth.oldest_for.total_seconds())
    moments = tuple(Moment(at, _ended(by_start[at]), due.get(at), oldest.get(at), at in capped) for at in starts)
    history = History(name, width.total_seconds(), _ended(found.sums), moments)
    queues = {each: _pace(found, whole, starts, each) for each in sorted({one.queue for one in found.sums})}
    tasks = [_pace(found, whole, starts, *each) for each in sorted({(one.queue, one.task) for one in found.sums})]
    return history, queues, tuple(tasks)


def _ended(sums: Iterable[SpanSums]) -> Ended:
    rows = list(sums)
    return Ended(*(sum(getattr(row, each) for row in rows) for each in Ended.__struct_fields__))


def _pace(found: Throughput, whole: timedelta, starts: list[datetime], queue: str, task: str | None = None) -> Pace:
    mine = [each for each in found.sums if each.queue == queue and task in (None, each.task)]
    took = [0] * (len(BUCKETS) + 1)
    for (its_queue, its_task), counts in found.took.items():
        if its_queue == queue and task in (None, its_task):
            took = [first + second for first, second in zip(took, counts, strict=True)]
    by_start: dict[datetime, int] = defaultdict(int)
    for each in mine:
        by_start[each.at] += _ended([each]).total
    ended = _ended(mine)
    return Pace(
        queue=queue,
        task=task,
        ended=ended,
        per_minute=ended.total / (whole / timedelta(minutes=1)),
        p50_seconds=percentile(took, 0.5),
        p95_seconds=percentile(took, 0.95),
        bars=tuple(by_start[at] for at in starts),
    )
