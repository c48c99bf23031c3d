"""Starts and forks runs. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.frozen import freeze
from redrive.engine.lifecycle import FINAL
from redrive.engine.origin import of_run
from redrive.engine.records import JobRecord, NewJob
from redrive.engine.runs import NewRun, RunRecord, StepRecord, path_order
from redrive.engine.undoing import forked, mark_of
from redrive.errors import DuplicateRun, IllegalMove, RunNotFound
from redrive.stores.operations import jobs
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.runs.again import change
from redrive.stores.query import Query, Statements, wakes


class StartedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that was started now, or that existed before with the same id and arguments."""

    job_id: int
    id: str
    created: bool
    at: datetime  # the instant of the transaction


@wakes
def start(
    new: Sequence[NewRun], *, trace: str | None = None, now: datetime | None = None
) -> Statements[list[StartedRun]]:
    """Start runs, all or none; a run with the id and the arguments of an existing one is that one.

    Raise `DuplicateRun` if a run has the id with other arguments, or `ConfigurationError` as an enqueue does.
    """
    if len(new) == 1 and _is_plain(new[0]):
        return [(yield from _one(new[0], trace, now))]
    return (yield from begin(new, now, trace=trace)) if new else []


class StartedRow(msgspec.Struct, frozen=True, gc=False):
    """The row of the query ``run_start``; there is none if it has refused the job."""

    id: int
    now: datetime
    name: str | None  # None if the workflow has a run with the id


def _is_plain(new: NewRun) -> bool:
    """Return True if one statement can start a run; see `jobs.is_plain`."""
    return new.parent_id is None and bool(new.workflow) and new.id != "" and jobs.is_plain(new.job)


def _one(new: NewRun, trace: str | None, now: datetime | None) -> Statements[StartedRun]:
    """Start a run by one query, which is one round trip, or find the one that has its id."""
    params = {
        **jobs.essentials(new.job, now),
        **jobs.options(new.job, trace),
        "workflow": new.workflow,
        "run_id": new.id,
        "version": new.version,
        "digest": new.digest,
        "origin": of_run(new.workflow, ""),
    }
    rows: Sequence[StartedRow] = yield Query("run_start", params, into=StartedRow)
    if not rows:
        raise jobs.no_partition(new.job.queue)
    (row,) = rows
    if row.name is not None:
        return StartedRun(row.id, row.name, created=True, at=row.now)
    name = new.id or f"run-{row.id}"
    existing = yield from _existing([(name, new)])
    return StartedRun(existing[new.workflow, name].job_id, name, created=False, at=row.now)


def begin(
    new: Sequence[NewRun],
    now: datetime | None,
    *,
    trace: str | None = None,
    source: Mapping[int, int] | None = None,
    spacing: timedelta = timedelta(0),
) -> Statements[list[StartedRun]]:
    """Start runs as a part of a larger operation.

    ``source`` are the jobs of the runs that these are forks of, by their position; ``spacing`` is the time between
    the due times of two of them.
    """
    at, ids = yield from jobs.numbered([each.job for each in new], now)
    names = [each.id or f"run-{number}" for number, each in zip(ids, new, strict=True)]
    rows = [
        _row(number, name, each, (source or {}).get(place))
        for place, (number, name, each) in enumerate(zip(ids, names, new, strict=True))
    ]
    inserted = {row[0] for row in (yield Query("run_insert", many=rows))}
    fresh = [
        (number, _job(each, name, at + place * spacing if spacing else None))
        for place, (number, name, each) in enumerate(zip(ids, names, new, strict=True))
        if number in inserted
    ]
    yield from jobs.put([number for number, _ in fresh], [job for _, job in fresh], at, trace)
    existing = yield from _existing([(names[i], new[i]) for i, number in enumerate(ids) if number not in inserted])
    return [
        StartedRun(number if number in inserted else existing[each.workflow, name].job_id, name, number in inserted, at)
        for number, name, each in zip(ids, names, new, strict=True)
    ]


def _row(number: int, name: str, new: NewRun, source: int | None) -> dict[str, object]:
    return {
        "job_id": number,
        "workflow": new.workflow,
        "id": name,
        "version": new.version,
        "digest": new.digest,
        "parent_id": new.parent_id,
        "parent_path": new.parent_path,
        "forked_from": source,
        "set_values": None,
    }


def _job(new: NewRun, name: str, due_at: datetime | None) -> NewJob:
    origin = of_run(new.workflow, name)
    return replace(new.job, origin=origin) if due_at is None else replace(new.job, origin=origin, due_at=due_at)


def _existing(doubled: Sequence[tuple[str, NewRun]]) -> Statements[dict[tuple[str, str], RunRecord]]:
    """Return the runs that have these ids, if they have the same arguments."""
    found: dict[tuple[str, str], RunRecord] = {}
    for workflow, ids in _by_workflow((each.workflow, name) for name, each in doubled).items():
        params = {"workflow": workflow, "ids": sorted(ids)}
        rows: Sequence[RunRecord] = yield Query("runs_named", params, into=RunRecord)
        found |= {(workflow, row.id): row for row in rows}
    for name, new in doubled:
        there = found.get((new.workflow, name))
        if there is None:
            raise RunNotFound(f"run {name!r} of {new.workflow} has been deleted at this moment: try again")
        if there.digest != new.digest:
            raise DuplicateRun(
                f"{new.workflow} has a run {name!r}, job {there.job_id}, with other arguments: "
                "use another id, or the same arguments",
                job_id=there.job_id,
                id=name,
            )
    return found


def _by_workflow(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    grouped: dict[str, set[str]] = defaultdict(set)
    for workflow, name in pairs:
        grouped[workflow].add(name)
    return grouped


# A fork is a new run with the recorded steps before the one from which it goes on. Its children and its signals are its
# own: unread signals stay with the run that it was forked from.
@wakes
def fork(
    workflow: str,
    sources: Mapping[str, str | None],
    *,
    before: str | None,
    spacing: timedelta = timedelta(0),
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[list[StartedRun]]:
    """Start a fork of each of these runs, due one after the other.

    Args:
        workflow: its name.
        sources: the ids of the runs, each with the id of its fork; None for an id made from the number of its job.
        before: the path of the first step that is not copied; None copies none.
        spacing: time between the due times of two forks.
        actor: for the audit log.
        now: see `redrive.stores.operations.clock`.

    A step that was undone is executed anew in the fork.

    Raise `RunNotFound`; `DuplicateRun` if the id of a fork exists; or `IllegalMove` if steps are to be copied from a
    run that takes its steps back at this moment.
    """
    if not sources:
        return []
    params = {"workflow": workflow, "ids": sorted(sources)}
    found: Sequence[RunRecord] = yield Query("runs_named", params, into=RunRecord)
    runs = {run.id: run for run in found}
    for name in sources:
        if name not in runs:
            raise RunNotFound(f"{workflow} has no run {name!r}")
    new = []
    for name, fork_id in sources.items():
        job = yield from jobs.find(runs[name].job_id)
        payloads: Sequence[tuple[bytes]] = yield Query("payload_of", {"job_id": job.id})
        tags: Sequence[tuple[int, str]] = yield Query("tags_of", {"ids": [job.id]})
        new.append(_fork_of(runs[name], job, payloads, tuple(tag for _, tag in tags), fork_id))
    source = {place: runs[name].job_id for place, name in enumerate(sources)}
    started = yield from begin(new, now, source=source, spacing=spacing)
    found_by_job = {run.job_id: run for run in found}
    for place, each in enumerate(started):
        if not each.created:
            raise DuplicateRun(f"{workflow} has a run {each.id!r} already", job_id=each.job_id, id=each.id)
        if before is not None:
            yield from _copy_steps(found_by_job[source[place]], each.job_id, before, each.at)
    new_ids, old_ids = [each.job_id for each in started], list(source.values())
    yield from record(started[0].at, actor, "fork_run", ids=new_ids, forked_from=old_ids, from_step=before)
    return started


def _fork_of(
    run: RunRecord, job: JobRecord, payloads: Sequence[tuple[bytes]], tags: tuple[str, ...], fork_id: str | None
) -> NewRun:
    copy = NewJob(
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        payload=payloads[0][0] if payloads else None,
        policy=freeze(job.policy),
        partition=job.partition,
        tags=tags,
    )
    return NewRun(copy, run.workflow, run.version, run.digest, fork_id)


def _copy_steps(source: RunRecord, fork_id: int, before: str, at: datetime) -> Statements[None]:
    rows: Sequence[StepRecord] = yield Query("steps_of", {"ids": [source.job_id]}, into=StepRecord)
    mark, job = mark_of(rows), (yield from jobs.find(source.job_id))
    if mark is not None and job.state not in FINAL:
        raise IllegalMove(
            f"run {source.id!r} of {source.workflow} takes its steps back at this moment: fork it when it has ended, "
            "or fork it without from_step"
        )
    if path_order(before)[0] != 0:
        raise IllegalMove(f"run {source.id!r} of {source.workflow} cannot be forked from {before}: name a step")
    paths, changes = forked(rows, before)
    if paths:
        yield Query("steps_copy", {"run_id": source.job_id, "fork_id": fork_id, "paths": list(paths)})
    yield from change(fork_id, changes, at)
