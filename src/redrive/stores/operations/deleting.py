"""Deletes chosen jobs, and reads ended jobs for an archive. PURE.

Running jobs and jobs that wait for an answer are never deleted, and a dead job only after its catch jobs. A job that is
due later is cancelled first, so that its key and its schedule are released as by a cancel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from redrive.engine.explain import CatchJob
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import AttemptRecord, Filter, JobRecord
from redrive.engine.runs import RunState
from redrive.stores.operations.admin import BulkResult, selected
from redrive.stores.operations.audit import UNKNOWN, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import end_job
from redrive.stores.operations.runs.endings import is_run, standing_of
from redrive.stores.operations.runs.steps import states
from redrive.stores.query import Query, Statements, reads, wakes, writes

_OPEN = {
    State.RUNNING: "runs: cancel it first, or let it end",
    State.WAITING: "waits for an answer: cancel it first, or let it end",
}

_BEGUN = "is a run with finished steps: cancel it first, so that they are taken back, or let it end"


class ArchiveEntry(msgspec.Struct, frozen=True, gc=False):
    """All that is stored of an ended job."""

    job: JobRecord
    tags: tuple[str, ...]
    payload: bytes | None
    result: bytes | None
    history: tuple[AttemptRecord, ...]
    run: RunState | None = None  # of the run of a workflow


class ArchivePage(msgspec.Struct, frozen=True, gc=False):
    """The result of `entries`."""

    at: datetime  # its instant
    entries: tuple[ArchiveEntry, ...]
    kept: tuple[tuple[int, str], ...]  # ended jobs that stay for now, with the reasons
    last_id: int | None  # the last job that was read; None when no more match


@wakes
def delete(
    wanted: Filter, *, dry_run: bool = False, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[BulkResult]:
    """Delete the jobs that match a filter, with all their rows; at most ``wanted.most`` jobs are read."""
    at = yield from instant(now)
    jobs = yield from selected(replace(wanted, oldest_first=True))
    last = jobs[-1].id if len(jobs) == wanted.most else None
    if jobs and not dry_run:
        locked: Sequence[JobRecord] = yield Query("job_locks", {"ids": [job.id for job in jobs]}, into=JobRecord)
        there = {job.id: job for job in locked}
        taken = [(job.id, "is being changed by another transaction: try again") for job in jobs if job.id not in there]
        jobs = [there[job.id] for job in jobs if job.id in there]
    else:
        taken = []
    chosen, kept = yield from choose(jobs)
    if dry_run:
        return BulkResult(tuple(job.id for job in chosen), kept, last)
    for job in chosen:
        if job.state not in FINAL:
            yield from end_job(job, at, "deleted by an operator")
    gone = yield from prune(chosen, at)
    if gone:
        yield from record(at, actor, "delete", ids=gone, filter=conditions(wanted))
    taken += [(job.id, "stays: another catch job must be deleted first") for job in chosen if job.id not in gone]
    return BulkResult(tuple(gone), tuple(sorted([*kept, *taken])), last)


def choose(jobs: Sequence[JobRecord]) -> Statements[tuple[list[JobRecord], tuple[tuple[int, str], ...]]]:
    """Return the jobs that may be deleted, and the others with the reasons."""
    if not jobs:
        return [], ()
    catches: Sequence[CatchJob] = yield Query("catches_of", {"ids": [job.id for job in jobs]}, into=CatchJob)
    closed = {job.id for job in jobs if job.state not in _OPEN}
    runs = [job.id for job in jobs if job.id in closed and job.state not in FINAL and is_run(job)]
    standing = (yield from standing_of(runs)) if runs else {}
    begun = {number for number in runs if standing[number].has_steps}
    closed -= begun
    stays = {each.parent_id: each for each in catches if each.id not in closed}
    kept = [(job.id, _OPEN[job.state]) for job in jobs if job.state in _OPEN]
    kept += [(number, _BEGUN) for number in begun]
    kept += [(n, f"stays: its catch job {each.id} must be deleted first") for n, each in stays.items() if n in closed]
    chosen = [job for job in jobs if job.id in closed and job.id not in stays]
    return chosen, tuple(sorted(kept))


def prune(chosen: Sequence[JobRecord], at: datetime) -> Statements[list[int]]:
    """Delete ended jobs, catch jobs before their dead jobs, and return the ids in ascending order."""
    gone: list[int] = []
    for ids in ([job.id for job in chosen if job.parent_id], [job.id for job in chosen if not job.parent_id]):
        if ids:
            gone += [row[0] for row in (yield Query("prune", {"ids": ids, "at": at}))]
    return sorted(gone)


@reads
def entries(wanted: Filter, *, now: datetime | None = None) -> Statements[ArchivePage]:
    """Return all that is stored of the ended jobs that match and may be deleted; at most ``wanted.most`` are read."""
    at = yield from instant(now)
    before = at if wanted.finished_before is None else min(at, wanted.finished_before)
    jobs = yield from selected(replace(wanted, all=False, oldest_first=True, finished_before=before))
    last = jobs[-1].id if len(jobs) == wanted.most else None
    chosen, kept = yield from choose(jobs)
    if not chosen:
        return ArchivePage(at, (), kept, last)
    ids = {"ids": [job.id for job in chosen]}
    payloads = dict((yield Query("payloads_of", ids)))
    results = dict((yield Query("results_of", ids)))
    tags, histories = defaultdict(list), defaultdict(list)
    for number, tag in (yield Query("tags_of", ids)):
        tags[number].append(tag)
    attempts: Sequence[AttemptRecord] = yield Query("histories_of", ids, into=AttemptRecord)
    for each in attempts:
        histories[each.job_id].append(each)
    runs = yield from states(chosen, at)
    read = [
        ArchiveEntry(
            job,
            tuple(tags[job.id]),
            payloads.get(job.id),
            results.get(job.id),
            tuple(histories[job.id]),
            runs.get(job.id),
        )
        for job in chosen
    ]
    return ArchivePage(at, tuple(read), kept, last)


# A job that was started again after it was read stays; the archive then has it once more when it has ended again.
@writes
def archived(page: ArchivePage, wanted: Filter, to: str, *, actor: str = UNKNOWN) -> Statements[BulkResult]:
    """Delete the jobs of a page that has been written to an archive."""
    gone = yield from prune([entry.job for entry in page.entries], page.at)
    stayed = [(each.job.id, "was started again") for each in page.entries if each.job.id not in set(gone)]
    if gone:
        yield from record(page.at, actor, "archive", ids=gone, filter=conditions(wanted), to=to)
    return BulkResult(tuple(gone), tuple(sorted([*page.kept, *stayed])), page.last_id)
