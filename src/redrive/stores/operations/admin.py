"""What operators do: look, cancel, skip. PURE.

None of these needs a lease: the operator outranks the worker (invariant I2 names the three who may change a state: the
lease, an operator, the sweeper). A worker whose job was cancelled finds its lease gone. Starting jobs again is the
subject of `redrive.stores.operations.redriving`.

Each leaves a line in the audit log.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.items import OriginResult, began_at, spread
from redrive.engine.lifecycle import FINAL, LifecycleEvent, State, next_state
from redrive.engine.origin import read_origin
from redrive.engine.records import JobRecord, Stats
from redrive.engine.select import Filter
from redrive.errors import JobNotFound, StoreOpenError
from redrive.stores.operations import origins
from redrive.stores.operations.audit import NOBODY, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import end
from redrive.stores.query import Query, Rows, Steps, reads, wakes

__all__ = ["CancelResult", "cancel", "cancel_all", "found", "identify", "select", "selected", "skip", "stats"]


FEW = 5_000
"""Jobs whose ids are read from an index before the jobs themselves. More are found by a walk."""

_INDEXED = frozenset({State.READY, State.RUNNING, State.WAITING, State.DEAD})


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What a cancel of many answers.

    Attributes:
        ids: the jobs that were cancelled by this call.
        last_id: the last job that was looked at; None when there are no more.
    """

    ids: tuple[int, ...]
    last_id: int | None = None


@reads
def select(wanted: Filter) -> Steps[tuple[JobRecord, ...]]:
    """Read the jobs that fit.

    Args:
        wanted: which.

    Returns:
        The jobs, in the order asked for.
    """
    return tuple((yield from selected(wanted)))


def selected(wanted: Filter) -> Generator[Query, Rows, Sequence[JobRecord]]:
    """Read the jobs that fit, as a part of a larger operation.

    Each way reads an index, so that what is not asked for is not read. What is unfinished or dead has partial indexes:
    as long as its jobs are few, their ids are read there, and else the table is walked in the order asked for, where
    many of them come early. What has succeeded or was cancelled is found by such a walk.

    Args:
        wanted: which.

    Returns:
        The jobs, in the order asked for.
    """
    params = {
        "ids": list(wanted.ids) if wanted.ids is not None else None,
        "state": wanted.state,
        "task": wanted.task,
        "queue": wanted.queue,
        "hold": wanted.hold,
        "reason": wanted.reason,
        "error": wanted.error,
        "caught": wanted.caught,
        "after_id": wanted.after_id,
        "count": wanted.limit,
        "oldest_first": wanted.oldest_first,
    }
    rows: Sequence[JobRecord]
    if wanted.ids is None and wanted.hold is not None and not wanted.oldest_first:
        rows = yield Query("jobs_held", params, into=JobRecord)
        return rows
    if wanted.ids is None and wanted.oldest_first and wanted.state is State.DEAD and wanted.caught is False:
        rows = yield Query("jobs_dead", params, into=JobRecord)
        return rows
    if wanted.ids is None and (wanted.hold is not None or wanted.state in _INDEXED):
        few = yield Query("jobs_few", {"state": wanted.state, "hold": wanted.hold, "most": FEW})
        params["ids"] = [row[0] for row in few] if len(few) < FEW else None
    if params["ids"] is not None:
        rows = yield Query("jobs_these", params, into=JobRecord)
    elif wanted.oldest_first:
        rows = yield Query("jobs_oldest", params, into=JobRecord)
    else:
        rows = yield Query("jobs_select", params, into=JobRecord)
    return rows


@reads
def stats(*, after_id: int = 0, task: str | None = None, now: datetime | None = None) -> Steps[Stats]:
    """Count jobs by what they are doing.

    Args:
        after_id: only jobs with a larger id.
        task: only jobs of this task.
        now: the instant, in tests.

    Returns:
        The counts.
    """
    at = yield from instant(now)
    rows = yield Query("stats", {"now": at, "after_id": after_id, "task": task}, into=Stats)
    counted: Stats = rows[0]
    return counted


@wakes
def cancel(job_id: int, *, why: str | None = None, actor: str = NOBODY, now: datetime | None = None) -> Steps[bool]:
    """End a job that is not final. One that is final stays as it is.

    Whoever runs it loses the lease: a late completion changes nothing (conformance D30).

    Args:
        job_id: which.
        why: shown on the job.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        Was it cancelled by this call?

    Raises:
        JobNotFound: there is none.
    """
    at = yield from instant(now)
    job = yield from found(job_id)
    if not (yield from _end(job, at, why)):
        return False
    yield from record(at, actor, "cancel", ids=[job_id], why=why)
    return True


def _end(job: JobRecord, at: datetime, why: str | None) -> Generator[Query, Rows, bool]:
    text = why or "cancelled by an operator"
    if not (yield from end(job, at, text)):
        return False
    origin = read_origin(job.origin)
    if origin is not None:
        told = OriginResult(origin, job.id, succeeded=False, why=text, sample=spread(job.id), began_at=began_at(job))
        yield from origins.follow([told], at)
    return True


def found(job_id: int) -> Generator[Query, Rows, JobRecord]:
    """Read one job that is to be changed, as a part of a larger operation: nobody else changes it meanwhile.

    Args:
        job_id: which.

    Returns:
        The job.

    Raises:
        JobNotFound: there is none.
    """
    rows = yield Query("job_lock", {"id": job_id}, into=JobRecord)
    if not rows:
        message = f"there is no job {job_id}"
        raise JobNotFound(message)
    job: JobRecord = rows[0]
    return job


@wakes
def cancel_all(
    wanted: Filter, *, why: str | None = None, actor: str = NOBODY, now: datetime | None = None
) -> Steps[CancelResult]:
    """End the jobs that fit and have not ended.

    Args:
        wanted: which; at most ``wanted.limit`` are looked at.
        why: shown on the jobs.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        Which were cancelled.
    """
    at = yield from instant(now)
    jobs = yield from selected(replace(wanted, oldest_first=True))
    ended = []
    for job in jobs:
        if job.state not in FINAL and (yield from _end(job, at, why)):
            ended.append(job.id)  # noqa: PERF401 - a comprehension cannot yield
    if ended:
        yield from record(at, actor, "cancel", ids=ended, filter=conditions(wanted), why=why)
    return CancelResult(tuple(ended), jobs[-1].id if len(jobs) == wanted.limit else None)


@wakes
def skip(job_id: int, *, actor: str = NOBODY, now: datetime | None = None) -> Steps[bool]:
    """Let those pass that a dead job of an ordered queue holds up. The job stays dead.

    Args:
        job_id: the dead job.
        actor: who does it.
        now: the instant, in tests.

    Returns:
        Was it skipped by this call? One that was skipped before, or was caught, holds up nobody.

    Raises:
        JobNotFound: there is none.
        IllegalMove: it is not dead.
    """
    at = yield from instant(now)
    job = yield from found(job_id)
    next_state(job.state, LifecycleEvent.SKIP)
    if not (yield Query("skip", {"id": job_id, "now": at})):
        return False
    yield from record(at, actor, "skip", ids=[job_id])
    return True


@reads
def identify(key: str) -> Steps[str]:
    """Read what the database says of itself.

    Args:
        key: ``uid``, which is made once and names this database in idempotency keys.

    Returns:
        The value.

    Raises:
        StoreOpenError: there is none.
    """
    rows = yield Query("meta", {"key": key})
    if not rows:
        message = f"the table redrive_meta has no {key}: it belongs to another program, or is damaged"
        raise StoreOpenError(message)
    value: str = rows[0][0]
    return value
