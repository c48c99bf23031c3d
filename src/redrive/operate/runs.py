"""Runs of workflows: the list."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from redrive.app.flows.workflow import Workflow
from redrive.app.protocol import Procedure
from redrive.engine.explain import Circumstances, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import NEWEST, Hold
from redrive.operate.exchange import Newest, Page, Request, Site
from redrive.operate.jobs import standing
from redrive.operate.shown import Shown
from redrive.stores.operations import jobs as operations
from redrive.stores.operations import managing_runs, queues
from redrive.stores.operations.jobs import NO_DOCUMENTS, Documents
from redrive.stores.operations.managing_runs import RunFilter, RunsFound, RunView

#: Runs on a page.
SHOWN: Final = 50

#: Runs that are read for a page; a filter that few runs match is searched further by the next page.
BUDGET: Final = 20_000


class RunsQuery(Newest, frozen=True, gc=False):
    """The parameters of the list of runs.

    Attributes:
        workflow: only runs of this workflow.
        hold: only runs that wait for this reason.
    """

    workflow: str | None = None
    state: State | None = None
    hold: Hold | None = None


class RunLine(msgspec.Struct, frozen=True, gc=False):
    """A run in a list.

    Attributes:
        version: of the code of the workflow that started it.
        standing: its state in one word; a run that waits is parked, paused, held or retrying.
        started_at: when it was enqueued.
        why: why it is not running.
    """

    id: str
    workflow: str
    version: int
    job_id: str
    state: State
    standing: str
    started_at: datetime
    finished_at: datetime | None
    why: str


class RunList(msgspec.Struct, frozen=True, gc=False):
    """A page of runs.

    Attributes:
        workflow: the filters; None if they are not given.
        items: newest first.
        before: the parameter ``before`` of the next page; None on the last page.
        searched: the number of runs that were read, if older ones have not been searched.
        workflows: those of the code.
    """

    workflow: str | None
    state: State | None
    hold: Hold | None
    items: tuple[RunLine, ...]
    before: str | None
    searched: int | None
    workflows: tuple[str, ...]


def run_list(site: Site, request: Request) -> Procedure[Page]:
    """List runs, newest first."""
    limit = request.limit(SHOWN)
    wanted = RunFilter(
        workflow=request.text("workflow"),
        state=request.choice("state", State),
        hold=request.choice("hold", Hold),
        before_id=request.number("before", NEWEST, most=NEWEST),
        limit=limit + 1,
    )
    found: RunsFound = yield managing_runs.search(wanted, budget=BUDGET)
    shown = found.runs[:limit]
    around = yield queues.circumstances([each.job for each in shown], now=site.app.now())
    # Others have no text that could repeat a value.
    spoken = [each.job.id for each in shown if each.job.error is not None or each.job.note is not None]
    documents: dict[int, Documents] = yield operations.documents(dict.fromkeys(spoken))
    is_full = len(found.runs) > limit
    before = shown[-1].job.id if is_full else found.searched_to
    data = RunList(
        wanted.workflow,
        wanted.state,
        wanted.hold,
        items=tuple(
            run_line(
                each,
                around[each.job.id],
                Shown.of(site.payloads, repeated=documents.get(each.job.id, NO_DOCUMENTS).all),
            )
            for each in shown
        ),
        before=None if before is None else str(before),
        searched=BUDGET if found.searched_to is not None and not is_full else None,
        workflows=tuple(sorted(task.name for task in site.app.tasks.values() if isinstance(task, Workflow))),
    )
    return Page("Runs", data, next={"before": data.before})


def run_line(view: RunView, around: Circumstances, shown: Shown) -> RunLine:
    """Return a run as a line of a list, without the values that are not shown."""
    return RunLine(
        id=view.run.id,
        workflow=view.run.workflow,
        version=view.run.version,
        job_id=str(view.job.id),
        state=view.job.state,
        standing=standing(view.job, around.now),
        started_at=view.job.enqueued_at,
        finished_at=view.job.finished_at,
        why=shown.clear(why_not_running(view.job, around)) or "",
    )
