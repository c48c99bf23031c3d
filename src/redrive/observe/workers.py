"""The events of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from redrive.observe.events import Event

__all__ = [
    "WorkerDutyFailed",
    "WorkerStarted",
    "WorkerStopped",
]

# Of `logging`, which is imported by those who log.
_WARNING = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerEvent(Event):
    """An event of a worker."""

    channel: ClassVar[str] = "redrive.workers"
    labels: ClassVar[tuple[str, ...]] = ()
    worker_id: int
    #: The queues that it serves; None means all.
    queues: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """The worker."""
        return f"worker {self.worker_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(_WorkerEvent):
    """A worker is registered and takes jobs from now on."""

    #: Attempts that it runs at once.
    concurrency: int

    def __str__(self) -> str:
        return f"{self.name} starts, {self.concurrency} at once, on {', '.join(self.queues or ('all queues',))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(_WorkerEvent):
    """A worker has signed off."""

    #: Handlers that did not stop; their jobs were given back.
    abandoned: int

    def __str__(self) -> str:
        left = f"; {self.abandoned} handlers do not stop" if self.abandoned else ""
        return f"{self.name} has stopped{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDutyFailed(_WorkerEvent):
    """A background duty of a worker has failed because of a defect; it is restarted after a rest."""

    level: ClassVar[int] = _WARNING
    labels: ClassVar[tuple[str, ...]] = ("duty",)
    #: The name of the duty in the log.
    duty: str
    #: The class and the text of the exception.
    error: str
    #: The number of failures in a row.
    failures: int

    def __str__(self) -> str:
        return f"{self.name}: {self.duty} failed, {self.failures} times in a row: {self.error}"
