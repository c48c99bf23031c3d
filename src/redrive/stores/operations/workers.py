"""Workers: arriving, beating, leaving. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from redrive.engine.records import Worker
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Steps, reads, writes

__all__ = ["Pulse", "beat", "leave", "register", "workers"]


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a heartbeat answers.

    Attributes:
        alive: is the worker registered?
        leases: the lease ids that it still holds; what it runs beyond these is lost.
    """

    alive: bool
    leases: frozenset[int]


@writes
def register(
    name: str,
    *,
    concurrency: int,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    now: datetime | None = None,
) -> Steps[int]:
    """Make a worker known.

    Args:
        name: for people: ``host:pid``.
        concurrency: attempts it runs at once.
        lease_for: time after which it is presumed dead if it does not beat.
        queues: the queues it serves; None means all.
        now: the instant, in tests.

    Returns:
        Its id, never used before.
    """
    at = yield from instant(now)
    rows = yield Query("take", {"name": "worker", "count": 1})
    worker_id: int = rows[0][0] + 1
    named = list(queues) if queues is not None else None
    params = {"id": worker_id, "name": name, "concurrency": concurrency, "queues": named}
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
    at = yield from instant(now)
    alive = yield Query("worker_beat", {"id": worker_id, "now": at, "expires_at": at + lease_for})
    held = yield Query("leases_of", {"worker_id": worker_id})
    return Pulse(bool(alive), frozenset(row[0] for row in held))


@writes
def leave(worker_id: int, *, now: datetime | None = None) -> Steps[list[int]]:
    """Sign off, giving back whatever is still held; nothing is spent.

    Args:
        worker_id: who leaves.
        now: the instant, in tests.

    Returns:
        The jobs given back.
    """
    at = yield from instant(now)
    note = f"worker {worker_id} shut down"
    released = yield Query("worker_release", {"worker_id": worker_id, "now": at, "note": note})
    yield Query("worker_stop", {"id": worker_id, "now": at})
    return [row[0] for row in released]


@reads
def workers() -> Steps[tuple[Worker, ...]]:
    """Read the workers that have not left.

    Returns:
        The workers, oldest first; those past ``expires_at`` are presumed dead.
    """
    return tuple((yield Query("workers", into=Worker)))
