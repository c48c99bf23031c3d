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
    """An event; ``str(event)`` describes it in one line.

    Attributes:
        channel: the name of the logger for such events.
        level: the level of its log record, as a number of `logging`.
        labels: the fields that have few values and so are fit for the labels of a metric. Ids, texts and numbers
            are not; if a program generates names, neither are these (`redrive.observe.Bounded`).
        outcome: how it ended, as one word; empty if nothing has ended.
    """

    __slots__ = ()
    channel: ClassVar[str] = "redrive"
    level: ClassVar[int] = _INFO
    labels: ClassVar[tuple[str, ...]] = ("name",)
    outcome: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The subject: the qualified name of a function, an operation or a task."""
        raise NotImplementedError


class CallEvent(Event, Value):
    """An event of a call in this process.

    Attributes:
        name: the qualified name of the called function.
    """

    __slots__ = ("name",)
    channel = "redrive.calls"
    name: str


class CallRetryScheduled(CallEvent):
    """An attempt has failed, and another one follows.

    Attributes:
        attempt: the number of the attempt that failed, from 1.
        failure: the failure.
        delay: the time until the next attempt.
        rule: the part of the policy that chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``.
        waited: the time that the call has waited before, in all.
        elapsed: the time since its start, waits included.
    """

    __slots__ = ("attempt", "delay", "elapsed", "failure", "rule", "waited")
    _fields = ("name", "attempt", "failure", "delay", "rule", "waited", "elapsed")
    labels = ("name", "rule")
    attempt: int
    failure: Failure
    delay: timedelta
    rule: str
    waited: timedelta
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
    """A call has ended.

    Attributes:
        attempts: the number of attempts.
        elapsed: its duration, waits included.
        waited: the time that it waited between attempts.
    """

    __slots__ = ("attempts", "elapsed", "waited")
    _fields: ClassVar[tuple[str, ...]] = ("name", "attempts", "elapsed", "waited")
    attempts: int
    elapsed: timedelta
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
    """A call has failed, and no attempt follows. Its ``attempts`` is 0 if its breaker refused it.

    Attributes:
        rule: why, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``not_matched``, ``budget``,
            ``breaker``, ... (see `redrive.policy.GiveUp`).
        why: the same as a sentence.
        failure: the last failure; None if the function was not called.
        error: the exception that is raised; None if a result was rejected.
    """

    __slots__ = ("error", "failure", "rule", "why")
    _fields = ("name", "attempts", "elapsed", "waited", "rule", "why", "failure", "error")
    labels = ("name", "rule")
    outcome = "gave up"
    level = _WARNING
    rule: str
    why: str
    failure: Failure | None
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
    """A call has failed, and may be repeated at an instant that it does not wait for (``over_deadline="defer"``).

    Attributes:
        at: when it may be repeated, aware.
        rule: the part of the policy that chose the instant.
        failure: the last failure.
        error: the exception that is raised; None if a result was rejected.
    """

    __slots__ = ("at", "error", "failure", "rule")
    _fields = ("name", "attempts", "elapsed", "waited", "at", "rule", "failure", "error")
    labels = ("name", "rule")
    outcome = "deferred"
    at: datetime
    rule: str
    failure: Failure | None
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
