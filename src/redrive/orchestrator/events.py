"""The events of requests, which RFC 0049 requires for each decision, "so it can be debugged after the fact".

They go to the logger ``redrive.orchestrator``, as text and as ``record.event``, and to the sinks of `redrive.observe`.
A retry is DEBUG, a refusal INFO, or DEBUG for an internal request. An answer that comes after its request had timed out
or was cancelled, an *orphan*, is INFO: it shows the result of an ambiguous request. ``event.to_dict()`` returns an
event as plain data for JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from redrive import observe
from redrive.clock import Clock
from redrive.observe.listeners import LISTENERS
from redrive.observe.logs import logger
from redrive.orchestrator.record import RequestAttemptRecord, RequestRecord, milliseconds, plain
from redrive.policy import Reason, format_duration
from redrive.policy.duration import span

log = logger("redrive.orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent(observe.Event):
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
        return {"event": type(self).__name__} | dict(
            _exported(each.name, getattr(self, each.name)) for each in fields(self)
        )


def about(event: RequestEvent) -> str:
    """Return the fields that all events of a request have, as text for a log line."""
    limit = "none" if event.timeout is None else format_duration(event.timeout)
    return (
        f"retries={event.attempts}, id={event.id}, service={event.service}, endpoint={event.endpoint}, "
        f"local_address={event.local_address}, channel_id={event.channel_id}, timeout={limit}, "
        f"idempotent={event.idempotent}, context={dict(event.context)}"
    )


def _exported(name: str, value: object) -> tuple[str, object]:
    match value:
        case timedelta():
            return f"{name}_ms", milliseconds(value)
        case Reason():
            return name, value.name
        case BaseException():
            return name, {"type": type(value).__qualname__, "message": str(value)}
    return (f"{name}_ms" if name in _SPANS else name), plain(value)


_SPANS = frozenset({"delay", "elapsed", "late_by", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOrphaned(RequestEvent):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryEvent(RequestEvent):
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


class RequestRetryScheduled(RetryEvent):
    """A request is sent again; ``attempts`` includes this retry."""

    __slots__ = ()
    level = logging.DEBUG

    def __str__(self) -> str:
        return f"{self.operation} is retried in {format_duration(self.delay or timedelta(0))}: {self._details()}"


class RequestNotRetried(RetryEvent):
    """A request is not sent again."""

    __slots__ = ()

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
    return {
        "attempts": record.retry_attempts,
        "id": record.id,
        "operation": record.operation,
        "service": record.service,
        "endpoint": record.endpoint,
        "local_address": record.local_address,
        "channel_id": record.channel_id,
        "context": record.context,
        "timeout": record.timeout,
        "idempotent": record.idempotent,
    }


def emit(level: int, make: Callable[[], RequestEvent]) -> observe.Wait:
    """Log an event and pass it to the sinks. The event is created only if it is logged or a sink listens."""
    is_logged = log.isEnabledFor(level)
    if not is_logged and not LISTENERS:
        return observe.Wait()
    event = make()
    if is_logged:
        observe.log(event, level=level)
    return observe.around(event, but=observe.log)
