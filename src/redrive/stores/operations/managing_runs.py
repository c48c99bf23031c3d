"""Operators' queries and actions on runs. PURE."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import NEWEST, AttemptRecord, Filter, Hold, JobRecord
from redrive.engine.runs import (
    CHILD_SIGNAL,
    FAR,
    RESULT_LIMIT,
    RunRecord,
    SignalRecord,
    StepError,
    StepRecord,
    check_size,
    in_order,
    path_order,
)
from redrive.engine.settle import deadline_at
from redrive.errors import IllegalMove, JobNotFound
from redrive.stores.operations import jobs
from redrive.stores.operations.admin import selected
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import cancel_runs, family
from redrive.stores.operations.redriving import start_again
from redrive.stores.operations.runs import again, steps
from redrive.stores.operations.runs.endings import standing_of
from redrive.stores.operations.runs.waits import find, not_found
from redrive.stores.query import Query, Statements, reads, wakes

#: Signals of one timeline.
MAX_SIGNALS = 10_000

#: Runs that a run has called, of one timeline.
MAX_CHILDREN = 1_000


class RunView(msgspec.Struct, frozen=True, gc=False):
    """A run with the job that executes it."""

    run: RunRecord
    job: JobRecord


class Timeline(msgspec.Struct, frozen=True, gc=False):
    """All that is stored of a run: its executions, its steps in the order of their calls, its signals, its children."""

    run: RunRecord
    job: JobRecord
    attempts: tuple[AttemptRecord, ...]
    steps: tuple[StepRecord, ...]
    signals: tuple[SignalRecord, ...]
    children: tuple[RunRecord, ...]


class RunFilter(msgspec.Struct, frozen=True, gc=False):
    """A selection of runs; all given conditions must hold.

    Attributes:
        hold: ``parked``, ``paused``, ``held`` or another reason to wait.
        parent_id: the job of the run that called them.
        before_id: runs with jobs before this one, for the next page.
        from_id: runs with this job or later ones.
        limit: maximum number of runs.
    """

    workflow: str | None = None
    state: State | None = None
    hold: Hold | None = None
    parent_id: int | None = None
    before_id: int | None = None
    from_id: int | None = None
    limit: int = 100


class RunsFound(msgspec.Struct, frozen=True, gc=False):
    """The result of a search with a budget.

    Attributes:
        searched_to: the job of the oldest run that was read; None if all runs were.
    """

    runs: tuple[RunView, ...]
    searched_to: int | None


class RetryingStep(msgspec.Struct, frozen=True, gc=False):
    """A step that waits for its next try.

    Attributes:
        run_id: the job of its run.
        task: the workflow, or the task of a job with steps that pass the low-level gate.
        id: the id of the run; None for such a job.
        tries: tries that failed.
        due_at: when it is tried again.
        at: when it failed.
    """

    run_id: int
    task: str
    id: str | None
    path: str
    name: str
    tries: int
    due_at: datetime
    at: datetime
    error: StepError


@reads
def get(workflow: str, run_id: str) -> Statements[RunView]:
    """Return a run; raise `RunNotFound`."""
    run = yield from find(workflow, run_id)
    return RunView(run, (yield from jobs.find(run.job_id)))


@reads
def select(wanted: RunFilter) -> Statements[tuple[RunView, ...]]:
    """Return the runs that match a filter, newest first."""
    return (yield from _select(wanted))


@reads
def search(wanted: RunFilter, *, budget: int) -> Statements[RunsFound]:
    """Return the runs that match a filter, newest first, among a limited number of runs.

    A rare state would otherwise read all runs.
    """
    before = NEWEST if wanted.before_id is None else wanted.before_id
    floor = yield Query("runs_floor", {"before_id": before, "budget": budget - 1})
    least: int | None = floor[0][0] if floor else None
    found = yield from _select(msgspec.structs.replace(wanted, from_id=least))
    return RunsFound(found, least)


def _select(wanted: RunFilter) -> Statements[tuple[RunView, ...]]:
    runs: Sequence[RunRecord] = yield Query("runs_select", _params(wanted), into=RunRecord)
    if not runs:
        return ()
    ids = tuple(run.job_id for run in runs)
    rows: Sequence[JobRecord] = yield from selected(Filter(ids=ids, limit=len(ids)))
    found = {job.id: job for job in rows}
    return tuple(RunView(run, found[run.job_id]) for run in runs)


@reads
def timeline(workflow: str, run_id: str, *, latest: int | None = None) -> Statements[Timeline]:
    """Return all that is stored of a run, or only its latest steps and signals; raise `RunNotFound`."""
    place = {"workflow": workflow, "id": run_id, "count": MAX_CHILDREN}
    family: Sequence[RunRecord] = yield Query("runs_family", place, into=RunRecord)
    if not family:
        raise not_found(workflow, run_id)
    run, *children = family
    job = yield from jobs.find(run.job_id)
    attempts: Sequence[AttemptRecord] = yield Query("attempts_of", {"job_id": run.job_id}, into=AttemptRecord)
    wanted = (
        Query("steps_of", {"ids": [run.job_id]}, into=StepRecord)
        if latest is None
        else Query("steps_latest", {"run_id": run.job_id, "count": latest}, into=StepRecord)
    )
    steps: Sequence[StepRecord] = yield wanted
    of_run = {"run_id": run.job_id, "child": CHILD_SIGNAL, "count": MAX_SIGNALS if latest is None else latest}
    signals: Sequence[SignalRecord] = yield Query("signals_of", of_run, into=SignalRecord)
    return Timeline(run, job, tuple(attempts), tuple(in_order(steps)), tuple(signals), tuple(reversed(children)))


@reads
def unread(run_id: int) -> Statements[tuple[str, ...]]:
    """Return the names of the signals that a run has not read, each once."""
    found = yield from steps.unread([run_id])
    return tuple(dict.fromkeys(each.name for each in found))


def _params(wanted: RunFilter) -> dict[str, object]:
    names = ("workflow", "state", "hold", "parent_id", "before_id", "from_id")
    return {**{name: getattr(wanted, name) for name in names}, "count": wanted.limit}


@reads
def retrying(
    *, task: str | None = None, before: datetime | None = None, limit: int = 100
) -> Statements[tuple[RetryingStep, ...]]:
    """Return the steps that wait for their next try, by its time: of one task, and due until ``before``, if given."""
    params = {"task": task, "before": before, "count": limit}
    return tuple((yield Query("steps_retrying", params, into=RetryingStep)))


@wakes
def cancel(
    workflow: str, run_id: str, *, why: str | None = None, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[bool]:
    """Request the cancellation of a run and of the runs that it called; see `redrive.stores.operations.ending`.

    A run that has not started ends at once. Return True if something changed. Raise `RunNotFound`.
    """
    at = yield from instant(now)
    run = yield from find(workflow, run_id)
    ids = yield from cancel_runs((yield from family(run.job_id)), at, why)
    if ids:
        yield from record(at, actor, "cancel_run", ids=ids, why=why)
    return bool(ids)


@wakes
def pause(
    workflow: str,
    run_id: str,
    *,
    until: datetime | None = None,
    why: str = "by an operator",
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[None]:
    """Let a run take no new step until it is resumed, or until an instant.

    Raise `RunNotFound`, or `IllegalMove` if the run has ended.
    """
    at = yield from instant(now)
    job = yield from _locked(workflow, run_id, "be paused")
    yield Query("run_pause", {"id": job.id, "now": at, "until": until, "why": why})
    # The deadline of a run ends its pause.
    ends_at = deadline_at(job.policy, job.started_at)
    due = (until or FAR) if ends_at is None or ends_at <= at else min(until or FAR, ends_at)
    yield Query("run_set_aside", {"id": job.id, "until": due, "note": f"paused: {why}"})
    yield from record(at, actor, "pause_run", ids=[job.id], why=why)


@wakes
def resume(workflow: str, run_id: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[bool]:
    """End the pause of a run, and return False if it was not paused; raise `RunNotFound` or `IllegalMove`."""
    at = yield from instant(now)
    job = yield from _locked(workflow, run_id, "be resumed")
    if not (yield Query("run_resume", {"id": job.id})):
        return False
    yield Query("runs_due", {"ids": [job.id], "now": at})
    yield from record(at, actor, "resume_run", ids=[job.id])
    return True


def _locked(workflow: str, run_id: str, what: str) -> Statements[JobRecord]:
    run = yield from find(workflow, run_id)
    job = yield from jobs.lock(run.job_id)
    if job.state in FINAL:
        raise IllegalMove(f"run {run_id!r} of {workflow} is {job.state}: it cannot {what}")
    return job


@wakes
def look_again(workflows: Collection[str], *, now: datetime | None = None) -> Statements[int]:
    """Make the held runs of these workflows due now, because a worker with other code has started; return how many."""
    at = yield from instant(now)
    return len((yield Query("runs_unheld", {"tasks": sorted(workflows), "now": at})))


@wakes
def supply(
    workflow: str,
    run_id: str,
    path: str,
    result: bytes | None,
    *,
    limit: int = RESULT_LIMIT,
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[None]:
    """Give a step or a wait that failed this result, and let the run go on, also if it is dead.

    A step that waits for a retry has failed, too.

    ``limit`` is the most bytes of the result.

    Branches that were dropped when the step failed go on, too.

    A result for an undo that has failed records that its step is taken back; the run stays as it is.

    Raise `RunNotFound`; `JobNotFound` if the run has no such step; `ResultTooLarge`; or `IllegalMove` if the run is
    executed at this moment, has succeeded, or the step has a result.
    """
    check_size(f"step {path} of run {run_id!r} of {workflow}", result, limit)
    at = yield from instant(now)
    run = yield from find(workflow, run_id)
    job = yield from jobs.lock(run.job_id)
    if job.state in {State.RUNNING, State.SUCCEEDED}:
        raise IllegalMove(f"run {run_id!r} of {workflow} is {job.state}: pause it first, or start another one")
    if job.state is State.READY and (yield from standing_of([job.id]))[job.id].undoing:
        raise IllegalMove(
            f"run {run_id!r} of {workflow} takes its steps back at this moment: give the value when it has ended"
        )
    params = {"run_id": job.id, "path": path, "result": result, "now": at}
    if not (yield Query("step_supply", params)):
        there: Sequence[StepRecord] = yield Query("step_get", {"run_id": job.id, "path": path}, into=StepRecord)
        if not there:
            raise JobNotFound(f"run {run_id!r} of {workflow} has no step {path!r}")
        raise IllegalMove(f"step {path} of run {run_id!r} is {there[0].outcome}: only a failed step takes a value")
    yield from record(at, actor, "supply_step", ids=[job.id], path=path)
    if path_order(path)[0]:
        # The step was taken back by hand.
        return
    yield from again.supply(job.id, path, at)
    if job.state is State.READY:
        yield Query("runs_due", {"ids": [job.id], "now": at})
    else:
        yield from start_again(job, at)
