"""Adapter for the group ``circuit_breaker`` of ``couchbase.json``: scripts for a breaker, on a clock that jumps.

In the cases a call is not asked for: they *track* a call that was sent and report *success* or *failure*. Here every
call is asked for and reports under its own token. A result that is called a straggler belongs to a call that was
admitted when the script began; and so does every result in a state in which nothing is admitted.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from redrive.contrib.couchbase import is_idempotent
from redrive.errors import CircuitOpen
from redrive.orchestrator import CircuitBreaker, Orchestrator, Request, timed_out
from redrive.policy.breaker import (
    Admitted,
    Ask,
    BreakerSettings,
    BreakerState,
    BreakerStatus,
    FailureReport,
    Probe,
    Reset,
    SuccessReport,
    as_of,
    initial,
    step,
)
from redrive.retrying.circuit_breaker import is_timeout
from tests.conformance.adapters.couchbase_strategies import strategy_of
from tests.conformance.adapters.couchbase_words import Reading, parts, text
from tests.conformance.adapters.vocabulary import UnknownWord, word
from tests.retrying.helpers import JumpingClock

if TYPE_CHECKING:
    from redrive.policy.breaker import Event
    from tests.conformance.loading import Case

_MODELS: dict[str, dict[str, Any]] = {
    "lazy": {"canary": "request"},
    "active_canary": {"canary": "probe"},
    "noop": {"enabled": False},
}
_MILLISECONDS = {
    "sleep_window_ms": "sleep_window",
    "rolling_window_ms": "rolling_window",
    "canary_timeout_ms": "canary_timeout",
}
_PLAIN = {"volume_threshold": "volume_threshold", "error_threshold_pct": "error_threshold", "enabled": "enabled"}
_SETTINGS = (*_MILLISECONDS, *_PLAIN)
_PREDICATES = ("failure_predicate",)
_REQUEST = ("retry", "timeout_kind_if_any", "retry_reason")


def circuit_breaker(case: Case) -> None:
    """Check a breaker's transitions, its defaults, or the effect of an open one on a request."""
    fields = ("config", "model", "steps", "state", "op", "strategy")
    data, expected = parts(case, fields, ("all_step_expectations_hold", *_SETTINGS, *_PREDICATES, *_REQUEST))
    if "steps" in data:
        if expected["all_step_expectations_hold"] is not True:
            raise UnknownWord("all_step_expectations_hold must be true: a script that is to fail proves nothing")
        _play(data)
    elif "state" in data:
        _check_request(data, expected)
    else:
        _check_defaults(data, expected)
    data.finish()
    expected.finish()


def _settings(data: Reading) -> BreakerSettings:
    config = Reading(data.get("config") or {}, _SETTINGS)
    chosen = dict(word(data.get("model", "lazy"), _MODELS))
    for name, value in ((name, config[name]) for name in config):
        chosen[_MILLISECONDS.get(name) or _PLAIN[name]] = value / 1000 if name in _MILLISECONDS else value
    return BreakerSettings(**chosen)


def _check_defaults(data: Reading, expected: Reading) -> None:
    settings = _settings(data)
    for name in expected:
        value = expected[name]
        if name in _MILLISECONDS:
            assert value == getattr(settings, _MILLISECONDS[name]).total_seconds() * 1000
        elif name in _PLAIN:
            assert value == getattr(settings, _PLAIN[name])
        elif name in _PREDICATES:
            if not re.fullmatch(r"timeouts only(?: \(.*\))?", text(value)):
                raise UnknownWord(f"{name} {value!r} (known: timeouts only)")
            assert CircuitBreaker(settings).counts is is_timeout


def _check_request(data: Reading, expected: Reading) -> None:
    clock = JumpingClock()
    orchestrator = Orchestrator(breaker=BreakerSettings(volume_threshold=1))
    operation = text(data["op"])
    request = Request(
        operation,
        idempotent=is_idempotent("kv", operation),
        retry_strategy=strategy_of(data.get("strategy") or "best_effort"),
        timeout=1,
        clock=clock,
    )
    if data["state"] != _opened(orchestrator).status.name:
        raise UnknownWord(f"state {data['state']!r} (known: OPEN)")

    async def send(request: Request, attempt: Any) -> None:
        attempt.dispatch("node1")

    error: Exception | None = None
    try:
        asyncio.run(orchestrator.run(request, send, marks=True))
    except (CircuitOpen, TimeoutError) as caught:
        error = caught
    assert error is not None
    if "retry" in expected:
        assert expected["retry"] == (request.retry_attempts > 0)
    if "timeout_kind_if_any" in expected:
        assert f"{expected['timeout_kind_if_any']}Timeout" == type(timed_out(request)).__name__
    if "retry_reason" in expected:
        assert [expected["retry_reason"]] == [reason.name for reason in request.retry_reasons]


def _opened(orchestrator: Orchestrator) -> CircuitBreaker:
    breaker = orchestrator.breaker("node1")
    assert breaker is not None
    breaker.admit().failed()
    return breaker


# ------------------------------------------------------------------------------------------------------------- scripts

_STATUSES = {status.name: status for status in BreakerStatus}


class _Script:
    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.now = 0.0
        self.state = initial(settings)
        self.straggler = self.ask()
        self.canary: int | None = None

    @property
    def seen(self) -> BreakerState:
        return as_of(self.settings, self.state, self.now)

    def tell(self, event: Event) -> Any:
        self.state, answer = step(self.settings, self.state, event, self.now)
        return answer

    def ask(self) -> int | None:
        answer = self.tell(Ask())
        return answer.token if isinstance(answer, Admitted | Probe) else None

    def would_admit(self) -> bool:
        return isinstance(step(self.settings, self.state, Ask(), self.now)[1], Admitted)

    def token(self, *, is_straggler: bool) -> int:
        """Return the token of the call to which a result belongs."""
        if self.seen.status is BreakerStatus.HALF_OPEN and not is_straggler:
            found = self.canary
        elif self.seen.status in (BreakerStatus.CLOSED, BreakerStatus.DISABLED) and not is_straggler:
            found = self.ask()
        else:
            found = self.straggler
        if found is None:
            raise UnknownWord(f"a result in {self.seen.status.name}, where no call was let through")
        return found


def _play(data: Reading) -> None:
    script = _Script(_settings(data))
    for given in data["steps"]:
        each = Reading(given, ("do", "times", "each_expect", "expect", "advance_ms", "straggler"))
        script.now += each.get("advance_ms", 0) / 1000
        for _ in range(each.get("times", 1)):
            if "do" in each:
                _do(script, each)
            if "each_expect" in each:
                _expect(script, each["each_expect"])
        if "expect" in each and "do" not in each:
            _expect(script, each["expect"])
        each.finish()


def _do(script: _Script, each: Reading) -> None:
    kind = word(each["do"], _DEEDS)
    if kind is Ask:
        _ask(script, each.get("expect", {}))
        return
    if kind is Reset:
        script.tell(Reset())
    else:
        is_straggler = each.get("straggler", False)
        script.tell(kind(script.token(is_straggler=is_straggler)))
    _expect(script, each.get("expect", {}))


_DEEDS: dict[str, Any] = {
    "ask": Ask,
    "track": Ask,
    "reset": Reset,
    "success": SuccessReport,
    "failure": FailureReport,
    "canary_success": SuccessReport,
    "canary_failure": FailureReport,
}


def _ask(script: _Script, given: Any) -> None:
    expected = Reading(given, ("allows", "canary_sent", "state"))
    answer = script.tell(Ask())
    if isinstance(answer, Admitted | Probe):
        script.canary = answer.token
    if "allows" in expected:
        assert expected["allows"] == isinstance(answer, Admitted)
    if "canary_sent" in expected:
        assert expected["canary_sent"] == isinstance(answer, Probe)
    if "state" in expected:
        assert _state(expected["state"]) == script.seen.status.name


def _state(given: Any) -> str:
    """Return the name of a state, after checking that it is one."""
    name: str = word(given, _STATUSES).name
    return name


def _expect(script: _Script, given: Any) -> None:
    expected = Reading(given, ("state", "allows"))
    if "state" in expected:
        assert _state(expected["state"]) == script.seen.status.name
    if "allows" in expected:
        assert expected["allows"] == script.would_admit()
