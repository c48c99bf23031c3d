"""The base class of all events, and the events of calls in this process, of crons and of subscriptions.

The worker that has decided about an occurrence of a cron emits its event after the commit. An occurrence that waits for
its predecessor (`CronQueued`) emits no second event when it starts; its job emits events. Occurrences that an operator
starts, by a trigger or a backfill, are in the audit log.
"""

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
    labels: ClassVar[tuple[str, ...]] = ("name", "rule")
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
            f"attempt {counted(self.attempt, self.max_attempts)} failed: {what(self.failure)}"
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

    labels: ClassVar[tuple[str, ...]] = ("name", "rule")
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
        last = "" if self.failure is None else f"; last failure: {what(self.failure)}"
        return f"{self.name} gave up after {self._count}: {self.why}{last}"


class CallDeferred(_CallEnded, kw_only=True):
    """A call has failed, and may be repeated at an instant that it does not wait for (``over_deadline="defer"``)."""

    labels: ClassVar[tuple[str, ...]] = ("name", "rule")
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


class CronEvent(Event, kw_only=True):
    """An event of an occurrence of a cron."""

    channel: ClassVar[str] = "redrive.schedules"
    labels: ClassVar[tuple[str, ...]] = ("schedule",)
    #: The name of the cron.
    schedule: str
    #: The due time of the occurrence.
    occurs_at: datetime
    #: The time between the due time and the decision.
    late: timedelta
    #: The job that was created for it.
    job_id: int | None
    #: An explanation for logs.
    why: str | None

    @property
    def name(self) -> str:
        """The name of the cron."""
        return self.schedule

    def __str__(self) -> str:
        made = "" if self.job_id is None else f" as job {self.job_id}"
        why = f": {self.why}" if self.why else ""
        return (
            f"the occurrence of {self.schedule} at {self.occurs_at:%Y-%m-%d %H:%M:%S} UTC is {self.outcome}{made}{why}"
        )


class CronStarted(CronEvent, kw_only=True):
    """The job of the occurrence was created."""

    outcome: ClassVar[str] = "started"


class CronQueued(CronEvent, kw_only=True):
    """The occurrence waits for the end of its predecessor."""

    outcome: ClassVar[str] = "queued"


class CronSkipped(CronEvent, kw_only=True):
    """The occurrence is skipped, because its predecessor has not ended."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "skipped"


class CronMissed(CronEvent, kw_only=True):
    """The occurrence is skipped, because no worker started it in time."""

    level: ClassVar[int] = logging.WARNING
    outcome: ClassVar[str] = "missed"


class TopicDelivered(Event, kw_only=True):
    """The handler of a subscription has returned or failed, for one event or for a batch."""

    channel: ClassVar[str] = "redrive.topics"
    level: ClassVar[int] = logging.DEBUG
    labels: ClassVar[tuple[str, ...]] = ("topic", "subscription")
    outcome: ClassVar[str] = "delivered"
    topic: str
    subscription: str
    #: The number of events.
    count: int
    #: Of these, the number that has failed.
    failed: int
    #: The duration of the call.
    took: timedelta
    #: The time since the publish of the first event.
    waited: timedelta

    @property
    def name(self) -> str:
        """The name of the task of the subscription."""
        return f"{self.topic}.{self.subscription}"

    def __str__(self) -> str:
        events = "1 event" if self.count == 1 else f"{self.count} events"
        failed = f", {self.failed} of them failed" if self.failed else ""
        return f"{self.name} got {events} in {self.took.total_seconds():.3f} s{failed}"


def counted(attempt: int, most: int | None) -> str:
    """Return the number of an attempt with the limit: ``1 of 3``."""
    return str(attempt) if most is None else f"{attempt} of {most}"


def what(failure: Failure) -> str:
    """Return a failure in one line: its class or its reason, and its message."""
    kind = failure.error_type.removeprefix("builtins.") or failure.reason
    return f"{kind}: {failure.message}" if failure.message else kind
