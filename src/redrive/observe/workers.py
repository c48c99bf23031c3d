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

_WARNING = 30  # of `logging`, which is imported by those who log


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkerEvent(Event):
    """Something that became of a worker.

    Attributes:
        worker_id: which.
        queues: the queues that it serves; None means all.
    """

    channel: ClassVar[str] = "redrive.workers"
    labels: ClassVar[tuple[str, ...]] = ()
    worker_id: int
    queues: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """The worker."""
        return f"worker {self.worker_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(_WorkerEvent):
    """A worker is registered, and takes jobs from now on.

    Attributes:
        worker_id: which.
        queues: the queues that it serves; None means all.
        concurrency: attempts that it runs at once.
    """

    concurrency: int

    def __str__(self) -> str:
        return f"{self.name} starts, {self.concurrency} at once, on {', '.join(self.queues or ('all queues',))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopped(_WorkerEvent):
    """A worker has signed off.

    Attributes:
        worker_id: which.
        queues: the queues that it served; None means all.
        abandoned: handlers that go on though they were told to stop; their jobs were given back.
    """

    abandoned: int

    def __str__(self) -> str:
        left = f"; {self.abandoned} handlers do not stop" if self.abandoned else ""
        return f"{self.name} has stopped{left}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDutyFailed(_WorkerEvent):
    """A background duty of a worker has failed because of a defect; it is started again after a while.

    Attributes:
        worker_id: which.
        queues: the queues that it serves; None means all.
        duty: what it does, as the log names it.
        error: the class and the text of the exception.
        failures: how often it has failed in a row.
    """

    level: ClassVar[int] = _WARNING
    labels: ClassVar[tuple[str, ...]] = ("duty",)
    duty: str
    error: str
    failures: int

    def __str__(self) -> str:
        return f"{self.name}: {self.duty} failed, {self.failures} times in a row: {self.error}"
