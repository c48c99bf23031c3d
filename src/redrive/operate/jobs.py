"""The list of jobs with its filter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from redrive.app.protocol import Procedure
from redrive.engine.explain import Circumstances, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.origin import is_feeder
from redrive.engine.records import NEWEST, Filter, Hold, JobRecord
from redrive.engine.runs import is_far
from redrive.operate.exchange import LARGEST_ID, LONGEST, Newest, Page, Request, Site, whole_number
from redrive.operate.filters import FilterError, read_search, write
from redrive.operate.shown import Shown
from redrive.stores.operations import admin, queues
from redrive.stores.operations import jobs as operations
from redrive.stores.operations.jobs import NO_DOCUMENTS, Documents

#: Jobs on a page.
SHOWN: Final = 50

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


class JobList(msgspec.Struct, frozen=True, gc=False):
    """A page of jobs.

    Attributes:
        q: the filter.
        before: the parameter ``before`` of the next page; None on the last page.
        searched_to: the id down to which jobs were read, if older ones were not: the parameter ``before`` to search on.
        by_index: True if older ones were found as far as an index has them: by tags, keys and the ids of runs.
        actions: operations on all jobs that match (`redrive.operate.operations`).
        problem: what is wrong with the filter.
        caret: the filter, and a caret below its wrong part.
    """

    q: str
    items: tuple[JobLine, ...] = ()
    before: str | None = None
    searched_to: str | None = None
    by_index: bool = False
    actions: tuple[str, ...] = ()
    problem: str | None = None
    caret: str | None = None


def jobs(site: Site, request: Request) -> Procedure[Page]:
    """List jobs, newest first."""
    q = request.query.get("q", "").strip()
    try:
        asked = read_search(q, site.payloads, most=LONGEST if request.via else len(q), now=site.app.now())
    except FilterError as error:
        # The list stays empty: an operator must not act on jobs that the filter did not mean.
        return Page("Jobs", JobList(q, problem=error.detail, caret=error.caret), error)
    data = yield from read(site, request, asked.where, asked.word)
    return Page("Jobs", replace(data, q=q), next={"before": data.before or data.searched_to})


def read(
    site: Site, request: Request, where: Filter, word: str | None = None, *, also: str | None = None
) -> Procedure[JobList]:
    """Read a page of the jobs that match.

    With a word only those that have it as one of their values, and the job with the id `also`.
    """
    before, limit = request.number("before", NEWEST, most=NEWEST), request.limit(SHOWN)
    wanted = replace(where, before_id=before, limit=limit + 1)
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
    return JobList(
        write(where, word),
        items=tuple(
            line(job, around[job.id], Shown.of(site.payloads, repeated=documents.get(job.id, NO_DOCUMENTS).all))
            for job in shown
        ),
        # Behind those that were read there may be others than those of an index.
        before=str(shown[-1].id) if len(found.jobs) > limit and found.searched_to is None else None,
        searched_to=None if found.searched_to is None else str(found.searched_to),
        by_index=found.by_index,
        # A value that stands alone may mean several things.
        actions=_actions(where) if word is None else (),
    )


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
    if job.state is not State.READY:
        return job.state.value
    word = _WORDS.get(job.hold) if job.hold is not None else None
    return word or ("due" if job.scheduled_at <= now else "scheduled")
