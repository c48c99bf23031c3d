"""The records of requests, and the events that RFC 0049 requires for each decision.

Events go to the logger ``redrive.orchestrator``, as text and as ``record.event``, and to the sinks of
`redrive.observe`.
A retry is DEBUG, a refusal INFO, or DEBUG for an internal request. An answer that comes after its request had timed out
or was cancelled, an *orphan*, is INFO: it shows the result of an ambiguous request. ``event.to_dict()`` returns an
event as plain data for JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from math import isfinite
from typing import Any, Protocol

from redrive import observe
from redrive.clock import Clock
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import logger
from redrive.policy import Reason, format_duration
from redrive.policy.duration import span
from redrive.policy.value import Value

_DEEPEST = 20

#: The attribute of a span that has the number of retries; it is also set to 0 (RFC 0067).
RETRIES_ATTRIBUTE = "couchbase.retries"


class Span(Protocol):
    """The methods of an OpenTelemetry span that are used."""

    def set_attribute(self, key: str, value: int, /) -> object:
        """Set an attribute."""
        ...

    def end(self) -> object:
        """End the span."""
        ...


class RequestAttemptRecord(Value):
    """An attempt as a value; the fields are those of `redrive.orchestrator.Attempt`."""

    number: int
    reason: Reason | None = None
    delay: timedelta | None = None
    dispatched: bool = False
    definite: bool = False
    endpoint: str | None = None
    local_address: str | None = None
    channel_id: str | None = None
    #: The time from the start of the request until it was sent; None if it was not.
    dispatched_after: timedelta | None = None
    #: The time from the start of the request until it was answered or had failed; None before.
    ended_after: timedelta | None = None

    @property
    def is_ambiguous(self) -> bool:
        """True if it is unknown whether it took effect."""
        return self.dispatched and not self.definite

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the delay as ``delay_ms``."""
        return dict(exported(name, value) for name, value in self.arguments().items())


class RequestRecord(Value):
    """A request as a value; errors have it as ``__retry__``. The fields are those of `redrive.orchestrator.Request`."""

    id: str
    operation: str
    retry_attempts: int
    #: Each reason once, in the order of its first appearance.
    retry_reasons: tuple[Reason, ...]
    history: tuple[RequestAttemptRecord, ...]
    #: The endpoint of the last attempt; None if the request was not sent.
    endpoint: str | None
    #: True if it may have changed data and that is unknown.
    is_ambiguous: bool
    context: Mapping[str, Any]
    #: The time from the start of the request to its end, or until now.
    elapsed: timedelta
    #: The time for the whole request; None without a limit.
    timeout: timedelta | None
    idempotent: bool
    service: str | None
    #: The client's end of its last connection; None if unknown.
    local_address: str | None
    #: The id of that connection; None if unknown.
    channel_id: str | None
    #: True if the request has ended.
    completed: bool
    #: The reason why it ended without an answer, as a stable word: ``TIMEOUT``, or `RequestCancelled.cancellation`;
    #: None if it was answered, failed with an error of its own, or has not ended.
    cancellation: str | None

    @property
    def cancelled(self) -> bool:
        """True if it ended without an answer and without an error of its own."""
        return self.cancellation is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; spans as ``elapsed_ms`` and ``timeout_ms``."""
        data = dict(exported(name, value) for name, value in self.arguments().items())
        return data | {"cancelled": self.cancelled, "history": [attempt.to_dict() for attempt in self.history]}

    @property
    def note(self) -> str:
        """One line of text: ``upsert (7f3a): sent 3 times in 12ms, retried for KV_LOCKED, last sent to node1``."""
        sent = sum(attempt.dispatched for attempt in self.history)
        times = {0: "never sent", 1: "sent once"}.get(sent, f"sent {sent} times")
        reasons = ", ".join(reason.name for reason in self.retry_reasons)
        retried = f", retried for {reasons}" if reasons else ", not retried"
        where = f", last sent to {self.endpoint}" if self.endpoint else ""
        elapsed = format_duration(timedelta(milliseconds=round(self.elapsed.total_seconds() * 1000)))
        return f"{self.operation} ({self.id}): {times} in {elapsed}{retried}{where}"


def milliseconds(span: timedelta | None) -> float | None:
    """Return a span as a number of milliseconds; None stays None."""
    return None if span is None else span / timedelta(milliseconds=1)


def plain(value: object, depth: int = 0) -> object:
    """Return a value as text, numbers, booleans, None, lists and dicts with text keys; of a reason its name."""
    # Unsupported values, values nested too deeply and infinite numbers become their `repr`.
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, Reason):
        return value.name
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    return repr(value)


def exported(name: str, value: object) -> tuple[str, object]:
    """Return a field as the key and the value of plain data for JSON."""
    match value:
        case timedelta():
            return f"{name}_ms", milliseconds(value)
        case BaseException():
            return name, {"type": type(value).__qualname__, "message": str(value)}
    return (f"{name}_ms" if name in _SPANS else name), plain(value)


_SPANS = frozenset({"delay", "dispatched_after", "elapsed", "ended_after", "late_by", "timeout"})


log = logger("redrive.orchestrator")


class RequestEvent(observe.Event, kw_only=True):
    """An event of a request."""

    #: Retries so far.
    attempts: int
    id: str
    operation: str
    #: None if not given.
    service: str | None = None
    #: The endpoint of the last attempt; None if the request was not sent.
    endpoint: str | None = None
    #: The client's end of its last connection; None if unknown.
    local_address: str | None = None
    #: The id of that connection; None if unknown.
    channel_id: str | None = None
    context: Mapping[str, Any]
    #: The time for the whole request; None without a limit.
    timeout: timedelta | None = None
    #: True if it may be repeated when its effect is unknown.
    idempotent: bool = False

    channel = "redrive.orchestrator"

    @property
    def name(self) -> str:
        """The operation."""
        return self.operation

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, fit for JSON.

        The class of the event is ``event``; spans are milliseconds (``timeout_ms``), a reason is its name, and an error
        an object with ``type`` and ``message``.
        """
        return {"event": type(self).__name__} | dict(exported(*each) for each in self.arguments().items())


def about(event: RequestEvent) -> str:
    """Return the fields that all events of a request have, as text for a log line."""
    limit = "none" if event.timeout is None else format_duration(event.timeout)
    return (
        f"retries={event.attempts}, id={event.id}, service={event.service}, endpoint={event.endpoint}, "
        f"local_address={event.local_address}, channel_id={event.channel_id}, timeout={limit}, "
        f"idempotent={event.idempotent}, context={dict(event.context)}"
    )


class ResponseOrphaned(RequestEvent, kw_only=True):
    """An answer to a request that had timed out or was cancelled before."""

    #: The number of the answered attempt, from 1.
    number: int
    #: The time from the start of the request to its end.
    elapsed: timedelta
    #: The time from the end of the request to the answer.
    late_by: timedelta

    def __str__(self) -> str:
        late = format_duration(timedelta(milliseconds=round(self.late_by.total_seconds() * 1000)))
        return f"{self.operation} was answered {late} after its end: attempt={self.number}, {about(self)}"


class RetryEvent(RequestEvent, kw_only=True):
    """A decision on a request."""

    #: The reason of the failed attempt.
    reason: Reason
    #: None for no retry.
    delay: timedelta | None = None
    #: The exception of the attempt or of the orchestrator; None if unknown.
    cause: BaseException | None = None

    def _details(self) -> str:
        cause = "" if self.cause is None else f", cause={self.cause!r}"
        return f"reason={self.reason.name}, {about(self)}{cause}"


class RequestRetryScheduled(RetryEvent, kw_only=True):
    """A request is sent again; ``attempts`` includes this retry."""

    #: The reasons of all retries so far, this one included, each once, in the order of their first appearance.
    reasons: tuple[Reason, ...] = ()

    level = logging.DEBUG

    def __str__(self) -> str:
        so_far = ", ".join(reason.name for reason in self.reasons)
        delay = format_duration(self.delay or timedelta(0))
        return f"{self.operation} is retried in {delay}: {self._details()}, reasons so far=[{so_far}]"


class RequestNotRetried(RetryEvent):
    """A request is not sent again."""

    def __str__(self) -> str:
        return f"{self.operation} is not retried: {self._details()}"


def orphans_of(record: RequestRecord, clock: Clock) -> Callable[[RequestAttemptRecord], None]:
    """Return a function that reports an answer to a request that has just ended."""
    # It refers to values only, so that an attempt that waits for its answer does not keep the request in memory.
    ended = clock.monotonic()

    def report(attempt: RequestAttemptRecord) -> None:
        late_by = span(max(0.0, clock.monotonic() - ended))

        def event() -> ResponseOrphaned:
            given = fields_of(record) | {
                "endpoint": attempt.endpoint or record.endpoint,
                "local_address": attempt.local_address,
                "channel_id": attempt.channel_id,
            }
            return ResponseOrphaned(number=attempt.number, elapsed=record.elapsed, late_by=late_by, **given)

        with emit(logging.INFO, event):
            # No wait follows.
            pass

    return report


def fields_of(record: RequestRecord) -> dict[str, Any]:
    """Return the fields that all events of a request have."""
    same = RequestEvent._fields[1:]
    return {"attempts": record.retry_attempts} | {name: getattr(record, name) for name in same}


def emit(level: int, make: Callable[[], RequestEvent]) -> observe.Wait:
    """Log an event and pass it to the sinks. The event is created only if it is logged or a sink listens."""
    is_logged = log.isEnabledFor(level)
    if not is_logged and not LISTENERS:
        return observe.Wait()
    event = make()
    if is_logged:
        observe.log(event, level=level)
    return observe.around(event, but=observe.log)
