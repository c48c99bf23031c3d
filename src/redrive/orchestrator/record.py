"""What is known of a request and its attempts, as values: for errors, logs and strategies; and where it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from redrive.orchestrator.plain import milliseconds, plain
from redrive.policy import Reason, format_duration

__all__ = ["RETRIES_ATTRIBUTE", "AttemptRecord", "RequestRecord", "Span"]

RETRIES_ATTRIBUTE = "couchbase.retries"
"""The attribute of a span that has the number of retries; 0 is said too (RFC 0067)."""


class Span(Protocol):
    """What is used of a span of OpenTelemetry."""

    def set_attribute(self, key: str, value: int, /) -> object:
        """Note something."""
        ...

    def end(self) -> object:
        """It is over."""
        ...


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What became of one attempt, as a value.

    Attributes:
        number: counted from 1.
        reason: why it failed; None if it has not, or not in a way that is known.
        delay: what was waited after it; None if nothing was.
        dispatched: whether it left.
        definite: whether it is known if it took effect.
        endpoint: where it was sent.
        local_address: the client's end of the connection that it was sent on.
        channel_id: the id of that connection.
    """

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
        """Whether nobody knows if it took effect."""
        return self.dispatched and not self.definite

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, fit for JSON; the delay as ``delay_ms``."""
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
    """What is known of a request, as a value; errors carry it as ``__retry__``.

    Attributes:
        id: of the request.
        operation: what was asked.
        retry_attempts: how often it was sent again.
        retry_reasons: why, each reason once, in the order of its first appearance.
        history: its attempts.
        endpoint: where it was sent last; None if it was not.
        is_ambiguous: whether it may have changed something, and nobody knows.
        context: what the caller has given to it.
        elapsed: from when it was made.
        timeout: the time that it had in all; None without a limit. See `redrive.orchestrator.Request.timeout`.
        idempotent: whether it may be repeated when nobody knows if it took effect.
        service: which service it was for; None if that was not given.
        local_address: the client's end of the connection that it was last sent on; None if that is not known.
        channel_id: the id of that connection; None if that is not known.
    """

    id: str
    operation: str
    retry_attempts: int
    retry_reasons: tuple[Reason, ...]
    history: tuple[AttemptRecord, ...]
    endpoint: str | None
    is_ambiguous: bool
    context: Mapping[str, Any]
    elapsed: timedelta
    timeout: timedelta | None
    idempotent: bool
    service: str | None
    local_address: str | None
    channel_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, fit for JSON; spans as ``elapsed_ms`` and ``timeout_ms``."""
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
        """One line for people: ``upsert (7f3a): sent 3 times in 12ms, retried for KV_LOCKED, last sent to node1``."""
        sent = sum(attempt.dispatched for attempt in self.history)
        times = {0: "never sent", 1: "sent once"}.get(sent, f"sent {sent} times")
        reasons = ", ".join(reason.name for reason in self.retry_reasons)
        retried = f", retried for {reasons}" if reasons else ", not retried"
        where = f", last sent to {self.endpoint}" if self.endpoint else ""
        elapsed = format_duration(timedelta(milliseconds=round(self.elapsed.total_seconds() * 1000)))
        return f"{self.operation} ({self.id}): {times} in {elapsed}{retried}{where}"
