"""Adapters for the core of ``couchbase.json``, RFC 0049 itself: reasons, caps, timeouts, terminal failures, events.

Delays, the orchestrator and the circuit breaker have modules of their own. All numbers of the cases are milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from redrive.contrib.couchbase import is_idempotent
from redrive.policy import Stage
from redrive.retrying.orchestrator import (
    TERMINAL,
    BestEffort,
    FailFast,
    FailFastOnTerminalError,
    Orchestrator,
    Request,
    RetryAction,
    RetryReason,
    TerminalErrors,
    cap,
    controlled_backoff,
    server_timeout,
)
from tests.conformance.adapters.couchbase_trial import Spy, listening, parts, step_of
from tests.conformance.adapters.vocabulary import UnknownWord, read, word
from tests.retrying.helpers import JumpingClock, JumpingLoop, LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redrive.retrying.orchestrator import Attempt, RetryEvent
    from tests.conformance.loading import Case

Json = dict[str, Any]

MILLISECOND = timedelta(milliseconds=1)
NEARLY = {"rel": 1e-9, "abs": 1e-6}
LAST_SAMPLE = 1 - 1e-12


# -------------------------------------------------------------------------------------------------------------- reasons


def retry_reason(case: Case) -> None:
    """What is known about a reason, or which one a spelling means."""
    data, expected = parts(case, ("reason", "parse"), ("allows_non_idempotent_retry", "always_retry", "reason"))
    if "parse" in data:
        assert expected["reason"] == RetryReason.parse(data["parse"]).name
        return
    reason = RetryReason.of(data["reason"])
    assert RetryReason.parse(data["reason"]) == reason
    assert expected["allows_non_idempotent_retry"] == reason.allows_non_idempotent_retry
    assert expected["always_retry"] == reason.always_retry


def stage(case: Case) -> None:
    """What is decided for a reason, a request and a strategy (``inprocess.json``, stage.couchbase)."""
    read(case.shared, "id", "kind", "about", "note", "source", "verified_by")
    data = read(case.data, "reason", "allows_non_idempotent", "always", "idempotent", "strategy", "expect")
    reason = RetryReason.of(data["reason"])
    assert (data["allows_non_idempotent"], data["always"]) == reason[1:]
    spy, clock = Spy(word(data["strategy"], {"best_effort": BestEffort, "fail_fast": FailFast})()), JumpingClock()
    request = Request(idempotent=data["idempotent"], retry_strategy=spy, clock=clock)
    try:
        asyncio.run(Orchestrator().maybe_retry(request, reason))
    except Exception:  # noqa: BLE001 - whatever a refusal raises
        decided = "no_retry"
    else:
        decided = "retry:strategy" if spy.reasons else "retry:controlled"
        if not spy.reasons:
            assert [controlled_backoff(0).total_seconds()] == clock.slept
    assert data["expect"] == decided


# ----------------------------------------------------------------------------------------------------------------- time


def cap_duration(case: Case) -> None:
    """What a delay comes to under a deadline, and whether the request is sent after it."""
    data, expected = parts(case, ("lifetime_ms", "elapsed_ms", "delay_ms"), ("capped_ms", "dispatch_after"))
    left = None if data["lifetime_ms"] is None else (data["lifetime_ms"] - data["elapsed_ms"]) / 1000
    wait = cap(data["delay_ms"] * MILLISECOND, left)
    assert pytest.approx(expected["capped_ms"], **NEARLY) == wait.delay / MILLISECOND
    assert expected["dispatch_after"] != wait.expires


_TIMEOUT_OUTCOMES = ("raises", "effective_read_only", "remaining_ms", "server_side_timeout_ms", "and")


def timeout(case: Case) -> None:
    """Which timeout a request ends with, how its time runs, and what its server is told."""
    data, expected = parts(
        case,
        (
            "op",
            "read_only",
            "idempotent",
            "readonly",
            "dispatched",
            "response",
            "attempts",
            "timeout_during",
            "timeout_ms",
            "at_ms",
            "retry_reasons",
            "final_error",
        ),
        _TIMEOUT_OUTCOMES,
    )
    if "effective_read_only" in expected:
        assert expected["effective_read_only"] == _flagged(data).read_only
    if "remaining_ms" in expected:
        _check_remaining(data, expected["remaining_ms"])
    if "server_side_timeout_ms" in expected:
        assert (
            pytest.approx(expected["server_side_timeout_ms"]) == server_timeout(data["timeout_ms"] / 1000) / MILLISECOND
        )
    if "raises" in expected:
        request, error = _timed_out(data)
        assert expected["raises"] == type(error).__name__
        if "and" in expected:
            _check_record(expected["and"], request, error)


def _flagged(data: Mapping[str, Any], **options: Any) -> Request:
    operation = data.get("op", "")
    service = operation if operation in ("query", "analytics", "search", "views") else "kv"
    listed = is_idempotent(service, operation, {"readonly": data.get("readonly", False)})
    # A case that calls an operation read-only without a word on its idempotency means that it reads.
    idempotent = data.get("idempotent", data.get("read_only") or listed)
    return Request(operation, idempotent=bool(idempotent), read_only=data.get("read_only"), **options)


def _check_remaining(data: Mapping[str, Any], expected: list[float] | None) -> None:
    clock = JumpingClock()
    limit = data["timeout_ms"]
    request = Request(timeout=None if limit is None else limit / 1000, clock=clock)
    if expected is None:
        assert request.remaining is None
        return
    for at, left in zip(data["at_ms"], expected, strict=True):
        clock.advance(at / 1000 - clock.monotonic())
        assert request.remaining is not None
        assert pytest.approx(left) == request.remaining * 1000


def _timed_out(data: Mapping[str, Any]) -> tuple[Request, Exception]:
    """Let a request fail as the case says, and then its time be up, in flight or while it waits."""
    if "final_error" in data:
        word(data["final_error"], {"ambiguous_timeout": None})
    if data.get("response") is not None:
        raise UnknownWord(f"response {data['response']!r} (known: null, or attempts)")

    async def main() -> tuple[Request, Exception]:
        steps, waits = list(_steps(data)), data.get("timeout_during") == "backoff"
        is_lost = any(step.stage is Stage.IN_FLIGHT for step in steps[:-1])  # and it went on: somebody has allowed that

        def strategy(request: Request, _: RetryReason) -> RetryAction:
            return RetryAction("1h" if waits and request.attempt.number == len(steps) else "1ms")

        request = _flagged(data, timeout=2.5, retry_strategy=strategy, may_repeat_in_flight=is_lost, clock=LoopClock())

        async def send(request: Request, attempt: Attempt) -> None:
            if attempt.number <= len(steps):
                step = steps[attempt.number - 1]
                step.mark(attempt)
                raise step.error
            if data.get("dispatched", not waits):
                attempt.dispatch("node1")
            await request.clock.asleep(3600)

        with pytest.raises(TimeoutError) as caught:
            await Orchestrator().run(request, send, marks=True)
        return request, caught.value

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main())


def _steps(data: Mapping[str, Any]) -> Iterator[Any]:
    if "timeout_during" in data:
        word(data["timeout_during"], {"backoff": None, "in_flight": None})
    for each in data.get("attempts", []):
        read(each, "dispatched", "response")
        step = step_of(each["response"] or "socket closed while in flight", data["op"])
        assert each["dispatched"] == (step.stage is not Stage.NOT_SENT)
        yield step
    for name in data.get("retry_reasons", []):
        yield step_of(word(RetryReason.parse(name).name, _STATUSES), data["op"])


_STATUSES = {"KV_LOCKED": "LOCKED 0x09", "KV_TEMPORARY_FAILURE": "TMPFAIL 0x86", "KV_NOT_MY_VBUCKET": "NMVB 0x07"}
"""A status of the key-value service that leads to a reason."""


def _check_record(said: str, request: Request, error: Exception) -> None:
    found = re.fullmatch(r"context\.retry_reasons contains (\w+)", said)
    if not found:
        raise UnknownWord(said)
    record = error.__retry__  # type: ignore[attr-defined]
    assert found[1] in [reason.name for reason in record.retry_reasons]
    assert request.id == record.id


# ---------------------------------------------------------------------------------------------------- terminal failures

_ERRORS = {"CouchbaseException": "TerminalFailure"}
"""Errors of the SDKs that have another name here."""


def fast_fail_terminal(case: Case) -> None:
    """What failing fast on terminal errors decides."""
    data, expected = parts(
        case, ("reason", "idempotent", "n", "reasons", "events", "then_reason"), ("retry", "raises", "same_as")
    )
    if "reasons" in data:
        assert expected["retry"] == _in_turn(FailFastOnTerminalError(nth=data["n"]), data["reasons"])
        return
    request = Request(idempotent=data.get("idempotent", False), clock=JumpingClock())
    reason = _after_events(data) if "events" in data else RetryReason.of(data["reason"])
    error = _decide(request, FailFastOnTerminalError(), reason)
    assert expected["retry"] == (error is None)
    if "raises" in expected:
        assert _ERRORS.get(expected["raises"], expected["raises"]) == type(error).__name__
    if "same_as" in expected:
        other = Request(idempotent=request.idempotent, clock=JumpingClock())
        _decide(other, word(expected["same_as"], {"best_effort": BestEffort})(), reason)
        assert other.history == request.history


def _decide(request: Request, strategy: Any, reason: RetryReason) -> Exception | None:
    try:
        asyncio.run(Orchestrator(strategy=strategy).maybe_retry(request, reason, ConnectionError("of the client")))
    except Exception as error:  # noqa: BLE001 - whatever the strategy makes of it
        return error
    return None


def _in_turn(strategy: Any, names: list[str]) -> list[bool]:
    request = Request(clock=JumpingClock())
    return [_decide(request, strategy, RetryReason.of(name)) is None for name in names]


_HAPPENED = re.compile(r"SASL (AUTH_ERROR|success)(?: on (.+))?")


def _after_events(data: Mapping[str, Any]) -> RetryReason:
    """The reason of a request, after what has happened to the connections that watch the cluster."""
    errors, connection = TerminalErrors(TERMINAL), ""
    for text in data["events"]:
        found = _HAPPENED.fullmatch(text)
        if not found:
            raise UnknownWord(f"{text!r} (known: SASL AUTH_ERROR, SASL success, on a connection)")
        connection = found[2] or connection
        if found[1] == "success":
            errors.succeeded(connection)
        else:
            errors.failed(connection, RetryReason.of("AUTHENTICATION_ERROR"))
    return errors.reason_for(RetryReason.of(data["then_reason"]))


# --------------------------------------------------------------------------------------------------------------- events

_HAPPENINGS = {"retry refused": FailFast, "retry scheduled": BestEffort}
_EVENT_FIELDS: dict[str, Callable[[RetryEvent, Request, Exception], bool]] = {
    "reason": lambda event, request, _: event.reason == request.attempt.reason or event.reason in request.retry_reasons,
    "request_type": lambda event, request, _: event.operation == request.operation,
    "cause": lambda event, _, error: event.cause is error,
    "duration": lambda event, request, _: event.delay == request.history[0].delay is not None,
    "attempts": lambda event, request, _: event.attempts == request.retry_attempts,
    "id": lambda event, request, _: event.id == request.id,
    "last_dispatched_to": lambda event, request, _: event.endpoint == request.dispatched_to,
    "client_context": lambda event, request, _: event.context == request.context,
    "...request context": lambda event, request, _: (
        (event.id, event.attempts, event.endpoint, event.context)
        == (request.id, request.retry_attempts, request.dispatched_to, request.context)
    ),
}


def events(case: Case) -> None:
    """What is told of a decision."""
    data, expected = parts(case, ("event",), ("name", "severity", "fields"))
    heard: list[tuple[RetryEvent, logging.LogRecord]] = []
    request = Request(
        "upsert",
        retry_strategy=word(data["event"], _HAPPENINGS)(),
        context={"user": 7},
        clock=JumpingClock(),
    )
    request.attempt.dispatch("node1")
    error = ConnectionError("of the client")
    with listening(heard):
        try:
            asyncio.run(Orchestrator().maybe_retry(request, RetryReason.KV_LOCKED, error))
        except ConnectionError:
            assert request.completed
    ((event, record),) = heard
    assert (expected["name"], expected["severity"]) == (type(event).__name__, record.levelname)
    for field in expected.get("fields", []):
        assert word(field, _EVENT_FIELDS)(event, request, error), field
