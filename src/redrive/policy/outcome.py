"""The outcome of a call as a value, with its attempts: ``Ok | GaveUp | Deferred``.

An error that a retried call raises carries its `Record` as ``error.__retry__``; ``policy.outcome`` returns one of the
three values:

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

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from redrive.errors.foreign import context_of, set_context
from redrive.policy.decision import Decision, Retry
from redrive.policy.duration import format_duration
from redrive.policy.failure import Failure
from redrive.policy.value import NamedTuple, Value

T = TypeVar("T")


class Try(NamedTuple):
    """One attempt of a call."""

    #: The number of the attempt, from 1.
    number: int
    #: The start of the attempt, counted from the start of the call.
    started_after: timedelta
    #: The duration of the attempt.
    took: timedelta
    #: None if the attempt succeeded.
    failure: Failure | None = None
    #: The decision after the attempt; None if it succeeded.
    decision: Decision | None = None


class Record(NamedTuple):
    """The record of one call."""

    #: Qualified name of the function.
    function: str
    #: The attempts, in order.
    timeline: tuple[Try, ...]
    #: Duration of the call, waits included.
    elapsed: timedelta
    #: Reason of the end, as a stable word: that of the last decision, ``nested`` if the retries were left to an
    #: outer call, or ``ok``.
    rule: str
    #: The reason of the end as a sentence.
    why: str
    #: The record of an inner call, which the last error carried before this one replaced it.
    inner: Record | None = None
    #: Of a hedged call, the records of its other copies, in the order of their start. The other fields describe the
    #: copy that ended the call.
    copies: tuple[Record, ...] = ()

    @property
    def attempts(self) -> int:
        """Number of calls of the function; of a hedged call, by this copy."""
        return len(self.timeline)

    @property
    def calls(self) -> int:
        """Number of calls of the function, by all copies of a hedged call together."""
        return self.attempts + sum(copy.attempts for copy in self.copies)

    @property
    def delays(self) -> tuple[timedelta, ...]:
        """The waits after the attempts, in order; after the last one only if it led up to the deadline."""
        return tuple(each.decision.delay for each in self.timeline if isinstance(each.decision, Retry))

    @property
    def note(self) -> str:
        """A summary in one line: ``gave up after 3 attempts in 1.24 s: 3 of 3 attempts failed (OSError x2, Busy)``."""
        count = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        inner = f"; {self.inner.function} left the retrying to it" if self.inner and self.inner.rule == "nested" else ""
        # A breaker refuses before the first attempt.
        failures = f" ({self._failures()})" if self.timeline else ""
        copies = f"; there were {1 + len(self.copies)} copies" if self.copies else ""
        return f"gave up after {count} in {_shown(self.elapsed)}: {self.why}{failures}{inner}{copies}"

    def _failures(self) -> str:
        """Return the kinds of failures in the order of their first appearance, with counts."""
        counts: dict[str, int] = {}
        for each in self.timeline:
            if each.failure is not None:
                kind = each.failure.error_type.rpartition(".")[2] or each.failure.reason
                counts[kind] = counts.get(kind, 0) + 1
        return ", ".join(kind if count == 1 else f"{kind} x{count}" for kind, count in counts.items())


def _shown(value: timedelta) -> str:
    """Return a span as text: seconds with two digits, from a minute on in units."""
    seconds = value.total_seconds()
    if seconds >= 60:  # noqa: PLR2004 - a minute
        return format_duration(timedelta(seconds=round(seconds)))
    return f"{seconds:.2f} s"


class RetryDetails(NamedTuple):
    """The argument of the hooks of a policy, ``on_retry`` and ``on_give_up``."""

    #: Qualified name of the function; of a job, the name of its task.
    function: str
    #: The arguments of the call; of a job, all by name in ``kwargs``, without its context.
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    #: The number of the attempt that failed, from 1; 0 if a circuit breaker refused the call.
    attempt: int
    #: The exception; None if a result was rejected.
    error: BaseException | None
    #: The result that ``on_result`` rejected; None if there was an exception.
    value: Any
    #: The failure as the policy sees it; None if a circuit breaker refused the call.
    failure: Failure | None
    #: The wait before the next attempt; None if the policy gave up.
    delay: timedelta | None
    #: The source of the delay, as in `Retry`; the reason of the end, as in `GiveUp`.
    rule: str
    #: The reason of the end as a sentence; empty before a retry.
    why: str
    #: The time since the start of the first attempt.
    elapsed: timedelta


Hook: TypeAlias = Callable[[RetryDetails], object]
"""A function that is called with the details of a retry or of the end; where calls are awaited, also ``async def``."""


class StopEvent(Protocol):
    """An event that ends the waits of calls; a ``threading.Event`` or ``multiprocessing.Event`` is one."""

    def is_set(self) -> bool:
        """Return True once calls are to end."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the event is set, or for ``timeout`` seconds."""
        ...


class _WithTimeline:
    """What all outcomes have."""

    __slots__ = ()
    record: Record

    @property
    def timeline(self) -> tuple[Try, ...]:
        """The attempts, in order."""
        return self.record.timeline


class _Failed(_WithTimeline):
    """What the outcomes of a call that failed have."""

    __slots__ = ()
    error: Exception | None
    value: Any

    @property
    def rule(self) -> str:
        """The reason of the end, as a stable word; of `Deferred`, the source of the delay."""
        return self.record.rule

    def unwrap(self) -> Any:
        """Raise the error; return a result that counted as a failure, as ``policy.call`` does."""
        return self.value if self.error is None else surface(self.error)


class Ok(_WithTimeline, Value, Generic[T]):
    """The call succeeded."""

    value: T
    record: Record

    def unwrap(self) -> T:
        """Return the value."""
        return self.value


class GaveUp(_Failed, Value):
    """The call failed and is not repeated.

    Attributes:
        rule: the stable word of `redrive.policy.GiveUp`, or ``nested`` or ``disabled``.
        why: a sentence for logs.
    """

    #: The last exception; None if the last result counted as a failure.
    error: Exception | None
    #: The last result; None if there was an exception.
    value: Any
    record: Record

    @property
    def why(self) -> str:
        """The reason of the end as a sentence."""
        return self.record.why


class Deferred(_Failed, Value):
    """The next attempt is beyond the deadline (``over_deadline="defer"``); a durable job can take over.

    Attributes:
        rule: the source of the delay.
    """

    #: The time at which the call may be repeated, aware.
    at: datetime
    #: The last exception; None if the last result counted as a failure.
    error: Exception | None
    #: The last result; None if there was an exception.
    value: Any
    record: Record


Outcome: TypeAlias = Ok[T] | GaveUp | Deferred


def surface(error: Exception) -> NoReturn:
    """Raise an error that was caught before, with the context that it had."""
    context = context_of(error)
    try:
        raise error
    finally:
        # `raise` inside an `except` clause would replace it.
        set_context(error, context)
        del error
