"""The events of calls in process, and what every event is. Others are declared where they happen."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from redrive.policy import Failure, format_duration
from redrive.policy.value import Value, freeze

__all__ = ["CallDeferred", "CallEvent", "CallGaveUp", "CallRetryScheduled", "CallSucceeded", "Event"]

_INFO, _WARNING = 20, 30  # of `logging`, which is imported by those who log


class Event:
    """Something that has happened; ``str(event)`` says it in one line.

    Attributes:
        channel: the name of the logger for such events.
        level: how loud they are, as a number of `logging`.
        labels: which of their fields have few values, so that they are fit for the labels of a metric. Ids, texts and
            numbers are not; and where programs make up names, not even these (`redrive.observe.Bounded`).
        outcome: what became of whom, as one word; empty where nothing has ended.
    """

    __slots__ = ()
    channel: ClassVar[str] = "redrive"
    level: ClassVar[int] = _INFO
    labels: ClassVar[tuple[str, ...]] = ("name",)
    outcome: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """What it is about: the qualified name of a function, an operation, a task."""
        raise NotImplementedError


class CallEvent(Event, Value):
    """Something that became of a call in this process.

    Attributes:
        name: qualified name of what was called.
    """

    __slots__ = ("name",)
    channel = "redrive.calls"
    name: str


class CallRetryScheduled(CallEvent):
    """An attempt has failed, and another one follows.

    Attributes:
        attempt: the number of the attempt that failed, from 1.
        failure: what went wrong.
        delay: how long is waited now.
        rule: what chose the delay: ``backoff``, ``hint``, ``rule 2 (httpx.ReadTimeout)``.
        waited: how long the call has waited before, in all.
        elapsed: how long it has taken so far, waits included.
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
    """A call is over.

    Attributes:
        attempts: how often it was made.
        elapsed: how long it took, waits included.
        waited: how long of that it waited between attempts.
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
    """A call has succeeded, not at its first attempt.

    Attributes:
        attempts: how often it was made.
        elapsed: how long it took, waits included.
        waited: how long of that it waited between attempts.
    """

    __slots__ = ()
    outcome = "succeeded"

    def __str__(self) -> str:
        return f"{self.name} succeeded after {self._count}"


class CallGaveUp(_CallEnded):
    """A call has failed, and no attempt follows.

    Attributes:
        attempts: how often it was made; 0 if its breaker refused it.
        elapsed: how long it took, waits included.
        waited: how long of that it waited between attempts.
        rule: why, as a stable word: ``attempts``, ``deadline``, ``permanent``, ``not_matched``, ``budget``,
            ``breaker``, ... (see `redrive.policy.GiveUp`).
        why: the same as a sentence.
        failure: the last one; None if nothing was called.
        error: what is raised; None if a result was rejected.
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
        attempts: how often it was made.
        elapsed: how long it took, waits included.
        waited: how long of that it waited between attempts.
        at: when it may be repeated, aware.
        rule: what chose the instant.
        failure: the last one.
        error: what is raised; None if a result was rejected.
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
