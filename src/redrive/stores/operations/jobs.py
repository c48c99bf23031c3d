"""Putting jobs in, and looking at one. PURE."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.engine.records import Attempt, Hold, Job, NewJob
from redrive.errors import JobNotFound
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Rows, Steps, reads, writes

__all__ = ["Material", "enqueue", "get", "history", "insert", "material", "payload", "result"]


@dataclass(frozen=True, slots=True)
class Material:
    """What a catch request is made of.

    Attributes:
        job: the job that gave up.
        payload: its arguments as JSON.
        attempts: its history, oldest first.
    """

    job: Job
    payload: bytes | None
    attempts: tuple[Attempt, ...]


@writes
def enqueue(jobs: Sequence[NewJob], *, now: datetime | None = None) -> Steps[list[int]]:
    """Insert jobs, all or none.

    Args:
        jobs: what to insert.
        now: the instant, in tests.

    Returns:
        Their ids, in the order given.
    """
    return (yield from insert(jobs, (yield from instant(now))))


def insert(jobs: Sequence[NewJob], at: datetime) -> Generator[Query, Rows, list[int]]:
    """Insert jobs as a part of a larger operation.

    Args:
        jobs: what to insert.
        at: the instant of the transaction.

    Returns:
        Their ids, in the order given.
    """
    if not jobs:
        return []
    rows = yield Query("take", {"name": "job", "count": len(jobs)})
    first: int = rows[0][0] + 1
    numbered = list(enumerate(jobs, first))
    policies = {job.policy.digest: job.policy for job in jobs}
    yield Query("policy_put", many=[{"digest": key, "document": each.document} for key, each in policies.items()])
    yield Query("job_insert", many=[_row(number, job, at) for number, job in numbered])
    payloads = [{"job_id": number, "payload": job.payload} for number, job in numbered if job.payload is not None]
    if payloads:
        yield Query("payload_insert", many=payloads)
    return [number for number, _ in numbered]


def _row(number: int, job: NewJob, at: datetime) -> dict[str, object]:
    return {
        "id": number,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "hold": Hold.DELAY if job.delay else None,
        "policy": job.policy.digest,
        "parent_id": job.parent_id,
        "enqueued_at": at,
        "scheduled_at": at + job.delay,
        "timeout_for": None if job.parent_id else job.policy.policy.attempt_timeout,
    }


@reads
def get(job_id: int) -> Steps[Job]:
    """Read one job.

    Args:
        job_id: which.

    Returns:
        The job.

    Raises:
        JobNotFound: there is none.
    """
    rows = yield Query("job_get", {"id": job_id}, into=Job)
    return _only(rows, job_id)


def _only(rows: Rows, job_id: int) -> Job:
    if not rows:
        message = f"there is no job {job_id}"
        raise JobNotFound(message)
    job: Job = rows[0]
    return job


@reads
def history(job_id: int) -> Steps[tuple[Attempt, ...]]:
    """Read the closed attempts of one job, oldest first.

    Args:
        job_id: which.

    Returns:
        Its history; empty for a job that has none, or that does not exist.
    """
    return tuple((yield Query("attempts_of", {"job_id": job_id}, into=Attempt)))


@reads
def payload(job_id: int) -> Steps[bytes | None]:
    """Read the arguments of one job.

    Args:
        job_id: which.

    Returns:
        JSON, or None where it has none (catch jobs).
    """
    rows = yield Query("payload_of", {"job_id": job_id})
    return rows[0][0] if rows else None


@reads
def result(job_id: int) -> Steps[bytes | None]:
    """Read the result of one job.

    Args:
        job_id: which.

    Returns:
        JSON, or None where the handler returned None.
    """
    rows = yield Query("result_of", {"job_id": job_id})
    return rows[0][0] if rows else None


@reads
def material(job_id: int) -> Steps[Material]:
    """Read everything about a job that gave up, in one snapshot.

    Args:
        job_id: which.

    Returns:
        What its catch request is made of.

    Raises:
        JobNotFound: there is none.
    """
    job = _only((yield Query("job_get", {"id": job_id}, into=Job)), job_id)
    payloads = yield Query("payload_of", {"job_id": job_id})
    attempts = yield Query("attempts_of", {"job_id": job_id}, into=Attempt)
    return Material(job, payloads[0][0] if payloads else None, tuple(attempts))
