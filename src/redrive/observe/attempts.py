"""The events of the attempts of durable jobs. When each is told is said in `redrive.observe.jobs`."""

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

_DEBUG, _WARNING = 10, 30  # of `logging`, which is imported by those who log


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptEvent(JobEvent):
    """Something that became of an attempt.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it ran under, which names it.
    """

    attempt: int
    lease_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(_AttemptEvent):
    """A handler is about to be called; what a sink returns is around the call.

    The manager meets what the handler raises, a cancellation included, and cannot swallow it.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it runs under, which names it.
        worker_id: who runs it.
        waited: how long it has waited since it was due.
        delay: which delay was decided before this attempt, if it is a retry.
        trace: what a sink that carries has left with the job; see `redrive.observe`.
    """

    level: ClassVar[int] = _DEBUG
    worker_id: int
    waited: timedelta
    delay: timedelta | None = None
    trace: str | None = None

    def __str__(self) -> str:
        return f"{self._who} starts: attempt {self.attempt} on worker {self.worker_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptEnded(_AttemptEvent):
    """An attempt has ended.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it ran under, which names it.
        took: from its claim to its end by the store's clock; None where no handler was called.
    """

    took: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(_AttemptEnded):
    """A job has succeeded.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it ran under, which names it.
        took: from its claim to its end.
    """

    outcome: ClassVar[str] = "succeeded"

    def __str__(self) -> str:
        return f"{self._who} succeeded at attempt {self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttemptFailed(_AttemptEnded):
    """An attempt has failed.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it ran under, which names it.
        took: from its claim to its end; None where no handler was called.
        rule: what decided, as a stable word.
        reason: why it failed, one upper-case word.
        error_type: qualified name of the exception, if there was one.
        error: its text.
    """

    labels: ClassVar[tuple[str, ...]] = ("task", "queue", "reason", "rule")
    rule: str
    reason: str
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
        attempt: its number, from 1.
        lease_id: the lease that it ran under, which names it.
        took: from its claim to its end.
        delay: how long the job waits now.
        rule: what chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``.
        reason: why it failed, one upper-case word.
        error_type: qualified name of the exception, if there was one.
        error: its text.
    """

    outcome: ClassVar[str] = "retried"
    delay: timedelta

    def __str__(self) -> str:
        return (
            f"{self._who} is retried in {format_duration(self.delay)} ({self.rule}): "
            f"attempt {self.attempt} failed: {self._what}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDied(_AttemptFailed):
    """A job gave up.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it ran under, which names it.
        took: from its claim to its end; None where no handler was called, because the deadline had passed before.
        rule: why, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``poison limit``, ``not_idempotent``.
        why: the same as a sentence.
        reason: why it failed, one upper-case word: ``BAD_PAYLOAD``, ``DEADLINE``, ``POISON``, ``LOST_IN_FLIGHT``, ...
        error_type: qualified name of the exception, if there was one.
        error: its text.
        catch: the catch task that was enqueued with its death, if its policy names one.
    """

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "died"
    why: str
    catch: str | None

    def __str__(self) -> str:
        follows = f"; {self.catch} catches it" if self.catch else ""
        return f"{self._who} died at attempt {self.attempt}: {self.why}; last failure: {self._what}{follows}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnoozed(_AttemptEnded):
    """A handler has asked to be called later; nothing is spent.

    Attributes:
        attempt: its number, from 1, which is given back.
        lease_id: the lease that it ran under, which names it.
        took: from its claim to its end.
        delay: how long the job waits now.
        why: what the handler said.
    """

    outcome: ClassVar[str] = "snoozed"
    delay: timedelta
    why: str

    def __str__(self) -> str:
        return f"{self._who} is snoozed for {format_duration(self.delay)}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSuspended(_AttemptEvent):
    """A handler has returned `redrive.Pending`: its attempt is open, and an answer from outside will end it.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease of the attempt, which the answer names.
        until: when the wait is over, and the attempt has failed.
    """

    outcome: ClassVar[str] = "suspended"
    until: datetime

    def __str__(self) -> str:
        return f"{self._who} waits for an answer from outside, until {self.until:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(_AttemptEvent):
    """A worker has given a job back unfinished; nothing is spent.

    Attributes:
        attempt: its number, from 1, which is given back.
        lease_id: the lease that it ran under, which names it.
        due_at: when it is due again.
        hold: why, as a stable word: ``release``, ``unknown_task``, ``bad_payload``, ``breaker``.
        why: the same as a sentence.
    """

    outcome: ClassVar[str] = "released"
    labels: ClassVar[tuple[str, ...]] = ("task", "queue", "hold")
    due_at: datetime
    hold: str
    why: str

    def __str__(self) -> str:
        return f"{self._who} is given back: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescued(_AttemptFailed):
    """A worker vanished with a job, or held it longer than its timeout; the job runs again.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that was taken away.
        took: from its claim until it was taken away.
        rule: ``crash``.
        reason: ``WORKER_LOST``.
        error_type: None.
        error: which worker, and what of it is known.
        worker_id: the worker.
    """

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "rescued"
    worker_id: int

    def __str__(self) -> str:
        return f"{self._who} runs again: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeaseLost(_AttemptEvent):
    """An attempt had lost its job before it ended: the job was cancelled, or is another worker's. It changed nothing.

    Attributes:
        attempt: its number, from 1.
        lease_id: the lease that it had.
    """

    level: ClassVar[int] = _WARNING
    outcome: ClassVar[str] = "lost"

    def __str__(self) -> str:
        return f"{self._who} was taken away from attempt {self.attempt}, which changes nothing"
