"""A request and its attempts as values, for errors, logs and strategies, and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from typing import Any, Protocol

from redrive.policy import Reason, format_duration

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


@dataclass(frozen=True, slots=True)
class RequestAttemptRecord:
    """An attempt as a value; the fields are those of `redrive.orchestrator.Attempt`."""

    number: int
    reason: Reason | None = None
    delay: timedelta | None = None
    dispatched: bool = False
    definite: bool = False
    endpoint: str | None = None
    local_address: str | None = None
    channel_id: str | None = None

    @property
    def is_ambiguous(self) -> bool:
        """True if it is unknown whether it took effect."""
        return self.dispatched and not self.definite

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the delay as ``delay_ms``."""
        return {
            "number": self.number,
            "reason": None if self.reason is None else self.reason.name,
            "delay_ms": milliseconds(self.delay),
            "dispatched": self.dispatched,
            "definite": self.definite,
            "endpoint": self.endpoint,
            "local_address": self.local_address,
            "channel_id": self.channel_id,
        }


@dataclass(frozen=True, slots=True)
class RequestRecord:
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; spans as ``elapsed_ms`` and ``timeout_ms``."""
        return {
            "id": self.id,
            "operation": self.operation,
            "service": self.service,
            "idempotent": self.idempotent,
            "timeout_ms": milliseconds(self.timeout),
            "elapsed_ms": milliseconds(self.elapsed),
            "retry_attempts": self.retry_attempts,
            "retry_reasons": [reason.name for reason in self.retry_reasons],
            "is_ambiguous": self.is_ambiguous,
            "endpoint": self.endpoint,
            "local_address": self.local_address,
            "channel_id": self.channel_id,
            "context": plain(self.context),
            "history": [attempt.to_dict() for attempt in self.history],
        }

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
    """Return a value as text, numbers, booleans, None, lists and dicts with text keys."""
    # Unsupported values, values nested too deeply and infinite numbers become their `repr`.
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    return repr(value)
