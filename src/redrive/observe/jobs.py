"""The events of durable jobs and of their attempts.

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

from datetime import datetime, timedelta
from typing import ClassVar

from redrive.observe.events import Event
from redrive.policy import format_duration

# Levels of `logging`, which only `log` imports.
_DEBUG, _WARNING = 10, 30


class JobsEnqueuing(Event, kw_only=True):
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


class JobEvent(Event, kw_only=True):
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


class JobEnqueued(JobEvent, kw_only=True):
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


class JobCancelled(JobEvent, kw_only=True):
    """A job was cancelled, by an operator, a program or its own handler."""

    outcome: ClassVar[str] = "cancelled"
    #: The number of the present or last attempt; 0 if there was none.
    attempt: int
    why: str

    def __str__(self) -> str:
        return f"{self._who} is cancelled: {self.why}"


class JobCaught(JobEvent, kw_only=True):
    """The job of a catch task has been created for a dead job (``job_id``)."""

    outcome: ClassVar[str] = "caught"
    #: The job of the catch task.
    catch_id: int

    def __str__(self) -> str:
        return f"job {self.job_id} is caught by job {self.catch_id} ({self.task})"


# --- the events of attempts


class _AttemptEvent(JobEvent, kw_only=True):
    """An event of an attempt."""

    #: The number of the attempt, from 1.
    attempt: int
    #: The lease of the attempt, which identifies it.
    lease_id: int


class JobStarted(_AttemptEvent, kw_only=True):
    """A handler is about to be called; the context manager that a sink returns is around the call.

    The manager receives the exception of the handler, a cancellation included, and cannot suppress it.
    """

    level: ClassVar[int] = _DEBUG
    #: The worker that runs the attempt.
    worker_id: int
    #: The time since the job was due.
    waited: timedelta
    #: The delay that was decided before this attempt, if it is a retry.
    delay: timedelta | None = None
    #: The text that a sink with ``carries`` has left with the job; see `redrive.observe`.
    trace: str | None = None

    def __str__(self) -> str:
        return f"{self._who} starts: attempt {self.attempt} on worker {self.worker_id}"


class _AttemptEnded(_AttemptEvent, kw_only=True):
    """An attempt has ended."""

    #: The time from the claim to the end by the clock of the database; None if no handler was called.
    took: timedelta | None


class JobSucceeded(_AttemptEnded, kw_only=True):
    """A job has succeeded."""

    outcome: ClassVar[str] = "succeeded"

    def __str__(self) -> str:
        return f"{self._who} succeeded at attempt {self.attempt}"


class _AttemptFailed(_AttemptEnded, kw_only=True):
    """An attempt has failed."""

    labels: ClassVar[tuple[str, ...]] = ("task", "queue", "reason", "rule")
    #: The part of the policy that decided, as a stable word.
    rule: str
    #: The reason of the failure, one upper-case word.
    reason: str
    #: The qualified name of the exception, if there was one.
    error_type: str | None
    error: str | None

    @property
    def _what(self) -> str:
        kind = (self.error_type or self.reason).removeprefix("builtins.")
        return f"{kind}: {self.error}" if self.error else kind


class JobRetryScheduled(_AttemptFailed, kw_only=True):
    """An attempt has failed, and another one follows.

    Attributes:
        rule: the part of the policy that chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``.
    """

    outcome: ClassVar[str] = "retried"
    #: The delay until the next attempt.
    delay: timedelta

    def __str__(self) -> str:
        return (
            f"{self._who} is retried in {format_duration(self.delay)} ({self.rule}): "
            f"attempt {self.attempt} failed: {self._what}"
        )


class JobDied(_AttemptFailed, kw_only=True):
    """A job gave up. Its ``took`` is None if its deadline had passed before a handler was called.

    Attributes:
        rule: why, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``poison limit``, ``not_idempotent``.
        reason: the reason of the failure: ``BAD_PAYLOAD``, ``DEADLINE``, ``POISON``, ``LOST_IN_FLIGHT``, ...
    """

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "died"
    #: The reason as a sentence.
    why: str
    #: The catch task that was enqueued with its death, if its policy names one.
    catch: str | None

    def __str__(self) -> str:
        follows = f"; {self.catch} catches it" if self.catch else ""
        return f"{self._who} died at attempt {self.attempt}: {self.why}; last failure: {self._what}{follows}"


class JobSnoozed(_AttemptEnded, kw_only=True):
    """A handler has raised `redrive.Snooze`; the attempt is given back and nothing is spent."""

    outcome: ClassVar[str] = "snoozed"
    #: The delay until the next attempt.
    delay: timedelta
    #: The text of the handler.
    why: str

    def __str__(self) -> str:
        return f"{self._who} is snoozed for {format_duration(self.delay)}: {self.why}"


class JobSuspended(_AttemptEvent, kw_only=True):
    """A handler has returned `redrive.Pending`: its attempt stays open until it is completed from outside."""

    outcome: ClassVar[str] = "suspended"
    #: The end of the wait, at which the attempt fails.
    until: datetime

    def __str__(self) -> str:
        return f"{self._who} waits for an answer from outside, until {self.until:%Y-%m-%d %H:%M:%S} UTC"


class JobReleased(_AttemptEvent, kw_only=True):
    """A worker has given a job back unfinished; the attempt is given back and nothing is spent."""

    outcome: ClassVar[str] = "released"
    labels: ClassVar[tuple[str, ...]] = ("task", "queue", "hold")
    #: The time at which the job is due again.
    due_at: datetime
    #: The reason, as a stable word: ``release``, ``unknown_task``, ``bad_payload``, ``breaker``.
    hold: str
    #: The reason as a sentence.
    why: str

    def __str__(self) -> str:
        return f"{self._who} is given back: {self.why}"


class JobRescued(_AttemptFailed, kw_only=True):
    """A worker vanished with a job, or held it longer than its timeout; the job runs again.

    The rule is ``crash``, the reason ``WORKER_LOST``, and the error names the worker and its state.
    """

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "rescued"
    #: The worker that had the lease.
    worker_id: int

    def __str__(self) -> str:
        return f"{self._who} runs again: {self.error}"


class JobLeaseLost(_AttemptEvent, kw_only=True):
    """An attempt ended without a lease, because its job was cancelled or another worker has it. It changed nothing."""

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "lost"

    def __str__(self) -> str:
        return f"{self._who} was taken away from attempt {self.attempt}, which changes nothing"


# Levels of `logging`, which only `log` imports.
_WARNING = 30


class _WorkerEvent(Event, kw_only=True):
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


class WorkerStarted(_WorkerEvent, kw_only=True):
    """A worker is registered and takes jobs from now on."""

    #: Attempts that it runs at once.
    concurrency: int

    def __str__(self) -> str:
        return f"{self.name} starts, {self.concurrency} at once, on {', '.join(self.queues or ('all queues',))}"


class WorkerStopped(_WorkerEvent, kw_only=True):
    """A worker has signed off."""

    #: Handlers that did not stop; their jobs were given back.
    abandoned: int

    def __str__(self) -> str:
        left = f"; {self.abandoned} handlers do not stop" if self.abandoned else ""
        return f"{self.name} has stopped{left}"


class WorkerDutyFailed(_WorkerEvent, kw_only=True):
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
