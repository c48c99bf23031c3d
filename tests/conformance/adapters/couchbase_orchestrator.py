"""Adapter for the group ``orchestrator`` of ``couchbase.json``: a request from its first failure to its end.

What a case says goes into a `Trial`; what it expects is asked of the trial, field by field.
"""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any

import pytest

from redrive.contrib.couchbase import is_idempotent
from redrive.errors import RequestCancelled
from redrive.policy import Backoff, Stage
from redrive.retrying.orchestrator import BestEffort, Orchestrator, Request, RetryAction, RetryReason
from tests.conformance.adapters.couchbase_trial import (
    Refused,
    Spy,
    Step,
    Trial,
    failing,
    parts,
    reason_of,
    script_of,
    strategy_of,
)
from tests.conformance.adapters.vocabulary import UnknownWord, read, word
from tests.retrying.helpers import JumpingClock
from tests.retrying.orchestrator.helpers import SpanOf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.conformance.loading import Case

Json = dict[str, Any]

_FIELDS = (
    "attempts",
    "backoff_ms",
    "calculator",
    "client_context",
    "document",
    "elapsed_ms",
    "error",
    "event",
    "global",
    "history",
    "idempotent",
    "loop_until_total_wait_ms",
    "now",
    "op",
    "reason",
    "recorded",
    "request",
    "responses",
    "retry_attempts",
    "server",
    "strategy",
    "strategy_returns",
    "strategy_returns_ms",
    "timeout_left_ms",
    "timeout_ms",
)


def orchestrator(case: Case) -> None:
    """What becomes of a request."""
    data, expected = parts(case, _FIELDS, tuple(_CHECKS))
    trial = _trial(data)
    trial.play(_script(data, trial), by_reason="responses" not in data and "server" not in data)
    for name, value in expected.items():
        _CHECKS[name](trial, value)


# ------------------------------------------------------------------------------------------------------- what is given


def _trial(data: Mapping[str, Any]) -> Trial:
    clock, spy = JumpingClock(), Spy(_strategy(data))
    state = data["request"] if isinstance(data.get("request"), dict) else {}
    read(state, "completed", "internal_unmonitored")
    timeout = data.get("timeout_ms", data.get("timeout_left_ms"))
    operation = data.get("op", "get" if data.get("idempotent") else "upsert")
    span, completions = SpanOf(), []
    request = Request(
        operation,
        idempotent=data.get("idempotent", is_idempotent("kv", operation)),
        retry_strategy=spy,
        timeout=None if timeout is None else timeout / 1000,
        context=data.get("client_context"),
        internal=state.get("internal_unmonitored", False),
        span=span,
        on_completed=completions.append,
        clock=clock,
    )
    request.retry_attempts = data.get("retry_attempts", 0)
    if state.get("completed"):
        request.succeed()
        completions.clear()
    clock.advance(data.get("elapsed_ms", 0) / 1000)
    return Trial(request, Orchestrator(), spy, clock, span, completions, request.retry_attempts)


def _strategy(data: Mapping[str, Any]) -> Any:
    if "strategy_returns_ms" in data:
        return lambda *_: RetryAction(data["strategy_returns_ms"] / 1000)
    if "backoff_ms" in data:
        return BestEffort(Backoff.constant(data["backoff_ms"] / 1000))
    if "strategy_returns" in data:
        return strategy_of(data["strategy_returns"] or "no_retry")
    own = data.get("request") if isinstance(data.get("request"), str) else None
    return strategy_of(own or data.get("strategy") or data.get("global") or data.get("calculator") or "best_effort")


def _script(data: Mapping[str, Any], trial: Trial) -> Iterator[Step]:
    operation = trial.request.operation
    for field in ("responses", "server"):
        if field in data:
            return script_of(data[field], operation)
    if "event" in data:
        return chain(script_of([data["event"]], operation), [Step()])
    reasons = _reasons(data)
    if "loop_until_total_wait_ms" in data:
        return _until(trial, data["loop_until_total_wait_ms"], reasons[0])
    lost = word(data["error"], {"request_canceled": Stage.IN_FLIGHT}) if "error" in data else Stage.NOT_SENT
    return failing(reasons, Stage.ANSWERED if "document" in data else lost)


def _reasons(data: Mapping[str, Any]) -> list[RetryReason]:
    if "attempts" in data:
        return [RetryReason.KV_LOCKED] * (data["attempts"] - 1)
    if "document" in data:
        return [word(data["document"], {"locked": RetryReason.KV_LOCKED})]
    if found := re.search(r" on (\w+)$", data.get("strategy") or ""):
        return [RetryReason.parse(found[1])]
    given = data.get("recorded") or [*data.get("history", []), data.get("now", data.get("reason", "KV_LOCKED"))]
    return [reason_of(each) for each in given]


def _until(trial: Trial, total: float, reason: RetryReason) -> Iterator[Step]:
    while sum(trial.delays) < total:
        yield Step(Refused(reason, reason.name), Stage.NOT_SENT)
    yield from repeat(Step())


# ---------------------------------------------------------------------------------------------------- what is expected


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_refused(trial: Trial) -> bool:
    """Whether it ended with the refusal of a retry: that of its server, or one that stands for it."""
    error = trial.error
    if isinstance(error, RequestCancelled):
        return error.cancellation == "NO_MORE_RETRIES"
    return isinstance(error, Refused) and error is trial.raised[-1]


def _outcome(trial: Trial, said: str) -> None:
    if found := re.fullmatch(r"RequestCanceled\(NO_MORE_RETRIES\((\w+)\)\)", said):
        assert isinstance(trial.error, RequestCancelled)
        assert ("NO_MORE_RETRIES", found[1]) == (trial.error.cancellation, trial.error.reason)
    elif said == "fails immediately with the strategy's exception (or error chained to it)":
        assert trial.spy.reasons
        assert not isinstance(trial.error, RequestCancelled | Refused | TimeoutError)
        assert trial.error is not None
    elif said in _OUTCOMES:
        assert _OUTCOMES[said](trial), f"{said}: {trial.error!r}"
    else:
        assert said == getattr(trial.error, "name", type(trial.error).__name__)


_OUTCOMES: dict[str, Callable[[Trial], bool]] = {
    "ok": lambda trial: trial.error is None and trial.request.completed,
    "cancelled": _is_refused,
    "no_retry": _is_refused,
    "RequestCanceled": _is_refused,
    "timeout": lambda trial: isinstance(trial.error, TimeoutError),
}


def _cancellation(trial: Trial, said: Json) -> None:
    read(said, "id", "inner")
    assert isinstance(trial.error, RequestCancelled)
    assert said == {"id": trial.error.cancellation, "inner": trial.error.reason}


def _events(trial: Trial, said: list[Json]) -> None:
    assert len(said) == len(trial.events)
    for each, (event, record) in zip(said, trial.events, strict=True):
        read(each, "name", "severity", "category", "reason", "context", "duration_ms", "cause")
        assert (each["name"], each["severity"]) == (type(event).__name__, record.levelname)
        if "category" in each:
            assert word(each["category"], {"request": "redrive.orchestrator"}) == record.name
        if "reason" in each:
            assert each["reason"] == event.reason.name
        if "context" in each:
            assert word(each["context"], {"request": trial.request.id}) == event.id
        if "duration_ms" in each:
            assert event.delay is not None
            assert each["duration_ms"] == event.delay.total_seconds() * 1000
        if "cause" in each:
            assert word(each["cause"], {"strategy exception": trial.error}) is event.cause


def _recorded(trial: Trial, said: Json) -> None:
    read(said, "duration_ms", "reason")
    first = trial.request.history[0]
    assert first.delay is not None
    assert first.reason is not None
    assert said == {"duration_ms": first.delay.total_seconds() * 1000, "reason": first.reason.name}


def _cause(trial: Trial, said: str) -> None:
    found = re.fullmatch(r"RequestCanceled\(NO_MORE_RETRIES\((\w+)\)\)( with full error context)?", said)
    if not found:
        raise UnknownWord(said)
    assert trial.error is not None
    cause = trial.error.__cause__
    assert isinstance(cause, RequestCancelled)
    assert ("NO_MORE_RETRIES", found[1]) == (cause.cancellation, cause.reason)
    if found[2]:
        assert trial.request.id == cause.__retry__.id


def _then(trial: Trial, said: str) -> None:
    word(said, {"timeout without dispatch": None})
    assert (True, 1) == (isinstance(trial.error, TimeoutError), len(trial.sent_at))


def _never(trial: Trial, said: str) -> None:
    assert said.split(" after ", maxsplit=1)[0] not in {type(each).__name__ for each in _chain(trial.error)}


def _decreasing(trial: Trial, said: bool) -> None:
    left = [each for each in trial.remaining if each is not None]
    assert len(trial.sent_at) == len(left)
    assert said == all(after < before for before, after in pairwise(left))


def _names(trial: Trial) -> list[str]:
    return [reason.name for reason in trial.request.retry_reasons]


_DELAY = 1e-6  # a microsecond, in milliseconds: the resolution of a span


def _equal(observe: Callable[[Trial], Any]) -> Callable[[Trial, Any], None]:
    def check(trial: Trial, said: Any) -> None:
        assert said == observe(trial)

    return check


def _near(observe: Callable[[Trial], float]) -> Callable[[Trial, Any], None]:
    def check(trial: Trial, said: Any) -> None:
        assert pytest.approx(said, abs=_DELAY) == observe(trial)

    return check


def _more(observe: Callable[[Trial], float]) -> Callable[[Trial, Any], None]:
    def check(trial: Trial, said: Any) -> None:
        assert said < observe(trial)

    return check


def _less(observe: Callable[[Trial], float]) -> Callable[[Trial, Any], None]:
    def check(trial: Trial, said: Any) -> None:
        assert said > observe(trial)

    return check


def _retries(trial: Trial) -> int:
    return trial.request.retry_attempts


_CHECKS: dict[str, Callable[[Trial, Any], None]] = {
    "attempts": _equal(_retries),
    "callback_times": _equal(lambda trial: len(trial.completions)),
    "cancellation": _cancellation,
    "cause": _cause,
    "client_context_seen_by_strategy": _equal(lambda trial: trial.spy.contexts[-1]),
    "delay_ms": _near(lambda trial: trial.delays[-1]),
    "dispatches": _equal(lambda trial: len(trial.sent_at)),
    "dispatches_gt": _more(lambda trial: len(trial.sent_at)),
    "distinct_reasons": _equal(lambda trial: len(trial.request.retry_reasons)),
    "elapsed_lt_ms": _less(lambda trial: trial.request.elapsed.total_seconds() * 1000),
    "events": _events,
    "not": _never,
    "not_before_ms": _more(lambda trial: trial.sent_at[1] + _DELAY),
    "outcome": _outcome,
    "outcome_at_deadline": _outcome,
    "raises": _outcome,
    "recorded": _recorded,
    "recorded_duration_ms": _near(lambda trial: trial.request.history[0].delay / timedelta(milliseconds=1)),
    "redispatched_times": _equal(lambda trial: len(trial.sent_at) - 1),
    "remaining_strictly_decreasing": _decreasing,
    "retry": _equal(lambda trial: _retries(trial) > trial.before),
    "retry_attempts": _equal(_retries),
    "retry_attempts_gt": _more(_retries),
    "retry_reasons": _equal(_names),
    "scheduled": _equal(lambda trial: bool(trial.delays)),
    "span_end_times": _equal(lambda trial: trial.span.ends),
    "strategy_consulted": _equal(lambda trial: bool(trial.spy.reasons)),
    "then": _then,
    "timeout_registered_again": _equal(lambda trial: len(trial.deadlines) > 1),
}
