"""The events of durable jobs; those of their attempts are in `redrive.observe.attempts`.

The process that has run a transaction emits its events after the commit: no event is emitted for a transaction that was
rolled back, and none twice. Only `JobsEnqueuing` and `JobStarted` come before what they are about, because a sink may
return a context manager for it.

One attempt emits `JobStarted` once, and its end at most once. Another process than the one that began it may emit the
end: after a crash the worker that takes its lease emits `JobRescued` or `JobDied`.

=====================  =======================================================================  ==========
event                  emitted when                                                             outcome
=====================  =======================================================================  ==========
`JobsEnqueuing`        jobs are about to be stored; around that
`JobEnqueued`          a new job has been stored                                                enqueued
`JobStarted`           its handler is about to be called; around the call
`JobSucceeded`         it has succeeded                                                         succeeded
`JobRetryScheduled`    it has failed, and another attempt follows                               retried
`JobDied`              it gave up: its policy, its deadline, a bad payload, too many crashes    died
`JobSnoozed`           its handler has asked to be called later                                 snoozed
`JobSuspended`         its handler waits for a completion from outside                          suspended
`JobReleased`          its worker gave it back: a stop, an unknown task, an open breaker        released
``JobCancelled``       an operator, a program or its own handler has cancelled it               cancelled
`JobRescued`           its worker vanished; it runs again                                       rescued
`JobLeaseLost`         an attempt ended that had no lease any more: it changed nothing          lost
`JobCaught`            the catch task has taken a dead job                                      caught
`WorkerStarted`        a worker takes jobs from now on
`WorkerStopped`        it takes no more jobs
`WorkerDutyFailed`     one of its background duties has failed because of a defect
=====================  =======================================================================  ==========
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from redrive.observe.events import Event
from redrive.policy import format_duration

__all__ = [
    "JobCancelled",
    "JobCaught",
    "JobEnqueued",
    "JobEvent",
    "JobsEnqueuing",
]

# Of `logging`, which is imported by those who log.
_DEBUG = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsEnqueuing(Event):
    """Jobs of one task are about to be stored, all in one transaction."""

    channel: ClassVar[str] = "redrive.jobs"
    level: ClassVar[int] = _DEBUG
    labels: ClassVar[tuple[str, ...]] = ("task", "queue")
    task: str
    queue: str
    count: int

    @property
    def name(self) -> str:
        """The task."""
        return self.task

    def __str__(self) -> str:
        return f"{self.count} job{'s' if self.count != 1 else ''} of {self.task} on queue {self.queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """An event of a job."""

    channel: ClassVar[str] = "redrive.jobs"
    labels: ClassVar[tuple[str, ...]] = ("task", "queue")
    task: str
    queue: str
    job_id: int

    @property
    def name(self) -> str:
        """The task."""
        return self.task

    @property
    def _who(self) -> str:
        return f"job {self.job_id} ({self.task})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnqueued(JobEvent):
    """A new job has been stored. A job that was found by its key instead emits no event."""

    level: ClassVar[int] = _DEBUG
    outcome: ClassVar[str] = "enqueued"
    #: The time until the job is due.
    delay: timedelta
    #: True if the job was stored in a transaction of the caller (``using=``). Then it exists only if and when that
    #: transaction commits, which emits no event.
    in_transaction: bool

    def __str__(self) -> str:
        when = f", due in {format_duration(self.delay)}" if self.delay else ""
        return f"{self._who} is enqueued on {self.queue}{when}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(JobEvent):
    """A job was cancelled, by an operator, a program or its own handler."""

    outcome: ClassVar[str] = "cancelled"
    #: The number of the present or last attempt; 0 if there was none.
    attempt: int
    why: str

    def __str__(self) -> str:
        return f"{self._who} is cancelled: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCaught(JobEvent):
    """The job of a catch task has been created for a dead job (``job_id``)."""

    outcome: ClassVar[str] = "caught"
    #: The job of the catch task.
    catch_id: int

    def __str__(self) -> str:
        return f"job {self.job_id} is caught by job {self.catch_id} ({self.task})"
