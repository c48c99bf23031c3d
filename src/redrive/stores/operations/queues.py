"""The settings of queues, and the reasons for which a job in a queue does not run. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from redrive.engine.explain import CatchJob, Circumstances
from redrive.engine.lifecycle import State
from redrive.engine.queue import QueueChange, QueuePosition, QueueSettings
from redrive.engine.records import JobRecord, WorkerRecord
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.jobs import find
from redrive.stores.operations.limited_queues import lock, starts
from redrive.stores.query import Query, Rows, Steps, reads, wakes

# The largest number of jobs that are named as holders of slots.
HOLDERS = 1000


class Head(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``queue_head``."""

    queue: str
    partition: str
    id: int
    state: State


@reads
def settings(name: str) -> Steps[QueueSettings]:
    """Return the settings of a queue; without stored settings it has no limits."""
    found = yield from _settings([name])
    return found.get(name) or QueueSettings(name)


@reads
def queues() -> Steps[tuple[QueueSettings, ...]]:
    """Return the settings of all queues that have any, by name."""
    return tuple((yield from _settings(None)).values())


def _settings(names: list[str] | None) -> Steps[dict[str, QueueSettings]]:
    rows: Sequence[QueueSettings] = yield Query("queues_select", {"names": names}, into=QueueSettings)
    return {row.name: row for row in rows}


@wakes
def change(
    name: str, wanted: QueueChange, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Steps[QueueSettings]:
    """Change the settings of a queue, and return them; the next claim uses them. Running jobs go on, and count."""
    at = yield from instant(now)
    before = yield from lock(name)
    after = replace(wanted.applied(before, at), changed_at=at)
    yield from _put(after, at)
    yield from record(at, actor, "queue", queue=name, **_changes(before, after))
    return after


@wakes
def declare(wanted: Mapping[str, QueueChange], *, now: datetime | None = None) -> Steps[None]:
    """Store the settings that the code declares, except for queues that were changed at run time."""
    at = yield from instant(now)
    for name in sorted(wanted):
        before = yield from lock(name)
        if before.changed_at is None:
            after = wanted[name].applied(QueueSettings(name, turn=before.turn), at)
            if after != before:
                yield from _put(after, at)


@wakes
def forget(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Steps[None]:
    """Delete the settings of a queue; the settings in the code apply again when a worker starts."""
    at = yield from instant(now)
    before = yield from lock(name)
    if before != QueueSettings(name):
        yield from _put(QueueSettings(name), at)
        yield from record(at, actor, "queue", queue=name, forgotten=True)


def _put(after: QueueSettings, at: datetime) -> Steps[None]:
    fields = (field for field in QueueSettings.__struct_fields__ if field != "turn")
    params: dict[str, object] = {field: getattr(after, field) for field in fields}
    yield Query("queue_put", params | {"set_at": at})
    if after.limited:
        yield Query("slots_put", {"queue": after.name})


def _changes(before: QueueSettings, after: QueueSettings) -> dict[str, object]:
    """Return the changed settings for the audit log; a limit that was removed is ``none``."""
    names = ("paused_at", "concurrency", "per_partition", "rate", "ordered", "aging_for")
    values = {name: (getattr(before, name), getattr(after, name)) for name in names}
    changed = {name: new for name, (old, new) in values.items() if old != new}
    return {name: "none" if new is None else str(new) if name == "rate" else new for name, new in changed.items()}


@reads
def holders(name: str) -> Steps[tuple[int, ...]]:
    """Return the ids of the jobs that occupy slots of a limited queue, oldest first; at most `HOLDERS`."""
    return tuple(row[0] for row in (yield Query("queue_holders", {"queue": name, "count": HOLDERS})))


@reads
def status(job_id: int, *, now: datetime | None = None) -> Steps[tuple[JobRecord, Circumstances]]:
    """Return a job and its circumstances, which explain why it does not run; raise `JobNotFound`."""
    job = yield from find(job_id)
    found = yield from _circumstances([job], now)
    return job, found[job_id]


@reads
def circumstances(jobs: Sequence[JobRecord], *, now: datetime | None = None) -> Steps[dict[int, Circumstances]]:
    """Return the circumstances of jobs, by id."""
    return (yield from _circumstances(jobs, now))


def _circumstances(jobs: Sequence[JobRecord], now: datetime | None) -> Steps[dict[int, Circumstances]]:
    at = yield from instant(now)
    standing = yield from _standings(jobs, at)
    workers: Sequence[WorkerRecord] = ()
    if any(job.state is State.READY and job.scheduled_at <= at for job in jobs):
        workers = yield Query("workers", into=WorkerRecord)
    dead = [job.id for job in jobs if job.state is State.DEAD]
    catching: dict[int, CatchJob] = {}
    error_types: dict[int, str | None] = {}
    if dead:
        for job_id, error_type, catch, task, state in (yield Query("dead_jobs", {"ids": dead})):
            error_types[job_id] = error_type
            if catch is not None:
                catching[job_id] = CatchJob(job_id, catch, task, State(state))
    ahead = yield from _ahead(jobs)
    return {
        job.id: Circumstances(
            at,
            tuple(workers),
            standing.get(job.id),
            catching.get(job.id),
            error_types.get(job.id),
            None if job.state is not State.RUNNING or job.worker_id is None else ahead.get(job.worker_id),
        )
        for job in jobs
    }


def _ahead(jobs: Iterable[JobRecord]) -> Steps[dict[int, int]]:
    """Return, for each worker of running jobs that has more of them than slots, its first lease without one."""
    ids = sorted({job.worker_id for job in jobs if job.state is State.RUNNING and job.worker_id is not None})
    if not ids:
        return {}
    leases: dict[int, list[int]] = defaultdict(list)
    slots: dict[int, int] = {}
    for worker, concurrency, lease in (yield Query("workers_ahead", {"ids": ids})):
        slots[worker] = concurrency
        leases[worker].append(lease)
    return {worker: held[slots[worker]] for worker, held in leases.items() if len(held) > slots[worker]}


def _standings(jobs: Iterable[JobRecord], at: datetime) -> Steps[dict[int, QueuePosition]]:
    ready = [job for job in jobs if job.state is State.READY]
    if not ready:
        return {}
    special = yield from _settings(sorted({job.queue for job in ready}))
    general = {}
    for each in special.values():
        general[each.name] = yield from _general(each, at)
    lines = sorted(
        {
            (job.queue, job.partition)
            for job in ready
            if job.partition is not None and job.queue in special and special[job.queue].ordered
        }
    )
    heads: Sequence[Head] = ()
    if lines:
        many = [{"queue": queue, "partition": partition} for queue, partition in lines]
        heads = yield Query("queue_head", many=many, into=Head)
    first = {(each.queue, each.partition): each for each in heads}
    return {job.id: _in_line(job, general[job.queue], first) for job in ready if job.queue in general}


def _in_line(job: JobRecord, standing: QueuePosition, first: Mapping[tuple[str, str], Head]) -> QueuePosition:
    head = None if job.partition is None else first.get((job.queue, job.partition))
    return standing if head is None else replace(standing, head_id=head.id, head_state=head.state)


def _general(each: QueueSettings, at: datetime) -> Steps[QueuePosition]:
    holders: Rows = ()
    if each.limited:
        holders = yield Query("queue_holders", {"queue": each.name, "count": HOLDERS})
    next_at = None
    if each.rate_count is not None and each.rate_for is not None:
        begun = yield from starts(each, at)
        if begun.count >= each.rate_count and begun.first_at is not None:
            next_at = begun.first_at + each.rate_for
    return QueuePosition(each, holders=tuple(map(tuple, holders)), next_at=next_at)


# `depths` reads only the indexes of jobs that have not ended, at most `MOST` entries per queue and state, for the first
# `WIDEST` queues by name. A count of `MOST` means that many or more.
MOST = 10_000
WIDEST = 100


class DepthState(StrEnum):
    """The state of a job in a queue that has not ended, or has died and was not caught."""

    DUE = "due"
    """It could run now."""
    LATER = "later"
    """It waits for its due time, for example for a retry."""
    RUNNING = "running"
    """A worker runs it."""
    WAITING = "waiting"
    """Its attempt waits for an external completion."""
    DEAD = "dead"
    """It gave up and was not caught."""


class Depth(msgspec.Struct, frozen=True, gc=False):
    """The number of jobs of one queue in one state.

    Attributes:
        jobs: the number, at most `MOST`.
        oldest_at: when the first of the due jobs became due.
    """

    queue: str
    standing: DepthState
    jobs: int
    oldest_at: datetime | None


class Depths(msgspec.Struct, frozen=True, gc=False):
    """The numbers of jobs in all queues."""

    at: datetime
    queues: tuple[Depth, ...]


@reads
def depths(*, most: int | None = None, now: datetime | None = None) -> Steps[Depths]:
    """Count the jobs of each queue, up to a limit, by default `MOST`."""
    at = yield from instant(now)
    rows = yield Query("depths", {"now": at, "most": most or MOST, "widest": WIDEST}, into=Depth)
    return Depths(at, tuple(row for row in rows if row.jobs))
