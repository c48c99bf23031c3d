"""Inserts jobs, and reads one. PURE."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import AttemptRecord, AuditEntry, Enqueue, Hold, JobRecord, NewJob, Progress
from redrive.errors import ConfigurationError, JobNotFound
from redrive.stores.operations import keys
from redrive.stores.query import DRAWN, Compound, Query, Rows, Statements, reads, wakes, writes

T = TypeVar("T")


class CatchMaterial(msgspec.Struct, frozen=True, gc=False):
    """The contents of a catch request."""

    job: JobRecord
    payload: bytes | None
    attempts: tuple[AttemptRecord, ...]


class EnqueueResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an enqueue."""

    ids: list[int]  # of the jobs, in the order given
    existing: frozenset[int] = frozenset()  # the positions in ``ids`` of jobs that existed before
    at: datetime | None = None  # when the others were enqueued
    taken: tuple[int, ...] = ()  # the ids under which an attempt inserts them at its end, in the same order

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids."""
        return iter(self.ids)


class NumberBlock(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``gate``: a block of numbers, and values that are the same in all rows."""

    now: datetime  # the instant of the transaction
    first: int
    last: int
    ordered: str | None = None  # the name of an ordered queue among those of the jobs, if there is one


class EnqueuedJob(msgspec.Struct, frozen=True, gc=False):
    """The row of the queries ``enqueue`` and ``enqueue_full``; there is none if they have not inserted the job."""

    id: int
    now: datetime  # the instant of the transaction


@wakes
def enqueue(
    jobs: Sequence[NewJob], *, trace: str | None = None, now: datetime | None = None
) -> Statements[EnqueueResult]:
    """Insert jobs, all or none; a job with a key that another job holds may be replaced by that one.

    Raise `DuplicateJob` if another job holds a key, `ConfigurationError` if a job of an ordered queue has no partition.
    """
    if not jobs:
        return EnqueueResult([])
    if len(jobs) == 1 and is_plain(jobs[0]):
        return (yield from _one(jobs[0], trace, now))
    at, ids = yield from numbered(jobs, now)
    return (yield from _place(jobs, ids, at, trace))


@writes
def reserve(
    jobs: Sequence[NewJob], earlier: Sequence[Enqueue] = (), *, now: datetime | None = None
) -> Statements[EnqueueResult]:
    """Take ids for jobs that an attempt inserts at its end, and look up which jobs hold their keys now.

    ``earlier`` are those that the attempt has asked for before. Raise `DuplicateJob` as `enqueue` does.
    """
    if not jobs:
        return EnqueueResult([])
    at, ids = yield from numbered(jobs, now)
    stands = {}
    if not _KEYLESS.issuperset(map(_KEYS, jobs)):
        stands = yield from keys.expected(dict(zip(ids, jobs, strict=True)), earlier)
    places = frozenset(place for place, number in enumerate(ids) if number in stands)
    return EnqueueResult([stands.get(number, number) for number in ids], places, at, tuple(ids))


def write_all(effects: Sequence[Enqueue], at: datetime) -> Statements[None]:
    """Insert the jobs that handlers have asked for, but those whose keys other jobs have taken since."""
    new = {each.id: each.job for each in effects}
    stands: dict[int, int] = {}
    if not _KEYLESS.issuperset(map(_KEYS, new.values())):
        stands = yield from keys.take_for_new(new, at, strict=False)
    numbered = [(number, job) for number, job in new.items() if number not in stands]
    if numbered:
        yield from _insert(numbered, at, None)
        yield from put_traces((each.id, each.trace) for each in effects if each.trace and each.id not in stands)


def numbered(jobs: Sequence[NewJob], now: datetime | None) -> Statements[tuple[datetime, list[int]]]:
    """Return the instant of the transaction and an id for each of these jobs, which may be inserted.

    Raise `ConfigurationError` if a job of an ordered queue has no partition.
    """
    loose = sorted({job.queue for job in jobs if job.partition is None})
    wanted = {"now": now, "queues": loose, "count": len(jobs)}
    rows: Sequence[NumberBlock] = yield Query("gate", wanted, into=NumberBlock)
    if rows[0].ordered is not None:
        raise no_partition(rows[0].ordered)
    return rows[0].now, numbers((row.first, row.last) for row in rows)


def no_partition(queue: str) -> ConfigurationError:
    """Return the error for a job without partition of an ordered queue."""
    return ConfigurationError(f"queue {queue!r} is ordered: give the partition of a job by options(partition=...)")


# What a database may refuse takes the other way, where the user's transaction survives an error.
def is_plain(job: NewJob) -> bool:
    """Return True if one statement can insert a job: it has no keys, and is not a part of a larger operation."""
    return bool(
        job.key is None
        and job.idempotency_key is None
        and job.parent_id is None
        and job.origin is None
        and job.payload is not None
        and job.task
        and job.queue
        and job.partition != ""
    )


def _one(job: NewJob, trace: str | None, now: datetime | None) -> Statements[EnqueueResult]:
    """Insert a job by one query, which is one round trip."""
    parameters = essentials(job, now)
    if trace is None and not job.delay and job.due_at is None and job.expires is None and not job.all_tags:
        query = Query("enqueue", parameters, into=EnqueuedJob)
    else:
        query = Query("enqueue_full", parameters | options(job, trace), into=EnqueuedJob)
    rows: Sequence[EnqueuedJob] = yield query
    if not rows:
        raise no_partition(job.queue)
    return EnqueueResult([rows[0].id], at=rows[0].now)


def essentials(job: NewJob, now: datetime | None) -> dict[str, object]:
    """Return the parameters of a query that inserts one job without keys which is due at once."""
    return {
        "now": now,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "policy": job.policy.digest,
        "document": job.policy.document,
        "partition": job.partition,
        "payload": job.payload,
        "timeout_for": job.policy.policy.attempt_timeout,
        "salt": DRAWN,
    }


def options(job: NewJob, trace: str | None) -> dict[str, object]:
    """Return the further parameters of a query that inserts one job without keys with all of its options."""
    relative = isinstance(job.expires, timedelta)
    return {
        "delay": job.delay,
        "due_at": job.due_at,
        "expires_for": job.expires if relative else None,
        "expires_at": None if relative else job.expires,
        "tags": list(job.all_tags),
        "trace": trace,
    }


def take(name: str, count: int) -> Statements[list[int]]:
    """Take numbers of the sequence ``job`` or ``lease``; they are ascending and never taken again."""
    return numbers((yield Query("take", {"name": name, "count": count})))


# SQLite, which has one writer, returns one block. PostgreSQL takes the numbers from a sequence without a lock, so they
# need not be consecutive.
def numbers(blocks: Iterable[tuple[int, int]]) -> list[int]:
    """Return the numbers of blocks, ascending; a block is its first and its last number."""
    return sorted(itertools.chain.from_iterable(range(first, last + 1) for first, last in blocks))


def insert(jobs: Sequence[NewJob], at: datetime) -> Statements[None]:
    """Insert jobs as a part of a larger operation; raise `DuplicateJob` if another job holds a key."""
    if jobs:
        yield from _place(jobs, (yield from take("job", len(jobs))), at)


def put(ids: list[int], jobs: Sequence[NewJob], at: datetime, trace: str | None = None) -> Statements[None]:
    """Insert jobs under ids that were taken for them; raise `DuplicateJob` if another job holds a key."""
    if jobs:
        yield from _place(jobs, ids, at, trace)


def _place(jobs: Sequence[NewJob], ids: list[int], at: datetime, trace: str | None = None) -> Statements[EnqueueResult]:
    new = dict(zip(ids, jobs, strict=True))
    stands: dict[int, int] = {}
    if not _KEYLESS.issuperset(map(_KEYS, jobs)):
        stands = yield from keys.take_for_new(new, at)
    numbered = [(number, job) for number, job in new.items() if number not in stands]
    if numbered:
        yield from _insert(numbered, at, trace)
    if not stands:
        return EnqueueResult(ids, at=at)
    places = frozenset(place for place, number in enumerate(ids) if number in stands)
    return EnqueueResult([stands.get(number, number) for number in ids], places, at)


def _insert(numbered: Sequence[tuple[int, NewJob]], at: datetime, trace: str | None) -> Statements[None]:
    """Write all rows of new jobs in one batch."""
    yield Compound(tuple(statements(numbered, at, trace)))


def statements(numbered: Sequence[tuple[int, NewJob]], at: datetime, trace: str | None = None) -> list[Query]:
    """Return the statements that insert new jobs without keys under ids that were taken for them."""
    policies = {job.policy.digest: job.policy for _, job in numbered}
    texts = [{"digest": key, "document": each.document} for key, each in policies.items()]
    batch = [Query("policy_put", many=texts)]
    batch.append(_rows(numbered, at))
    payloads = [{"job_id": number, "payload": job.payload} for number, job in numbered if job.payload is not None]
    if payloads:
        batch.append(Query("payload_insert", many=payloads))
    tags = [{"tag": tag, "job_id": number} for number, job in numbered for tag in job.all_tags]
    if tags:
        batch.append(Query("tag_put", many=tags))
    if trace is not None:
        batch.append(Query("trace_put", many=[{"job_id": number, "trace": trace} for number, _ in numbered]))
    return batch


def _rows(numbered: Sequence[tuple[int, NewJob]], at: datetime) -> Query:
    """Return the query that inserts the rows of jobs; many calls of one task share one row and differ in their ids."""
    first = numbered[0][1]
    shapes = map(_SHAPE, (job for _, job in numbered))
    if (
        first.key is None
        and first.parent_id is None
        and first.expires is None
        and all(map(_SHAPE(first).__eq__, shapes))
    ):
        shared = _row(*numbered[0], at)
        row = {name: value for name, value in shared.items() if name not in _OWN}
        if first.origin is None and not any(job.origin for _, job in numbered):
            return Query("job_insert_alike", {**row, "ids": [number for number, _ in numbered]})
        made = msgspec.json.encode({number: job.origin for number, job in numbered}).decode()
        return Query("job_insert_made", {**row, "made": made})
    return Query("job_insert", many=[_row(*each, at) for each in numbered])


_SHAPE = operator.attrgetter(
    "task", "queue", "priority", "policy", "partition", "delay", "latest", "key", "parent_id", "due_at", "expires"
)
_OWN = frozenset({"id", "key", "key_until", "parent_id", "origin", "expires_at"})

_KEYS = operator.attrgetter("key", "idempotency_key")
_KEYLESS = frozenset({(None, None)})


def is_keyed(job: NewJob) -> bool:
    """Return True if a job needs a unique key or an idempotency key."""
    return _KEYS(job) not in _KEYLESS


def _row(number: int, job: NewJob, at: datetime) -> dict[str, object]:
    return {
        "id": number,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "hold": _hold(job, at),
        "policy": job.policy.digest,
        "partition": job.partition,
        "key": job.key,
        "key_until": job.key_until,
        "parent_id": job.parent_id,
        "enqueued_at": at,
        "scheduled_at": due_at(job, at),
        "latest_at": None if job.latest is None else at + job.latest,
        "expires_at": at + job.expires if isinstance(job.expires, timedelta) else job.expires,
        "timeout_for": None if job.parent_id else job.policy.policy.attempt_timeout,
        "origin": job.origin,
        "salt": DRAWN,
    }


# A claim may begin behind a job that was due before the transaction began, so no new job is due earlier than that.
def due_at(job: NewJob, at: datetime) -> datetime:
    """Return when a new job is due, not before the instant `at` of its transaction."""
    return at + job.delay if job.due_at is None else max(at, job.due_at)


def _hold(job: NewJob, at: datetime) -> Hold | None:
    if job.latest is not None:
        return Hold.DEBOUNCE
    if job.follows:
        return Hold.BATCH
    return Hold.DELAY if due_at(job, at) > at else None


@reads
def get(job_id: int) -> Statements[JobRecord]:
    """Return a job, or raise `JobNotFound`."""
    return (yield from find(job_id))


def find(job_id: int) -> Statements[JobRecord]:
    """Return a job as a part of a larger operation, or raise `JobNotFound`."""
    rows: Sequence[JobRecord] = yield Query("job_get", {"id": job_id}, into=JobRecord)
    return _only(rows, job_id)


def lock(job_id: int) -> Statements[JobRecord]:
    """Lock a job until the transaction ends, and return it, or raise `JobNotFound`."""
    rows: Sequence[JobRecord] = yield Query("job_lock", {"id": job_id}, into=JobRecord)
    return _only(rows, job_id)


def _only(rows: Sequence[T], job_id: int) -> T:
    if not rows:
        raise JobNotFound(f"there is no job {job_id}")
    return rows[0]


@reads
def history(job_id: int) -> Statements[tuple[AttemptRecord, ...]]:
    """Return the closed attempts of a job, oldest first; none if the job does not exist."""
    return tuple((yield Query("attempts_of", {"job_id": job_id}, into=AttemptRecord)))


class Documents(msgspec.Struct, frozen=True, gc=False):
    """The documents of a job that its errors may repeat, as JSON.

    Attributes:
        payload: its arguments.
        result: its result; also an earlier one.
        all: these, its progress, and what belongs to its run, its machine and the job that it catches.
    """

    payload: bytes | None = None
    result: bytes | None = None
    all: tuple[bytes, ...] = ()


#: Of a job without documents.
NO_DOCUMENTS: Final = Documents()


@reads
def documents(sources: Mapping[int, int | None]) -> Statements[dict[int, Documents]]:
    """Return the documents of jobs; `sources` has for each of them the job that it catches."""
    return (yield from documents_of(sources))


def documents_of(sources: Mapping[int, int | None]) -> Statements[dict[int, Documents]]:
    """Return the documents of jobs as a part of a larger operation."""
    rows: Rows = ()
    if sources:
        ids = {*sources, *(each for each in sources.values() if each is not None)}
        rows = yield Query("documents_of", {"ids": sorted(ids)})
    found: dict[int | None, list[bytes]] = defaultdict(list)
    named: dict[tuple[int, str], bytes] = {}
    for number, kind, document in rows:
        found[number].append(document)
        named[number, kind] = document
    return {
        number: Documents(
            named.get((number, "payload")), named.get((number, "result")), (*found[number], *found[parent])
        )
        for number, parent in sources.items()
    }


@reads
def result(job_id: int) -> Statements[bytes | None]:
    """Return the result of a job as JSON; None if its handler returned None."""
    rows = yield Query("result_of", {"job_id": job_id})
    return rows[0][0] if rows else None


class JobEnd(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``ends_of``: a job, whether it has ended, and how."""

    id: int
    task: str
    state: State
    enqueued_at: datetime
    reason: str | None
    error: str | None
    note: str | None


def rolled_back(job_id: int) -> JobNotFound:
    """Return the error for a handle on a job that was rolled back, when another job has its id."""
    return JobNotFound(
        f"there is no such job: another one has the number {job_id} now, for its enqueue was rolled back"
    )


@reads
def ends(wanted: Sequence[tuple[int, datetime | None]]) -> Statements[list[tuple[JobEnd, bytes | None]]]:
    """Return those of these jobs that have ended, with their results, from one snapshot.

    A job is given by its id, and by the instant of its enqueue if that may have been rolled back. Raise `JobNotFound`
    if one does not exist.
    """
    rows: Sequence[JobEnd] = yield Query("ends_of", {"ids": [number for number, _ in wanted]}, into=JobEnd)
    there = {row.id: row for row in rows}
    for number, enqueued_at in wanted:
        if number not in there:
            raise JobNotFound(f"there is no job {number}")
        if enqueued_at not in {None, there[number].enqueued_at}:
            raise rolled_back(number)
    succeeded = [row.id for row in rows if row.state is State.SUCCEEDED]
    results = dict((yield Query("results_of", {"ids": succeeded}))) if succeeded else {}
    return [(row, results.get(row.id)) for row in rows if row.state in FINAL]


@reads
def tags(job_ids: Sequence[int]) -> Statements[dict[int, tuple[str, ...]]]:
    """Return the tags of jobs, sorted, by the ids of the jobs that have some."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for number, tag in (yield Query("tags_of", {"ids": list(job_ids)})):
        found[number].append(tag)
    return {number: tuple(each) for number, each in found.items()}


@reads
def salt(job_id: int) -> Statements[int]:
    """Return the random part of a job's idempotency key, a number below 2**53, or raise `JobNotFound`."""
    number: int = _only((yield Query("salt_of", {"id": job_id})), job_id)[0]
    return number


@reads
def material(job_id: int) -> Statements[CatchMaterial]:
    """Return the contents of the catch request for a job that gave up, from one snapshot; raise `JobNotFound`."""
    job = yield from find(job_id)
    payloads = yield Query("payload_of", {"job_id": job_id})
    attempts = yield Query("attempts_of", {"job_id": job_id}, into=AttemptRecord)
    return CatchMaterial(job, payloads[0][0] if payloads else None, tuple(attempts))


#: The newest entries of the audit log that are searched for those about several jobs.
SEARCHED: Final = 1_000


class BesideRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``job_beside``: a tag, a trace, the progress, an act of an operator, or the number alike."""

    kind: str
    number: int | None
    at: datetime | None
    actor: str | None
    text: str
    more: str | None


class JobDetails(msgspec.Struct, frozen=True, gc=False):
    """A job with its history and what else belongs to it, from one snapshot; its documents are read by themselves.

    Attributes:
        attempts: the closed ones, oldest first.
        trace: its own, or that of the job that it catches.
        acts: the latest actions of operators on this job, alone or in a bulk operation, newest first.
        alike: the dead jobs of its error group that were neither caught nor skipped, at most as many as were asked for.
    """

    job: JobRecord
    attempts: tuple[AttemptRecord, ...]
    tags: tuple[str, ...]
    trace: str | None
    progress: Progress | None
    acts: tuple[AuditEntry, ...]
    alike: int


@reads
def details(job_id: int, *, acts: int, most: int) -> Statements[JobDetails]:
    """Return all about a job: at most so many actions, and so many dead jobs alike. Raise `JobNotFound`."""
    job = yield from find(job_id)
    attempts = yield Query("attempts_of", {"job_id": job_id}, into=AttemptRecord)
    about = {"about": f"job:{job_id}", "acts": acts, "searched": SEARCHED, "group": job.fingerprint, "most": most}
    params = {"id": job_id, "parent_id": job.parent_id, **about}
    rows: Sequence[BesideRow] = yield Query("job_beside", params, into=BesideRow)
    by_kind: dict[str, list[BesideRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: -(row.number or 0)):
        by_kind[row.kind].append(row)
    progress = [Progress(job_id, row.number or 0, row.text, row.at) for row in by_kind["progress"] if row.at]
    entries = [_entry(row, _part(row.more or "{}", job_id) or row.more or "null") for row in by_kind["act"]]
    entries += [_entry(row, part) for row in by_kind["bulk"] if (part := _part(row.more or "{}", job_id)) is not None]
    return JobDetails(
        job,
        tuple(attempts),
        tags=tuple(sorted(row.text for row in by_kind["tag"])),
        trace=by_kind["trace"][0].text if by_kind["trace"] else None,
        progress=progress[0] if progress else None,
        acts=tuple(sorted(entries, key=lambda each: -each.id)[:acts]),
        alike=sum(row.number or 0 for row in by_kind["alike"]),
    )


def _entry(row: BesideRow, details: str) -> AuditEntry:
    assert row.at is not None  # of the audit log
    return AuditEntry(row.number or 0, row.at, row.actor or "", row.text, details)


def _part(details: str, job_id: int) -> str | None:
    """Return what an entry about several jobs says about one; None if that is not one of them, or alone."""
    given = msgspec.json.decode(details)
    ids, kept = given.pop("ids", ()), dict(given.pop("kept", ()))
    if (job_id not in ids and job_id not in kept) or (len(ids) == 1 and "operation" not in given):
        return None
    given |= {"kept": kept[job_id]} if job_id in kept else {}
    return msgspec.json.encode(given).decode()


# ------------------------------------------------------------------------------------------------------------- traces

# A trace links the attempts of a job to its enqueue. It is a text of the tracer without a meaning here: for
# OpenTelemetry the W3C traceparent of the enqueue or of the last attempt. Traces have a table of their own, so that
# jobs without a trace cost neither a column nor a join in a claim.


def put_traces(kept: Iterable[tuple[int, str]]) -> Statements[None]:
    """Write the traces of jobs, given by their ids; a trace replaces the one before."""
    rows = [{"job_id": number, "trace": trace} for number, trace in kept]
    if rows:
        yield Query("trace_put", many=rows)


@reads
def trace(job_id: int, parent_id: int | None = None) -> Statements[str | None]:
    """Return the trace of a job, or that of its parent; None if neither has one."""
    rows = yield Query("trace_of", {"job_id": job_id, "parent_id": parent_id})
    return rows[0][0] if rows else None
