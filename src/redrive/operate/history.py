"""The recent past of the queues, for charts: ended attempts and the time that due jobs wait, as counted by workers."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.engine.counters import BUCKETS, floor, percentile
from redrive.operate.charts import axes, plots, sparks
from redrive.operate.charts.axes import Axis
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import Request, Site
from redrive.stores.operations import counters, workers
from redrive.stores.operations.counters import PastDepth, SpanSums, Throughput
from redrive.stores.operations.workers import Build
from redrive.visible import visible


class Span(StrEnum):
    """A span of the charts."""

    HOUR = "1h"
    HOURS = "8h"
    DAYS = "3d"
    MONTHS = "90d"


#: The failure rate that is shown as a problem, in percent.
ALERT: Final = 5.0

#: The bars at each end of a chart that are compared with each other.
COMPARED: Final = 5

#: The characters of a build that are drawn.
LABEL: Final = 20

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

    @property
    def failing(self) -> float | None:
        """The share that failed, in percent; None if none ended."""
        failed = self.retried + self.died + self.lost
        whole = failed + self.succeeded
        return 100 * failed / whole if whole else None


class Moment(msgspec.Struct, frozen=True, gc=False):
    """A bar of the charts.

    Attributes:
        at: its beginning.
        due: the largest number of due jobs; None if it was not noted.
        capped: True if there may have been more due jobs.
        oldest_seconds: the longest time since which the first due job was due; None if none was due, or not noted.
        later: the largest number of jobs that were not due; None, like those that follow, if it was not noted.
        running: the largest number of running jobs.
        dead: the largest number of dead jobs that were neither caught nor skipped.
        p50_seconds: half of the attempts took no longer; None without any.
        p95_seconds: 95 of 100 attempts took no longer.
    """

    at: datetime
    ended: Ended
    due: int | None
    oldest_seconds: float | None
    capped: bool = False
    later: int | None = None
    running: int | None = None
    dead: int | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None


class Now(msgspec.Struct, frozen=True, gc=False):
    """What the newest bars show, and what the oldest showed.

    Attributes:
        failing: the share of attempts that failed in the newest five bars, in percent; None if none ended.
        failing_before: in the oldest five.
        p95_seconds: 95 of 100 attempts took no longer in the newest five bars; None without any.
        p95_seconds_before: in the oldest five.
    """

    failing: float | None
    failing_before: float | None
    p95_seconds: float | None
    p95_seconds_before: float | None

    @property
    def is_failing(self) -> bool:
        """True if the rule of the failure rate fires."""
        return self.failing is not None and self.failing >= ALERT


class Pace(msgspec.Struct, frozen=True, gc=False):
    """The attempts of a queue, or of a task on it, within the span of the charts.

    Attributes:
        task: None for all tasks of the queue.
        per_minute: the average number of ended attempts.
        p50_seconds: half of the attempts took no longer; None without any.
        p95_seconds: 95 of 100 attempts took no longer.
        bars: the number of ended attempts of each bar.
        took: the number of attempts by the time that they took, in the buckets of `redrive.engine.counters.BUCKETS`.
    """

    queue: str
    task: str | None
    ended: Ended
    per_minute: float
    p50_seconds: float | None
    p95_seconds: float | None
    bars: tuple[int, ...]
    took: tuple[int, ...]

    @property
    def durations(self) -> Picture:
        """The number of attempts by the time that they took, as a small picture."""
        sentence = "Attempts by the time that they took"
        return sparks.bars("ended", self.took[slice(*_filled(self.took))], sentence)

    @property
    def picture(self) -> Picture:
        """The bars, as a small picture."""
        sentence = f"{self.ended.total:,} attempts ended, {self.ended.died:,} of them with the death of their job"
        return sparks.bars("ended", self.bars, sentence)

    @property
    def histogram(self) -> Picture:
        """The number of attempts by the time that they took, with its middle and its 95th percentile."""
        return histogram(self.took)

    @property
    def took_columns(self) -> tuple[tuple[str, int], ...]:
        """What the histogram shows."""
        return histogram_columns(self.took)

    def columns_in(self, span: Span, now: datetime, zone: tzinfo) -> tuple[tuple[str, int], ...]:
        """Return the bars with attempts within a span up to the present, each with its time in a zone."""
        return tuple(pair for pair in zip(self._axis(span, now, zone).names, self.bars, strict=True) if pair[1])

    def _axis(self, span: Span, now: datetime, zone: tzinfo) -> Axis:
        width = SPANS[span][1]
        first = floor(now, width) - width * (len(self.bars) - 1)
        return axes.times([first + width * number for number in range(len(self.bars))], width, zone)

    def picture_in(self, span: Span, now: datetime, zone: tzinfo) -> Picture:
        """Draw the ended attempts within a span up to the present, with times in a zone."""
        axis = self._axis(span, now, zone)
        sentence = f"{self.ended.total:,} attempts ended in the last {span}"
        scale = plots.counts(max(self.bars, default=0), plots.SMALL)
        return plots.columns(axis, {"other": self.bars}, sentence, scale=scale)


class BuildStart(msgspec.Struct, frozen=True, gc=False):
    """A build of the code, and the first start of a worker that had it."""

    build: str
    at: datetime


def histogram_columns(took: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the numbers of attempts by the longest time that they may have taken."""
    first, last = _filled(took)
    names = [*(f"up to {axes.took(each)}" for each in BUCKETS), "more"]
    return tuple(zip(names[first:last], took[first:last], strict=True))


def histogram(took: Sequence[int]) -> Picture:
    """Draw the number of attempts by the time that they took, with its middle and its 95th percentile."""
    first, last = _filled(took)
    edges = [*(axes.took(each) for each in BUCKETS), "more"]
    axis = axes.buckets(edges[first:last], [axes.took(BUCKETS[first - 1]) if first else "0", *edges[first:last]])
    marks = [(_place(took, share) - first, f"p{share * 100:.0f}") for share in (0.5, 0.95) if any(took)]
    axis = replace(axis, marks=tuple((place / (last - first), label) for place, label in marks))
    p50, p95 = (axes.took(percentile(took, share) or 0) for share in (0.5, 0.95))
    sentence = f"Attempts by the time that they took: half of them at most {p50}, 95 of 100 at most {p95}"
    return plots.columns(axis, {"other": took[first:last]}, sentence, scale=plots.counts(max(took), plots.SMALL))


class History(msgspec.Struct, frozen=True, gc=False):
    """The recent past, as counted by workers; they write every 10 seconds.

    Attributes:
        width_seconds: the width of a bar.
        ended: within the span.
        now: the newest bars beside the oldest.
        tries: the retries that ended, by the number of the attempt: from 2 to 7, and those above with 7.
        took: the number of attempts by the time that they took, in the buckets of `redrive.engine.counters.BUCKETS`.
        builds: that workers began to run within the span, the first one first.
        due_before: the due jobs of each queue that had any when they were first noted within the span; None if no
            worker noted them.
    """

    span: Span
    width_seconds: float
    ended: Ended
    now: Now
    tries: tuple[int, ...]
    took: tuple[int, ...]
    moments: tuple[Moment, ...]
    builds: tuple[BuildStart, ...]
    due_before: dict[str, int] | None

    def throughput(self, zone: tzinfo) -> Picture:
        """Draw the ended attempts, with times in a zone."""
        shown = {"succeeded": "succeeded", "retried": "retried", "dead": "died", "cancelled": "cancelled"}
        series = {name: [getattr(each.ended, field) for each in self.moments] for name, field in shown.items()}
        ended = self.ended
        words = f"{ended.succeeded:,} attempts succeeded, {ended.retried:,} were retried, {ended.died:,} jobs died"
        return plots.columns(self._axis(zone), series, f"Ended attempts in the last {self.span}: {words}")

    def failing(self, zone: tzinfo) -> Picture:
        """Draw the share of attempts that failed, with the line of the rule."""
        shares = [each.ended.failing for each in self.moments]
        most = max((each for each in shares if each is not None), default=0.0)
        sentence = f"Share of attempts that failed, in the last {self.span}: at most {axes.percent(round(most, 1))}"
        scale = plots.percents(max(most, 2 * ALERT))
        return plots.area(self._axis(zone), "dead", shares, sentence, scale=scale, limit=ALERT)

    def durations(self, zone: tzinfo) -> Picture:
        """Draw how long attempts took."""
        series = {
            "p50": [each.p50_seconds for each in self.moments],
            "p95": [each.p95_seconds for each in self.moments],
        }
        longest = max((each for each in series["p95"] if each is not None), default=0.0)
        sentence = f"95 of 100 attempts took at most {axes.took(longest)}, in the worst part of the last {self.span}"
        return plots.lines(self._axis(zone), series, sentence)

    def waiting(self, zone: tzinfo) -> Picture:
        """Draw the number of due jobs."""
        due = [each.due for each in self.moments]
        sentence = f"Due jobs in the last {self.span}: at most {max((each or 0 for each in due), default=0):,}"
        return plots.area(self._axis(zone), "due", due, sentence)

    def running(self, zone: tzinfo, slots: int | None = None) -> Picture:
        """Draw the number of running jobs, with a line at the number of slots."""
        busy = [each.running for each in self.moments]
        most = max((each or 0 for each in busy), default=0)
        scale = plots.counts(max(most, slots or 0), plots.SMALL)
        sentence = f"Running jobs in the last {self.span}: at most {most:,}"
        return plots.area(self._axis(zone), "running", busy, sentence, scale=scale, limit=slots)

    def oldest(self, zone: tzinfo) -> Picture:
        """Draw the time since which the first due job was due."""
        ages = [None if each.due is None else each.oldest_seconds or 0.0 for each in self.moments]
        longest = max((each for each in ages if each is not None), default=0.0)
        sentence = f"Longest time that a due job had waited, in the last {self.span}: at most {axes.took(longest)}"
        return plots.area(self._axis(zone), "waiting", ages, sentence, scale=plots.spans(longest))

    @property
    def storm_columns(self) -> tuple[tuple[str, int], ...]:
        """The retries by the number of the attempt."""
        names = ["2nd", "3rd", *(f"{number}th" for number in range(4, 7)), "7+"]
        return tuple(zip(names, self.tries, strict=True))

    def storm(self) -> Picture:
        """Draw the retries by the number of the attempt."""
        names = [name for name, _ in self.storm_columns]
        sentence = f"{sum(self.tries):,} retries ended in the last {self.span}, by the number of the attempt"
        scale = plots.counts(max(self.tries), plots.SMALL)
        return plots.columns(axes.categories(names), {"retried": self.tries}, sentence, scale=scale, values=True)

    def histogram(self) -> Picture:
        """Draw the number of attempts by the time that they took, with its middle and its 95th percentile."""
        return histogram(self.took)

    @property
    def took_columns(self) -> tuple[tuple[str, int], ...]:
        """What the histogram shows."""
        return histogram_columns(self.took)

    def spark(self, name: str) -> Picture:
        """Draw the course of one figure in small."""
        courses = {"running": "running", "later": "retried", "due": "due", "dead": "dead", "p95_seconds": "other"}
        if name == "failing":
            return sparks.line("dead", [each.ended.failing for each in self.moments])
        return sparks.line(courses[name], [getattr(each, name) for each in self.moments])

    def times(self, zone: tzinfo) -> tuple[str, ...]:
        """Return when each bar begins, in words."""
        return self._axis(zone).names

    def _axis(self, zone: tzinfo) -> Axis:
        return axis_of([each.at for each in self.moments], self.width_seconds, self.builds, zone)


def axis_of(starts: Sequence[datetime], width_seconds: float, builds: Iterable[BuildStart], zone: tzinfo) -> Axis:
    """Return the axis of spans of one width, with a mark at the first start of each build."""
    marks = [(each.at, visible(each.build)[:LABEL]) for each in builds]
    return axes.times(starts, timedelta(seconds=width_seconds), zone, marks=marks)


Past: TypeAlias = tuple[History, dict[str, Pace], tuple[Pace, ...]]
"""The recent past: for the charts, of each queue by name, and of each task."""


def read(site: Site, request: Request, now: datetime) -> Procedure[Past]:
    """Read the recent past of all queues, for all viewers."""
    name = request.choice("span", Span) or Span.HOUR
    return (yield from site.shared.read(("past", name), _read(name, None, now)))


def read_queue(request: Request, queue: str, now: datetime) -> Procedure[Past]:
    """Read the recent past of a queue."""
    return (yield from _read(request.choice("span", Span) or Span.HOUR, queue, now))


def of_task(paces: Iterable[Pace], task: str, queue: str) -> Pace | None:
    """Return the attempts of a task on all queues, under the name of its own; None without any."""
    mine = [each for each in paces if each.task == task]
    if not mine:
        return None
    took = tuple(map(sum, zip(*(each.took for each in mine), strict=True)))
    return Pace(
        queue=queue,
        task=task,
        ended=Ended(*map(sum, zip(*(msgspec.structs.astuple(each.ended) for each in mine), strict=True))),
        per_minute=sum(each.per_minute for each in mine),
        p50_seconds=percentile(took, 0.5),
        p95_seconds=percentile(took, 0.95),
        bars=tuple(map(sum, zip(*(each.bars for each in mine), strict=True))),
        took=took,
    )


def _read(name: Span, queue: str | None, now: datetime) -> Procedure[Past]:
    whole, width = SPANS[name]
    found: Throughput = yield counters.throughput(whole, width, queue=queue, now=now)
    starts = [found.since + width * number for number in range(whole // width)]
    by_start: dict[datetime, list[SpanSums]] = defaultdict(list)
    for each in found.sums:
        by_start[each.at].append(each)
    depths: dict[datetime, list[PastDepth]] = defaultdict(list)
    for depth in found.depths:
        depths[depth.at].append(depth)
    built: tuple[Build, ...] = yield workers.builds(found.since)
    moments = tuple(_moment(at, by_start[at], depths.get(at, []), found.took_in.get(at, [])) for at in starts)
    total = tuple(map(sum, zip(*found.took.values(), strict=True))) or (0,) * (len(BUCKETS) + 1)
    history = History(
        name,
        width.total_seconds(),
        _ended(found.sums),
        _now(moments, found),
        tuple(found.tries),
        total,
        moments,
        tuple(BuildStart(each.build, each.first_at) for each in reversed(built)),
        {each.queue: each.due for each in depths[min(depths)]} if depths else None,
    )
    queues = {each: _pace(found, whole, starts, each) for each in sorted({one.queue for one in found.sums})}
    tasks = [_pace(found, whole, starts, *each) for each in sorted({(one.queue, one.task) for one in found.sums})]
    return history, queues, tuple(tasks)


def _moment(at: datetime, sums: list[SpanSums], depths: list[PastDepth], took: list[int]) -> Moment:
    ages = [each.oldest_for.total_seconds() for each in depths if each.oldest_for is not None]
    moment = Moment(at, _ended(sums), None, None, p50_seconds=percentile(took, 0.5), p95_seconds=percentile(took, 0.95))
    if not depths:
        return moment
    return replace(
        moment,
        due=sum(each.due for each in depths),
        oldest_seconds=max(ages, default=None),
        capped=any(each.due_capped for each in depths),
        later=sum(each.later for each in depths),
        running=sum(each.running for each in depths),
        dead=sum(each.dead for each in depths),
    )


def _now(moments: Sequence[Moment], found: Throughput) -> Now:
    """Compare the newest bars with the oldest."""
    newest, oldest = moments[-COMPARED:], moments[:COMPARED]
    return Now(_failing(newest), _failing(oldest), _p95(newest, found), _p95(oldest, found))


def _failing(moments: Sequence[Moment]) -> float | None:
    columns = zip(*(msgspec.structs.astuple(each.ended) for each in moments), strict=True)
    return Ended(*map(sum, columns)).failing


def _p95(moments: Sequence[Moment], found: Throughput) -> float | None:
    known = [found.took_in[each.at] for each in moments if each.at in found.took_in]
    return percentile(list(map(sum, zip(*known, strict=True))), 0.95)


def _filled(took: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last bucket that is drawn: those with attempts, and one at each side."""
    places = [place for place, jobs in enumerate(took) if jobs] or [len(took) // 2]
    return max(places[0] - 1, 0), min(places[-1] + 2, len(took))


def _place(took: Sequence[int], share: float) -> float:
    """Return where a percentile lies, in buckets from the first."""
    value = percentile(took, share) or 0.0
    edges = (0.0, *BUCKETS)
    place = min(bisect_left(BUCKETS, value), len(BUCKETS) - 1)
    return place + (value - edges[place]) / (edges[place + 1] - edges[place])


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
        took=tuple(took),
    )
