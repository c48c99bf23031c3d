"""The events of the attempts of durable jobs. `redrive.observe.jobs` lists when each is emitted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from redrive.observe.jobs import JobEvent
from redrive.policy import format_duration

__all__ = [
    "JobDied",
    "JobLeaseLost",
    "JobReleased",
    "JobRescued",
    "JobRetryScheduled",
    "JobSnoozed",
    "JobStarted",
    "JobSucceeded",
    "JobSuspended",
]

# Of `logging`, which is imported by those who log.
_DEBUG, _WARNING = 10, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptEvent(JobEvent):
    """An event of an attempt."""

    #: The number of the attempt, from 1.
    attempt: int
    #: The lease of the attempt, which identifies it.
    lease_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(_AttemptEvent):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptEnded(_AttemptEvent):
    """An attempt has ended."""

    #: The time from the claim to the end by the clock of the database; None if no handler was called.
    took: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(_AttemptEnded):
    """A job has succeeded."""

    outcome: ClassVar[str] = "succeeded"

    def __str__(self) -> str:
        return f"{self._who} succeeded at attempt {self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptFailed(_AttemptEnded):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetryScheduled(_AttemptFailed):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDied(_AttemptFailed):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnoozed(_AttemptEnded):
    """A handler has raised `redrive.Snooze`; the attempt is given back and nothing is spent."""

    outcome: ClassVar[str] = "snoozed"
    #: The delay until the next attempt.
    delay: timedelta
    #: The text of the handler.
    why: str

    def __str__(self) -> str:
        return f"{self._who} is snoozed for {format_duration(self.delay)}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSuspended(_AttemptEvent):
    """A handler has returned `redrive.Pending`: its attempt stays open until it is completed from outside."""

    outcome: ClassVar[str] = "suspended"
    #: The end of the wait, at which the attempt fails.
    until: datetime

    def __str__(self) -> str:
        return f"{self._who} waits for an answer from outside, until {self.until:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(_AttemptEvent):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescued(_AttemptFailed):
    """A worker vanished with a job, or held it longer than its timeout; the job runs again.

    The rule is ``crash``, the reason ``WORKER_LOST``, and the error names the worker and its state.
    """

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "rescued"
    #: The worker that had the lease.
    worker_id: int

    def __str__(self) -> str:
        return f"{self._who} runs again: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeaseLost(_AttemptEvent):
    """An attempt ended without a lease, because its job was cancelled or another worker has it. It changed nothing."""

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "lost"

    def __str__(self) -> str:
        return f"{self._who} was taken away from attempt {self.attempt}, which changes nothing"
