"""Adapters for the budgets of ``inprocess.json``, for its client that sheds calls, and for its adaptive rates.

Where a case describes calls, the adapter makes them: scripted, under a policy, on a clock that jumps. Where a case
describes a bucket alone, the adapter drives the ledger of the bucket. One translation is more than a renaming: a
separate backoff for throttling failures is a separate policy, joined by ``|``, since each part of a combination counts
all failures.

The pattern of a ratio budget is ``deposit then try_withdraw`` for each request, in any order and number; with ``all``
before a word it is done for all requests first. Its steps are ``["deposit", times]``, ``["try_withdraw", granted]``,
``["advance", seconds]`` and ``["balance", tokens]``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from redrive.policy import Backoff, Failure, Policy
from redrive.policy.budget import ConcurrencyBudget, RatioBudget, ThrottleBudget, TokenBudget
from redrive.policy.overload import Adaptive, AdaptiveRate, Cubic
from redrive.retrying import SharedBudget, Shedding
from redrive.retrying.context import using
from tests.conformance.adapters.policies import exponential
from tests.conformance.adapters.vocabulary import Entry, UnknownWord, demand, is_refused, read, word
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
    """A throttling failure."""


class _Final(Exception):
    """A failure that is not retried."""


_FAILURE = Failure(("builtins.OSError", "builtins.Exception"), "it failed")
_TIMES = re.compile(r"(\w+)\*(\d+)")


# ----------------------------------------------------------------------------------------------------------- aws quota


def aws_quota(case: Case) -> None:
    """Check the remaining tokens and the backoff after each step of calls under a quota."""
    fields = ("capacity", "steps", "initial_of", "max_attempts", "costs", "long_polling", "expect")
    defaults = read(case.shared.get("defaults", _QUOTA), *_QUOTA)
    entry = read(case.data, *fields, *_QUOTA, notes=_NOTES)
    demand(entry, "steps", "expect")
    costs = read(entry.get("costs") or {}, "cost", "timeout_cost", "throttle_cost", "no_retry_increment")
    data = Entry({**_QUOTA, **defaults, **entry, **costs})
    if is_refused(data.get("expect"), lambda: _quota(data)):
        return
    budget = _quota(data)
    ledger = budget.open(data["capacity"])
    script = _Quota(SharedBudget(budget, ledger=ledger), data)
    with using(clock=script.clock, sample=data["u"]):
        for step in data["steps"]:
            name, *expected = _step(step)
            if name == "release":
                ledger.give_back(expected[0])
                assert expected[1] == script.shared.left
            else:
                script.step(name, expected)


_QUOTA = {
    "capacity": 500,
    "max_attempts": 3,
    "cost": 14,
    "timeout_cost": None,
    "throttle_cost": 5,
    "no_retry_increment": 1,
    "base": 0.05,
    "throttle_base": 1,
    "factor": 2,
    "max_backoff": 20,
    "u": 1.0,
}
"""The numbers of AWS's rules, version 2.1, unless a case or its group gives others."""


def _quota(data: Entry) -> TokenBudget:
    return TokenBudget(
        capacity=max(data.get("initial_of", data["capacity"]), 1),
        cost=data["cost"],
        timeout_cost=data["timeout_cost"],
        throttle_cost=data["throttle_cost"],
        increment=data["no_retry_increment"],
        throttles=_Throttled,
        hold_back=data.get("long_polling", False),
    )


def _step(entry: Any) -> list[Any]:
    if not isinstance(entry, list) or not entry:
        raise UnknownWord(f"step {entry!r} (known: a list that begins with a word)")
    return entry


class _Quota:
    def __init__(self, shared: SharedBudget, data: Json) -> None:
        self.shared = shared
        self.clock = JumpingClock()

        def part(on: Any, base: float) -> Policy:
            backoff = exponential(base, data["max_backoff"], data["factor"])
            # AWS's SDK repeats what has timed out.
            plain: Json = {"deadline": None, "idempotent": True}
            return Policy(on=on, attempts=data["max_attempts"], backoff=backoff, budget=shared, **plain)

        self.policy = part((_Failed, TimeoutError), data["base"]) | part(_Throttled, data["throttle_base"])
        self._loop: Iterator[Any] | None = None
        self._attempt: Any = None

    def step(self, name: str, expected: list[Any]) -> None:
        """Make one attempt, and compare its effects."""
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
        if values and isinstance(values[0], str):
            rule = word(values.pop(0), _STOPS)
            assert surfaced is not None
            assert rule == surfaced.__retry__.rule  # type: ignore[attr-defined]
        if values:
            assert values.pop(0) == self.shared.left
        for value in values:
            if isinstance(value, dict):
                assert read(value, "sleep_then_fail")["sleep_then_fail"] == slept
                assert surfaced is not None
            elif value is None:
                assert not slept
            else:
                assert surfaced is None
                assert pytest.approx(value) == slept


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error


_OUTCOMES: dict[str | None, Exception | None] = {
    "ok": None,
    "success": None,
    "fail": _Failed(),
    "transient": _Failed(),
    "throttle": _Throttled(),
    "timeout": TimeoutError(),
    "nonretryable": _Final(),
    "non_retryable": _Final(),
}
_STOPS: dict[str | None, str] = {
    "stop:quota": "budget",
    "stop:max_attempts": "attempts",
    "stop:nonretryable": "not_matched",
}


# -------------------------------------------------------------------------------------------------------- grpc throttle


def grpc_throttle(case: Case) -> None:
    """Check the tokens after each event, the calls of an outage, or the ratio that is kept."""
    fields = ("max_tokens", "token_ratio", "start", "steps", "max_attempts", "calls_all_fail", "token_ratio_in")
    data = read(case.data, *fields, "expect_attempts", "expect_ratio", "expect", notes=_NOTES)
    demand(data, "steps", "expect_attempts", "expect_ratio", "expect")

    def make() -> ThrottleBudget:
        ratio = data["token_ratio_in"] if "token_ratio_in" in data else data["token_ratio"]
        return ThrottleBudget(data.get("max_tokens", 10), ratio=ratio)

    if is_refused(data.get("expect"), make):
        return
    demand(data, "steps", "expect_attempts", "expect_ratio")
    budget = make()
    if "expect_ratio" in data:
        assert data["expect_ratio"] == budget.ratio
    ledger = budget.open(data.get("start"))
    for step in data.get("steps", ()):
        event, *expected = _step(step)
        found = _TIMES.fullmatch(str(event))
        for _ in range(int(found[2]) if found else 1):
            word(found[1] if found else event, _THROTTLE_EVENTS)(ledger)
        for value in expected:
            if isinstance(value, bool):
                assert value == ledger.allows
            elif value is not None:
                assert pytest.approx(value, abs=data.get("tol", _TOLERANCE)) == ledger.left(0)
    if "expect_attempts" in data:
        shared = SharedBudget(budget, ledger=ledger)
        policy = Policy(on=_Failed, attempts=data["max_attempts"], backoff=Backoff.constant(0), budget=shared)
        assert data["expect_attempts"] == [_attempts(policy) for _ in range(data["calls_all_fail"])]


def _attempts(policy: Policy) -> int:
    def fail() -> None:
        raise _Failed

    return policy.outcome(fail).record.attempts


_THROTTLE_EVENTS: dict[str | None, Callable[[Any], object]] = {
    "check": lambda ledger: ledger.allows,
    "fail": lambda ledger: ledger.spend(0, _FAILURE),
    "fail_retriable": lambda ledger: ledger.spend(0, _FAILURE),
    "fail_nonretriable": lambda _: None,
    "fail_pushback_no_retry": lambda ledger: ledger.fail(0),
    "fail_pushback": lambda ledger: ledger.spend(0, _FAILURE),
    "ok": lambda ledger: ledger.succeed(0, None),
    "success": lambda ledger: ledger.succeed(0, None),
}


# -------------------------------------------------------------------------------------------------------------- shares


def ratio_budget(case: Case) -> None:
    """Check requests and attempts to retry, at one instant or in steps, or numbers that are refused."""
    fields = ("ttl", "min_per_s", "percent", "requests", "pattern", "expect_retries", "initial_balance", "steps")
    data = read(case.data, *fields, "expect", notes=_NOTES)
    outcomes = ("expect_retries", "initial_balance", "steps")
    demand(data, *outcomes, "expect")

    def make() -> RatioBudget:
        return RatioBudget(data.get("percent", 0.2), minimum=data.get("min_per_s", 10), ttl=data.get("ttl", 10))

    if is_refused(data.get("expect"), make):
        return
    demand(data, *outcomes)
    balance = _Balance(make())
    if "initial_balance" in data:
        assert data["initial_balance"] == pytest.approx(balance.left)
    for step in data.get("steps", ()):
        name, *values = _step(step)
        word(name, _BALANCE_STEPS)(balance, *values)
    if "expect_retries" in data:
        balance.play(data.get("pattern") or "deposit then try_withdraw", data["requests"])
        assert pytest.approx(data["expect_retries"], abs=data.get("tol", 0)) == balance.retries


class _Balance:
    def __init__(self, budget: RatioBudget) -> None:
        self.retries = 0
        self._ledger = budget.open()
        self._now = 0.0

    @property
    def left(self) -> float:
        """Return the number of retries that are left."""
        return self._ledger.left(self._now)

    def deposit(self, times: int = 1) -> None:
        """Begin a request, or several."""
        for _ in range(times):
            self._ledger.begin(self._now)

    def withdraw(self, granted: bool | None = None) -> None:
        """Ask for a retry, and compare the answer."""
        is_granted = self._ledger.spend(self._now, _FAILURE) is not None
        self.retries += is_granted
        assert granted in (None, is_granted)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    def expect(self, tokens: float) -> None:
        """Compare the number of retries that are left."""
        assert pytest.approx(tokens) == self.left

    def play(self, pattern: str, requests: int) -> None:
        """Apply the actions of a pattern for a number of requests."""
        phrases = pattern.split(" then ")
        whole = [phrase for phrase in phrases if phrase.startswith("all ")]
        if whole and whole != phrases:
            raise UnknownWord(f"{pattern!r} (known: 'all' before each word, or before none)")
        actions = [word(phrase.removeprefix("all "), _ACTIONS) for phrase in phrases]
        for group in [[action] for action in actions] if whole else [actions]:
            for _ in range(requests):
                for action in group:
                    action(self)


_ACTIONS: dict[str | None, Callable[[_Balance], None]] = {
    "deposit": _Balance.deposit,
    "withdraw": _Balance.withdraw,
    "try_withdraw": _Balance.withdraw,
}
_BALANCE_STEPS: dict[str | None, Callable[..., None]] = {
    **_ACTIONS,
    "advance": _Balance.advance,
    "balance": _Balance.expect,
}


def concurrency_budget(case: Case) -> None:
    """Check a limit, steps of retries that begin and end, or many failures at once."""
    envoy = ("active", "pending", "budget_percent", "min_retry_concurrency", "expect_limit")
    failsafe = ("max_rate", "min_concurrency", "executions", "inflight_retries", "steps")
    outcomes = ("expect_limit", "expect_retries_at_most", "expect")
    data = read(case.data, "impl", *envoy, *failsafe, "scenario", "expect_retries_at_most", "expect", notes=_NOTES)
    demand(data, "steps", *outcomes)
    word(data.get("impl", "both"), {"envoy": None, "failsafe-go": None, "both": None})
    if is_refused(data.get("expect"), lambda: _concurrency(data)):
        return
    demand(data, "expect_limit", "steps", "expect_retries_at_most")
    budget = _concurrency(data)
    if "expect_limit" in data:
        assert data["expect_limit"] == budget.limit(_calls(data))
    if "steps" in data:
        _in_flight(budget, data)
    if "expect_retries_at_most" in data:
        scenario = read(data["scenario"], "concurrent_failures", *_CONCURRENCY)
        ledger = _concurrency(scenario).open()
        for _ in range(scenario["concurrent_failures"]):
            ledger.begin(0)
        retries = sum(ledger.spend(0, _FAILURE) is not None for _ in range(scenario["concurrent_failures"]))
        assert retries <= data["expect_retries_at_most"]


_CONCURRENCY = ("budget_percent", "min_retry_concurrency", "max_rate", "min_concurrency")


def _concurrency(data: Entry) -> ConcurrencyBudget:
    """Build the budget from Envoy's fields (percent) or failsafe-go's (rate); other fields have redrive's defaults."""
    given = {}
    for field, names in (("ratio", ("budget_percent", "max_rate")), ("floor", _CONCURRENCY[1::2])):
        entry = [name for name in names if data.get(name) is not None]
        if len(entry) > 1:
            raise UnknownWord(f"{entry[0]!r} beside {entry[1]!r}")
        for name in entry:
            given[field] = data[name] / 100 if name == "budget_percent" else data[name]
    return ConcurrencyBudget(**given)


def _calls(data: Entry) -> int:
    if "executions" in data:
        return int(data["executions"])
    return int(data["active"] + data.get("pending", 0))


def _in_flight(budget: ConcurrencyBudget, data: Entry) -> None:
    # In failsafe-go the retries that are in flight count as executions. They are calls here, too.
    ledger = budget.open()
    for _ in range(_calls(data)):
        ledger.begin(0)
    for _ in range(data.get("inflight_retries", 0)):
        ledger.spend(0, _FAILURE)
    for step in data["steps"]:
        name, *expected = _step(step)
        found = word(name, _IN_FLIGHT)(ledger)
        assert expected in ([], [found])


_IN_FLIGHT: dict[str | None, Callable[[Any], object]] = {
    "try": lambda ledger: ledger.spend(0, _FAILURE) is not None,
    "release": lambda ledger: ledger.release(0),
    "begin": lambda ledger: ledger.begin(0),
    "end": lambda ledger: ledger.end(0),
}


# ------------------------------------------------------------------------------------------------------------- shedding


def shedding(case: Case) -> None:
    """Check the probability with which a client refuses the next request after its past requests and accepts."""
    data = read(case.data, "formula", "rows", notes=_NOTES)
    word(data["formula"], {"p_reject=max(0,(requests-K*accepts)/(requests+1))": None})
    for row in (read(each, "requests", "accepts", "K", "expect") for each in data["rows"]):
        ledger = Shedding(row["K"]).open()
        for _ in range(row["requests"]):
            ledger.asked(0)
        for _ in range(row["accepts"]):
            ledger.accepted(0)
        assert pytest.approx(row["expect"]) == ledger.rejection(0)


# ------------------------------------------------------------------------------------------------------------- adaptive


def adaptive_rate(case: Case) -> None:
    """Check the cubic curve, a client that measures its sending rate, or a bucket without debt."""
    data = case.data
    if "acquire" in data:
        _acquire(read(data, "fill_rate", "enabled_at", "acquire", "expect", notes=_NOTES))
    elif "rows" in data and "last_max_rate" not in data:
        _client(read(data, "rows", notes=_NOTES))
    elif "rows" in data:
        _curve(read(data, "last_max_rate", "last_throttle", "rows", notes=_NOTES))
    elif "expect_k" in data:
        data = read(data, "expect_k", "w_max", notes=_NOTES)
        most = data["w_max"] if "w_max" in data else _named(data, r"k at w_max=([\d.]+)")[0]
        assert pytest.approx(data["expect_k"]) == Cubic(most).window
    else:
        data = read(data, "expect", "beta", "error_at", notes=_NOTES)
        if is_refused(data.get("expect"), lambda: Adaptive(beta=data["beta"])):
            return
        if "error_at" not in data:
            rate, at = _named(data, r"error at ([\d.]+) tps, t=([\d.]+)")
            data["error_at"] = {"rate": rate, "t": at}
        _refused(data)


def _named(data: Entry, pattern: str) -> list[float]:
    """Return the numbers that a case states only in its name."""
    found = re.fullmatch(pattern, data["name"])
    if found is None:
        raise UnknownWord(f"name {data['name']!r}, which gives no numbers")
    return [float(number) for number in found.groups()]


def _curve(data: Mapping[str, Any]) -> None:
    curve, rate = Cubic(data["last_max_rate"], data["last_throttle"]), 0.0
    for row in (read(each, "t", "throttled", "rate") for each in data["rows"]):
        if row.get("throttled", False):
            # These rows begin a curve anew at the reduced rate (see their note); a client begins at the one before.
            rate = curve.throttled(rate, row["t"]).rate(row["t"])
            curve = Cubic(rate, row["t"])
        else:
            rate = curve.rate(row["t"])
        assert pytest.approx(row["rate"]) == rate


def _client(data: Mapping[str, Any]) -> None:
    rate = AdaptiveRate()
    for row in (read(each, "t", "throttled", "measured_tps", "fill_rate") for each in data["rows"]):
        rate.report(row["t"], throttled=row.get("throttled", False))
        if "measured_tps" in row:
            assert pytest.approx(row["measured_tps"]) == rate.measured
        if "fill_rate" in row:
            assert pytest.approx(row["fill_rate"]) == rate.rate


def _refused(data: Mapping[str, Any]) -> None:
    """Check the curve after a refusal."""
    error = read(data["error_at"], "rate", "t")
    rate, at = error["rate"], error["t"]
    expect = read(data["expect"], notes=data["expect"])
    curve = Cubic(beta=data.get("beta", Cubic().beta)).throttled(rate, at)
    seen = {"new_rate": curve.rate(at), "w_max": curve.most, "k": curve.window, "last_fail": curve.failed_at}
    for name, expected in expect.items():
        later = re.fullmatch(r"rate_at_t([\d.]+)", name)
        found = curve.rate(float(later[1])) if later else word(name, seen)
        assert pytest.approx(expected) == found


def _acquire(data: Mapping[str, Any]) -> None:
    rate = AdaptiveRate(data.get("enabled_at", 0), rate=data["fill_rate"])
    asked, expected = read(data["acquire"], "t", "cost"), read(data["expect"], "granted", "wait", "capacity")
    wait = rate.acquire(asked["t"], asked.get("cost", 1))
    found = {"granted": wait == 0, "wait": wait, "capacity": rate.tokens(asked["t"])}
    for name, value in expected.items():
        assert pytest.approx(value) == found[name]
