"""The events that all requests have in common, and the report of an answer that came after its request had ended."""

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
from redrive.orchestrator.plain import milliseconds, plain
from redrive.orchestrator.record import AttemptRecord, RequestRecord
from redrive.policy import Reason, format_duration
from redrive.policy.duration import span

__all__ = ["RequestEvent", "ResponseOrphaned", "about", "emit", "fields_of", "orphans_of"]

log = logger("redrive.orchestrator")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent(observe.Event):
    """Something that happened to a request.

    Attributes:
        attempts: retries so far.
        id: of the request.
        operation: what was asked.
        service: which service was asked; None if that was not given.
        endpoint: where it was sent last; None if it was not.
        local_address: the client's end of the connection that it was last sent on; None if that is not known.
        channel_id: the id of that connection; None if that is not known.
        context: what the caller has given to it.
        timeout: the time that it has in all; None without a limit.
        idempotent: whether it may be repeated when nobody knows if it took effect.
    """

    attempts: int
    id: str
    operation: str
    service: str | None = None
    endpoint: str | None = None
    local_address: str | None = None
    channel_id: str | None = None
    context: Mapping[str, Any]
    timeout: timedelta | None = None
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
    """An answer has come for a request that had timed out or was cancelled before.

    Attributes:
        number: of the attempt that was answered, counted from 1.
        elapsed: how long the request took until its end.
        late_by: how long after its end the answer came.
    """

    number: int
    elapsed: timedelta
    late_by: timedelta

    def __str__(self) -> str:
        late = format_duration(timedelta(milliseconds=round(self.late_by.total_seconds() * 1000)))
        return f"{self.operation} was answered {late} after its end: attempt={self.number}, {about(self)}"


def orphans_of(record: RequestRecord, clock: Clock) -> Callable[[AttemptRecord], None]:
    """Return what reports an answer to a request that has ended.

    It holds values only, so that an attempt that waits for its answer does not keep the request in memory.

    Args:
        record: of the request, which has just ended.
        clock: of the request.
    """
    ended = clock.monotonic()

    def report(attempt: AttemptRecord) -> None:
        late_by = span(max(0.0, clock.monotonic() - ended))

        def event() -> ResponseOrphaned:
            given = fields_of(record) | {
                "endpoint": attempt.endpoint or record.endpoint,
                "local_address": attempt.local_address,
                "channel_id": attempt.channel_id,
            }
            return ResponseOrphaned(number=attempt.number, elapsed=record.elapsed, late_by=late_by, **given)

        with emit(logging.INFO, event):
            """No wait follows."""

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
    """Log an event and hand it to the sinks; it is made only if it is logged or a sink listens."""
    is_logged = log.isEnabledFor(level)
    if not is_logged and not LISTENERS:
        return observe.Wait()
    event = make()
    if is_logged:
        observe.log(event, level=level)
    return observe.around(event, but=observe.log)
