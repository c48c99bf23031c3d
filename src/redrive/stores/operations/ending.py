"""Ends jobs from outside: at once, or, if they are runs with finished steps, after these were taken back. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import JobRecord
from redrive.engine.reports import ended
from redrive.stores.operations import origins
from redrive.stores.operations.runs import endings
from redrive.stores.operations.runs.endings import RunStanding, is_run
from redrive.stores.operations.settlements import end, put_cancelled, put_unstopped
from redrive.stores.query import Query, Statements

_CANCELLED = "cancelled by an operator"


def end_job(job: JobRecord, at: datetime, why: str | None) -> Statements[None]:
    """End a job that is not final as a part of a larger operation, and notify its schedule."""
    text = why or _CANCELLED
    has_ended = yield from end(job, at, text)
    report = ended(job, text) if has_ended else None
    if report is not None:
        yield from origins.report([report], at)


def cancel_jobs(jobs: Sequence[JobRecord], at: datetime, why: str | None) -> Statements[list[int]]:
    """Cancel those of these jobs that are not final, and return the ids of those that this has changed."""
    runs = yield from _families([job.id for job in jobs if is_run(job) and job.state not in FINAL])
    text = why or _CANCELLED
    changed, reports = [], []
    for job in jobs:
        if job.state in FINAL:
            continue
        work = cancel_runs(runs.get(job.id, ()), at, why) if is_run(job) else end(job, at, text)
        if not (yield from work):
            continue
        changed.append(job.id)
        report = None if is_run(job) else ended(job, text)
        if report is not None:
            reports.append(report)
    # At the end: a report locks further rows, for which a transaction may wait that has locked the next job here.
    yield from origins.report(reports, at)
    return changed


def _families(ids: Sequence[int]) -> Statements[dict[int, list[JobRecord]]]:
    """Return each of these runs with the runs that it has called, and lock all of them."""
    # They are locked together, in one order, so that two transactions cannot wait for each other.
    members = {}
    for number in ids:
        members[number] = [row[0] for row in (yield Query("run_family", {"id": number}))]
    every = sorted({each for family in members.values() for each in family})
    if not every:
        return {}
    locked: Sequence[JobRecord] = yield Query("jobs_lock", {"ids": every}, into=JobRecord)
    found = {job.id: job for job in locked}
    return {number: [found[each] for each in family if each in found] for number, family in members.items()}


def family(job_id: int) -> Statements[list[JobRecord]]:
    """Return a run and the runs that it has called, as far as they have not ended, and lock them."""
    return (yield from _families([job_id])).get(job_id, [])


# The first request is delivered once, at the next step of the run, which can then clean up; then its undos run. The
# second one ends the body without that: the run is taken back from its worker, and its next pass begins with the undos.
# One that arrives when the undos have begun ends the run, and records what was not undone.
def cancel_runs(jobs: Sequence[JobRecord], at: datetime, why: str | None) -> Statements[list[int]]:
    """Request the cancellation of runs, which are locked; return the jobs of those that have not ended."""
    text = why or _CANCELLED
    live = [job for job in jobs if job.state not in FINAL]
    ids = [job.id for job in live]
    if not ids:
        return []
    before = yield from endings.standing_of(ids)
    yield Query("runs_cancel", {"ids": ids, "now": at, "why": text})
    for job in live:
        yield from _cancel_run(job, before[job.id], at, text)
    yield Query("runs_due", {"ids": ids, "now": at})
    return ids


def _cancel_run(job: JobRecord, run: RunStanding, at: datetime, why: str) -> Statements[None]:
    is_new = job.state is State.READY and job.started_at is None
    if run.cancel_at is None and not (is_new and not run.has_steps):
        return
    if run.undoing:
        yield from end_job(job, at, (yield from endings.give_up(job, at, why)))
    elif run.has_steps:
        yield from endings.undo_next(job, at, why)
        yield Query("run_recall", {"id": job.id, "now": at, "note": f"takes its steps back: {why}"})
        if job.state is State.RUNNING:
            yield from put_unstopped([job])
            yield from put_cancelled(job, at, why)
    else:
        yield from end_job(job, at, why)
