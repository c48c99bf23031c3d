"""Adapter for the group ``orchestrator`` of ``couchbase.json``: a request from its first failure to its end.

The adapter plays the input of a case in a `Trial`, and compares the trial with the expected outcome, field by field. A
case with responses is played twice, once for each interface of the orchestrator.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import pytest

from redrive.contrib.couchbase import is_idempotent
from redrive.errors import RequestCancelled
from redrive.orchestrator import RETRIES_ATTRIBUTE, BestEffort, Orchestrator, RetryAction, RetryReason
from redrive.policy import Backoff, Stage
from tests.conformance.adapters.couchbase_strategies import RecordingStrategy, reason_of, reason_on, strategy_of
from tests.conformance.adapters.couchbase_trial import (
    RefusedRequest,
    Trial,
    TrialClock,
    Watched,
    failing,
    failure_of,
    on_loop,
    script_of,
    step_of,
)
from tests.conformance.adapters.couchbase_words import Reading, error_name, parts, same_error, text
from tests.conformance.adapters.vocabulary import UnknownWord, read, word
from tests.retrying.orchestrator.helpers import SpanOf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.adapters.couchbase_trial import ResponseStep
    from tests.conformance.loading import Case

Json = dict[str, Any]

_FIELDS = (
    "attempts",
    "backoff_ms",
    "calculator",
    "cancel_at_ms",
    "client_context",
    "close_at_ms",
    "complete_at_ms",
    "document",
    "elapsed_ms",
    "error",
    "event",
    "events",
    "global",
    "history",
    "idempotent",
    "loop_until_total_wait_ms",
    "max_in_retry",
    "may_repeat_in_flight",
    "now",
    "op",
    "outstanding",
    "read_only",
    "reason",
    "recorded",
    "request",
    "responses",
    "retry_attempts",
    "server",
    "strategy",
    "strategy_returns",
    "strategy_returns_ms",
    "strategy_takes_ms",
    "timeout_left_ms",
    "timeout_ms",
)


def orchestrator(case: Case) -> None:
    """Check how the orchestrator handles a request, from its first failure to its end."""
    data, expected = parts(case, _FIELDS, tuple(_CHECKS))
    for interface in ("run", "name") if {"responses", "server"} & set(data) else ("reason",):
        trial = on_loop(_played(data, interface))
        assert {name: expected[name] for name in expected} == {
            name: _CHECKS[name](trial, expected[name]) for name in expected
        }
    data.finish()


async def _played(data: Reading, interface: str) -> Trial:
    trial = _trial(data)
    happenings = _happenings(data)
    crowd = await _crowd(trial.orchestrator, data.get("outstanding", 0))
    await trial.play(
        _script(data, trial), interface=interface, happen=lambda *given: [each(*given) for each in happenings]
    )
    for each in crowd:
        each.cancel()
    return trial


# --------------------------------------------------------------------------------------------------------------- input


def _trial(data: Reading) -> Trial:
    effects: list[str] = []
    clock, spy = TrialClock(effects), RecordingStrategy(_strategy(data), effects)
    state = data["request"] if isinstance(data.get("request"), dict) else {}
    read(state, "completed", "internal_unmonitored")
    timeout = data.get("timeout_ms", data.get("timeout_left_ms"))
    operation = data.get("op", "get" if data.get("idempotent") else "upsert")
    span, completions = SpanOf(), []

    def completed(request: Any) -> None:
        effects.append("complete")
        completions.append(request)

    request = Watched(
        text(operation),
        service="kv",
        idempotent=data.get("idempotent", is_idempotent("kv", operation)),
        read_only=data.get("read_only"),
        retry_strategy=spy,
        timeout=None if timeout is None else timeout / 1000,
        context=data.get("client_context"),
        internal=state.get("internal_unmonitored", False),
        may_repeat_in_flight=data.get("may_repeat_in_flight", False),
        span=span,
        on_completed=completed,
        clock=clock,
    )
    request.effects = effects
    request.retry_attempts = data.get("retry_attempts", 0)
    if state.get("completed"):
        request.succeed()
        completions.clear()
    clock.passed = data.get("elapsed_ms", 0) / 1000
    limits = {"max_in_retry": data["max_in_retry"]} if "max_in_retry" in data else {}
    return Trial(request, Orchestrator(**limits), spy, clock, span, completions, effects, request.retry_attempts)


def _strategy(data: Reading) -> Any:
    chosen = [name for name in ("strategy_returns_ms", "backoff_ms", "strategy_returns") if name in data]
    own = data.get("request")
    spoken = [data.get(name) for name in ("strategy", "global", "calculator")]
    words = [each for each in (own if isinstance(own, str) else None, *spoken) if each is not None]
    if len(chosen) > 1 or (chosen and words):
        raise UnknownWord(f"more than one strategy: {', '.join(map(str, (*chosen, *words)))}")
    inner: Any
    if "strategy_returns_ms" in data:
        delay = data["strategy_returns_ms"]
        inner = lambda *_: None if delay is None else RetryAction(delay / 1000)  # noqa: E731 - a strategy
    elif "backoff_ms" in data:
        inner = BestEffort(Backoff.constant(data["backoff_ms"] / 1000))
    elif "strategy_returns" in data:
        inner = strategy_of(data["strategy_returns"] or "no_retry")
    else:
        inner = strategy_of(words[0]) if words else BestEffort()
    if "strategy_takes_ms" not in data:
        return inner
    return strategy_of(f"awaits {data['strategy_takes_ms']} ms") if not (chosen or words) else _late(data, inner)


def _late(data: Reading, inner: Any) -> Any:
    wait = strategy_of(f"awaits {data['strategy_takes_ms']} ms then no_retry")

    async def retry_after(request: Any, reason: RetryReason) -> Any:
        await wait(request, reason)
        answer = getattr(inner, "retry_after", inner)(request, reason)
        return await answer if hasattr(answer, "__await__") else answer

    return retry_after


def _script(data: Reading, trial: Trial) -> Iterator[ResponseStep]:
    operation, read_only = trial.request.operation, trial.request.read_only
    for field in ("responses", "server"):
        if field in data:
            return script_of(data[field], operation, read_only=read_only)
    if isinstance(data.get("event"), str) and not _is_happening(data["event"]):
        return iter([step_of(data["event"], operation, read_only=read_only), failing([], Stage.NOT_SENT).__next__()])
    reasons = _reasons(data)
    if "loop_until_total_wait_ms" in data:
        return _until(trial, data["loop_until_total_wait_ms"], reasons[0])
    lost = word(data["error"], {"request_canceled": Stage.IN_FLIGHT}) if "error" in data else Stage.NOT_SENT
    return failing(reasons, Stage.ANSWERED if "document" in data else lost)


def _reasons(data: Reading) -> list[RetryReason]:
    if "attempts" in data:
        return [reason_of(data.get("reason", "KV_LOCKED"))] * (data["attempts"] - 1)
    if "document" in data:
        return [word(data["document"], {"locked": RetryReason.KV_LOCKED})]
    if "error" in data:
        return [reason_of(data.get("reason", "SOCKET_CLOSED_WHILE_IN_FLIGHT"))]
    given: list[Any] = [*data.get("recorded", []), *data.get("history", [])]
    given += [data[name] for name in ("now", "reason") if name in data]
    if not given and (about := reason_on(data.get("strategy"))):
        return [about]
    return [reason_of(each) for each in given or ["KV_LOCKED"]]


def _until(trial: Trial, total: float, reason: RetryReason) -> Iterator[ResponseStep]:
    while sum(trial.delays) < total:
        yield failure_of(reason, Stage.NOT_SENT)
    yield from repeat(failing([], Stage.NOT_SENT).__next__())


async def _crowd(orchestrator: Orchestrator, count: int) -> list[asyncio.Future[None]]:
    """Let this number of other requests wait for their next attempt."""
    clock = TrialClock([])

    async def one() -> None:
        request = Watched(timeout="1h", retry_strategy=lambda *_: RetryAction("30m"), clock=clock)
        request.effects = []
        await orchestrator.maybe_retry(request, RetryReason.KV_LOCKED)

    crowd = [asyncio.ensure_future(one()) for _ in range(count)]
    for _ in range(100):
        await asyncio.sleep(0)  # noqa: TID251 - no sleep: the others have to begin
    assert count == orchestrator.in_retry
    return crowd


# ---------------------------------------------------------------------------------------------------- concurrent events

_CLOSED = r"(?:client|orchestrator|cluster|sdk)?\s*(?:is )?(?:closed?s?|shut(?:s)? ?down|stop(?:s|ped)?)"
_WHILE = r"(?: while backing off| during (?:the )?backoff| while (?:it )?waits| while waiting)?"
_AT = r"(?: (?:at|after) (\d+(?:\.\d+)?)(?: of \d+)? ?ms)?"
_DEEDS: tuple[tuple[str, Callable[[Trial, Any], object]], ...] = (
    (rf"{_CLOSED}{_WHILE}{_AT}", lambda trial, _: trial.orchestrator.close()),
    (rf"user cancels(?: (?:the )?(?:token/task|task|token))?{_WHILE}{_AT}", lambda _, task: task.cancel()),
    (rf"(?:request )?cancel(?:led|s)?{_WHILE}{_AT}", lambda trial, _: trial.request.cancel()),
    (
        rf"(?:request )?complete[sd]?{_WHILE}{_AT}|succeed{_AT}",
        lambda trial, _: trial.request.succeed("from elsewhere"),
    ),
)
_BEFORE = re.compile(r"schedule after (?:stop|close|shutdown)|retry after (?:stop|close|shutdown)")


def _is_happening(entry: str) -> bool:
    return _BEFORE.fullmatch(entry) is not None or any(re.fullmatch(pattern, entry) for pattern, _ in _DEEDS)


def _happenings(data: Reading) -> list[Callable[[Trial, Any], object]]:
    """Return the actions planned during the request; one without a time happens during its first wait."""
    planned = [
        _planned(deed, data[name])
        for name, deed in (
            ("close_at_ms", lambda trial, _: trial.orchestrator.close()),
            ("cancel_at_ms", lambda trial, _: trial.request.cancel()),
            ("complete_at_ms", lambda trial, _: trial.request.succeed("from elsewhere")),
        )
        if name in data
    ]
    entry = data.get("events", [])
    words = entry.split(" || ") if isinstance(entry, str) else list(entry)
    event = data.get("event")
    words += [event] if isinstance(event, str) and _is_happening(event) else []
    return planned + [_happening(each) for each in words]


def _happening(entry: str) -> Callable[[Trial, Any], object]:
    if _BEFORE.fullmatch(text(entry)):
        return lambda trial, _: trial.orchestrator.close()
    for pattern, deed in _DEEDS:
        if found := re.fullmatch(pattern, entry):
            at = next((each for each in found.groups() if each is not None), None)
            return _planned(deed, None if at is None else float(at))
    raise UnknownWord(f"event {entry!r} (known: closed, cancelled, completed, user cancels task, with 'at N ms')")


def _planned(deed: Callable[[Trial, Any], object], at: float | None) -> Callable[[Trial, Any], object]:
    def plan(trial: Trial, task: Any) -> None:
        # Without a time: as soon as the loop gets to it, when the request is in its first wait.
        asyncio.get_running_loop().call_later(1e-6 if at is None else at / 1000, lambda: deed(trial, task))

    return plan


# ------------------------------------------------------------------------------------------------------------- outcomes


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_refused(trial: Trial) -> bool:
    """Return True if it ended with a refused retry: the server's error, or the orchestrator's cancellation."""
    error = trial.error
    if isinstance(error, RequestCancelled):
        return error.cancellation in {"NO_MORE_RETRIES", "CANCELLED", "SHUTDOWN", "TOO_MANY_REQUESTS_IN_RETRY"}
    return isinstance(error, RefusedRequest) and error is trial.raised[-1] and error.reason is not None


def _outcome(trial: Trial, entry: Any) -> Any:
    words = text(entry, "an outcome in words")
    if found := re.fullmatch(r"(?:RequestCanceled|cancelled)\((\w+)(?:\((\w+)\))?\)|cancelled ([A-Z_]+)", words):
        wanted = [each for each in (found[1] or found[3], found[2]) if each]
        return entry if wanted == _cancelled(trial)[: len(wanted)] else _given(trial)
    if words.startswith("fails immediately with the strategy's exception"):
        is_its = trial.spy.reasons and not isinstance(
            trial.error, RequestCancelled | RefusedRequest | TimeoutError | None
        )
        return entry if is_its else _given(trial)
    if words.startswith("cancelled (asyncio.CancelledError propagates)"):
        return entry if isinstance(trial.error, asyncio.CancelledError) else _given(trial)
    if words in _OUTCOMES:
        return entry if _OUTCOMES[words](trial) else _given(trial)
    name = error_name(
        words, *(type(each).__name__ for each in _chain(trial.error)), *(each.name for each in trial.raised)
    )
    return entry if same_error(name, trial.error) else _given(trial)


def _given(trial: Trial) -> str:
    """Return ``ok`` or the name of the error that ended the request."""
    if trial.error is None:
        return "ok"
    return getattr(trial.error, "name", type(trial.error).__name__)


def _cancelled(trial: Trial) -> list[str | None]:
    return [trial.error.cancellation, trial.error.reason] if isinstance(trial.error, RequestCancelled) else []


_OUTCOMES: dict[str, Callable[[Trial], bool]] = {
    "ok": lambda trial: trial.error is None and trial.request.completed,
    "success": lambda trial: trial.error is None and trial.request.completed,
    "cancelled": _is_refused,
    "canceled": _is_refused,
    "no_retry": _is_refused,
    "RequestCanceled": _is_refused,
    "timeout": lambda trial: isinstance(trial.error, TimeoutError),
    "Timeout": lambda trial: isinstance(trial.error, TimeoutError),
    "CancelledError": lambda trial: isinstance(trial.error, asyncio.CancelledError),
    "closed": lambda trial: isinstance(trial.error, RequestCancelled) and trial.error.cancellation == "SHUTDOWN",
}


def _one_of(trial: Trial, entry: list[str]) -> Any:
    return entry if any(each == _outcome(trial, each) for each in entry) else _given(trial)


def _cancellation(trial: Trial, entry: Json) -> Any:
    read(entry, "id", "inner")
    found = dict(zip(("id", "inner"), _cancelled(trial), strict=False))
    return {name: found.get(name) for name in entry}


_EVENT_FIELDS = ("name", "severity", "category", "reason", "context", "duration_ms", "cause", "attempts", "operation")


def _events(trial: Trial, entry: list[Json]) -> Any:
    """Return the fields of each event that the case names."""
    given = []
    for place, (event, record) in enumerate(trial.events):
        fields = Reading(entry[place], _EVENT_FIELDS) if place < len(entry) else {"name": None}
        exported = event.to_dict()
        found: dict[str, Callable[[Any], Any]] = {
            "name": lambda _, event=event: type(event).__name__,
            "severity": lambda _, record=record: record.levelname,
            "category": lambda value, record=record: _same(value, {"request": "redrive.orchestrator"}, record.name),
            "reason": lambda _, exported=exported: exported["reason"],
            "context": lambda value, event=event: _same(value, {"request": trial.request.id}, event.id),
            "duration_ms": lambda _, exported=exported: exported["delay_ms"],
            "cause": lambda value, event=event: (
                value if value is None else _same(value, {"strategy exception": trial.error}, event.cause)
            ),
            "attempts": lambda _, event=event: event.attempts,
            "operation": lambda _, event=event: event.operation,
        }
        given.append({name: found[name](fields[name]) for name in fields})
    return given


def _same(entry: str, vocabulary: Json, found: Any) -> Any:
    """Return the word of the case if it means the value found; otherwise the value."""
    return entry if word(entry, vocabulary) == found else found


def _recorded(trial: Trial, entry: Json) -> Any:
    read(entry, "duration_ms", "reason")
    first = trial.request.history[0]
    duration = None if first.delay is None else round(first.delay / timedelta(milliseconds=1), 6)
    found = {"duration_ms": duration, "reason": None if first.reason is None else first.reason.name}
    return {name: found[name] for name in entry}


def _cause(trial: Trial, entry: str) -> Any:
    found = re.fullmatch(r"RequestCanceled\((\w+)\((\w+)\)\)( with full error context)?", text(entry))
    if not found:
        raise UnknownWord(f"cause {entry!r} (known: RequestCanceled(NO_MORE_RETRIES(REASON)))")
    cause = None if trial.error is None else trial.error.__cause__
    if not isinstance(cause, RequestCancelled) or (found[1], found[2]) != (cause.cancellation, cause.reason):
        return repr(cause)
    context = cause.__retry__.id if found[3] else trial.request.id  # type: ignore[attr-defined]
    return entry if trial.request.id == context else context


def _then(trial: Trial, entry: str) -> str:
    again = word(entry, {"timeout without dispatch": False, "timeout": False, "redispatch": True, "dispatch": True})
    holds = again == (len(trial.sent_at) > 1) and isinstance(trial.error, TimeoutError) is not again
    return entry if holds else f"{_given(trial)} after {len(trial.sent_at)} dispatches"


def _never(trial: Trial, entry: str) -> str:
    name = error_name(re.split(r" (?:after|at) ", text(entry), maxsplit=1)[0])
    return _given(trial) if same_error(name, trial.error) else entry


def _decreasing(trial: Trial, _: bool) -> bool:
    left = [each for each in trial.remaining if each is not None]
    return len(trial.sent_at) == len(left) and all(after < before for before, after in pairwise(left))


_EFFECTS = {
    "strategy": "strategy",
    "strategy consulted": "strategy",
    "ask strategy": "strategy",
    "record": "record",
    "recorded": "record",
    "increment": "record",
    "incrementRetryAttempts": "record",
    "log": "log",
    "logged": "log",
    "event": "log",
    "wait": "wait",
    "sleep": "wait",
    "schedule": "wait",
    "timer": "wait",
    "dispatch": "dispatch",
    "redispatch": "dispatch",
    "send": "dispatch",
    "complete": "complete",
    "completed": "complete",
    "callback": "complete",
}


def _in_order(trial: Trial, entry: list[str]) -> list[str]:
    """Return the steps after the failure of the first attempt, in order, without those that the case does not name."""
    wanted = [word(each, _EFFECTS) for each in entry]
    done = trial.effects if wanted[:1] == ["dispatch"] else trial.effects[trial.effects.index("dispatch") + 1 :]
    seen = [each for each in done if each in wanted][: len(wanted)]
    return entry if wanted == seen else seen


def _names(trial: Trial) -> list[str]:
    return [reason.name for reason in trial.request.retry_reasons]


_Check = Callable[[Trial, Any], Any]
_DELAY = 1e-3  # a microsecond, in milliseconds: the resolution of a span


def _equal(observe: Callable[[Trial], Any]) -> _Check:
    return lambda trial, _: observe(trial)


def _near(observe: Callable[[Trial], Any]) -> _Check:
    def answer(trial: Trial, entry: Any) -> Any:
        found = observe(trial)
        return entry if found == pytest.approx(entry, abs=_DELAY) else found

    return answer


def _more(observe: Callable[[Trial], float]) -> _Check:
    def answer(trial: Trial, entry: Any) -> Any:
        found = observe(trial)
        return entry if found > entry else f"{found}"

    return answer


def _less(observe: Callable[[Trial], float]) -> _Check:
    def answer(trial: Trial, entry: Any) -> Any:
        found = observe(trial)
        return entry if found < entry else f"{found}"

    return answer


def _last(values: list[Any]) -> Any:
    return values[-1] if values else None


def _retries(trial: Trial) -> int:
    return trial.request.retry_attempts


def _elapsed(trial: Trial) -> float:
    return trial.request.elapsed / timedelta(milliseconds=1)


_CHECKS: dict[str, _Check] = {
    "ambiguous": _equal(lambda trial: trial.request.is_ambiguous),
    "answered": _equal(lambda trial: trial.request.completed),
    "attempts": _equal(_retries),
    "callback_times": _equal(lambda trial: len(trial.completions)),
    "cancellation": _cancellation,
    "cause": _cause,
    "client_context_seen_by_strategy": _equal(lambda trial: _last(trial.spy.contexts)),
    "couchbase.retries": _equal(lambda trial: trial.span.attributes[RETRIES_ATTRIBUTE]),
    "delay_ms": _near(lambda trial: _last(trial.delays)),
    "delays_ms": _near(lambda trial: trial.delays),
    "dispatches": _equal(lambda trial: len(trial.sent_at)),
    "dispatches_gt": _more(lambda trial: len(trial.sent_at)),
    "dispatches_lt": _less(lambda trial: len(trial.sent_at)),
    "distinct_reasons": _equal(lambda trial: len(trial.request.retry_reasons)),
    "effects": _in_order,
    "elapsed_gt_ms": _more(lambda trial: _elapsed(trial) + _DELAY),
    "elapsed_lt_ms": _less(_elapsed),
    "elapsed_ms": _near(_elapsed),
    "events": _events,
    "never": _never,
    "not": _never,
    "not_before_ms": _more(lambda trial: [*trial.sent_at, -1, -1][1] + _DELAY),
    "order": _in_order,
    "outcome": _outcome,
    "outcome_at_deadline": _outcome,
    "outcome_in": _one_of,
    "raises": _outcome,
    "reasons": _equal(_names),
    "recorded": _recorded,
    "recorded_duration_ms": _near(
        lambda trial: (trial.request.history[0].delay or timedelta(0)) / timedelta(milliseconds=1)
    ),
    "redispatched_times": _equal(lambda trial: max(0, len(trial.sent_at) - 1)),
    "remaining_strictly_decreasing": _decreasing,
    "retry": _equal(lambda trial: _retries(trial) > trial.before),
    "retry_attempts": _equal(_retries),
    "retry_attempts_gt": _more(_retries),
    "retry_attempts_lt": _less(_retries),
    "retry_reasons": _equal(_names),
    "scheduled": _equal(lambda trial: bool(trial.delays)),
    "sent_at_ms": _near(lambda trial: trial.sent_at),
    "span_end_times": _equal(lambda trial: trial.span.ends),
    "strategy_consulted": _equal(lambda trial: bool(trial.spy.reasons)),
    "strategy_consulted_times": _equal(lambda trial: len(trial.spy.reasons)),
    "then": _then,
    "timeout_registered_again": _equal(
        lambda trial: len({round(each.timestamp(), 6) for each in trial.deadlines if each}) > 1
    ),
    "total_wait_ms": _near(lambda trial: sum(trial.delays)),
}
