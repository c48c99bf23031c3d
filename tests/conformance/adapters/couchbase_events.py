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
    trial = _trial_of(data)
    if "name" in expected:
        assert word(expected["name"], _NAMES) == trial.name
    for level in ("severity", "level"):
        if level in expected:
            assert text(expected[level]).upper().replace("WARNING", "WARN") == trial.level
    for field in expected.get("fields", []):
        trial.check(text(field))
    if "events" in expected:
        assert expected["events"] == trial.names
    for plain in ("json", "plain"):
        if plain in expected:
            assert expected[plain] == (trial.exported == json.loads(json.dumps(trial.exported)))
    _check_span(trial, expected)
    data.finish()
    expected.finish()


def _check_span(trial: _Trial, expected: Reading) -> None:
    """Check that the number of retries is always an attribute, 0 included."""
    if "attribute" in expected:
        word(expected["attribute"], {RETRIES_ATTRIBUTE: None})
        assert {RETRIES_ATTRIBUTE} == set(trial.span.attributes)
    for name in ("value", RETRIES_ATTRIBUTE):
        if name in expected:
            assert expected[name] == trial.span.attributes[RETRIES_ATTRIBUTE]


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


class _Trial:
    """The events and records that a request has caused.

    Attributes:
        request: the request.
        span: receives its number of retries.
        error: the error that its attempt raised.
        heard: the events, each with its log record.
    """

    def __init__(self, request: Request, span: SpanOf, error: Exception) -> None:
        self.request, self.span, self.error = request, span, error
        self.records: list[tuple[RequestEvent, logging.LogRecord]] = []

    @property
    def names(self) -> list[str]:
        """Return the names of the events."""
        return [type(event).__name__ for event, _ in self.records]

    @property
    def name(self) -> str | None:
        """Return the name of the last event."""
        return self.names[-1] if self.records else None

    @property
    def level(self) -> str | None:
        """Return the log level of the last event."""
        return self.records[-1][1].levelname.replace("WARNING", "WARN") if self.records else None

    @property
    def exported(self) -> Json:
        """Return the request's record and last event as plain data; fields of the event take precedence."""
        event = self.records[-1][0].to_dict() if self.records else {}
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


def _trial_of(data: Reading) -> _Trial:
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
    trial = _Trial(request, span, error)
    _dispatch(request)
    with listening(trial.records):
        happening(trial, data)
    return trial


def _dispatch(request: Request) -> None:
    request.attempt.dispatch("node1:11210", local_address="10.0.0.9:50000", channel_id="c0ffee/1")


def _failed(trial: _Trial, data: Reading, strategy: Any, times: int = 1) -> None:
    reason = reason_of(data.get("reason", "KV_LOCKED"))
    for _ in range(times):
        try:
            asyncio.run(Orchestrator(strategy=strategy).maybe_retry(trial.request, reason, trial.error))
        except ConnectionError:
            assert trial.request.completed
            return
        _dispatch(trial.request)


def _scheduled(trial: _Trial, data: Reading) -> None:
    delay = data.get("delay_ms")
    strategy = BestEffort() if delay is None else lambda *_: RetryAction(delay / 1000)
    _failed(trial, data, strategy, data.get("retry_attempts", 1))


def _refused(trial: _Trial, data: Reading) -> None:
    _failed(trial, data, FailFast())


def _ended(trial: _Trial, data: Reading) -> None:
    """End a request with a result, after some retries."""
    _failed(trial, data, BestEffort(), data.get("retries", data.get("retry_attempts", 0)))
    trial.request.succeed("ok")
    trial.records.clear()


def _timed_out(trial: _Trial, data: Reading) -> None:
    request = trial.request
    _failed(trial, data, BestEffort(), data.get("retries", data.get("retry_attempts", 0)))
    request.clock.advance(max(0.0, request.remaining or 0.0))  # type: ignore[attr-defined]
    request.fail((AmbiguousTimeout if request.is_ambiguous else UnambiguousTimeout)())


def _orphaned(trial: _Trial, data: Reading) -> None:
    _timed_out(trial, data)
    trial.records.clear()
    trial.request.clock.advance(0.25)  # type: ignore[attr-defined]
    trial.request.attempt.answer()


_LATE = (
    r"(?:an? )?(?:late )?(?:response|answer|reply) (?:arrives |comes |received )?"
    r"(?:after|late)(?: the| its)?(?: timeout| request timed out)?"
)
_END = (
    r"(?:request )?(?:completed|succeeded|ends|ended|finished)(?: without (?:a )?retry)?|span (?:ended|ends|finished)"
    r"|success|export|request context (?:export(?:ed)?|exported as (?:map|json))"
)
_HAPPENINGS: tuple[tuple[str, Callable[[_Trial, Reading], None]], ...] = (
    (r"(?:a )?retry (?:is )?(?:refused|not allowed|denied|rejected)|request (?:is )?not retried|no retry", _refused),
    (r"(?:a )?retry (?:is )?scheduled|request (?:is )?retried|request retry scheduled", _scheduled),
    (rf"orphan(?:ed)?(?: response| answer| reply)?(?: (?:arrives|received|reported))?|{_LATE}", _orphaned),
    (r"(?:request )?(?:timeout|timed out|times out)", _timed_out),
    (_END, _ended),
)


def _happening(given: str) -> Callable[[_Trial, Reading], None]:
    for pattern, happening in _HAPPENINGS:
        if re.fullmatch(pattern, given.lower()):
            return happening
    raise UnknownWord(
        f"event {given!r} "
        "(known: retry refused, retry scheduled, orphan response, request timed out, request completed)"
    )


# --------------------------------------------------------------------------------------------------------------- fields


def _request(observe: Callable[[Request], Any], name: str) -> tuple[str, Callable[[_Trial], Any]]:
    return name, lambda trial: observe(trial.request)


def _event(observe: Callable[[Any, _Trial], Any], name: str) -> tuple[str, Callable[[_Trial], Any]]:
    return name, lambda trial: observe(trial.records[-1][0], trial)


def _milliseconds(span: Any) -> float | None:
    return None if span is None else span.total_seconds() * 1000


_MEANINGS: dict[str, tuple[str, Callable[[_Trial], Any]]] = {
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
    "cause": _event(lambda _, trial: {"type": type(trial.error).__name__, "message": str(trial.error)}, "cause"),
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
