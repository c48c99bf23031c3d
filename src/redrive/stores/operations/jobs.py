"""Putting jobs in, and looking at one. PURE."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.engine.records import Attempt, Hold, Job, NewJob
from redrive.errors import ConfigurationError, JobNotFound
from redrive.stores.operations import keys, traces
from redrive.stores.operations.numbers import take
from redrive.stores.query import Query, Rows, Steps, reads, wakes

__all__ = ["Material", "Placed", "enqueue", "get", "history", "insert", "material", "payload", "result"]


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


@dataclass(frozen=True, slots=True)
class Placed:
    """What an enqueue answers.

    Attributes:
        ids: of the jobs, in the order given.
        existing: the places in ``ids`` of those that were there before.
    """

    ids: list[int]
    existing: frozenset[int] = frozenset()

    def __iter__(self) -> Iterator[int]:
        """The ids."""
        return iter(self.ids)


@dataclass(frozen=True, slots=True)
class Gate:
    """A row of the query ``gate``.

    Attributes:
        now: the instant of the transaction, as of the query ``clock``.
        ordered: one of the queues that is ordered; None where none is.
    """

    now: datetime
    ordered: str | None = None


@wakes
def enqueue(jobs: Sequence[NewJob], *, trace: str | None = None, now: datetime | None = None) -> Steps[Placed]:
    """Insert jobs, all or none; but one whose key another job holds may be that other job.

    Args:
        jobs: what to insert.
        trace: what links those that are new to the traces of whoever watches; see `redrive.stores.operations.traces`.
        now: the instant, in tests.

    Returns:
        Their ids, in the order given.

    Raises:
        DuplicateJob: another job holds a key; nothing was inserted.
        ConfigurationError: an ordered queue takes no job without a partition; nothing was inserted.
    """
    loose = sorted({job.queue for job in jobs if job.partition is None})
    rows: Sequence[Gate] = yield Query("gate", {"now": now, "queues": loose}, into=Gate)
    if rows[0].ordered is not None:
        message = f"queue {rows[0].ordered!r} is ordered: say of which partition a job is, by options(partition=...)"
        raise ConfigurationError(message)
    placed = yield from insert(jobs, rows[0].now)
    if trace is not None:
        yield from traces.put((number, trace) for i, number in enumerate(placed.ids) if i not in placed.existing)
    return placed


def insert(jobs: Sequence[NewJob], at: datetime) -> Generator[Query, Rows, Placed]:
    """Insert jobs as a part of a larger operation.

    Args:
        jobs: what to insert.
        at: the instant of the transaction.

    Returns:
        Their ids, in the order given.

    Raises:
        DuplicateJob: another job holds a key.
    """
    if not jobs:
        return Placed([])
    numbers = yield from take("job", len(jobs))
    new = dict(zip(numbers, jobs, strict=True))
    stands: dict[int, int] = {}
    if any(job.key is not None or job.idempotency_key is not None for job in jobs):
        stands = yield from keys.place(new, at)
    numbered = [(number, job) for number, job in new.items() if number not in stands]
    if numbered:
        yield from _insert(numbered, at)
    if not stands:
        return Placed(numbers)
    places = frozenset(place for place, number in enumerate(numbers) if number in stands)
    return Placed([stands.get(number, number) for number in numbers], places)


def _insert(numbered: Sequence[tuple[int, NewJob]], at: datetime) -> Generator[Query, Rows, None]:
    policies = {job.policy.digest: job.policy for _, job in numbered}
    yield Query("policy_put", many=[{"digest": key, "document": each.document} for key, each in policies.items()])
    others: list[dict[str, object]] = []
    for alike, group in itertools.groupby(numbered, lambda each: _shape(each[1])):
        jobs = list(group)
        if alike is None or len(jobs) == 1:
            others += [_row(number, job, at) for number, job in jobs]
        else:
            shared = _row(*jobs[0], at)
            row = {name: value for name, value in shared.items() if name not in _OWN}
            yield Query("job_insert_alike", {**row, "ids": [number for number, _ in jobs]})
    if others:
        yield Query("job_insert", many=others)
    payloads = [{"job_id": number, "payload": job.payload} for number, job in numbered if job.payload is not None]
    if payloads:
        yield Query("payload_insert", many=payloads)


_LIKENESS = operator.attrgetter("task", "queue", "priority", "policy", "partition", "delay", "latest")
_OWN = frozenset({"id", "key", "key_until", "parent_id"})


def _shape(job: NewJob) -> object:
    """What the calls of one task in bulk have in common, so that one row of parameters serves them; None for others."""
    return None if job.key is not None or job.parent_id is not None else _LIKENESS(job)


def _row(number: int, job: NewJob, at: datetime) -> dict[str, object]:
    return {
        "id": number,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "hold": _hold(job),
        "policy": job.policy.digest,
        "partition": job.partition,
        "key": job.key,
        "key_until": job.key_until,
        "parent_id": job.parent_id,
        "enqueued_at": at,
        "scheduled_at": at + job.delay,
        "latest_at": None if job.latest is None else at + job.latest,
        "timeout_for": None if job.parent_id else job.policy.policy.attempt_timeout,
    }


def _hold(job: NewJob) -> Hold | None:
    if job.latest is not None:
        return Hold.DEBOUNCE
    return Hold.DELAY if job.delay else None


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
