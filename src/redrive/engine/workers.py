"""Workers and their processes, as they are read from a store. PURE; see `redrive.engine.records`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Process", "WorkerRecord"]


@dataclass(frozen=True, slots=True)
class Process:
    """The process of a worker: whoever shares its host can see that it is gone.

    Attributes:
        host: its name.
        pid: of the process.
        birth: tells this process from a later one with the same number; None where the system does not say.
    """

    host: str
    pid: int
    birth: str | None


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker process.

    Attributes:
        id: never reused.
        name: ``host:pid``.
        host: where its process runs; None where it has none of its own.
        pid: of its process.
        birth: tells this process from a later one with the same number; None where the system does not say.
        lock_id: the lock that its session holds in the database as long as it lives; None where it has none.
        concurrency: attempts it runs at once.
        queues: the queues it serves; None means all.
        tasks: the names of the tasks it has; None means all.
        started_at: when it registered.
        heartbeat_at: when it was last heard of.
        expires_at: when it is presumed dead.
        stopped_at: when it left in order.
        locked: does its session hold its lock now? None where it has none.
        trouble: which of its background duties fail because of a defect, and why; None where none does.
    """

    id: int
    name: str
    host: str | None
    pid: int | None
    birth: str | None
    lock_id: int | None
    concurrency: int
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    stopped_at: datetime | None
    locked: bool | None
    trouble: str | None = None
