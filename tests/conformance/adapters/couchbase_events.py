"""Adapter for the group ``events`` of ``couchbase.json``: what redrive emits about a request, under the SDKs' names.

The adapter causes an incident for a request with all attributes set. redrive then emits the event, its log record, the
exported record of the request, and the attributes of its span; a case asks for the fields that these must have, by the
names of the Java SDK, of the RFCs, or ours.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from redrive.errors import AmbiguousTimeout, UnambiguousTimeout
from redrive.orchestrator import (
    RETRIES_ATTRIBUTE,
    BestEffort,
    FailFast,
    Orchestrator,
    Request,
    RetryAction,
)
from tests.conformance.adapters.couchbase_strategies import reason_of
from tests.conformance.adapters.couchbase_trial import listening
from tests.conformance.adapters.couchbase_words import Reading, parts, snake, text
from tests.conformance.adapters.vocabulary import UnknownWord, word
from tests.retrying.helpers import JumpingClock
from tests.retrying.orchestrator.helpers import SpanOf

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from redrive.orchestrator import RequestEvent
    from tests.conformance.loading import Case

Json = dict[str, Any]

_FIELDS = (
    "client_context",
    "delay_ms",
    "event",
    "idempotent",
    "internal_unmonitored",
    "op",
    "reason",
    "request",
    "retries",
    "retry_attempts",
    "service",
    "timeout_ms",
)
_OUTCOMES = ("attribute", "events", "fields", "json", "level", "name", "plain", "severity", "value", RETRIES_ATTRIBUTE)


def events(case: Case) -> None:
    """Check the events and records that an incident of a request causes."""
    data, expected = parts(case, _FIELDS, _OUTCOMES)
    told = _told(data)
    if "name" in expected:
        assert word(expected["name"], _NAMES) == told.name
    for level in ("severity", "level"):
        if level in expected:
            assert text(expected[level]).upper().replace("WARNING", "WARN") == told.level
    for field in expected.get("fields", []):
        told.check(text(field))
    if "events" in expected:
        assert expected["events"] == told.names
    for plain in ("json", "plain"):
        if plain in expected:
            assert expected[plain] == (told.exported == json.loads(json.dumps(told.exported)))
    _check_span(told, expected)
    data.finish()
    expected.finish()


def _check_span(told: _Told, expected: Reading) -> None:
    """Check that the number of retries is always an attribute, 0 included."""
    if "attribute" in expected:
        word(expected["attribute"], {RETRIES_ATTRIBUTE: None})
        assert {RETRIES_ATTRIBUTE} == set(told.span.attributes)
    for name in ("value", RETRIES_ATTRIBUTE):
        if name in expected:
            assert expected[name] == told.span.attributes[RETRIES_ATTRIBUTE]


_NAMES = {
    "RequestNotRetried": "RequestNotRetried",
    "RequestNotRetriedEvent": "RequestNotRetried",
    "RequestRetryScheduled": "RequestRetryScheduled",
    "RequestRetryScheduledEvent": "RequestRetryScheduled",
    "ResponseOrphaned": "ResponseOrphaned",
    "OrphanResponse": "ResponseOrphaned",
    "OrphanReported": "ResponseOrphaned",
}


# ------------------------------------------------------------------------------------------------------------ incidents


class _Told:
    """The events and records that a request has caused.

    Attributes:
        request: the request.
        span: receives its number of retries.
        error: the error that its attempt raised.
        heard: the events, each with its log record.
    """

    def __init__(self, request: Request, span: SpanOf, error: Exception) -> None:
        self.request, self.span, self.error = request, span, error
        self.heard: list[tuple[RequestEvent, logging.LogRecord]] = []

    @property
    def names(self) -> list[str]:
        """Return the names of the events."""
        return [type(event).__name__ for event, _ in self.heard]

    @property
    def name(self) -> str | None:
        """Return the name of the last event."""
        return self.names[-1] if self.heard else None

    @property
    def level(self) -> str | None:
        """Return the log level of the last event."""
        return self.heard[-1][1].levelname.replace("WARNING", "WARN") if self.heard else None

    @property
    def exported(self) -> Json:
        """Return the request's record and last event as plain data; fields of the event take precedence."""
        event = self.heard[-1][0].to_dict() if self.heard else {}
        return self.request.record.to_dict() | event

    def check(self, field: str) -> None:
        """Check that a field is exported with its expected value."""
        if snake(field).strip("_").removesuffix("_") in ("request_context", "context_of_request"):
            for each in _CONTEXT:
                self.check(each)
            return
        name, expected = word(_ALIASES.get(snake(field), snake(field)), _MEANINGS)
        assert name in self.exported, f"{field}: {sorted(self.exported)}"
        assert expected(self) == self.exported[name], field


def _told(data: Reading) -> _Told:
    happening = _happening(text(data["event"], *(name for name, _ in _HAPPENINGS)))
    span, error = SpanOf(), ConnectionError("of the client")
    request = Request(
        data.get("op", "upsert"),
        service=data.get("service", "kv"),
        idempotent=data.get("idempotent", False),
        timeout=data.get("timeout_ms", 2500) / 1000,
        context=data.get("client_context", {"user": 7}),
        internal=data.get("internal_unmonitored", False),
        span=span,
        clock=JumpingClock(),
    )
    told = _Told(request, span, error)
    _dispatch(request)
    with listening(told.heard):
        happening(told, data)
    return told


def _dispatch(request: Request) -> None:
    request.attempt.dispatch("node1:11210", local_address="10.0.0.9:50000", channel_id="c0ffee/1")


def _failed(told: _Told, data: Reading, strategy: Any, times: int = 1) -> None:
    reason = reason_of(data.get("reason", "KV_LOCKED"))
    for _ in range(times):
        try:
            asyncio.run(Orchestrator(strategy=strategy).maybe_retry(told.request, reason, told.error))
        except ConnectionError:
            assert told.request.completed
            return
        _dispatch(told.request)


def _scheduled(told: _Told, data: Reading) -> None:
    delay = data.get("delay_ms")
    strategy = BestEffort() if delay is None else lambda *_: RetryAction(delay / 1000)
    _failed(told, data, strategy, data.get("retry_attempts", 1))


def _refused(told: _Told, data: Reading) -> None:
    _failed(told, data, FailFast())


def _ended(told: _Told, data: Reading) -> None:
    """End a request with a result, after some retries."""
    _failed(told, data, BestEffort(), data.get("retries", data.get("retry_attempts", 0)))
    told.request.succeed("ok")
    told.heard.clear()


def _timed_out(told: _Told, data: Reading) -> None:
    request = told.request
    _failed(told, data, BestEffort(), data.get("retries", data.get("retry_attempts", 0)))
    request.clock.advance(max(0.0, request.remaining or 0.0))  # type: ignore[attr-defined]
    request.fail((AmbiguousTimeout if request.is_ambiguous else UnambiguousTimeout)())


def _orphaned(told: _Told, data: Reading) -> None:
    _timed_out(told, data)
    told.heard.clear()
    told.request.clock.advance(0.25)  # type: ignore[attr-defined]
    told.request.attempt.answer()


_LATE = (
    r"(?:an? )?(?:late )?(?:response|answer|reply) (?:arrives |comes |received )?"
    r"(?:after|late)(?: the| its)?(?: timeout| request timed out)?"
)
_END = (
    r"(?:request )?(?:completed|succeeded|ends|ended|finished)(?: without (?:a )?retry)?|span (?:ended|ends|finished)"
    r"|success|export|request context (?:export(?:ed)?|exported as (?:map|json))"
)
_HAPPENINGS: tuple[tuple[str, Callable[[_Told, Reading], None]], ...] = (
    (r"(?:a )?retry (?:is )?(?:refused|not allowed|denied|rejected)|request (?:is )?not retried|no retry", _refused),
    (r"(?:a )?retry (?:is )?scheduled|request (?:is )?retried|request retry scheduled", _scheduled),
    (rf"orphan(?:ed)?(?: response| answer| reply)?(?: (?:arrives|received|reported))?|{_LATE}", _orphaned),
    (r"(?:request )?(?:timeout|timed out|times out)", _timed_out),
    (_END, _ended),
)


def _happening(said: str) -> Callable[[_Told, Reading], None]:
    for pattern, happening in _HAPPENINGS:
        if re.fullmatch(pattern, said.lower()):
            return happening
    raise UnknownWord(
        f"event {said!r} (known: retry refused, retry scheduled, orphan response, request timed out, request completed)"
    )


# --------------------------------------------------------------------------------------------------------------- fields


def _request(observe: Callable[[Request], Any], name: str) -> tuple[str, Callable[[_Told], Any]]:
    return name, lambda told: observe(told.request)


def _event(observe: Callable[[Any, _Told], Any], name: str) -> tuple[str, Callable[[_Told], Any]]:
    return name, lambda told: observe(told.heard[-1][0], told)


def _milliseconds(span: Any) -> float | None:
    return None if span is None else span.total_seconds() * 1000


_MEANINGS: dict[str, tuple[str, Callable[[_Told], Any]]] = {
    "operation": _request(lambda request: request.operation, "operation"),
    "id": _request(lambda request: request.id, "id"),
    "service": _request(lambda request: request.service, "service"),
    "idempotent": _request(lambda request: request.idempotent, "idempotent"),
    "timeout_ms": _request(lambda request: _milliseconds(request.timeout), "timeout_ms"),
    "elapsed_ms": _request(lambda request: _milliseconds(request.elapsed), "elapsed_ms"),
    "context": _request(lambda request: request.context, "context"),
    "endpoint": _request(lambda request: request.dispatched_to, "endpoint"),
    "local_address": _request(lambda request: request.dispatched_from, "local_address"),
    "channel_id": _request(lambda request: request.dispatched_on, "channel_id"),
    "retry_attempts": _request(lambda request: request.retry_attempts, "retry_attempts"),
    "attempts": _request(lambda request: request.retry_attempts, "attempts"),
    "retry_reasons": _request(lambda request: [each.name for each in request.retry_reasons], "retry_reasons"),
    "reason": _event(lambda event, _: event.reason.name, "reason"),
    "delay_ms": _event(lambda event, _: _milliseconds(event.delay), "delay_ms"),
    "late_by_ms": _event(lambda event, _: _milliseconds(event.late_by), "late_by_ms"),
    "number": _event(lambda event, _: event.number, "number"),
    "cause": _event(lambda _, told: {"type": type(told.error).__name__, "message": str(told.error)}, "cause"),
}
"""The exported fields, and the expected value of each."""

_ALIASES = {
    "request_id": "id",
    "operation_id": "id",
    "request_type": "operation",
    "request_name": "operation",
    "operation_name": "operation",
    "op": "operation",
    "opcode": "operation",
    "retried": "retry_attempts",
    "retries": "retry_attempts",
    "reasons": "retry_reasons",
    "timeout": "timeout_ms",
    "elapsed": "elapsed_ms",
    "total_duration": "elapsed_ms",
    "total_duration_us": "elapsed_ms",
    "duration": "delay_ms",
    "duration_ms": "delay_ms",
    "backoff": "delay_ms",
    "delay": "delay_ms",
    "late_by": "late_by_ms",
    "client_context": "context",
    "last_dispatched_to": "endpoint",
    "dispatched_to": "endpoint",
    "last_remote_socket": "endpoint",
    "remote": "endpoint",
    "last_dispatched_from": "local_address",
    "dispatched_from": "local_address",
    "last_local_socket": "local_address",
    "local": "local_address",
    "last_channel_id": "channel_id",
    "channel": "channel_id",
    "last_local_id": "channel_id",
    "connection_id": "channel_id",
}
"""The names of the SDKs and RFCs, in the spelling of Python."""

_CONTEXT = (
    "id",
    "operation",
    "service",
    "idempotent",
    "timeout_ms",
    "context",
    "endpoint",
    "local_address",
    "channel_id",
    "retry_attempts",
    "retry_reasons",
)
"""What the SDKs export as the context of a request."""
