"""The base class of all events, and the events of calls in this process."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from redrive.policy import Failure, format_duration
from redrive.policy.value import Value, freeze

__all__ = ["CallDeferred", "CallEvent", "CallGaveUp", "CallRetryScheduled", "CallSucceeded", "Event"]

# Of `logging`, which is imported by those who log.
_INFO, _WARNING = 20, 30


class Event:
    """An event; ``str(event)`` describes it in one line."""

    __slots__ = ()
    #: The name of the logger for such events.
    channel: ClassVar[str] = "redrive"
    #: The level of its log record, as a number of `logging`.
    level: ClassVar[int] = _INFO
    #: The fields that have few values and so are fit for the labels of a metric. Ids, texts and numbers are not; if
    #: a program generates names, neither are these (`redrive.observe.Bounded`).
    labels: ClassVar[tuple[str, ...]] = ("name",)
    #: How the call, job or request ended, as one word; empty if nothing has ended.
    outcome: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The subject: the qualified name of a function, an operation or a task."""
        raise NotImplementedError


class CallEvent(Event, Value):
    """An event of a call in this process."""

    __slots__ = ("name",)
    channel = "redrive.calls"
    #: The qualified name of the called function.
    name: str


class CallRetryScheduled(CallEvent):
    """An attempt has failed, and another one follows."""

    __slots__ = ("attempt", "delay", "elapsed", "failure", "rule", "waited")
    _fields = ("name", "attempt", "failure", "delay", "rule", "waited", "elapsed")
    labels = ("name", "rule")
    #: The number of the attempt that failed, from 1.
    attempt: int
    failure: Failure
    #: The time until the next attempt.
    delay: timedelta
    #: The part of the policy that chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``.
    rule: str
    #: The time that the call has waited before, in all.
    waited: timedelta
    #: The time since the start of the call, waits included.
    elapsed: timedelta

    def __init__(  # noqa: PLR0913 - one parameter a field
        self,
        *,
        name: str,
        attempt: int,
        failure: Failure,
        delay: timedelta,
        rule: str,
        waited: timedelta,
        elapsed: timedelta,
    ) -> None:
        freeze(self, "name", name)
        freeze(self, "attempt", attempt)
        freeze(self, "failure", failure)
        freeze(self, "delay", delay)
        freeze(self, "rule", rule)
        freeze(self, "waited", waited)
        freeze(self, "elapsed", elapsed)

    def __str__(self) -> str:
        return (
            f"{self.name} is retried in {format_duration(self.delay)} ({self.rule}): "
            f"attempt {self.attempt} failed: {_what(self.failure)}"
        )


class _CallEnded(CallEvent):
    """A call has ended."""

    __slots__ = ("attempts", "elapsed", "waited")
    _fields: ClassVar[tuple[str, ...]] = ("name", "attempts", "elapsed", "waited")
    #: The number of attempts.
    attempts: int
    #: The duration of the call, waits included.
    elapsed: timedelta
    #: The time that it waited between attempts.
    waited: timedelta

    def __init__(self, *, name: str, attempts: int, elapsed: timedelta, waited: timedelta) -> None:
        freeze(self, "name", name)
        freeze(self, "attempts", attempts)
        freeze(self, "elapsed", elapsed)
        freeze(self, "waited", waited)

    @property
    def _count(self) -> str:
        count = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        return f"{count} in {self.elapsed.total_seconds():.2f} s"


class CallSucceeded(_CallEnded):
    """A call has succeeded after at least one retry."""

    __slots__ = ()
    outcome = "succeeded"

    def __str__(self) -> str:
        return f"{self.name} succeeded after {self._count}"


class CallGaveUp(_CallEnded):
    """A call has failed, and no attempt follows. Its ``attempts`` is 0 if its breaker refused it."""

    __slots__ = ("error", "failure", "rule", "why")
    _fields = ("name", "attempts", "elapsed", "waited", "rule", "why", "failure", "error")
    labels = ("name", "rule")
    outcome = "gave up"
    level = _WARNING
    #: The reason, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``not_matched``, ``budget``,
    #: ``breaker``, ... (see `redrive.policy.GiveUp`).
    rule: str
    #: The reason as a sentence.
    why: str
    #: The last failure; None if the function was not called.
    failure: Failure | None
    #: The exception that is raised; None if a result was rejected.
    error: BaseException | None

    def __init__(  # noqa: PLR0913 - one parameter a field
        self,
        *,
        name: str,
        attempts: int,
        elapsed: timedelta,
        waited: timedelta,
        rule: str,
        why: str,
        failure: Failure | None = None,
        error: BaseException | None = None,
    ) -> None:
        super().__init__(name=name, attempts=attempts, elapsed=elapsed, waited=waited)
        freeze(self, "rule", rule)
        freeze(self, "why", why)
        freeze(self, "failure", failure)
        freeze(self, "error", error)

    def __str__(self) -> str:
        last = "" if self.failure is None else f"; last failure: {_what(self.failure)}"
        return f"{self.name} gave up after {self._count}: {self.why}{last}"


class CallDeferred(_CallEnded):
    """A call has failed, and may be repeated at an instant that it does not wait for (``over_deadline="defer"``)."""

    __slots__ = ("at", "error", "failure", "rule")
    _fields = ("name", "attempts", "elapsed", "waited", "at", "rule", "failure", "error")
    labels = ("name", "rule")
    outcome = "deferred"
    #: The time at which the call may be repeated, aware.
    at: datetime
    #: The part of the policy that chose the instant.
    rule: str
    failure: Failure | None
    #: The exception that is raised; None if a result was rejected.
    error: BaseException | None

    def __init__(  # noqa: PLR0913 - one parameter a field
        self,
        *,
        name: str,
        attempts: int,
        elapsed: timedelta,
        waited: timedelta,
        at: datetime,
        rule: str,
        failure: Failure | None = None,
        error: BaseException | None = None,
    ) -> None:
        super().__init__(name=name, attempts=attempts, elapsed=elapsed, waited=waited)
        freeze(self, "at", at)
        freeze(self, "rule", rule)
        freeze(self, "failure", failure)
        freeze(self, "error", error)

    def __str__(self) -> str:
        return f"{self.name} is deferred to {self.at:%Y-%m-%d %H:%M:%S} UTC ({self.rule}) after {self._count}"


def _what(failure: Failure) -> str:
    kind = failure.error_type.removeprefix("builtins.") or failure.reason
    return f"{kind}: {failure.message}" if failure.message else kind
