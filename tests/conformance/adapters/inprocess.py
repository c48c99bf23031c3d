"""Adapters for ``inprocess.json``: delays, jitter, stop rules, the algebra of policies, exception groups."""

from __future__ import annotations

import asyncio
import builtins
import re
from collections import Counter
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from redrive.policy import Backoff, Failure, GiveUp, History, Policy, Retry
from tests.conformance.adapters.policies import FAILURE, MANY, START, delays, drawn, policy_of
from tests.conformance.adapters.vocabulary import UnknownWord, demand, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conformance.loading import Case

MICROSECOND = 1e-6
"""A decision is a ``timedelta``: where a sample was drawn, no more than its resolution can be asked for."""
TOLERANCE = 1e-9
"""``tol_default`` of the file's conventions."""
SAMPLES = 4000


# --------------------------------------------------------------------------------------------------------------- delays


def delay_sequence(case: Case) -> None:
    """The delay before each retry, nominal or under the draws that the case gives."""
    data = read(case.data, "policy", "expect", "expect_at", "expect_bounds_at", "u", "tol")
    demand(data, "expect", "expect_at", "expect_bounds_at")
    policy = policy_of(data["policy"])
    tolerance = {"abs": data.get("tol", TOLERANCE)} if "u" not in data else {"abs": MICROSECOND, "rel": MICROSECOND / 2}
    if "expect" in data:
        expected = data["expect"]
        actual = delays(policy, len(expected), _draws(data, len(expected)))
        assert [each is None for each in expected] == [each is None for each in actual]
        assert pytest.approx(_numbers(expected), **tolerance) == _numbers(actual)
    for retry, expected in data.get("expect_at", {}).items():
        assert pytest.approx(expected, **tolerance) == _delay_at(policy, int(retry), data)
    for retry, (low, high) in data.get("expect_bounds_at", {}).items():
        for sample in _samples(SAMPLES):
            assert low <= _delay_at(policy, int(retry), {"u": sample}) <= high


BOUNDS = ("lo", "hi", "mean", "uniform_histogram", "fraction_exactly_at_cap_at_most")


def delay_bounds(case: Case) -> None:
    """How the delay before one retry spreads over evenly spaced samples."""
    data = read(case.data, "policy", "n", "samples", "tol", "hi_open", "mean_tol_rel", *BOUNDS)
    demand(data, *BOUNDS)
    policy = policy_of(data["policy"])
    count = data.get("samples", SAMPLES)
    found = [_delay_at(policy, data["n"], {"u": sample}) for sample in _samples(count)]
    tolerance = max(data.get("tol", 0), MICROSECOND)
    if "lo" in data:
        assert data["lo"] - tolerance <= min(found)
    if "hi" in data:
        assert max(found) < data["hi"] if data.get("hi_open") else max(found) <= data["hi"] + tolerance
    if "mean" in data:
        assert pytest.approx(data["mean"], rel=data["mean_tol_rel"]) == sum(found) / count
    if "uniform_histogram" in data:
        _check_histogram(data["uniform_histogram"], found)
    if "fraction_exactly_at_cap_at_most" in data:
        assert found.count(data["policy"]["cap"]) <= data["fraction_exactly_at_cap_at_most"] * count


def _check_histogram(shape: dict[str, Any], found: list[float]) -> None:
    read(shape, "bins", "lo", "hi", "tol_rel")
    width = (shape["hi"] - shape["lo"]) / shape["bins"]
    count = Counter(int((each - shape["lo"]) / width) for each in found)
    even = len(found) / shape["bins"]
    assert all(pytest.approx(even, rel=shape["tol_rel"]) == count[place] for place in range(shape["bins"]))


def _draws(data: Any, count: int) -> Sequence[float] | None:
    if "u" not in data:
        return None
    return data["u"] if isinstance(data["u"], list) else [data["u"]] * count


def _samples(count: int) -> list[float]:
    return [(place + 0.5) / count for place in range(count)]


def _delay_at(policy: Policy, retry: int, data: Any) -> float | None:
    if "u" not in data:
        return policy.backoff.delay(retry)
    return next(drawn(policy, [data["u"]], first=retry))


def _numbers(found: Sequence[float | None]) -> list[float]:
    return [each for each in found if each is not None]


# ----------------------------------------------------------------------------------------------------------- stop rules


def stop(case: Case) -> None:
    """Whether the policy gives up in a state."""
    data = read(case.data, "cond", "state", "expect")
    state = read(data["state"], "attempt", "elapsed", "upcoming", "cumulative_delay")
    policy = _condition(data["cond"], state)
    history = History(state["attempt"], START)
    decision = policy.decide(history, FAILURE, START + timedelta(seconds=state.get("elapsed", 0)), 0.0)
    assert data["expect"] == isinstance(decision, GiveUp)


def _condition(data: dict[str, Any], state: Any) -> Policy:
    return word(data["kind"], _CONDITIONS)(data, state)


def _attempts(data: dict[str, Any], state: Any) -> Policy:
    read(data, "kind", "max")
    return Policy(attempts=data["max"], deadline=None, backoff=Backoff.constant(_upcoming(state)), jitter="none")


def _elapsed(data: dict[str, Any], state: Any) -> Policy:
    read(data, "kind", "max")
    if "upcoming" in state:
        raise UnknownWord("an upcoming delay that the condition does not look at")
    return Policy(attempts=MANY, deadline=data["max"], backoff=Backoff.constant(0), jitter="none")


def _elapsed_before_next(data: dict[str, Any], state: Any) -> Policy:
    read(data, "kind", "max")
    return Policy(attempts=MANY, deadline=data["max"], backoff=Backoff.constant(_upcoming(state)), jitter="none")


def _cumulative_delay(data: dict[str, Any], state: Any) -> Policy:
    read(data, "kind", "max")
    earlier = [state["cumulative_delay"], *[0] * (state["attempt"] - 2)]
    backoff = Backoff.listed([*earlier, _upcoming(state)]).up_to(data["max"])
    return Policy(attempts=MANY, deadline=None, backoff=backoff, jitter="none")


def _never(data: dict[str, Any], state: Any) -> Policy:
    read(data, "kind")
    return Policy(attempts=MANY, deadline=None, backoff=Backoff.constant(_upcoming(state)), jitter="none")


def _any(data: dict[str, Any], state: Any) -> Policy:
    first, *others = (_condition(part, state) for part in read(data, "kind", "of")["of"])
    for other in others:
        first = first & other
    return first


def _all(data: dict[str, Any], state: Any) -> Policy:
    first, *others = (_condition(part, state) for part in read(data, "kind", "of")["of"])
    for other in others:
        first = first | other
    return first


_CONDITIONS: dict[str, Callable[[dict[str, Any], Any], Policy]] = {
    "attempts": _attempts,
    "elapsed": _elapsed,
    "elapsed_before_next": _elapsed_before_next,
    "cumulative_delay": _cumulative_delay,
    "never": _never,
    "any": _any,
    "all": _all,
}


def _upcoming(state: Any) -> float:
    upcoming: float = state.get("upcoming", 0)
    return upcoming


# -------------------------------------------------------------------------------------------------------------- algebra


def algebra_operation(case: Case) -> None:
    """What two decisions come to under an operator."""
    data = read(case.data, "a", "b", "op", "expect")
    combine = word(data["op"], {"join": Policy.__and__, "meet": Policy.__or__, "then": Policy.__rshift__})
    combined = combine(_deciding(data["a"]), _deciding(data["b"]))
    assert data["expect"] == _said(combined.decide(History(1, START), FAILURE, START, 0.0))


def _deciding(text: str) -> Policy:
    if text == "GiveUp":
        return Policy(attempts=1, deadline=None, jitter="none")
    found = re.fullmatch(r"Delay\(([\d.]+)\)", text)
    if not found:
        raise UnknownWord(f"{text!r} (known: GiveUp, Delay(n))")
    return Policy(attempts=MANY, deadline=None, backoff=Backoff.constant(float(found[1])), jitter="none")


def _said(decision: object) -> str:
    return f"Delay({decision.delay.total_seconds():g})" if isinstance(decision, Retry) else "GiveUp"


def schedule(case: Case) -> None:
    """What a schedule of Effect, written with our operators, decides step after step."""
    data = read(case.data, "op", "of", "steps", "expect", "times", "duration", "at", "interval", "action_duration")
    policy = word(data["op"], _COMPOSED)(data)
    times = data.get("at") or [data.get("action_duration", 0) * place for place in range(len(data["expect"]))]
    history, found = History(1, START), []
    for elapsed, expected in zip(times, data["expect"], strict=True):
        now = START + timedelta(seconds=elapsed) + sum(found, timedelta(0))
        decision = policy.decide(history, FAILURE, now, 0.5)
        if isinstance(decision, Retry):
            assert expected == decision.delay.total_seconds()
            found.append(timedelta(0) if "at" in data else decision.delay)
            history = policy.advance(history, FAILURE, decision.delay, now=now, sample=0.5)
        else:
            assert expected == "done"


_SCHEDULES = {
    "zero": lambda: Backoff.constant(0),
    "fixed": Backoff.constant,
    "spaced": Backoff.constant,
    "exponential": Backoff.exponential,
    "duration": lambda once: Backoff.constant(once).take(1),
}


def _schedule(text: str) -> Policy:
    name, *numbers = text.split()
    if name == "take":
        count, *rest = numbers
        return _schedule(" ".join(rest)).take(int(count))
    backoff = word(name, _SCHEDULES)(*map(float, numbers))
    return Policy(attempts=MANY, deadline=None, backoff=backoff, jitter="none")


def _limited(data: Any) -> Policy:
    policy = _schedule(data["of"])
    policy = policy.take(data["times"]) if "times" in data else policy
    return policy.up_to(data["duration"]) if "duration" in data else policy


_COMPOSED: dict[str, Callable[[Any], Policy]] = {
    "max": lambda data: reduce(Policy.__and__, map(_schedule, data["of"])),
    "concat": lambda data: reduce(Policy.__rshift__, map(_schedule, data["of"])),
    "up_to": _limited,
    "fixed": lambda data: _schedule(f"fixed {data['interval']}"),
}


# ------------------------------------------------------------------------------------------------------ single formulas


def window_fit(case: Case) -> None:
    """The first delay of a backoff that fills a window, and that it does fill it."""
    data = read(case.data, "max_calls", "window", "expect_base")
    backoff = Backoff.filling(data["window"], data["max_calls"])
    assert pytest.approx(data["expect_base"], abs=TOLERANCE) == backoff.delay(1)
    if data["max_calls"] > 1:
        assert pytest.approx(data["window"]) == sum(backoff.delays(data["max_calls"] - 1))


def discrete_jitter(case: Case) -> None:
    """How two of the smallest units are drawn with half of them to either side; ours are microseconds."""
    data = read(case.data, "u", "expect")
    policy = policy_of({"backoff": "constant", "value": 2 * MICROSECOND, "jitter": "proportional", "p": 0.5})
    decision = policy.decide(History(1, START), FAILURE, START, data["u"])
    assert isinstance(decision, Retry)
    assert data["expect"] == decision.delay // timedelta.resolution


# ----------------------------------------------------------------------------------------------------- exception groups


def exception_group(case: Case) -> None:
    """Whether a policy that retries ``ValueError`` retries a group of exceptions."""
    data = read(case.data, "exc", "groups", "expect")
    groups = word(data["groups"], {"off": "never", "all": "all", "any": "any"})
    policy = Policy(on=ValueError, groups=groups, deadline=None)
    decision = policy.decide(History(1, START), Failure.of(_exception(data["exc"])), START, 0.5)
    assert data["expect"] == ("retry" if isinstance(decision, Retry) else "raise")


def _exception(text: str) -> BaseException:
    found = re.fullmatch(r"(EG|BEG)\[(.*)\]", text)
    if found:
        group = word(found[1], {"EG": ExceptionGroup, "BEG": BaseExceptionGroup})
        return group("several", [_exception(part) for part in _parts(found[2])])
    kind = asyncio.CancelledError if text == "CancelledError" else getattr(builtins, text, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise UnknownWord(f"{text!r} (known: EG[...], BEG[...], built-in exceptions, CancelledError)")
    return kind()


def _parts(text: str) -> list[str]:
    # Split at the commas that stand outside of brackets.
    return re.findall(r"[^,\[\]]+(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\])?", text)
