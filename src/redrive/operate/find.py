"""Search for what a business knows, such as the number of an invoice: jobs, runs, instances, items and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import msgspec

from redrive.app.protocol import Procedure
from redrive.operate.exchange import Newest, Page, Request, Site, path_to
from redrive.operate.filters import FilterError, read_search
from redrive.operate.jobs import JobLine, JobList, read
from redrive.stores.operations import search
from redrive.stores.operations.search import HitKind, HitRecord, Hits


class FindQuery(Newest, frozen=True, gc=False):
    """The parameters of a search.

    Attributes:
        q: a value, such as the number of an invoice, or the filter of a list of jobs.
        before: where the jobs begin: the member of this name of the page before it.
    """

    q: str | None = None


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A match that is no job.

    Attributes:
        kind: what it is; ``move`` is an event that was sent to an instance.
        name: of the workflow, machine, refresh or topic.
        part: the id of the run, the key of the instance or item, or the id of the event.
        text: its state, or the type of an event.
        job: that executes it.
        at: when it was started, tracked or sent, or has entered its state.
        path: of its page.
    """

    kind: HitKind
    name: str
    part: str
    text: str | None
    job: str | None
    at: datetime
    path: str


class Found(msgspec.Struct, frozen=True, gc=False):
    """The result of a search.

    Attributes:
        q: what was searched.
        hits: runs, instances, items and events, at most 20 of each.
        jobs: newest first.
        before: the parameter ``before`` of the next page of jobs; None on the last page.
        searched_to: the id down to which the values of jobs were read, if older ones were not.
        unread: what was not searched, as sentences.
        problem: what is wrong with the text.
        caret: the text, and a caret below its wrong part.
    """

    q: str
    hits: tuple[Hit, ...] = ()
    jobs: tuple[JobLine, ...] = ()
    before: str | None = None
    searched_to: str | None = None
    unread: tuple[str, ...] = ()
    problem: str | None = None
    caret: str | None = None


def find(site: Site, request: Request) -> Procedure[Page]:
    """Search for a value, or for the jobs that match a filter."""
    q = request.query.get("q", "").strip()
    # A number may be the id of a job, or a number of the business.
    number = q if q.isascii() and q.isdigit() else None
    try:
        asked = read_search(f'"{q}"' if number else q, site.payloads, now=site.app.now())
    except FilterError as error:
        return Page("Search", Found(q, problem=error.detail, caret=error.caret), error)
    if not q:
        return Page("Search", Found(q))
    jobs = yield from read(site, request, asked.where, asked.word, also=number)
    others = Hits((), is_whole=True)
    if asked.word is not None and not request.query.get("before"):
        others = yield search.find(asked.word, budget=search.BUDGET)
    data = Found(
        q,
        hits=tuple(map(_hit, others.hits)),
        jobs=jobs.items,
        before=jobs.before,
        searched_to=jobs.searched_to,
        unread=tuple(_unread(jobs, others)),
    )
    title = f"{len(data.hits) + len(data.jobs)} found: {q[:60]}"
    # Only a filter: the list of jobs has actions for all that match.
    listed = None if asked.word is not None else f"/jobs?{urlencode({'q': q})}"
    return Page(title, data, next={"before": jobs.before or jobs.searched_to}, elsewhere=listed)


def _unread(jobs: JobList, others: Hits) -> list[str]:
    """Return what was not searched."""
    found = []
    if jobs.searched_to is not None and jobs.by_index:
        found.append(f"of jobs older than {jobs.searched_to} only tags, held keys and ids of runs were searched")
    elif jobs.searched_to is not None:
        found.append(f"jobs older than {jobs.searched_to} were not searched")
    if not others.is_whole:
        found.append(f"the keys of events older than the newest {search.BUDGET:,} were not searched")
    return found


def _hit(each: HitRecord) -> Hit:
    job = None if each.job_id is None else str(each.job_id)
    return Hit(each.kind, each.name, each.part, each.text, job, each.at, _PATHS[each.kind](each))


_PATHS: Final[Mapping[HitKind, Callable[[HitRecord], str]]] = {
    HitKind.RUN: lambda each: path_to("runs", each.name, each.part),
    HitKind.INSTANCE: lambda each: path_to("machines", each.name, each.part),
    HitKind.MOVE: lambda each: path_to("machines", each.name, each.part),
    HitKind.ITEM: lambda each: f"{path_to('schedules', each.name)}/item?{urlencode({'key': each.part})}",
    HitKind.EVENT: lambda _: "/topics",
}
