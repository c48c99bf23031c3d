"""Adapters for the core of ``couchbase.json``, RFC 0049 itself: reasons, caps, timeouts, terminal failures.

Delays, events, the orchestrator and the breaker have modules of their own. All numbers are milliseconds.
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import pytest

from redrive.contrib.couchbase import is_idempotent
from redrive.orchestrator import (
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
from redrive.policy import Stage
from tests.conformance.adapters.couchbase_strategies import RecordingStrategy, reason_of, strategy_of
from tests.conformance.adapters.couchbase_trial import ResponseStep, Trial, TrialClock, Watched, on_loop, step_of
from tests.conformance.adapters.couchbase_words import Reading, error_name, parts, text
from tests.conformance.adapters.vocabulary import UnknownWord, read, word
from tests.retrying.helpers import JumpingClock
from tests.retrying.orchestrator.helpers import SpanOf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.loading import Case

Json = dict[str, Any]

MILLISECOND = timedelta(milliseconds=1)
NEARLY = {"rel": 1e-9, "abs": 1e-6}


# -------------------------------------------------------------------------------------------------------------- reasons


def retry_reason(case: Case) -> None:
    """Check the properties of a reason, or the reason that a spelling means."""
    data, expected = parts(case, ("reason", "parse"), ("allows_non_idempotent_retry", "always_retry", "reason"))
    if "parse" in data:
        reason = RetryReason.parse(text(data["parse"]))
    else:
        reason = RetryReason.of(text(data["reason"]))
        assert reason == RetryReason.parse(data["reason"])
    if "reason" in expected:
        assert expected["reason"] == reason.name
    if "allows_non_idempotent_retry" in expected:
        assert expected["allows_non_idempotent_retry"] == reason.allows_non_idempotent_retry
    if "always_retry" in expected:
        assert expected["always_retry"] == reason.always_retry
    data.finish()


def stage(case: Case) -> None:
    """Check the decision for a reason, a request and a strategy (``inprocess.json``, stage.couchbase)."""
    read(case.shared, "id", "kind", "about", "note", "source", "verified_by")
    data = read(case.data, "reason", "allows_non_idempotent", "always", "idempotent", "strategy", "expect")
    reason = RetryReason.of(data["reason"])
    assert (data["allows_non_idempotent"], data["always"]) == reason[1:]
    spy, clock = (
        RecordingStrategy(word(data["strategy"], {"best_effort": BestEffort, "fail_fast": FailFast})()),
        JumpingClock(),
    )
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
    """Check a delay under a deadline, and whether the request is sent after it."""
    data, expected = parts(case, ("lifetime_ms", "elapsed_ms", "delay_ms"), ("capped_ms", "dispatch_after"))
    left = None if data["lifetime_ms"] is None else (data["lifetime_ms"] - data.get("elapsed_ms", 0)) / 1000
    data.get("elapsed_ms")
    wait = cap(data["delay_ms"] * MILLISECOND, left)
    if "capped_ms" in expected:
        assert pytest.approx(expected["capped_ms"], **NEARLY) == wait.delay / MILLISECOND
    if "dispatch_after" in expected:
        assert expected["dispatch_after"] == (not wait.expires)
    data.finish()


_TIMEOUT_FIELDS = (
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
)
_TIMEOUT_OUTCOMES = ("raises", "ambiguous", "effective_read_only", "remaining_ms", "server_side_timeout_ms", "and")


def timeout(case: Case) -> None:
    """Check the timeout error of a request, how its time runs, and which timeout its server receives."""
    data, expected = parts(case, _TIMEOUT_FIELDS, _TIMEOUT_OUTCOMES)
    if "effective_read_only" in expected:
        assert expected["effective_read_only"] == _flagged(data).read_only
    if "remaining_ms" in expected:
        _check_remaining(data, expected["remaining_ms"])
    if "server_side_timeout_ms" in expected:
        _operation(data)
        given = server_timeout(data["timeout_ms"] / 1000) / MILLISECOND
        assert pytest.approx(expected["server_side_timeout_ms"]) == given
    if {"raises", "ambiguous", "and"} & set(expected):
        for interface in ("run", "name"):
            _check_end(on_loop(_timed_out(data, interface)), expected)
    data.finish()
    expected.finish()


def _check_end(trial: Trial, expected: Reading) -> None:
    if "raises" in expected:
        assert error_name(expected["raises"]) == getattr(trial.error, "name", type(trial.error).__name__)
    if "ambiguous" in expected:
        assert expected["ambiguous"] == trial.request.is_ambiguous
    if "and" in expected:
        found = re.fullmatch(r"context\.retry_reasons contains (\w+)", text(expected["and"]))
        if not found:
            raise UnknownWord(f"and {expected['and']!r} (known: context.retry_reasons contains REASON)")
        record = trial.error.__retry__  # type: ignore[union-attr]
        assert found[1] in [reason.name for reason in record.retry_reasons]
        assert trial.request.id == record.id


_SERVICES = ("query", "analytics", "search", "views")


def _operation(data: Reading) -> str:
    """Return the operation without the durability that a case may name: durability changes nothing here."""
    return text(data.get("op", "upsert")).removesuffix(" durable")


def _flagged(data: Reading, **options: Any) -> Watched:
    operation = _operation(data)
    service = operation if operation in _SERVICES else "kv"
    listed = is_idempotent(service, operation, {"readonly": data.get("readonly", False)})
    # A case that calls an operation read-only without a word on its idempotency means that it reads.
    idempotent = data.get("idempotent", data.get("read_only") or listed)
    request = Watched(operation, idempotent=bool(idempotent), read_only=data.get("read_only"), **options)
    request.effects = []
    return request


def _check_remaining(data: Reading, expected: list[float] | None) -> None:
    clock = JumpingClock()
    limit = data["timeout_ms"]
    request = Request(timeout=None if limit is None else limit / 1000, clock=clock)
    if expected is None:
        assert None is request.remaining
        return
    given = []
    for at in data["at_ms"]:
        clock.advance(at / 1000 - clock.monotonic())
        assert request.remaining is not None
        given.append(request.remaining * 1000)
    assert pytest.approx(expected) == given


async def _timed_out(data: Reading, interface: str) -> Trial:
    """Let a request fail as the case describes, and then time out, in flight or while it waits."""
    if "final_error" in data:
        word(data["final_error"], {"ambiguous_timeout": None})
    when = word(data.get("timeout_during", "in_flight"), {"backoff": "backoff", "in_flight": "in_flight"})
    steps = list(_steps(data))
    if data.get("response") is not None:
        steps.append(step_of(data["response"], _operation(data), read_only=bool(data.get("read_only"))))
    is_lost = any(step.stage is Stage.IN_FLIGHT for step in steps[:-1])  # and it went on: somebody has allowed that

    def strategy(request: Request, _: RetryReason) -> RetryAction:
        return RetryAction("1h" if when == "backoff" and request.attempt.number == len(steps) else "1ms")

    clock = TrialClock([])
    limit = data.get("timeout_ms", 2500)
    request = _flagged(data, timeout=limit / 1000, retry_strategy=strategy, may_repeat_in_flight=is_lost, clock=clock)
    trial = Trial(request, Orchestrator(), RecordingStrategy(strategy), clock, SpanOf(), [], [])
    left = data.get("dispatched", when == "in_flight")
    last = ResponseStep(stage=Stage.IN_FLIGHT if left else Stage.NOT_SENT, takes=10**6)
    await trial.play(chain(steps, repeat(last)), interface=interface)
    return trial


def _steps(data: Reading) -> Iterator[ResponseStep]:
    read_only = bool(data.get("read_only"))
    for each in data.get("attempts", []):
        attempt = Reading(each, ("dispatched", "response"))
        entry = attempt["response"] or "socket closed while in flight"
        step = step_of(entry, _operation(data), read_only=read_only)
        if attempt["dispatched"] != (step.stage is not Stage.NOT_SENT):
            raise UnknownWord(f"{entry!r} with dispatched={attempt['dispatched']}: one says that it left, one that not")
        yield step
    for name in data.get("retry_reasons", []):
        yield step_of(word(RetryReason.parse(name).name, _STATUSES), _operation(data), read_only=read_only)


_STATUSES = {
    "KV_LOCKED": "LOCKED 0x09",
    "KV_TEMPORARY_FAILURE": "TMPFAIL 0x86",
    "KV_NOT_MY_VBUCKET": "NMVB 0x07",
    "KV_COLLECTION_OUTDATED": "UNKNOWN_COLLECTION 0x88",
    "KV_SYNC_WRITE_IN_PROGRESS": "SYNC_WRITE_IN_PROGRESS 0xa2",
    "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS": "SYNC_WRITE_RE_COMMIT_IN_PROGRESS 0xa4",
    "NODE_NOT_AVAILABLE": "client: node not available",
    "SERVICE_NOT_AVAILABLE": "client: service not available",
    "SOCKET_NOT_AVAILABLE": "client: socket not available",
    "CIRCUIT_BREAKER_OPEN": "client: breaker open",
    "SOCKET_CLOSED_WHILE_IN_FLIGHT": "socket closed while in flight",
}
"""A response that leads to a reason."""


# ---------------------------------------------------------------------------------------------------- terminal failures

_ERRORS = {"CouchbaseException": "TerminalFailure"}
"""Errors of the SDKs that have another name here."""


def fast_fail_terminal(case: Case) -> None:
    """Check the decision of failing fast on terminal errors."""
    data, expected = parts(
        case, ("reason", "idempotent", "n", "reasons", "events", "then_reason"), ("retry", "raises", "same_as")
    )
    strategy = FailFastOnTerminalError(nth=data.get("n", 1))
    idempotent = data.get("idempotent", False)
    if "reasons" in data:
        assert expected["retry"] == _in_turn(strategy, [reason_of(each) for each in data["reasons"]], idempotent)
    else:
        request = Request(idempotent=idempotent, clock=JumpingClock())
        reason = _after_events(data) if "events" in data else reason_of(data["reason"])
        error = _decide(request, strategy, reason)
        assert expected["retry"] == (error is None)
        if "raises" in expected:
            name = error_name(expected["raises"])
            assert _ERRORS.get(name, name) == type(error).__name__
        if "same_as" in expected:
            other = Request(idempotent=request.idempotent, clock=JumpingClock())
            _decide(other, strategy_of(expected["same_as"]), reason)
            assert other.history == request.history
    data.finish()
    expected.finish()


def _decide(request: Request, strategy: Any, reason: RetryReason) -> Exception | None:
    try:
        asyncio.run(Orchestrator(strategy=strategy).maybe_retry(request, reason, ConnectionError("of the client")))
    except Exception as error:  # noqa: BLE001 - whatever the strategy makes of it
        return error
    return None


def _in_turn(strategy: Any, reasons: list[RetryReason], idempotent: bool) -> list[bool]:
    request = Request(idempotent=idempotent, clock=JumpingClock())
    return [_decide(request, strategy, reason) is None for reason in reasons]


_HAPPENED = re.compile(
    r"(?P<what>SASL|TLS|bucket|select_bucket) (?P<how>AUTH_ERROR|ERROR|error|failure|failed|access error|success|ok)"
    r"(?: on (?P<connection>.+))?"
)
_FAILS = {"SASL": "AUTHENTICATION_ERROR", "TLS": "TLS_ERROR", "bucket": "BUCKET_ACCESS_ERROR"}


def _after_events(data: Reading) -> RetryReason:
    """Return the reason of a request after events on the connections that watch the cluster."""
    errors, connection = TerminalErrors(TERMINAL), ""
    for entry in data["events"]:
        found = _HAPPENED.fullmatch(text(entry))
        if not found:
            raise UnknownWord(
                f"event {entry!r} (known: SASL AUTH_ERROR, TLS error, bucket error, success, on a connection)"
            )
        connection = found["connection"] or connection
        if found["how"] in ("success", "ok"):
            errors.succeeded(connection)
        else:
            errors.failed(connection, RetryReason.of(_FAILS[found["what"].removeprefix("select_")]))
    return errors.reason_for(reason_of(data["then_reason"]))
