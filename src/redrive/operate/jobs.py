"""The list of jobs with its filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.engine.explain import Circumstances, why_not_running
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import is_feeder
from redrive.engine.records import NEWEST, Count, Filter, Hold, JobRecord
from redrive.engine.runs import is_far
from redrive.operate.charts import axes, plots
from redrive.operate.charts.svg import Picture
from redrive.operate.exchange import LARGEST_ID, LONGEST, Newest, Page, Request, Site, whole_number
from redrive.operate.filters import Chip, FilterError, chips, read_search, write
from redrive.operate.shown import Shown
from redrive.operate.vitals import vitals
from redrive.stores.operations import admin, queues
from redrive.stores.operations import jobs as operations
from redrive.stores.operations.jobs import NO_DOCUMENTS, Documents
from redrive.stores.operations.queues import DepthState, counted

#: Jobs on a page.
SHOWN: Final = 50

#: Jobs from which the first page of a list draws its charts and counts its tasks, queues and errors.
SAMPLE: Final = 200

#: Columns of the chart of times, and values of each kind that are named.
_COLUMNS: Final = 24
_NAMED: Final = 5

#: Attempts that have a column of their own; the last one has those above, too.
_TRIES: Final = 8

# Holds that have a word of their own as the state of a job.
_WORDS: Final[Mapping[Hold, str]] = {
    Hold.RETRY: "retrying",
    Hold.PARKED: "parked",
    Hold.PAUSED: "paused",
    Hold.HELD: "held",
}


class JobsQuery(Newest, frozen=True, gc=False):
    """The parameters of the list of jobs.

    Attributes:
        q: the filter, such as ``state:dead task:charge``, or a value such as the number of an invoice; see the guide to
            the dashboard.
    """

    q: str | None = None


class JobLine(msgspec.Struct, frozen=True, gc=False):
    """A job in a list.

    Attributes:
        standing: its state in one word: due, scheduled, retrying, parked, paused, held, running, waiting, succeeded,
            dead, caught or cancelled.
        attempts: the number of attempts that were made.
        most: the number of attempts after which it gives up, if all fail for the same reason; None without a limit.
        due_at: when it is due, if it is ready; None if it waits without a time limit.
        why: why it is not running.
        group: the error group of its last failure.
    """

    id: str
    task: str
    queue: str
    state: State
    standing: str
    attempts: int
    most: int | None
    enqueued_at: datetime
    due_at: datetime | None
    finished_at: datetime | None
    why: str
    reason: str | None
    error: str | None
    group: str | None
    origin: str | None


class Share(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a list that have one value in common.

    Attributes:
        q: the filter of these alone.
        group: of jobs with the same error, their group.
    """

    name: str
    jobs: int
    q: str
    group: str | None = None


class Facets(msgspec.Struct, frozen=True, gc=False):
    """What the newest jobs of a list have in common.

    Attributes:
        jobs: how many were read, at most 200.
        tasks: the most frequent tasks; also of the queues and the error groups.
        tries: the number of jobs by that of their attempts, from 0 to 7, and 8 or more.
        since: when the first of them ended, or else was enqueued.
        times: the number of jobs by that time, in spans of the same width up to the last of them.
        width_seconds: of these spans.
    """

    jobs: Count
    tasks: tuple[Share, ...]
    queues: tuple[Share, ...]
    errors: tuple[Share, ...]
    tries: tuple[int, ...]
    since: datetime
    times: tuple[int, ...]
    width_seconds: float

    @property
    def spans(self) -> tuple[tuple[datetime, int], ...]:
        """The spans with jobs: their begin and the number."""
        width = timedelta(seconds=self.width_seconds)
        return tuple((self.since + width * place, number) for place, number in enumerate(self.times) if number)

    def when(self, zone: tzinfo, q: str, colour: str, url: Callable[[str], str]) -> Picture:
        """Draw the number of jobs by time; each column leads to its jobs."""
        width = timedelta(seconds=self.width_seconds)
        starts = [self.since + width * number for number in range(len(self.times))]
        paths = [url(f"/jobs?{urlencode({'q': _between(q, at, at + width)})}") for at in starts]
        axis = msgspec.structs.replace(axes.times(starts, width, zone, paths=paths), is_open=False)
        sentence = f"{self.jobs} jobs by time, at most {max(self.times):,} within {axes.took(self.width_seconds)}"
        return plots.columns(axis, {colour: self.times}, sentence, scale=plots.counts(max(self.times), plots.SMALL))

    def storm(self) -> Picture:
        """Draw the number of jobs by that of their attempts."""
        last = max(place for place, number in enumerate(self.tries) if number)
        names = [*(str(number) for number in range(_TRIES)), f"{_TRIES}+"][: max(last + 1, 5)]
        sentence = f"{self.jobs} jobs by the number of their attempts"
        scale = plots.counts(max(self.tries), plots.SMALL)
        return plots.columns(
            axes.categories(names), {"retried": self.tries[: len(names)]}, sentence, scale=scale, values=True
        )


def _between(q: str, since: datetime, until: datetime) -> str:
    """Return a filter with a span of time instead of its own."""
    kept = [each for each in chips(q) if each.word not in {"since:", "until:"}]
    words = [f'{each.word}"{each.value}"' if " " in each.value else f"{each.word}{each.value}" for each in kept]
    return " ".join([*words, f"since:{since:%Y-%m-%dT%H:%M:%S}Z", f"until:{until:%Y-%m-%dT%H:%M:%S}Z"])


class Tab(msgspec.Struct, frozen=True, gc=False):
    """The jobs in a state that meet the other conditions of a list.

    Attributes:
        q: their filter.
        jobs: their number, if it is known.
        current: True for the list itself.
    """

    name: str
    q: str
    jobs: Count | None
    current: bool


class JobList(msgspec.Struct, frozen=True, gc=False):
    """A page of jobs.

    Attributes:
        q: the filter.
        before: the parameter ``before`` of the next page; None on the last page.
        searched_to: the id down to which jobs were read, if older ones were not: the parameter ``before`` to search on.
        by_index: True if older ones were found as far as an index has them: by tags, keys and the ids of runs.
        facets: of the first page of a list over HTTP, without a limit.
        tabs: over HTTP, the same list by state.
        actions: operations on all jobs that match (`redrive.operate.operations`).
        problem: what is wrong with the filter.
        caret: the filter, and a caret below its wrong part.
    """

    q: str
    items: tuple[JobLine, ...] = ()
    before: str | None = None
    searched_to: str | None = None
    by_index: bool = False
    facets: Facets | None = None
    tabs: tuple[Tab, ...] = ()
    actions: tuple[str, ...] = ()
    problem: str | None = None
    caret: str | None = None

    @property
    def chips(self) -> tuple[Chip, ...]:
        """The conditions of the filter."""
        return () if self.problem else chips(self.q)

    @property
    def tab(self) -> str:
        """The name of the tab that is shown; empty if none is."""
        return next((each.name for each in self.tabs if each.current), "")


def jobs(site: Site, request: Request) -> Procedure[Page]:
    """List jobs, newest first."""
    q = request.query.get("q", "").strip()
    try:
        asked = read_search(q, site.payloads, most=LONGEST if request.via else len(q), now=site.app.now())
    except FilterError as error:
        # The list stays empty: an operator must not act on jobs that the filter did not mean.
        return Page("Jobs", JobList(q, problem=error.detail, caret=error.caret), error)
    is_first = bool(request.via) and not request.query.get("before") and not request.query.get("limit")
    data = yield from read(site, request, asked.where, asked.word, sample=SAMPLE if is_first else 0)
    if request.via:
        data = replace(data, tabs=(yield from _tabs(site, asked.where, asked.word)))
    return Page("Jobs", replace(data, q=q), next={"before": data.before or data.searched_to})


_TABS: Final[Mapping[str, Mapping[str, object]]] = {
    "all": {},
    "dead": {"state": State.DEAD, "caught": False, "skipped": False},
    "retrying": {"hold": Hold.RETRY},
    "running": {"state": State.RUNNING},
    "ready": {"state": State.READY},
    "waiting": {"state": State.WAITING},
    "succeeded": {"state": State.SUCCEEDED},
    "cancelled": {"state": State.CANCELLED},
}

# The depths of queues that make up the number of a tab.
_DEPTHS: Final[Mapping[str, tuple[DepthState, ...]]] = {
    "dead": (DepthState.DEAD,),
    "running": (DepthState.RUNNING,),
    "ready": (DepthState.DUE, DepthState.LATER),
    "waiting": (DepthState.WAITING,),
}


def _tabs(site: Site, where: Filter, word: str | None) -> Procedure[tuple[Tab, ...]]:
    """Return a list by state, with the numbers that all viewers share where they are those of the other conditions."""
    rest = replace(where, state=None, hold=None, caught=None, skipped=None)
    depths = None
    if word is None and not ({*rest.conditions} - {"queue"}):
        depths = counted((yield from vitals(site)).depths, rest.queue)
    found = []
    for name, given in _TABS.items():
        states = _DEPTHS.get(name)
        jobs = None if depths is None or states is None else sum((depths[each] for each in states), Count(0))
        mine = replace(rest, **given)
        # All dead jobs, and not only those that wait for a person.
        is_wider = name == "dead" and mine == replace(where, caught=False)
        is_exact = mine == where
        found.append(Tab(name, write(mine, word), None if is_wider and not is_exact else jobs, is_exact or is_wider))
    return tuple(found)


def read(
    site: Site, request: Request, where: Filter, word: str | None = None, *, also: str | None = None, sample: int = 0
) -> Procedure[JobList]:
    """Read a page of the jobs that match.

    With a word only those that have it as one of their values, and the job with the id `also`; with a sample facets of
    so many jobs.
    """
    before, limit = request.number("before", NEWEST, most=NEWEST), request.limit(SHOWN)
    wanted = replace(where, before_id=before, limit=max(limit, sample) + 1)
    found: admin.JobPage
    if where.hold is not None and word is None and not request.via:
        # The index of jobs that wait for a reason has their due times in order, so that its first rows are the answer.
        found = admin.JobPage((yield admin.select(wanted, now=site.app.now())))
    else:
        number = None if also is None else whole_number(also, most=LARGEST_ID)
        found = yield admin.page(wanted, budget=admin.BUDGET, word=word, also=number, now=site.app.now())
    shown = found.jobs[:limit]
    around: dict[int, Circumstances] = yield queues.circumstances(shown, now=site.app.now())
    # Others have no text that could repeat a value.
    sources = {job.id: job.parent_id for job in shown if job.error is not None or job.note is not None}
    documents: dict[int, Documents] = yield operations.documents(sources)
    items = tuple(
        line(job, around[job.id], Shown.of(site.payloads, repeated=documents.get(job.id, NO_DOCUMENTS).all))
        for job in shown
    )
    # Behind those that were read there may be others than those of an index.
    has_more = len(found.jobs) > limit and (found.searched_to is None or shown[-1].id >= found.searched_to)
    is_searched = found.searched_to is None or has_more
    return JobList(
        write(where, word),
        items=items,
        before=str(shown[-1].id) if has_more else None,
        searched_to=None if is_searched else str(found.searched_to),
        by_index=found.by_index,
        facets=_facets(found.jobs, sample, items, where, word) if sample and found.jobs else None,
        # A value that stands alone may mean several things.
        actions=_actions(where) if word is None else (),
    )


def _facets(
    found: Sequence[JobRecord], sample: int, items: Sequence[JobLine], where: Filter, word: str | None
) -> Facets:
    """Return what the jobs have in common."""
    jobs = found[:sample]
    at = [each.finished_at if each.state in FINAL and each.finished_at else each.enqueued_at for each in jobs]
    width = max((max(at) - min(at)) / (_COLUMNS - 1), timedelta(seconds=1))
    places = Counter(int((each - min(at)) / width) for each in at)
    tries = Counter(min(each.attempt, _TRIES) for each in jobs)
    texts = {each.group: _text(each) for each in reversed(items) if each.group is not None}
    groups = Counter(each.fingerprint for each in jobs if each.fingerprint is not None)
    reasons = {each.fingerprint: each.reason or "error" for each in jobs}
    return Facets(
        jobs=Count(len(jobs), len(found) > sample),
        tasks=tuple(_shares(Counter(each.task for each in jobs), "task", where, word)),
        queues=tuple(_shares(Counter(each.queue for each in jobs), "queue", where, word)),
        errors=tuple(
            Share(texts.get(group, reasons[group]), number, write(replace(where, group=group), word), group)
            for group, number in groups.most_common(_NAMED)
        ),
        tries=tuple(tries[number] for number in range(_TRIES + 1)),
        since=min(at),
        times=tuple(places[place] for place in range(_COLUMNS)),
        width_seconds=width.total_seconds(),
    )


def _text(each: JobLine) -> str:
    return ": ".join(
        part for part in (each.task, (each.error or each.reason or "").strip().partition("\n")[0][:120]) if part
    )


def _shares(counts: Counter[str], name: str, where: Filter, word: str | None) -> Iterator[Share]:
    for value, number in counts.most_common(_NAMED):
        yield Share(value, number, write(replace(where, **{name: value}), word))


def _actions(where: Filter) -> tuple[str, ...]:
    """Return what can be done with all jobs that match; nothing without a condition."""
    if not where.conditions:
        return ()
    if where.state in (State.DEAD, State.CANCELLED):
        return ("redrive",)
    if where.state is State.SUCCEEDED:
        return ()
    return ("cancel", "repolicy") if where.state is not None or where.hold is not None else ("redrive", "cancel")


def line(job: JobRecord, around: Circumstances, shown: Shown) -> JobLine:
    """Return a job as a line of a list, without the values that are not shown."""
    return JobLine(
        id=str(job.id),
        task=job.task,
        queue=job.queue,
        state=job.state,
        standing=standing(job, around.now),
        attempts=job.attempt,
        most=_most(job),
        enqueued_at=job.enqueued_at,
        due_at=due_at(job),
        finished_at=job.finished_at,
        why=shown.clear(why_not_running(job, around)) or "",
        reason=job.reason,
        error=shown.clear(job.error),
        group=job.fingerprint,
        origin=job.origin,
    )


def due_at(job: JobRecord) -> datetime | None:
    """Return when a job is due, if it is ready; None if it waits without a time limit."""
    return job.scheduled_at if job.state is State.READY and not is_far(job.scheduled_at) else None


def _most(job: JobRecord) -> int | None:
    """Return the number of attempts if the others fail alike; None without a limit."""
    # A catch job runs again until it succeeds, and a feeder until its subscription ends.
    if job.policy.attempts is None or job.parent_id is not None or is_feeder(job.origin):
        return None
    begun = job.attempt if job.state in (State.READY, State.DEAD) else job.attempt - 1
    # A retry or a redrive forgives failures, and attempts that were lost with a worker are none.
    return job.policy.attempts + max(0, begun - job.failures)


def standing(job: JobRecord, now: datetime) -> str:
    """Return the state of a job in one word."""
    if job.state is State.DEAD and job.caught_at is not None:
        return "caught"
    if job.is_skipped:
        return "skipped"
    if job.state is not State.READY:
        return job.state.value
    word = _WORDS.get(job.hold) if job.hold is not None else None
    return word or ("due" if job.scheduled_at <= now else "scheduled")
