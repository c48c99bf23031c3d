"""Workers: registration, heartbeats and shutdown. PURE."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from redrive.engine.records import KeyUntil, Process, WorkerRecord
from redrive.stores.operations.clock import instant
from redrive.stores.operations.keys import KeyRequest, retake
from redrive.stores.operations.limited_queues import ClaimFilter
from redrive.stores.query import Query, Statements, reads, wakes, writes

# The time after which a process that has sent half of a statement counts as stopped.
#
# It equals the timeout for a transaction that is idle between two statements.
STUCK = timedelta(seconds=5)

# The random bits in the id of a worker that has registered again.
SALT_BITS = 32


Asked: TypeAlias = Literal["cancel", "pause"]
"""A request of an operator to a run."""


class Pulse(msgspec.Struct, frozen=True, gc=False):
    """The result of a heartbeat."""

    alive: bool  # True if the worker is registered
    leases: frozenset[int]  # the lease ids that it still holds; all its other attempts are lost
    asked: Mapping[int, Asked] = {}  # what operators ask of the runs among these


class Registrant(msgspec.Struct, frozen=True, gc=False):
    """What a worker registers.

    Attributes:
        name: its name in lists.
        concurrency: the number of handlers at once.
        lease_for: the time after which it counts as dead without a heartbeat.
        queues: the queues that it serves, without those of ``excluded``; None for all. The same for ``tasks``.
        process: by which other workers see that it is dead; None without one of its own.
        lock_id: the lock that its session holds in the database, to the same end.
        version: that of its redrive.
        build: of its code.
    """

    name: str
    concurrency: int
    lease_for: timedelta
    queues: Sequence[str] | None = None
    excluded: Sequence[str] | None = None
    tasks: Collection[str] | None = None
    process: Process | None = None
    lock_id: int | None = None
    version: str | None = None
    build: str | None = None


class Build(msgspec.Struct, frozen=True, gc=False):
    """A build of the code, and the first start of a worker that had it."""

    build: str
    first_at: datetime


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """The result of a worker's registering again: its new id, and the leases that it had by the database."""

    id: int
    leases: frozenset[int]


class ReleasedJob(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``worker_release``."""

    id: int
    task: str
    key: str | None
    key_until: KeyUntil | None


@writes
def register(
    name: str,
    *,
    concurrency: int,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    excluded: Sequence[str] | None = None,
    tasks: Collection[str] | None = None,
    process: Process | None = None,
    lock_id: int | None = None,
    version: str | None = None,
    build: str | None = None,
    now: datetime | None = None,
) -> Statements[int]:
    """Register a worker, and return its id, which is never used again; see `Registrant` for the arguments."""
    given = Registrant(name, concurrency, lease_for, queues, excluded, tasks, process, lock_id, version, build)
    return (yield from _insert(given, now, is_locked=lock_id is not None, alone=True))


def _insert(
    given: Registrant, now: datetime | None, *, salt: int | None = None, is_locked: bool = False, alone: bool = False
) -> Statements[int]:
    """Insert the row of a worker, and return its id.

    Args:
        given: what it registers.
        now: the instant; None for that of the database.
        salt: the random bits of its id, if it has some.
        is_locked: True if its session is known to hold its lock.
        alone: True if nothing else is written.
    """
    process = given.process
    host, pid, birth = (process.host, process.pid, process.birth) if process else (None, None, None)
    params = {"name": given.name, "concurrency": given.concurrency, "salt": salt, "bits": SALT_BITS}
    params |= ClaimFilter(given.queues, given.tasks, given.excluded).parameters
    params |= {"host": host, "pid": pid, "birth": birth, "version": given.version, "build": given.build}
    params |= {"lock_id": given.lock_id, "is_locked": is_locked, "now": now, "lease_for": given.lease_for}
    number: int = (yield Query("worker_insert", params, own=alone))[0][0]
    return number


# A worker registers again because its row is gone: others took it for dead, or a standby has taken over that lacks it.
# In the latter case the sequence has gone back too, and another worker may get, or already have, the id. The random
# bits make the new id one that no worker has; numbers without them are smaller. What is under an id that belongs to
# another process is left to that process, which gives back what it does not have. A second server may lack the
# registration that followed the first one, and have the worker, and its leases, under an earlier id; if the reply to a
# registration was lost, what the worker keeps is under an id that it does not have. So a lease is kept wherever it is,
# but only that of the same job: the sequence of the leases has gone back, too.
@wakes
def renew(
    before: Collection[int],
    given: Registrant,
    kept: Mapping[int, int],
    *,
    salt: int,
    now: datetime | None = None,
) -> Statements[Renewed]:
    """Register a worker again under another id; give back its leases, with no attempt spent, but those that it keeps.

    Args:
        before: its ids until now.
        given: what it registers.
        kept: the jobs of attempts that go on, by their leases.
        salt: a random number below 2 ** `SALT_BITS`.
        now: the instant, in tests.
    """
    at = yield from instant(now)
    number = yield from _insert(given, at, salt=salt)
    rows = [{"job_id": job, "lease_id": lease, "worker_id": number} for lease, job in kept.items()]
    leases = {row[0] for row in (yield Query("worker_adopt", many=rows))} if rows else set()
    birth = given.process.birth if given.process else None
    for each in before:
        yield Query("worker_stop", {"id": each, "birth": birth, "now": at})
        if not (yield Query("worker_of_another", {"id": each, "birth": birth})):
            left = [row[0] for row in (yield Query("leases_of", {"worker_id": each}))]
            yield from _release(each, left, f"worker {each} registered again", at, due=at)
            leases.update(left)
    return Renewed(number, frozenset(leases))


@writes
def beat(
    worker_id: int,
    lease_for: timedelta,
    *,
    birth: str | None = None,
    loop_lag_for: timedelta | None = None,
    now: datetime | None = None,
) -> Statements[Pulse]:
    """Extend the lease of a worker, and never shorten it; ``birth`` is that of its process.

    ``loop_lag_for`` is the time for which its event loop has not run.

    Raise `ValueError` if `lease_for` is not positive.
    """
    if lease_for <= timedelta(0):
        raise ValueError(f"a heartbeat must extend the lease by more than nothing, got {lease_for}")
    params = {"id": worker_id, "birth": birth, "now": now, "lease_for": lease_for, "loop_lag_for": loop_lag_for}
    alive = yield Query("heartbeat", params)
    return (yield from _pulse(worker_id, alive=bool(alive)))


@reads
def look(worker_id: int) -> Statements[Pulse]:
    """Return what a worker still holds; it calls this between heartbeats to detect cancelled jobs and runs soon."""
    return (yield from _pulse(worker_id, alive=True))


def _pulse(worker_id: int, *, alive: bool) -> Statements[Pulse]:
    rows = yield Query("leases_of", {"worker_id": worker_id})
    return Pulse(alive, frozenset(row[0] for row in rows), {row[0]: row[1] for row in rows if row[1] is not None})


@reads
def held(worker_id: int) -> Statements[frozenset[int]]:
    """Return the leases that a worker still holds."""
    return (yield from _pulse(worker_id, alive=True)).leases


@writes
def report(worker_id: int, trouble: str | None) -> Statements[None]:
    """Write which background duties of a worker fail, and why; None if none does."""
    yield Query("worker_trouble", {"id": worker_id, "trouble": trouble})


# After that time and a grace period the attempt is taken even from a living worker.
@writes
def prolong(job_id: int, lease_id: int, timeout_for: timedelta) -> Statements[None]:
    """Write how long an attempt may take, if its lease is still current."""
    yield Query("prolong", {"job_id": job_id, "lease_id": lease_id, "timeout_for": timeout_for})


@wakes
def leave(worker_id: int, *, birth: str | None = None, now: datetime | None = None) -> Statements[list[int]]:
    """Sign a worker off, and give back the jobs that it still holds, with no attempt spent; return their ids.

    Nothing is changed if another process has the id.
    """
    at = yield from instant(now)
    released = yield from _release(worker_id, None, f"worker {worker_id} shut down", at, due=at, birth=birth)
    yield Query("worker_stop", {"id": worker_id, "birth": birth, "now": at})
    return released


@wakes
def give_back(
    worker_id: int, lease_ids: Collection[int], why: str, *, now: datetime | None = None
) -> Statements[list[int]]:
    """Give back jobs that a worker has claimed and not started; return their ids.

    No attempt is spent, and the jobs keep their places in the queue.
    """
    at = yield from instant(now)
    return (yield from _release(worker_id, sorted(lease_ids), why, at))


def _release(
    worker_id: int,
    lease_ids: Sequence[int] | None,
    note: str,
    at: datetime,
    *,
    due: datetime | None = None,
    birth: str | None = None,
) -> Statements[list[int]]:
    params = {"worker_id": worker_id, "leases": lease_ids, "due": due, "birth": birth, "note": note}
    released: Sequence[ReleasedJob] = yield Query("worker_release", params, into=ReleasedJob)
    keyed = [KeyRequest(job.task, job.key, job.id) for job in released if job.key and job.key_until is KeyUntil.START]
    if keyed:
        yield from retake(keyed, at)
    return [job.id for job in released]


# An expired lease cannot be taken from a worker while a transaction of that worker holds a lock on the row, and the
# transaction of a stopped process does not end by itself. The transaction is rolled back, and its owner gets an error
# when it resumes.
@reads
def end_stuck(silent_for: timedelta = STUCK) -> Statements[int]:
    """End database sessions of processes that were stopped in the middle of a statement; return their number."""
    return len((yield Query("stuck_end", {"silent_for": silent_for})))


@reads
def workers() -> Statements[tuple[WorkerRecord, ...]]:
    """Return the workers that have not left, oldest first; those past ``expires_at`` count as dead."""
    return tuple((yield Query("workers", into=WorkerRecord)))


@reads
def builds(since: datetime) -> Statements[tuple[Build, ...]]:
    """Return the builds of the code with a first start since an instant, the latest first."""
    return tuple((yield Query("builds", {"since": since}, into=Build)))


#: Workers that `begun` returns.
BEGUN: Final = 1_000


class BegunWorker(msgspec.Struct, frozen=True, gc=False):
    """A worker with a build, also one that has left.

    Attributes:
        tasks: that it has; None for all.
        ended_at: when it left, or until when it need not be heard from.
        is_present: False if it has left.
    """

    id: int
    build: str
    tasks: tuple[str, ...] | None
    started_at: datetime
    ended_at: datetime
    is_present: bool


@reads
def begun() -> Statements[tuple[BegunWorker, ...]]:
    """Return the workers that have a build, also those that left within the last day, the latest start first."""
    return tuple((yield Query("workers_begun", {"count": BEGUN}, into=BegunWorker)))


@reads
def unstopped(worker_id: int) -> Statements[tuple[int, ...]]:
    """Return the jobs of the handlers of a worker that go on although their attempts have ended."""
    return tuple(row[0] for row in (yield Query("unstopped_of", {"worker_id": worker_id})))
