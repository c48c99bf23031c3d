"""The base class of all events, and the events of calls in this process."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import ClassVar

from redrive.policy import Failure, format_duration
from redrive.policy.value import Value


class Event(Value):
    """An event; ``str(event)`` describes it in one line."""

    #: The name of the logger for such events.
    channel: ClassVar[str] = "redrive"
    #: The level of its log record, as a number of `logging`.
    level: ClassVar[int] = logging.INFO
    #: The fields that have few values and so are fit for the labels of a metric. Ids, texts and numbers are not; if
    #: a program generates names, neither are these (`redrive.observe.Bounded`).
    labels: ClassVar[tuple[str, ...]] = ("name",)
    #: How the call, job or request ended, as one word; empty if nothing has ended.
    outcome: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The subject: the qualified name of a function, an operation or a task."""
        raise NotImplementedError


class CallEvent(Event, kw_only=True):
    """An event of a call in this process."""

    channel = "redrive.calls"
    #: The qualified name of the called function.
    name: str


class CallRetryScheduled(CallEvent, kw_only=True):
    """An attempt has failed, and another one follows."""

    level = logging.WARNING
    labels = ("name", "rule")
    #: The number of the attempt that failed, from 1.
    attempt: int
    #: The number of attempts if the others fail alike; None without a limit.
    max_attempts: int | None = None
    failure: Failure
    #: The time until the next attempt.
    delay: timedelta
    #: The part of the policy that chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``.
    rule: str
    #: The time that the call has waited before, in all.
    waited: timedelta
    #: The time since the start of the call, waits included.
    elapsed: timedelta

    def __str__(self) -> str:
        return (
            f"{self.name} is retried in {format_duration(self.delay)} ({self.rule}): "
            f"attempt {counted(self.attempt, self.max_attempts)} failed: {_what(self.failure)}"
        )


class _CallEnded(CallEvent, kw_only=True):
    """A call has ended."""

    #: The number of attempts.
    attempts: int
    #: The duration of the call, waits included.
    elapsed: timedelta
    #: The time that it waited between attempts.
    waited: timedelta

    @property
    def _count(self) -> str:
        count = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        return f"{count} in {self.elapsed.total_seconds():.2f} s"


class CallSucceeded(_CallEnded):
    """A call has succeeded after at least one retry."""

    outcome = "succeeded"

    def __str__(self) -> str:
        return f"{self.name} succeeded after {self._count}"


class CallGaveUp(_CallEnded, kw_only=True):
    """A call has failed, and no attempt follows. Its ``attempts`` is 0 if its breaker refused it."""

    labels = ("name", "rule")
    outcome = "gave up"
    level = logging.WARNING
    #: The reason, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``not_matched``, ``budget``,
    #: ``breaker``, ... (see `redrive.policy.GiveUp`).
    rule: str
    #: The reason as a sentence.
    why: str
    #: The last failure; None if the function was not called.
    failure: Failure | None = None
    #: The exception that is raised; None if a result was rejected.
    error: BaseException | None = None

    def __str__(self) -> str:
        last = "" if self.failure is None else f"; last failure: {_what(self.failure)}"
        return f"{self.name} gave up after {self._count}: {self.why}{last}"


class CallDeferred(_CallEnded, kw_only=True):
    """A call has failed, and may be repeated at an instant that it does not wait for (``over_deadline="defer"``)."""

    labels = ("name", "rule")
    outcome = "deferred"
    #: The time at which the call may be repeated, aware.
    at: datetime
    #: The part of the policy that chose the instant.
    rule: str
    failure: Failure | None = None
    #: The exception that is raised; None if a result was rejected.
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.name} is deferred to {self.at:%Y-%m-%d %H:%M:%S} UTC ({self.rule}) after {self._count}"


def counted(attempt: int, most: int | None) -> str:
    """Return the number of an attempt with the limit: ``1 of 3``."""
    return str(attempt) if most is None else f"{attempt} of {most}"


def _what(failure: Failure) -> str:
    kind = failure.error_type.removeprefix("builtins.") or failure.reason
    return f"{kind}: {failure.message}" if failure.message else kind
