"""The events of durable jobs and of their attempts.

The process that has run a transaction emits its events after the commit: no event is emitted for a transaction that was
rolled back, and none twice. Only `JobsEnqueuing` and `JobStarted` come before what they are about, because a sink may
return a context manager for it.

One attempt emits `JobStarted` once, and its end at most once. Another process than the one that began it may emit the
end: after a crash the worker that takes its lease emits `JobRescued` or `JobDied`.

======================  =======================================================================  ==========
event                   emitted when                                                             outcome
======================  =======================================================================  ==========
`JobsEnqueuing`         jobs are about to be stored; around that
`JobEnqueued`           a new job has been stored                                                enqueued
`JobStarted`            its handler is about to be called; around the call
`JobSucceeded`          it has succeeded                                                         succeeded
`JobRetryScheduled`     it has failed, and another attempt follows                               retried
`CatchStuck`            instead, if a catch task has failed so often that an operator must look  retried
`JobDied`               it gave up: its policy, its deadline, a bad payload, too many crashes    died
`RefreshAttemptFailed`  instead, if it was an attempt at a refresh that another one follows      died
`JobSnoozed`            its handler has asked to be called later                                 snoozed
`JobSuspended`          its handler waits for a completion from outside                          suspended
`JobParked`             a run of a workflow waits                                                parked
`JobReleased`           its worker gave it back: a stop, an open breaker                         released
`JobHeld`               no code for it: an unknown task, arguments that cannot be read           released
``JobCancelled``        an operator, a program or its own handler has cancelled it               cancelled
`JobRescued`            its worker vanished; it runs again                                       rescued
`JobLeaseLost`          an attempt ended that had no lease any more: it changed nothing          lost
`JobCaught`             the catch task of a dead job has succeeded                               caught
`WorkerStarted`         a worker takes jobs from now on
`WorkerStopped`         it takes no more jobs
`WorkerDutyFailed`      one of its background duties has failed because of a defect
`WorkerServerReplaced`  another database server has taken over; it has registered again
======================  =======================================================================  ==========
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import ClassVar

from redrive.observe.events import Event, counted
from redrive.policy import format_duration

# Tasks that the line of a worker's start names.
_TASKS_SHOWN = 20


class JobsEnqueuing(Event, kw_only=True):
    """Jobs of one task are about to be stored, all in one transaction.

    Of a batch, ``task`` and ``queue`` are those of the job that follows.
    """

    channel: ClassVar[str] = "redrive.jobs"
    level: ClassVar[int] = logging.DEBUG
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
    #: What the job belongs to, such as ``machine:payment/invoice-42``; None for a job that was enqueued by itself.
    origin: str | None = None

    @property
    def name(self) -> str:
        """The task."""
        return self.task

    @property
    def kind(self) -> str:
        """The kind of the origin: ``cron``, ``refresh``, ``machine``, ``topic``, ``run``, ``batch``; else ``task``."""
        return "task" if self.origin is None else self.origin.partition(":")[0]

    @property
    def _job(self) -> str:
        belongs = "" if self.origin is None else f", {self.origin}"
        return f"job {self.job_id} ({self.task}{belongs})"


class JobEnqueued(JobEvent, kw_only=True):
    """A new job has been stored. A job that was found by its key instead emits no event."""

    level: ClassVar[int] = logging.DEBUG
    outcome: ClassVar[str] = "enqueued"
    #: The time until the job is due.
    delay: timedelta
    #: True if the job was stored in a transaction of the caller (``using=``). Then it exists only if and when that
    #: transaction commits, which emits no event.
    in_transaction: bool

    def __str__(self) -> str:
        when = f", due in {format_duration(self.delay)}" if self.delay else ""
        return f"{self._job} is enqueued on {self.queue}{when}"


class JobCancelled(JobEvent, kw_only=True):
    """A job was cancelled, by an operator, a program or its own handler."""

    outcome: ClassVar[str] = "cancelled"
    #: The number of the present or last attempt; 0 if there was none.
    attempt: int
    why: str

    def __str__(self) -> str:
        return f"{self._job} is cancelled: {self.why}"


class JobCaught(JobEvent, kw_only=True):
    """The catch task of a dead job (``job_id``) has succeeded."""

    outcome: ClassVar[str] = "caught"
    #: The job of the catch task; ``task`` and ``queue`` are its own.
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

    level: ClassVar[int] = logging.DEBUG
    #: The worker that runs the attempt.
    worker_id: int
    #: The time since the job was due.
    waited: timedelta
    #: The delay that was decided before this attempt, if it is a retry.
    delay: timedelta | None = None
    #: The text that a sink with ``carries`` has left with the job; see `redrive.observe`.
    trace: str | None = None

    def __str__(self) -> str:
        return f"{self._job} starts: attempt {self.attempt} on worker {self.worker_id}"


class _AttemptEnded(_AttemptEvent, kw_only=True):
    """An attempt has ended."""

    #: The time from the claim to the end by the clock of the database; None if no handler was called.
    took: timedelta | None


class JobSucceeded(_AttemptEnded, kw_only=True):
    """A job has succeeded."""

    level: ClassVar[int] = logging.DEBUG
    outcome: ClassVar[str] = "succeeded"

    def __str__(self) -> str:
        took = "" if self.took is None else f" in {self.took.total_seconds():.3f} s"
        return f"{self._job} succeeded at attempt {self.attempt}{took}"


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
    #: The number of attempts if the others fail alike; None without a limit, or if the policy did not decide.
    max_attempts: int | None = None

    @property
    def _count(self) -> str:
        return counted(self.attempt, self.max_attempts)

    @property
    def _what(self) -> str:
        kind = (self.error_type or self.reason).removeprefix("builtins.")
        return f"{kind}: {self.error}" if self.error else kind


class JobRetryScheduled(_AttemptFailed, kw_only=True):
    """An attempt has failed, and another one follows.

    Attributes:
        rule: the part of the policy that chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``;
            ``catch`` for the job of a catch task.
    """

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "retried"
    #: The delay until the next attempt.
    delay: timedelta
    #: The time at which the next attempt is due.
    due_at: datetime | None = None

    def __str__(self) -> str:
        at = "" if self.due_at is None else f", at {self.due_at:%Y-%m-%d %H:%M:%S} UTC"
        return (
            f"{self._job} is retried in {format_duration(self.delay)}{at} ({self.rule}): "
            f"attempt {self._count} failed: {self._what}"
        )


class CatchStuck(JobRetryScheduled, kw_only=True):
    """The job of a catch task has failed several times; it runs again until it succeeds.

    It is emitted once for a job; its other failures emit `JobRetryScheduled`.
    """

    level: ClassVar[int] = logging.ERROR
    #: The number of failures.
    failures: int

    def __str__(self) -> str:
        return f"{super().__str__()}; the catch is stuck: {self.failures} failures"


class JobDied(_AttemptFailed, kw_only=True):
    """A job gave up. Its ``took`` is None if its deadline had passed before a handler was called.

    Attributes:
        rule: why, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``poison limit``, ``not_idempotent``.
        reason: the reason of the failure: ``BAD_PAYLOAD``, ``DEADLINE``, ``POISON``, ``LOST_IN_FLIGHT``, ...
    """

    level: ClassVar[int] = logging.ERROR
    outcome: ClassVar[str] = "died"
    #: The reason as a sentence.
    why: str
    #: The catch task that was enqueued with its death, if its policy names one.
    catch: str | None
    #: The traceback of the last failure, if it was an exception.
    traceback: str | None = None

    def __str__(self) -> str:
        follows = f"; {self.catch} catches it" if self.catch else ""
        return (
            f"{self._job} died at attempt {self._count} ({self.rule}): {self.why}; last failure: {self._what}{follows}"
        )


class RefreshAttemptFailed(JobDied, kw_only=True):
    """An attempt at a refresh has failed, and the policy of the refresh has another one follow, as another job.

    If the refresh gives up instead, `JobDied` is emitted.
    """

    level: ClassVar[int] = logging.WARNING
    #: The number of the attempt, as the refresh counts; ``attempt`` is that of its job.
    number: int
    #: The time at which the next attempt is due.
    next_at: datetime
    #: What the next attempt is: ``retry`` or ``the next planned refresh``.
    next_is: str

    def __str__(self) -> str:
        return (
            f"{self._job}: attempt {self.number} failed: {self._what}; "
            f"next at {self.next_at:%Y-%m-%d %H:%M:%S} UTC ({self.next_is})"
        )


class JobSnoozed(_AttemptEnded, kw_only=True):
    """A handler has raised `redrive.Snooze`; the attempt is given back and nothing is spent."""

    outcome: ClassVar[str] = "snoozed"
    #: The delay until the next attempt.
    delay: timedelta
    #: The text of the handler.
    why: str

    def __str__(self) -> str:
        return f"{self._job} is snoozed for {format_duration(self.delay)}: {self.why}"


class JobSuspended(_AttemptEvent, kw_only=True):
    """A handler has returned `redrive.Pending`: its attempt stays open until it is completed from outside."""

    outcome: ClassVar[str] = "suspended"
    #: The end of the wait, at which the attempt fails.
    until: datetime

    def __str__(self) -> str:
        return f"{self._job} waits for an answer from outside, until {self.until:%Y-%m-%d %H:%M:%S} UTC"


class JobParked(_AttemptEvent, kw_only=True):
    """A run of a workflow waits: for an instant, a signal, another run or the next try of a step; nothing is spent."""

    level: ClassVar[int] = logging.DEBUG
    outcome: ClassVar[str] = "parked"
    #: The earliest end of its waits; a far instant if none ends by itself.
    until: datetime
    #: The waits, as a text.
    why: str

    def __str__(self) -> str:
        return f"{self._job} is parked: {self.why}"


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
        return f"{self._job} is given back: {self.why}"


class JobHeld(JobReleased):
    """A worker has no code for a job: no such task, or arguments or a policy that it cannot read.

    The job waits for a worker that can run it. Its ``hold`` is ``unknown_task``, ``bad_payload``, ``bad_policy`` or
    ``held``. It is emitted at the first look; later looks emit `JobReleased`.
    """

    level: ClassVar[int] = logging.WARNING


class JobRescued(_AttemptFailed, kw_only=True):
    """A worker vanished with a job, or held it longer than its timeout; the job runs again.

    The rule is ``crash``, the reason ``WORKER_LOST``, and the error names the worker and its state.
    """

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "rescued"
    #: The worker that had the lease.
    worker_id: int
    #: The decision as a sentence.
    why: str = "it runs again"

    def __str__(self) -> str:
        return f"{self._job}: {self.error}; {self.why}"


class JobLeaseLost(_AttemptEvent, kw_only=True):
    """An attempt ended without a lease, because its job was cancelled or another worker has it. It changed nothing."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "lost"
    #: The reason as a sentence.
    why: str = "its lease was lost"

    def __str__(self) -> str:
        return f"{self._job}: {self.why}; what attempt {self.attempt} did changes nothing"


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
    #: The queues that it does not serve; None means none.
    excluded: tuple[str, ...] | None = None
    #: The name of the worker, by default its host and process.
    worker: str = ""
    #: The URL of the database, without secrets; that of a file with an absolute path.
    database: str = ""
    #: The names of the tasks that it runs.
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.name} ({self.worker})" if self.worker else self.name
        where = f" of {self.database}" if self.database else ""
        more = len(self.tasks) - _TASKS_SHOWN
        tasks = ", ".join([*self.tasks[:_TASKS_SHOWN], *([f"{more} more"] if more > 0 else [])])
        but = f" but {', '.join(self.excluded)}" if self.excluded else ""
        return (
            f"{name} serves {', '.join(self.queues or ('all queues',))}{but}{where}, {self.concurrency} at once"
            f"{f'; tasks: {tasks}' if tasks else ''}"
        )


class WorkerStopped(_WorkerEvent, kw_only=True):
    """A worker has signed off."""

    #: Handlers that did not stop; their jobs were given back.
    abandoned: int

    def __str__(self) -> str:
        left = f"; {self.abandoned} handlers do not stop" if self.abandoned else ""
        return f"{self.name} has stopped{left}"


class WorkerServerReplaced(_WorkerEvent, kw_only=True):
    """Another database server has taken over: the worker has dropped its attempts and registered again.

    A standby that replicates asynchronously lacks the last commits of the server before it. What this worker can see of
    that is counted. No task is the cause: the jobs of dropped attempts run again, with no attempt spent.
    """

    level: ClassVar[int] = logging.WARNING
    #: Its id until then.
    before: int
    #: The attempts that were stopped. Their jobs were given back.
    dropped: int
    #: The attempts that go on, because their jobs must not run twice.
    kept: int
    #: The attempts of which the new server lacks the claim: their jobs run again, or are lost.
    starts_lost: int
    #: The attempts that have ended, and of which the new server lacks the end: their jobs run again.
    ends_lost: int

    def __str__(self) -> str:
        lost = self.starts_lost + self.ends_lost
        what = f"{self.starts_lost} starts and {self.ends_lost} ends of attempts" if lost else "no start or end"
        kept = f", {self.kept} go on" if self.kept else ""
        return (
            f"{self.name}: another database server has taken over; until then it was worker {self.before}; "
            f"{self.dropped} attempts are given back{kept}; lost with the last moment of the server before: {what}"
        )


class WorkerDutyFailed(_WorkerEvent, kw_only=True):
    """A background duty of a worker has failed because of a defect; it is restarted after a rest."""

    level: ClassVar[int] = logging.WARNING
    labels: ClassVar[tuple[str, ...]] = ("duty",)
    #: The name of the duty in the log.
    duty: str
    #: The class and the text of the exception.
    error: str
    #: The number of failures in a row.
    failures: int

    def __str__(self) -> str:
        return f"{self.name}: {self.duty} failed, {self.failures} times in a row: {self.error}"
