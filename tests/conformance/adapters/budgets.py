"""Adapters for the budgets of ``inprocess.json``, for its client that sheds calls, and for its adaptive rates.

Where a case describes calls, they are made: scripted, under a policy, on a clock that jumps. Where it describes a
bucket alone, its ledger is told what happens. One translation is more than a renaming: a backoff of its own for
throttling failures is a policy of its own, joined by ``|``, since each part of a combination counts all failures.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Failure, Policy
from redrive.policy.adaptive import AdaptiveRate, Cubic
from redrive.policy.budget import ConcurrencyBudget, RatioBudget, ThrottleBudget, TokenBudget
from redrive.retrying import SharedBudget, Shedding
from redrive.retrying.context import using
from tests.conformance.adapters.vocabulary import demand, read, word
from tests.retrying.helpers import JumpingClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.conformance.loading import Case

Json = dict[str, Any]
_NOTES = ("id", "name", "source", "src", "note", "origin", "tol")
_TOLERANCE = 1e-9


class _Failed(Exception):
    """A failure that may be retried."""


class _Throttled(Exception):
    """One by which the target asks for patience."""


class _Final(Exception):
    """One that is not retried."""


_FAILURE = Failure(("builtins.OSError", "builtins.Exception"), "it failed")
_TIMES = re.compile(r"(\w+)\*(\d+)")


# ----------------------------------------------------------------------------------------------------------- aws quota


def aws_quota(case: Case) -> None:
    """Steps of calls under a quota: what is left, and how long the backoff is."""
    fields = ("capacity", "steps", "initial_of", "max_attempts", "costs", "base", "max_backoff", "long_polling")
    data = {**case.shared["defaults"], **read(case.data, *fields, notes=_NOTES)}
    costs = {**data, **data.get("costs", {})}
    budget = TokenBudget(
        capacity=max(data.get("initial_of", data["capacity"]), 1),
        cost=costs["cost"],
        timeout_cost=costs.get("timeout_cost"),
        throttle_cost=costs["throttle_cost"],
        increment=costs["no_retry_increment"],
        throttles=_Throttled,
        hold_back=data.get("long_polling", False),
    )
    ledger = budget.open(data["capacity"])
    script = _Quota(SharedBudget(budget, ledger=ledger), data)
    with using(clock=script.clock, sample=data["u"]):
        for name, *expected in data["steps"]:
            if name == "release":
                ledger.give_back(expected[0])
                assert expected[1] == script.shared.left
            else:
                script.step(name, expected)


class _Quota:
    def __init__(self, shared: SharedBudget, data: Json) -> None:
        self.shared = shared
        self.clock = JumpingClock()

        def part(on: Any, base: float) -> Policy:
            backoff = Backoff.exponential(base, data["max_backoff"], data["factor"])
            return Policy(on=on, attempts=data["max_attempts"], deadline=None, backoff=backoff, budget=shared)

        self.policy = part((_Failed, TimeoutError), data["base"]) | part(_Throttled, data["throttle_base"])
        self._loop: Iterator[Any] | None = None
        self._attempt: Any = None

    def step(self, name: str, expected: list[Any]) -> None:
        """Make one attempt, and compare what follows from it."""
        error = word(name, _OUTCOMES)
        if self._loop is None:
            self._loop = iter(self.policy)
            self._attempt = next(self._loop)
        surfaced, slept = self._try(error), None
        if error is not None and surfaced is None:
            before = len(self.clock.slept)
            surfaced = self._advance()
            slept = sum(self.clock.slept[before:])
        if error is None or surfaced is not None:
            self._loop = None
        self._compare(expected, surfaced, slept)

    def _try(self, error: Exception | None) -> Exception | None:
        try:
            with self._attempt:
                _raise(error)
        except Exception as caught:  # noqa: BLE001 - it surfaced
            return caught
        return None

    def _advance(self) -> Exception | None:
        assert self._loop is not None
        try:
            self._attempt = next(self._loop)
        except Exception as caught:  # noqa: BLE001 - it surfaced after a wait
            return caught
        return None

    def _compare(self, expected: list[Any], surfaced: Exception | None, slept: float | None) -> None:
        values = list(expected)
        if isinstance(values[0], str):
            assert surfaced is not None
            assert word(values.pop(0), _STOPS) == surfaced.__retry__.rule  # type: ignore[attr-defined]
        assert values.pop(0) == self.shared.left
        for value in values:
            if isinstance(value, dict):
                assert read(value, "sleep_then_fail")["sleep_then_fail"] == slept
                assert surfaced is not None
            else:
                assert surfaced is None
                assert pytest.approx(value) == slept


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


_OUTCOMES: dict[str, Exception | None] = {
    "ok": None,
    "fail": _Failed(),
    "throttle": _Throttled(),
    "timeout": TimeoutError(),
    "nonretryable": _Final(),
}
_STOPS = {"stop:quota": "budget", "stop:max_attempts": "attempts"}


# -------------------------------------------------------------------------------------------------------- grpc throttle


def grpc_throttle(case: Case) -> None:
    """Tokens after each event, calls of an outage, or the ratio that is kept."""
    fields = ("max_tokens", "token_ratio", "start", "steps", "max_attempts", "calls_all_fail", "token_ratio_in")
    data = read(case.data, *fields, "expect_attempts", "expect_ratio", notes=_NOTES)
    demand(data, "steps", "expect_attempts", "expect_ratio")
    if "expect_ratio" in data:
        assert data["expect_ratio"] == ThrottleBudget(data.get("max_tokens", 10), ratio=data["token_ratio_in"]).ratio
        return
    budget = ThrottleBudget(data["max_tokens"], ratio=data["token_ratio"])
    ledger = budget.open(data.get("start"))
    for event, may_retry, tokens in data.get("steps", ()):
        found = _TIMES.fullmatch(event)
        for _ in range(int(found[2]) if found else 1):
            word(found[1] if found else event, _THROTTLE_EVENTS)(ledger)
        assert may_retry == ledger.allows
        assert pytest.approx(tokens, abs=data.get("tol", _TOLERANCE)) == ledger.left(0)
    if "expect_attempts" in data:
        shared = SharedBudget(budget, ledger=ledger)
        policy = Policy(on=_Failed, attempts=data["max_attempts"], backoff=Backoff.constant(0), budget=shared)
        assert data["expect_attempts"] == [_attempts(policy) for _ in range(data["calls_all_fail"])]


def _attempts(policy: Policy) -> int:
    def fail() -> None:
        raise _Failed

    return policy.outcome(fail).record.attempts


_THROTTLE_EVENTS: dict[str, Callable[[Any], object]] = {
    "check": lambda ledger: ledger.allows,
    "fail": lambda ledger: ledger.spend(0, _FAILURE),
    "fail_retriable": lambda ledger: ledger.spend(0, _FAILURE),
    "fail_nonretriable": lambda _: None,
    "fail_pushback_no_retry": lambda ledger: ledger.fail(0),
    "ok": lambda ledger: ledger.succeed(0, None),
}


# -------------------------------------------------------------------------------------------------------------- shares


def ratio_budget(case: Case) -> None:
    """Requests at one instant, each followed by an attempt to retry; or numbers that are refused."""
    fields = ("ttl", "min_per_s", "percent", "requests", "pattern", "expect_retries", "initial_balance", "expect")
    data = read(case.data, *fields, notes=_NOTES)
    demand(data, "expect_retries", "expect")

    def make() -> RatioBudget:
        return RatioBudget(data["percent"], minimum=data["min_per_s"], ttl=data["ttl"])

    if "expect" in data:
        with pytest.raises(word(data["expect"], {"invalid_policy": PolicyValueError})):
            make()
        return
    deposit_then_withdraw = word(data.get("pattern", "deposit then try_withdraw"), {"deposit then try_withdraw": True})
    assert deposit_then_withdraw
    ledger = make().open()
    if "initial_balance" in data:
        assert data["initial_balance"] == pytest.approx(ledger.left(0))
    retries = 0
    for _ in range(data["requests"]):
        ledger.begin(0)
        retries += ledger.spend(0, _FAILURE) is not None
    assert pytest.approx(data["expect_retries"], abs=data.get("tol", 0)) == retries


def concurrency_budget(case: Case) -> None:
    """A limit, steps of retries that begin and end, or many failures at once."""
    envoy = ("active", "pending", "budget_percent", "min_retry_concurrency", "expect_limit")
    failsafe = ("max_rate", "min_concurrency", "executions", "inflight_retries", "steps")
    data = read(case.data, "impl", *envoy, *failsafe, "scenario", "expect_retries_at_most", notes=_NOTES)
    demand(data, "expect_limit", "steps", "expect_retries_at_most")
    word(data["impl"], {"envoy": None, "failsafe-go": None, "both": None})
    if "expect_limit" in data:
        budget = ConcurrencyBudget(data["budget_percent"] / 100, floor=data["min_retry_concurrency"])
        assert data["expect_limit"] == budget.limit(data["active"] + data["pending"])
    elif "steps" in data:
        _in_flight(data)
    else:
        scenario = read(data["scenario"], "concurrent_failures", "budget_percent")
        ledger = ConcurrencyBudget(scenario["budget_percent"] / 100).open()
        for _ in range(scenario["concurrent_failures"]):
            ledger.begin(0)
        retries = sum(ledger.spend(0, _FAILURE) is not None for _ in range(scenario["concurrent_failures"]))
        assert retries <= data["expect_retries_at_most"]


def _in_flight(data: Mapping[str, Any]) -> None:
    # In failsafe-go the retries that are in flight count as executions. They are calls here, too.
    ledger = ConcurrencyBudget(data["max_rate"], floor=data["min_concurrency"]).open()
    for _ in range(data["executions"]):
        ledger.begin(0)
    for _ in range(data["inflight_retries"]):
        ledger.spend(0, _FAILURE)
    for name, *expected in data["steps"]:
        if word(name, {"try": True, "release": False}):
            assert expected == [ledger.spend(0, _FAILURE) is not None]
        else:
            ledger.release(0)


# ------------------------------------------------------------------------------------------------------------- shedding


def shedding(case: Case) -> None:
    """With what probability a client that has seen so many requests and accepts refuses the next one."""
    data = read(case.data, "formula", "rows", notes=_NOTES)
    word(data["formula"], {"p_reject=max(0,(requests-K*accepts)/(requests+1))": None})
    for row in data["rows"]:
        read(row, "requests", "accepts", "K", "expect")
        ledger = Shedding(row["K"]).open()
        for _ in range(row["requests"]):
            ledger.asked(0)
        for _ in range(row["accepts"]):
            ledger.accepted(0)
        assert pytest.approx(row["expect"]) == ledger.rejection(0)


# ------------------------------------------------------------------------------------------------------------- adaptive


def adaptive_rate(case: Case) -> None:
    """The cubic curve, a client that measures what it sends, or a bucket that never owes."""
    data = case.data
    if "acquire" in data:
        _acquire(read(data, "fill_rate", "enabled_at", "acquire", "expect", notes=_NOTES))
    elif "rows" in data and "last_max_rate" not in data:
        _client(read(data, "rows", notes=_NOTES))
    elif "rows" in data:
        _curve(read(data, "last_max_rate", "last_throttle", "rows", notes=_NOTES))
    else:
        demand(data, "error_at")  # cases that name their inputs in words only are told
        _refused(read(data, "expect", "beta", "error_at", notes=_NOTES))


def _curve(data: Mapping[str, Any]) -> None:
    curve, rate = Cubic(data["last_max_rate"], data["last_throttle"]), 0.0
    for row in data["rows"]:
        read(row, "t", "throttled", "rate")
        if row.get("throttled", False):
            # These rows begin a curve anew at the reduced rate (see their note); a client begins at the one before.
            rate = curve.throttled(rate, row["t"]).rate(row["t"])
            curve = Cubic(rate, row["t"])
        else:
            rate = curve.rate(row["t"])
        assert pytest.approx(row["rate"]) == rate


def _client(data: Mapping[str, Any]) -> None:
    rate = AdaptiveRate()
    for row in data["rows"]:
        read(row, "t", "throttled", "measured_tps", "fill_rate")
        rate.report(row["t"], throttled=row["throttled"])
        assert pytest.approx(row["measured_tps"]) == rate.measured
        assert pytest.approx(row["fill_rate"]) == rate.rate


def _refused(data: Mapping[str, Any]) -> None:
    """What a refusal makes of the curve."""
    error = read(data["error_at"], "rate", "t")
    rate, at = error["rate"], error["t"]
    curve = Cubic(beta=data.get("beta", Cubic().beta)).throttled(rate, at)
    seen = {"new_rate": curve.rate(at), "w_max": curve.most, "k": curve.window, "last_fail": curve.failed_at}
    seen |= {f"rate_at_t{at:g}": curve.rate(at)}
    for name, expected in data["expect"].items():
        assert pytest.approx(expected) == word(name, seen)


def _acquire(data: Mapping[str, Any]) -> None:
    rate = AdaptiveRate(data["enabled_at"], rate=data["fill_rate"])
    asked, expected = read(data["acquire"], "t", "cost"), read(data["expect"], "granted", "wait", "capacity")
    wait = rate.acquire(asked["t"], asked["cost"])
    assert expected["granted"] == (wait == 0)
    assert pytest.approx(expected["wait"]) == wait
    assert pytest.approx(expected["capacity"]) == rate.tokens(asked["t"])
