"""What operators do: look, cancel, retry, redrive. PURE.

None of these needs a lease: the operator outranks the worker (invariant I2 names the three who may change a state: the
lease, an operator, the sweeper). A worker whose job was cancelled finds its lease gone.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from redrive.engine.lifecycle import Event, State, move
from redrive.engine.records import Attempt, Closing, Job, Stats
from redrive.engine.select import Filter
from redrive.engine.settle import EXPIRED
from redrive.errors import IllegalMove, JobNotFound
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Rows, Steps, reads, writes

__all__ = ["Redriven", "cancel", "identify", "redrive", "retry", "select", "stats"]


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive answers.

    Attributes:
        ids: the jobs that were started again, or would be in a dry run.
        kept: the jobs that fit but stay as they are, each with the reason.
    """

    ids: tuple[int, ...]
    kept: tuple[tuple[int, str], ...] = ()


@reads
def select(wanted: Filter) -> Steps[tuple[Job, ...]]:
    """Read the jobs that fit.

    Args:
        wanted: which.

    Returns:
        The jobs, in the order asked for.
    """
    return tuple((yield from _select(wanted)))


def _select(wanted: Filter) -> Generator[Query, Rows, Sequence[Job]]:
    params = {
        "ids": list(wanted.ids) if wanted.ids is not None else None,
        "state": wanted.state,
        "task": wanted.task,
        "queue": wanted.queue,
        "reason": wanted.reason,
        "error": wanted.error,
        "caught": wanted.caught,
        "after_id": wanted.after_id,
        "oldest_first": wanted.oldest_first,
        "count": wanted.limit,
    }
    rows: Sequence[Job] = yield Query("jobs_select", params, into=Job)
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


@writes
def cancel(job_id: int, *, why: str | None = None, now: datetime | None = None) -> Steps[bool]:
    """End a job that is not final. One that is final stays as it is.

    Whoever runs it loses the lease: a late completion changes nothing (conformance D30).

    Args:
        job_id: which.
        why: shown on the job.
        now: the instant, in tests.

    Returns:
        Was it cancelled by this call?

    Raises:
        JobNotFound: there is none.
    """
    at = yield from instant(now)
    job = yield from _get(job_id)
    if not (yield Query("cancel", {"id": job_id, "note": why or "cancelled by an operator", "now": at})):
        return False
    if job.state is State.RUNNING:
        yield Query("attempt_insert", _cancelled_attempt(job, at, why))
    return True


def _cancelled_attempt(job: Job, at: datetime, why: str | None) -> dict[str, object]:
    empty: dict[str, object] = dict.fromkeys(Attempt.__struct_fields__)
    return empty | {
        "job_id": job.id,
        "lease_id": job.lease_id,
        "number": job.attempt,
        "worker_id": job.worker_id,
        "started_at": job.claimed_at,
        "finished_at": at,
        "outcome": Closing.CANCELLED,
        "verdict": why or "cancelled by an operator",
    }


def _get(job_id: int) -> Generator[Query, Rows, Job]:
    rows = yield Query("job_get", {"id": job_id}, into=Job)
    if not rows:
        message = f"there is no job {job_id}"
        raise JobNotFound(message)
    job: Job = rows[0]
    return job


@writes
def retry(job_id: int, *, now: datetime | None = None) -> Steps[None]:
    """Run a job once more, now.

    A waiting job becomes due. A dead one is started again with its last failure forgiven, so that one whose retries
    are exhausted gets exactly one attempt more (invariant I4: an operator's grant); a cancelled one goes on with the
    retries that it had left.

    Args:
        job_id: which.
        now: the instant, in tests.

    Raises:
        JobNotFound: there is none.
        IllegalMove: it runs, has succeeded, was caught, is being caught, or is a catch job with nothing to catch.
    """
    at = yield from instant(now)
    job = yield from _get(job_id)
    if job.state is State.READY:
        yield Query("hasten", {"id": job_id, "now": at})
        return
    move(job.state, Event.REDRIVE)
    obstacle = _obstacle(job, (yield from _families([job]))[job_id], {})
    if obstacle is not None:
        message = f"job {job_id} {obstacle}"
        raise IllegalMove(message)
    forgive = int(job.state is State.DEAD and job.reason != EXPIRED)
    yield Query("redrive", {"ids": [job_id], "forgive": forgive, "now": at, "note": "run once more by an operator"})


@writes
def redrive(wanted: Filter, *, dry_run: bool = False, now: datetime | None = None) -> Steps[Redriven]:
    """Start dead (or cancelled) jobs again, oldest first, with all their failures forgiven.

    Args:
        wanted: which; jobs in other states are not touched, even if named by id.
        dry_run: only say which.
        now: the instant, in tests.

    Returns:
        Which were started, and which were kept and why.
    """
    at = yield from instant(now)
    jobs = yield from _select(replace(wanted, oldest_first=True))
    families = yield from _families(jobs)
    started: dict[int, int] = {}
    kept: list[tuple[int, str]] = []
    for job in jobs:
        obstacle = _obstacle(job, families[job.id], started)
        if obstacle is None:
            started[job.parent_id or job.id] = job.id
        else:
            kept.append((job.id, obstacle))
    ids = list(started.values())
    if ids and not dry_run:
        yield Query("redrive", {"ids": ids, "forgive": None, "now": at, "note": "redriven by an operator"})
    return Redriven(tuple(ids), tuple(kept))


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the query ``families``.

    Attributes:
        id: a job.
        catching: a catch job of it waits or runs.
        twin: it is a catch job, and another one of the same dead job waits or runs.
        pointless: it is a catch job, and there is nothing to catch any more.
    """

    id: int
    catching: bool
    twin: bool
    pointless: bool


def _families(jobs: Sequence[Job]) -> Generator[Query, Rows, dict[int, Family]]:
    rows: Sequence[Family] = yield Query("families", {"ids": [job.id for job in jobs]}, into=Family)
    return {row.id: row for row in rows}


def _obstacle(job: Job, family: Family, started: Mapping[int, int]) -> str | None:
    """Why a job must not be started again; ``started`` has the one of each family that is being started."""
    if job.state not in _REDRIVABLE:
        return f"is {job.state}"
    if job.caught_at is not None:
        return "was caught: its catch task has dealt with it"
    if family.catching:
        return f"is being caught by {job.policy.catch}: cancel the catch job first, or let it finish"
    if family.pointless:
        return f"has nothing to catch: job {job.parent_id} is not dead any more, or was caught"
    if started.get(job.parent_id or job.id) == job.parent_id is not None:
        return f"has nothing to catch while job {job.parent_id} starts again"
    if family.twin or (job.parent_id or job.id) in started:
        return f"has a twin: another catch job of job {job.parent_id} waits or runs"
    return None


_REDRIVABLE = frozenset({State.DEAD, State.CANCELLED})


@reads
def identify(key: str) -> Steps[str]:
    """Read what the database says of itself.

    Args:
        key: ``uid``, which is made once and names this database in idempotency keys.

    Returns:
        The value.
    """
    rows = yield Query("meta", {"key": key})
    value: str = rows[0][0]
    return value
