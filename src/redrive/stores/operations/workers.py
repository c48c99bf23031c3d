"""Workers: arriving, beating, leaving. PURE."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.engine.records import KeyUntil, Process, WorkerRecord
from redrive.stores.operations.clock import instant
from redrive.stores.operations.floors import ClaimFilter
from redrive.stores.operations.keys import KeyRequest, again
from redrive.stores.operations.numbers import take
from redrive.stores.query import Query, Rows, Steps, reads, wakes, writes

__all__ = ["STUCK", "Pulse", "beat", "forsake", "free", "held", "leave", "prolong", "register", "report", "workers"]

STUCK = timedelta(seconds=5)
"""After this long a process that has said half of a statement is not believed to say the rest; as long as one may be
silent between two statements of a transaction."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a heartbeat answers.

    Attributes:
        alive: is the worker registered?
        leases: the lease ids that it still holds; what it runs beyond these is lost.
    """

    alive: bool
    leases: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReleasedJob:
    """A row of the query ``worker_release``.

    Attributes:
        id: a job that was given back.
        task: its task.
        key: its unique key.
        key_until: how long it keeps that to itself.
    """

    id: int
    task: str
    key: str | None
    key_until: KeyUntil | None


@writes
def register(  # noqa: PLR0913 - the columns of its row
    name: str,
    *,
    concurrency: int,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    tasks: Collection[str] | None = None,
    process: Process | None = None,
    lock_id: int | None = None,
    now: datetime | None = None,
) -> Steps[int]:
    """Make a worker known.

    Args:
        name: for people: ``host:pid``.
        concurrency: attempts it runs at once.
        lease_for: time after which it is presumed dead if it does not beat.
        queues: the queues it serves; None means all.
        tasks: the tasks whose jobs it claims, by the names under which jobs are stored; None means all.
        process: where it runs, so that its death can be seen; None where it has no process of its own.
        lock_id: the lock that its session holds in the database, where it has one.
        now: the instant, in tests.

    Returns:
        Its id, never used before.
    """
    at = yield from instant(now)
    (worker_id,) = yield from take("worker", 1)
    host, pid, birth = (process.host, process.pid, process.birth) if process else (None, None, None)
    params = {"id": worker_id, "name": name, "concurrency": concurrency, **ClaimFilter(queues, tasks).parameters}
    params |= {"host": host, "pid": pid, "birth": birth, "lock_id": lock_id}
    yield Query("worker_insert", {**params, "now": at, "expires_at": at + lease_for})
    return worker_id


@writes
def beat(worker_id: int, lease_for: timedelta, *, now: datetime | None = None) -> Steps[Pulse]:
    """Extend the life of a worker; never shorten it.

    Args:
        worker_id: who beats.
        lease_for: how long it is believed from now on.
        now: the instant, in tests.

    Returns:
        Whether it is registered, and the leases it still holds.

    Raises:
        ValueError: ``lease_for`` is not positive.
    """
    if lease_for <= timedelta(0):
        message = f"a heartbeat must extend the lease by more than nothing, got {lease_for}"
        raise ValueError(message)
    # Each statement by itself: if no answer comes, the row of the worker is not locked when another connection tries.
    at = yield from instant(now, free=True)
    alive = yield Query("worker_beat", {"id": worker_id, "now": at, "expires_at": at + lease_for}, complete=True)
    return Pulse(bool(alive), (yield from _held(worker_id)))


@reads
def held(worker_id: int) -> Steps[frozenset[int]]:
    """Look between two heartbeats which leases are left, so that a worker soon hears of a cancelled job.

    Args:
        worker_id: who looks.

    Returns:
        The leases that it still holds; what it runs beyond these is lost.
    """
    return (yield from _held(worker_id))


def _held(worker_id: int) -> Generator[Query, Rows, frozenset[int]]:
    rows = yield Query("leases_of", {"worker_id": worker_id}, free=True)
    return frozenset(row[0] for row in rows)


@writes
def report(worker_id: int, trouble: str | None) -> Steps[None]:
    """Write which background duties of a worker fail.

    Args:
        worker_id: of the worker.
        trouble: which, and why; None where none does.
    """
    yield Query("worker_trouble", {"id": worker_id, "trouble": trouble})


@writes
def prolong(job_id: int, lease_id: int, timeout_for: timedelta) -> Steps[None]:
    """Write how long an attempt may take, if its lease is still current.

    Args:
        job_id: of the attempt.
        lease_id: of the attempt.
        timeout_for: how long; after that, and a grace, the attempt is taken even from a living worker.
    """
    yield Query("prolong", {"job_id": job_id, "lease_id": lease_id, "timeout_for": timeout_for})


@wakes
def leave(worker_id: int, *, now: datetime | None = None) -> Steps[list[int]]:
    """Sign off, giving back whatever is still held; nothing is spent.

    Args:
        worker_id: who leaves.
        now: the instant, in tests.

    Returns:
        The jobs given back.
    """
    at = yield from instant(now)
    released = yield from _release(worker_id, None, f"worker {worker_id} shut down", at)
    yield Query("worker_stop", {"id": worker_id, "now": at})
    return released


@wakes
def forsake(worker_id: int, lease_ids: Collection[int], *, now: datetime | None = None) -> Steps[list[int]]:
    """Give back leases that a worker holds and does not know: the reply to its claim was lost. Nothing is spent.

    Args:
        worker_id: who holds them.
        lease_ids: which.
        now: the instant, in tests.

    Returns:
        The jobs given back.
    """
    at = yield from instant(now)
    note = f"worker {worker_id} never heard that it had it"
    return (yield from _release(worker_id, sorted(lease_ids), note, at))


def _release(
    worker_id: int, lease_ids: Sequence[int] | None, note: str, at: datetime
) -> Generator[Query, Rows, list[int]]:
    params = {"worker_id": worker_id, "leases": lease_ids, "now": at, "note": note}
    released: Sequence[ReleasedJob] = yield Query("worker_release", params, into=ReleasedJob)
    keyed = [KeyRequest(job.task, job.key, job.id) for job in released if job.key and job.key_until is KeyUntil.START]
    if keyed:
        yield from again(keyed, at)
    return [job.id for job in released]


@reads
def free(silent_for: timedelta = STUCK) -> Steps[int]:
    """Set free what processes keep locked that were stopped in the middle of a statement.

    A lease that has run out cannot be taken from its worker as long as a transaction of that worker holds the row, and
    the transaction of a stopped process does not end by itself. Nothing is written here; the transaction that is ended
    undoes itself, and its owner is told when it goes on.

    Args:
        silent_for: how long they have said nothing.

    Returns:
        How many there were.
    """
    return len((yield Query("stuck_end", {"silent_for": silent_for})))


@reads
def workers() -> Steps[tuple[WorkerRecord, ...]]:
    """Read the workers that have not left.

    Returns:
        The workers, oldest first; those past ``expires_at`` are presumed dead.
    """
    return tuple((yield Query("workers", into=WorkerRecord)))
