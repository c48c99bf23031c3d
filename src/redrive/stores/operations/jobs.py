"""Putting jobs in, and looking at one. PURE."""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from redrive.engine.lease import ATTEMPT_LIMIT, limit_of
from redrive.engine.records import AttemptRecord, Hold, JobRecord, NewJob
from redrive.errors import ConfigurationError, JobNotFound
from redrive.stores.operations import keys, traces
from redrive.stores.operations.numbers import numbers, take
from redrive.stores.query import DRAWN, Query, Rows, Steps, reads, wakes

__all__ = [
    "CatchMaterial",
    "EnqueueResult",
    "enqueue",
    "get",
    "history",
    "insert",
    "material",
    "payload",
    "put",
    "result",
    "salt",
]


@dataclass(frozen=True, slots=True)
class CatchMaterial:
    """What a catch request is made of.

    Attributes:
        job: the job that gave up.
        payload: its arguments as JSON.
        attempts: its history, oldest first.
    """

    job: JobRecord
    payload: bytes | None
    attempts: tuple[AttemptRecord, ...]


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """What an enqueue answers.

    Attributes:
        ids: of the jobs, in the order given.
        existing: the places in ``ids`` of those that were there before.
        at: when the others were enqueued.
    """

    ids: list[int]
    existing: frozenset[int] = frozenset()
    at: datetime | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[int]:
        """The ids."""
        return iter(self.ids)


@dataclass(frozen=True, slots=True)
class NumberBlock:
    """A row of the query ``gate``: a block of numbers, and what is the same in all rows.

    Attributes:
        now: the instant of the transaction, as of the query ``clock``.
        first: the first number of a block.
        last: its last one.
        ordered: one of the queues that is ordered; None where none is.
    """

    now: datetime
    first: int
    last: int
    ordered: str | None = None


@wakes
def enqueue(jobs: Sequence[NewJob], *, trace: str | None = None, now: datetime | None = None) -> Steps[EnqueueResult]:
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
    if not jobs:
        return EnqueueResult([])
    loose = sorted({job.queue for job in jobs if job.partition is None})
    wanted = {"now": now, "queues": loose, "count": len(jobs)}
    rows: Sequence[NumberBlock] = yield Query("gate", wanted, into=NumberBlock, free=True)
    if rows[0].ordered is not None:
        message = f"queue {rows[0].ordered!r} is ordered: say of which partition a job is, by options(partition=...)"
        raise ConfigurationError(message)
    ids = numbers((row.first, row.last) for row in rows)
    placed = yield from _place(jobs, ids, rows[0].now, last=trace is None)
    if trace is not None:
        yield from traces.put((number, trace) for i, number in enumerate(placed.ids) if i not in placed.existing)
    return placed


def insert(jobs: Sequence[NewJob], at: datetime) -> Generator[Query, Rows, EnqueueResult]:
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
        return EnqueueResult([])
    return (yield from put((yield from take("job", len(jobs))), jobs, at))


def put(ids: list[int], jobs: Sequence[NewJob], at: datetime) -> Generator[Query, Rows, EnqueueResult]:
    """Insert jobs under numbers that were taken for them, as a part of a larger operation.

    Args:
        ids: the numbers, in the order of the jobs.
        jobs: what to insert.
        at: the instant of the transaction.

    Returns:
        Their ids, in the order given.

    Raises:
        DuplicateJob: another job holds a key.
    """
    return (yield from _place(jobs, ids, at, last=False)) if jobs else EnqueueResult([])


def _place(
    jobs: Sequence[NewJob], ids: list[int], at: datetime, *, last: bool
) -> Generator[Query, Rows, EnqueueResult]:
    new = dict(zip(ids, jobs, strict=True))
    stands: dict[int, int] = {}
    if not _KEYLESS.issuperset(map(_KEYS, jobs)):
        stands = yield from keys.place(new, at)
    numbered = [(number, job) for number, job in new.items() if number not in stands]
    if numbered:
        yield from _insert(numbered, at, last=last)
    if not stands:
        return EnqueueResult(ids, at=at)
    places = frozenset(place for place, number in enumerate(ids) if number in stands)
    return EnqueueResult([stands.get(number, number) for number in ids], places, at)


def _insert(numbered: Sequence[tuple[int, NewJob]], at: datetime, *, last: bool) -> Generator[Query, Rows, None]:
    """Write all there is to write of new jobs, in one go."""
    policies = {job.policy.digest: job.policy for _, job in numbered}
    texts = [{"digest": key, "document": each.document} for key, each in policies.items()]
    policy_put, rows = Query("policy_put", many=texts), _rows(numbered, at)
    payloads = [{"job_id": number, "payload": job.payload} for number, job in numbered if job.payload is not None]
    if payloads:
        yield Query("payload_insert", many=payloads, also=(policy_put, rows), last=last)
    else:
        yield replace(rows, also=(policy_put,), last=last)


def _rows(numbered: Sequence[tuple[int, NewJob]], at: datetime) -> Query:
    """What inserts the rows of the jobs themselves: many calls of one task differ in nothing but their numbers."""
    first = numbered[0][1]
    shapes = map(_SHAPE, (job for _, job in numbered))
    if first.key is None and first.parent_id is None and all(map(_SHAPE(first).__eq__, shapes)):
        shared = _row(*numbered[0], at)
        row = {name: value for name, value in shared.items() if name not in _OWN}
        if first.origin is None and not any(job.origin for _, job in numbered):
            return Query("job_insert_alike", {**row, "ids": [number for number, _ in numbered]})
        made = msgspec.json.encode({number: job.origin for number, job in numbered}).decode()
        return Query("job_insert_made", {**row, "made": made})
    return Query("job_insert", many=[_row(*each, at) for each in numbered])


_SHAPE = operator.attrgetter("task", "queue", "priority", "policy", "partition", "delay", "latest", "key", "parent_id")
_OWN = frozenset({"id", "key", "key_until", "parent_id", "origin"})

_KEYS = operator.attrgetter("key", "idempotency_key")
_KEYLESS = frozenset({(None, None)})


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
        "timeout_for": ATTEMPT_LIMIT if job.parent_id else limit_of(job.policy.policy),
        "origin": job.origin,
        "salt": DRAWN,
    }


def _hold(job: NewJob) -> Hold | None:
    if job.latest is not None:
        return Hold.DEBOUNCE
    return Hold.DELAY if job.delay else None


@reads
def get(job_id: int) -> Steps[JobRecord]:
    """Read one job.

    Args:
        job_id: which.

    Returns:
        The job.

    Raises:
        JobNotFound: there is none.
    """
    rows = yield Query("job_get", {"id": job_id}, into=JobRecord)
    return _only(rows, job_id)


def _only(rows: Rows, job_id: int) -> JobRecord:
    if not rows:
        raise _missing(job_id)
    job: JobRecord = rows[0]
    return job


def _missing(job_id: int) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id}")


@reads
def history(job_id: int) -> Steps[tuple[AttemptRecord, ...]]:
    """Read the closed attempts of one job, oldest first.

    Args:
        job_id: which.

    Returns:
        Its history; empty for a job that has none, or that does not exist.
    """
    return tuple((yield Query("attempts_of", {"job_id": job_id}, into=AttemptRecord)))


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
def salt(job_id: int) -> Steps[int]:
    """Read the random part of the idempotency key of one job.

    Args:
        job_id: which.

    Returns:
        A number below 2**53, the same as long as the job is kept.

    Raises:
        JobNotFound: there is none.
    """
    rows = yield Query("salt_of", {"id": job_id})
    if not rows:
        raise _missing(job_id)
    number: int = rows[0][0]
    return number


@reads
def material(job_id: int) -> Steps[CatchMaterial]:
    """Read everything about a job that gave up, in one snapshot.

    Args:
        job_id: which.

    Returns:
        What its catch request is made of.

    Raises:
        JobNotFound: there is none.
    """
    job = _only((yield Query("job_get", {"id": job_id}, into=JobRecord)), job_id)
    payloads = yield Query("payload_of", {"job_id": job_id})
    attempts = yield Query("attempts_of", {"job_id": job_id}, into=AttemptRecord)
    return CatchMaterial(job, payloads[0][0] if payloads else None, tuple(attempts))
