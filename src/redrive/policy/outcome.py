"""What became of a call, as a value: ``Ok | GaveUp | Deferred``, each with its time line.

A call that retries has more to tell than a result: how often it was tried, what went wrong each time, what was decided
and by which rule. `Record` tells it. An error that surfaces carries its record as ``error.__retry__``; the form that
never raises (``policy.outcome``) returns one of the three values, which can be matched:

.. code-block:: python

    match policy.outcome(fetch, 7):
        case Ok(row):
            ...
        case GaveUp(error=error, rule="deadline"):
            ...
        case Deferred(at):
            ...
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar

from redrive.policy.decision import Decision, Retry
from redrive.policy.duration import format_duration
from redrive.policy.failure import Failure
from redrive.policy.value import Value, freeze

__all__ = ["Deferred", "GaveUp", "Ok", "Outcome", "Record", "Try", "surface"]

T = TypeVar("T")


class Try(NamedTuple):
    """One attempt of a call.

    Attributes:
        number: counted from 1.
        started_after: when it started, counted from the start of the call.
        took: how long it took.
        failure: what went wrong; None if it succeeded.
        decision: what was decided then; None if it succeeded.
    """

    number: int
    started_after: timedelta
    took: timedelta
    failure: Failure | None = None
    decision: Decision | None = None


class Record(NamedTuple):
    """The whole story of one call.

    Attributes:
        function: qualified name of what was called.
        timeline: its attempts, in order.
        elapsed: how long the call took, waits included.
        rule: why it ended, as a stable word: that of the last decision, ``nested`` where the retrying was left to a
            call above, or ``ok``.
        why: the same as a sentence.
        inner: the record of a call further in, which the last error carried before this one replaced it.
        copies: of a hedged call, the records of its other copies, in the order of their start. The rest of this record
            is about the copy whose end was that of the call.
    """

    function: str
    timeline: tuple[Try, ...]
    elapsed: timedelta
    rule: str
    why: str
    inner: Record | None = None
    copies: tuple[Record, ...] = ()

    @property
    def attempts(self) -> int:
        """How often the function was called; of a hedged call, by this copy."""
        return len(self.timeline)

    @property
    def calls(self) -> int:
        """How often the function was called, by all copies of a hedged call together."""
        return self.attempts + sum(copy.attempts for copy in self.copies)

    @property
    def delays(self) -> tuple[timedelta, ...]:
        """The waits after the attempts, in order; after the last one only if it led up to the deadline."""
        return tuple(each.decision.delay for each in self.timeline if isinstance(each.decision, Retry))

    @property
    def note(self) -> str:
        """One line for people: ``gave up after 3 attempts in 1.24 s: 3 of 3 attempts failed (OSError x2, Busy)``."""
        count = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        inner = f"; {self.inner.function} left the retrying to it" if self.inner and self.inner.rule == "nested" else ""
        failures = f" ({self._failures()})" if self.timeline else ""  # a breaker refuses before the first attempt
        copies = f"; there were {1 + len(self.copies)} copies" if self.copies else ""
        return f"gave up after {count} in {_shown(self.elapsed)}: {self.why}{failures}{inner}{copies}"

    def _failures(self) -> str:
        """The kinds of failures in the order of their first appearance, repeated ones counted."""
        counts: dict[str, int] = {}
        for each in self.timeline:
            if each.failure is not None:
                kind = each.failure.error_type.rpartition(".")[2] or each.failure.reason
                counts[kind] = counts.get(kind, 0) + 1
        return ", ".join(kind if count == 1 else f"{kind} x{count}" for kind, count in counts.items())


def _shown(value: timedelta) -> str:
    """A span for people: seconds with two digits, from a minute on in units."""
    seconds = value.total_seconds()
    if seconds >= 60:  # noqa: PLR2004 - a minute
        return format_duration(timedelta(seconds=round(seconds)))
    return f"{seconds:.2f} s"


class _Told(Value):
    """An outcome has a record."""

    __slots__ = ()
    record: Record

    @property
    def timeline(self) -> tuple[Try, ...]:
        """The attempts, in order."""
        return self.record.timeline


class Ok(_Told, Generic[T]):
    """The call succeeded.

    Attributes:
        value: what the function returned.
        record: how it came to that.
    """

    __slots__ = ("record", "value")
    __match_args__ = _fields = ("value", "record")
    value: T

    def __init__(self, value: T, record: Record) -> None:
        freeze(self, "value", value)
        freeze(self, "record", record)

    def unwrap(self) -> T:
        """The value."""
        return self.value


class GaveUp(_Told):
    """The call failed and is not tried again.

    Attributes:
        error: the last exception; None if the last result counted as a failure.
        value: that result; None if there was an exception.
        rule: the stable word of `redrive.policy.GiveUp`, or ``nested`` or ``disabled``.
        why: a sentence for people.
        record: how it came to that.
    """

    __slots__ = ("error", "record", "value")
    __match_args__ = _fields = ("error", "value", "record")
    error: Exception | None
    value: Any

    def __init__(self, error: Exception | None, value: Any, record: Record) -> None:
        freeze(self, "error", error)
        freeze(self, "value", value)
        freeze(self, "record", record)

    @property
    def rule(self) -> str:
        """Why it ended, as a stable word."""
        return self.record.rule

    @property
    def why(self) -> str:
        """The same as a sentence."""
        return self.record.why

    def unwrap(self) -> Any:
        """Raise the error; a result that counted as a failure is returned, as ``policy.call`` would.

        Raises:
            Exception: the last one, unchanged.
        """
        return _unwrapped(self.error, self.value)


class Deferred(_Told):
    """The next attempt lies beyond the deadline (``over_deadline="defer"``): something durable may take over.

    Attributes:
        at: when the call may be repeated, aware.
        error: the last exception; None if the last result counted as a failure.
        value: that result; None if there was an exception.
        rule: what chose the instant.
        record: how it came to that.
    """

    __slots__ = ("at", "error", "record", "value")
    __match_args__ = _fields = ("at", "error", "value", "record")
    at: datetime
    error: Exception | None
    value: Any

    def __init__(self, at: datetime, error: Exception | None, value: Any, record: Record) -> None:
        freeze(self, "at", at)
        freeze(self, "error", error)
        freeze(self, "value", value)
        freeze(self, "record", record)

    @property
    def rule(self) -> str:
        """What chose the instant."""
        return self.record.rule

    def unwrap(self) -> Any:
        """Raise the error; a result that counted as a failure is returned, as ``policy.call`` would.

        Raises:
            Exception: the last one, unchanged.
        """
        return _unwrapped(self.error, self.value)


Outcome: TypeAlias = Ok[T] | GaveUp | Deferred


def surface(error: Exception) -> NoReturn:
    """Raise an error that was caught before as it was: with the context that it had.

    Raises:
        Exception: the error.
    """
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # `raise` inside somebody's `except` would replace it
        del error


def _unwrapped(error: Exception | None, value: Any) -> Any:
    return value if error is None else surface(error)
