"""The settings of queues, and the reasons for which a job in a queue does not run. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from redrive.engine.explain import CatchJob, Circumstances
from redrive.engine.lifecycle import State
from redrive.engine.queue import QueueChange, QueuePosition, QueueSettings, Rate
from redrive.engine.records import Count, JobRecord, WorkerRecord
from redrive.engine.runs import FAR
from redrive.policy import format_duration
from redrive.stores.operations.audit import QUEUE, UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.jobs import find
from redrive.stores.operations.limited_queues import lock
from redrive.stores.query import Query, Statements, reads, wakes

# The largest number of jobs that are named as holders of slots.
HOLDERS = 1000

# The largest numbers of jobs that are returned as those that a queue runs, and runs next.
RUNNING = 200
AHEAD = 10


class QueueLimits(QueueSettings, frozen=True, gc=False):
    """A row of the query ``queue_limits``.

    Attributes:
        begun: the attempts that have started within the span of its rate.
        first_at: when the first of them did.
    """

    begun: int = 0
    first_at: datetime | None = None

    @property
    def next_at(self) -> datetime | None:
        """Return when the rate allows the next start; None if it does now."""
        if self.rate_count is None or self.rate_for is None or self.first_at is None or self.begun < self.rate_count:
            return None
        return self.first_at + self.rate_for


class JobCircumstances(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``job_circumstances``."""

    id: int
    now: datetime
    head_id: int | None
    head_state: State | None
    error_type: str | None
    catch_id: int | None
    catch_task: str | None
    catch_state: State | None
    is_ahead: bool
    partition_next_at: datetime | None  # when the rate of its partition allows the next start; None if it does now

    @property
    def catch(self) -> CatchJob | None:
        """Return its latest catch job."""
        if self.catch_id is None or self.catch_task is None or self.catch_state is None:
            return None
        return CatchJob(self.id, self.catch_id, self.catch_task, self.catch_state)


@reads
def settings(name: str) -> Statements[QueueSettings]:
    """Return the settings of a queue; without stored settings it has no limits."""
    found = yield from _settings([name])
    return found.get(name) or QueueSettings(name)


@reads
def queues() -> Statements[tuple[QueueSettings, ...]]:
    """Return the settings of all queues that have any, by name."""
    return tuple((yield from _settings(None)).values())


def _settings(names: list[str] | None) -> Statements[dict[str, QueueSettings]]:
    rows: Sequence[QueueSettings] = yield Query("queues_select", {"names": names}, into=QueueSettings)
    return {row.name: row for row in rows}


@wakes
def change(
    name: str, wanted: QueueChange, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[QueueSettings]:
    """Change the settings of a queue, and return them; the next claim uses them. Running jobs go on, and count."""
    at = yield from instant(now)
    before = yield from lock(name)
    after = replace(wanted.applied(before, at), changed_at=at)
    if after.paused_at != before.paused_at:
        after = replace(after, paused_by=None if after.paused_at is None else actor)
    yield from _put(after, at)
    yield from record(at, actor, QUEUE, queue=name, **_changes(before, after))
    return after


@wakes
def declare(wanted: Mapping[str, QueueChange], *, now: datetime | None = None) -> Statements[None]:
    """Store the settings that the code declares, except for queues that were changed at run time."""
    known = yield from _settings(sorted(wanted))
    # Most starts of a worker change nothing.
    names = [name for name in sorted(wanted) if _differs(wanted[name], known.get(name) or QueueSettings(name))]
    if not names:
        return
    at = yield from instant(now)
    for name in names:
        before = yield from lock(name)
        if before.changed_at is None:
            after = wanted[name].applied(QueueSettings(name, turn=before.turn), at)
            if after != before:
                yield from _put(after, at)


def _differs(wanted: QueueChange, known: QueueSettings) -> bool:
    """Return True if the declaration of a queue may have to be written."""
    at = known.paused_at or datetime.max.replace(tzinfo=UTC)
    return known.changed_at is None and wanted.applied(QueueSettings(known.name, turn=known.turn), at) != known


@wakes
def forget(name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[None]:
    """Delete the settings of a queue; the settings in the code apply again when a worker starts."""
    at = yield from instant(now)
    before = yield from lock(name)
    if before != QueueSettings(name):
        yield from _put(QueueSettings(name), at)
        yield from record(at, actor, QUEUE, queue=name, forgotten=True)


def _put(after: QueueSettings, at: datetime) -> Statements[None]:
    fields = (field for field in QueueSettings.__struct_fields__ if field != "turn")
    params: dict[str, object] = {field: getattr(after, field) for field in fields}
    yield Query("queue_put", params | {"set_at": at})
    if after.limited:
        yield Query("slots_put", {"queue": after.name})
    if after.rate_count is None and after.partition_rate_count is None:
        # Only the starts of a queue with a rate are ever deleted by a claim.
        yield Query("starts_drop", {"queue": after.name, "before": FAR})


def _changes(before: QueueSettings, after: QueueSettings) -> dict[str, object]:
    """Return the changed settings for the audit log; a limit that was removed is ``none``."""
    names = ("paused_at", "concurrency", "per_partition", "rate", "rate_per_partition", "ordered", "aging_for")
    values = {name: (getattr(before, name), getattr(after, name)) for name in names}
    changed = {name: new for name, (old, new) in values.items() if old != new}
    return {name: _written(new) for name, new in changed.items()}


def _written(value: object) -> object:
    """Return a setting as an operator gives it."""
    if isinstance(value, timedelta):
        return format_duration(value)
    return "none" if value is None else str(value) if isinstance(value, Rate) else value


class PresentJob(msgspec.Struct, frozen=True, gc=False):
    """A job that a queue runs, or runs next.

    Attributes:
        kind: ``running``, ``holder`` of a place of a limited queue, or ``next``.
        attempt: the number of its attempts so far.
        at: when its attempt was claimed, or when it became due; None for a holder.
    """

    kind: str
    id: int
    queue: str
    task: str
    attempt: int
    at: datetime | None
    worker_id: int | None
    worker: str | None


@reads
def present(name: str | None, *, now: datetime) -> Statements[tuple[PresentJob, ...]]:
    """Return the jobs that a queue runs, or all that run; that hold its places; and that it runs next."""
    given = {"queue": name, "now": now, "running": RUNNING, "next": AHEAD}
    return tuple((yield Query("queue_present", given, into=PresentJob)))


def _holders(names: list[str]) -> Statements[dict[str, tuple[tuple[int, str | None], ...]]]:
    """Return the jobs that occupy slots of limited queues, with their partitions, by queue."""
    found: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
    if names:
        for queue, job_id, partition in (yield Query("queue_holders", {"queues": names, "count": HOLDERS})):
            found[queue].append((job_id, partition))
    return {queue: tuple(held) for queue, held in found.items()}


@reads
def status(job_id: int, *, now: datetime | None = None) -> Statements[tuple[JobRecord, Circumstances]]:
    """Return a job and its circumstances, which explain why it does not run; raise `JobNotFound`."""
    job = yield from find(job_id)
    found = yield from _circumstances([job], now)
    return job, found[job_id]


@reads
def circumstances(jobs: Sequence[JobRecord], *, now: datetime | None = None) -> Statements[dict[int, Circumstances]]:
    """Return the circumstances of jobs, by id."""
    return (yield from _circumstances(jobs, now))


# A page shows the circumstances of many jobs: the number of statements depends neither on that of the jobs nor on that
# of their queues.
def _circumstances(jobs: Sequence[JobRecord], now: datetime | None) -> Statements[dict[int, Circumstances]]:
    if not jobs:
        return {}
    ids = [job.id for job in jobs]
    rows: Sequence[JobCircumstances] = yield Query("job_circumstances", {"ids": ids, "now": now}, into=JobCircumstances)
    own = {row.id: row for row in rows}
    at = rows[0].now
    ready = [job for job in jobs if job.state is State.READY]
    positions = yield from _positions({job.queue for job in ready}, at)
    workers: Sequence[WorkerRecord] = ()
    if any(job.scheduled_at <= at for job in ready):
        workers = yield Query("workers", into=WorkerRecord)
    return {
        job.id: Circumstances(
            at,
            tuple(workers),
            _in_line(positions.get(job.queue), own[job.id]) if job.state is State.READY else None,
            own[job.id].catch,
            own[job.id].error_type,
            own[job.id].is_ahead,
        )
        for job in jobs
    }


def _positions(names: Collection[str], at: datetime) -> Statements[dict[str, QueuePosition]]:
    """Return what all jobs of each queue with settings have in common."""
    if not names:
        return {}
    rows: Sequence[QueueLimits] = yield Query("queue_limits", {"names": sorted(names), "now": at}, into=QueueLimits)
    held = yield from _holders([row.name for row in rows if row.limited])
    return {row.name: QueuePosition(row, holders=held.get(row.name, ()), next_at=row.next_at) for row in rows}


def _in_line(position: QueuePosition | None, own: JobCircumstances) -> QueuePosition | None:
    if position is None or (own.head_id is None and own.partition_next_at is None):
        return position
    return replace(position, head_id=own.head_id, head_state=own.head_state, partition_next_at=own.partition_next_at)


# Ready jobs are counted in each lane (queue, priority and task), up to `MOST` due and as many later ones. In the order
# of the index, the delayed jobs of one lane are before the due ones of the next, and a limit across lanes or queues
# would hide these; so all lanes are read, as a claim does. Jobs in other states have no index by queue: of these, the
# first `MOST` of all queues together are counted.
MOST = 10_000


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
    """It gave up, and was neither caught nor skipped by an operator."""
    SKIPPED = "skipped"
    """It gave up and was not caught, and an operator has decided to leave it so."""

    @property
    def is_ready(self) -> bool:
        """Return True if jobs in it are counted for each queue, and False if for all queues together."""
        return self in {DepthState.DUE, DepthState.LATER}


class Depth(msgspec.Struct, frozen=True, gc=False):
    """The number of jobs of one queue in one state.

    Attributes:
        jobs: the number.
        oldest_at: when the first of the due jobs became due.
        is_capped: True if there may be more, since the count has reached its limit.
    """

    queue: str
    standing: DepthState
    jobs: int
    oldest_at: datetime | None
    is_capped: bool = False

    @property
    def count(self) -> Count:
        """The number, with its limit."""
        return Count(self.jobs, self.is_capped)


class Depths(msgspec.Struct, frozen=True, gc=False):
    """The numbers of jobs in all queues."""

    at: datetime
    queues: tuple[Depth, ...]


@reads
def depths(*, most: int | None = None, now: datetime | None = None) -> Statements[Depths]:
    """Count the jobs of each queue, those of each lane up to a limit, by default `MOST`."""
    at = yield from instant(now)
    return Depths(at, (yield from read_depths(at, most)))


def read_depths(at: datetime, most: int | None = None) -> Statements[tuple[Depth, ...]]:
    """Count the jobs of each queue as a part of a larger operation."""
    rows: Sequence[Depth] = yield Query("depths", {"now": at, "most": most or MOST}, into=Depth)
    return tuple(row for row in rows if row.jobs)


def counted(found: Iterable[Depth], queue: str | None = None) -> dict[DepthState, Count]:
    """Return the number of jobs of a queue, or of all, in each state.

    If the count of all queues together has reached its limit, the number of each queue may be more, also that of a
    queue without jobs among those that were counted.
    """
    counts = dict.fromkeys(DepthState, Count(0))
    for each in found:
        if queue in {None, each.queue}:
            counts[each.standing] += each.count
        elif each.is_capped and not each.standing.is_ready:
            counts[each.standing] += Count(0, capped=True)
    return counts
