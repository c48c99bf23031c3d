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
from tests.conformance.adapters import laws
from tests.conformance.adapters.policies import FAILURE, MANY, START, delays, drawn, policy_of
from tests.conformance.adapters.vocabulary import UnknownWord, demand, is_refused, read, word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conformance.loading import Case

MICROSECOND = 1e-6
"""A decision is a ``timedelta``: where a sample was drawn, no more than its resolution can be asked for."""
TOLERANCE = 1e-9
"""``tol_default`` of the file's conventions."""
SAMPLES = 4000
FAR = 10_000


# --------------------------------------------------------------------------------------------------------------- delays


def delay_sequence(case: Case) -> None:
    """Check the delay before each retry, nominal or under the draws that the case gives."""
    data = read(case.data, "policy", "expect", "expect_at", "expect_bounds_at", "u", "tol")
    demand(data, "expect", "expect_at", "expect_bounds_at")
    if is_refused(data.get("expect"), lambda: policy_of(data["policy"])):
        return
    policy = policy_of(data["policy"])
    tolerance = {"abs": data.get("tol", TOLERANCE)}
    if data.get("u") is not None:
        tolerance = {"abs": max(data.get("tol", 0), MICROSECOND), "rel": MICROSECOND / 2}
    if "expect" in data:
        expected = data["expect"]
        actual = delays(policy, len(expected), _draws(data, len(expected)))
        assert [each is None for each in expected] == [each is None for each in actual]
        assert pytest.approx(_numbers(expected), **tolerance) == _numbers(actual)
    for retry, expected in data.get("expect_at", {}).items():
        assert pytest.approx(expected, **tolerance) == _delay_at(policy, int(retry), data)
    for retry, (low, high) in data.get("expect_bounds_at", {}).items():
        for sample in _samples(SAMPLES):
            assert low <= _number_at(policy, int(retry), sample) <= high


BOUNDS = ("lo", "hi", "mean", "uniform_histogram", "fraction_exactly_at_cap_at_most")


def delay_bounds(case: Case) -> None:
    """Check how the delay before one retry spreads over evenly spaced samples."""
    data = read(case.data, "policy", "n", "samples", "tol", "hi_open", "mean_tol_rel", "expect", *BOUNDS)
    demand(data, "expect", *BOUNDS)
    if is_refused(data.get("expect"), lambda: policy_of(data["policy"])):
        return
    demand(data, *BOUNDS)
    policy = policy_of(data["policy"])
    count = data.get("samples", SAMPLES)
    found = [_number_at(policy, data["n"], sample) for sample in _samples(count)]
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


def _number_at(policy: Policy, retry: int, sample: float) -> float:
    delay = next(drawn(policy, [sample], first=retry))
    assert delay is not None
    return delay


def _check_histogram(shape: dict[str, Any], found: list[float]) -> None:
    shape = read(shape, "bins", "lo", "hi", "tol_rel")
    width = (shape["hi"] - shape["lo"]) / shape["bins"]
    count = Counter(int((each - shape["lo"]) / width) for each in found)
    even = len(found) / shape["bins"]
    assert all(pytest.approx(even, rel=shape["tol_rel"]) == count[place] for place in range(shape["bins"]))


def _draws(data: Any, count: int) -> Sequence[float] | None:
    samples = data.get("u")
    if samples is None:
        return None
    if not isinstance(samples, list):
        return [samples] * count
    if len(samples) < count:
        raise UnknownWord(f"{len(samples)} draws for {count} delays")
    return samples[:count]


def _samples(count: int) -> list[float]:
    return [(place + 0.5) / count for place in range(count)]


def _delay_at(policy: Policy, retry: int, data: Any) -> float | None:
    samples = _draws(data, retry)
    if samples is None:
        return policy.backoff.delay(retry)
    if retry > FAR:  # as many draws before it would only take time
        return next(drawn(policy, samples[-1:], first=retry))
    found = list(drawn(policy, samples))
    return found[-1] if len(found) == retry else None


def _numbers(found: Sequence[float | None]) -> list[float]:
    return [each for each in found if each is not None]


# ----------------------------------------------------------------------------------------------------------- stop rules


def stop(case: Case) -> None:
    """Check whether the policy gives up in a state."""
    data = read(case.data, "cond", "state", "expect")
    state = read(data.get("state") or {}, "attempt", "elapsed", "upcoming", "cumulative_delay")
    if is_refused(data["expect"], lambda: _condition(data["cond"], state)):
        return
    policy = _condition(data["cond"], state)
    history = History(state["attempt"], START)
    decision = policy.decide(history, FAILURE, START + timedelta(seconds=state.get("elapsed", 0)), 0.0)
    assert data["expect"] == isinstance(decision, GiveUp)


def _condition(data: dict[str, Any], state: Any) -> Policy:
    return word(read(data, "kind", "max", "of")["kind"], _CONDITIONS)(data, state)


def _attempts(data: dict[str, Any], _state: Any) -> Policy:
    data = read(data, "kind", "max")
    return Policy(attempts=data["max"], deadline=None, backoff=Backoff.constant(0), jitter="none")


def _elapsed(data: dict[str, Any], _state: Any) -> Policy:
    data = read(data, "kind", "max")
    return Policy(attempts=MANY, deadline=data["max"], backoff=Backoff.constant(0), jitter="none")


def _elapsed_before_next(data: dict[str, Any], state: Any) -> Policy:
    data = read(data, "kind", "max")
    return Policy(attempts=MANY, deadline=data["max"], backoff=Backoff.constant(_upcoming(state)), jitter="none")


def _cumulative_delay(data: dict[str, Any], state: Any) -> Policy:
    data = read(data, "kind", "max")
    sums = [state.get("cumulative_delay", 0), *[0] * (state["attempt"] - 2)]
    earlier = sums if state["attempt"] > 1 else []
    backoff = Backoff.listed([*earlier, _upcoming(state)]).up_to(data["max"])
    return Policy(attempts=MANY, deadline=None, backoff=backoff, jitter="none")


def _never(data: dict[str, Any], _state: Any) -> Policy:
    read(data, "kind")
    return Policy(attempts=MANY, deadline=None, backoff=Backoff.constant(0), jitter="none")


def _any(data: dict[str, Any], state: Any) -> Policy:
    kinds = {found for part in _of(data) for found in _kinds(part)}
    if "elapsed" in kinds and kinds & _LOOKING and _upcoming(state):
        # `&` asks each part whether it can wait as long as the other one wants.
        raise UnknownWord(f"elapsed beside {', '.join(sorted(kinds & _LOOKING))} with an upcoming delay")
    return reduce(Policy.__and__, [_condition(part, state) for part in _of(data)])


def _all(data: dict[str, Any], state: Any) -> Policy:
    return reduce(Policy.__or__, [_condition(part, state) for part in _of(data)])


def _of(data: dict[str, Any]) -> list[dict[str, Any]]:
    of: list[dict[str, Any]] = read(data, "kind", "of")["of"]
    if not of:
        raise UnknownWord("'of' is empty")
    return of


def _kinds(data: dict[str, Any]) -> set[str]:
    data = read(data, "kind", "max", "of")
    return {data["kind"]}.union(*map(_kinds, data.get("of", ())))


_LOOKING = {"elapsed_before_next", "cumulative_delay"}
"""The conditions that look at the upcoming delay."""


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
    upcoming: float = state.get("upcoming") or 0
    return upcoming


# -------------------------------------------------------------------------------------------------------------- algebra


def algebra_operation(case: Case) -> None:
    """Check two decisions under an operator, one decision under a limit, or a law about them."""
    data = read(case.data, "a", "b", "op", "cap", "expect", "law")
    if "law" in data:
        laws.check(read(data, "law")["law"])
        return
    if data["op"] in _UNARY:
        combined = _UNARY[data["op"]](_deciding(read(data, "a", "op", "cap", "expect")["a"]), data["cap"])
    else:
        data = read(data, "a", "b", "op", "expect")
        combined = word(data["op"], laws.OPERATORS)(_deciding(data["a"]), _deciding(data["b"]))
    expected = _deciding(data["expect"])
    assert _entry(_decided(expected)) == _entry(_decided(combined))


_UNARY: dict[str, Callable[[Policy, float], Policy]] = {"cap": Policy.cap, "map_delay": Policy.cap}
"""The file's ``map_delay(min cap)``."""


def _decided(policy: Policy) -> object:
    return policy.decide(History(1, START), FAILURE, START, 0.0)


def _deciding(given: Any) -> Policy:
    found = re.fullmatch(r"Delay\((\d+\.?\d*|\.\d+)\)", given) if isinstance(given, str) else None
    if given != "GiveUp" and not found:
        raise UnknownWord(f"{given!r} (known: GiveUp, Delay(n))")
    return laws.always(float(found[1])) if found else laws.NEVER


def _entry(decision: object) -> str:
    return f"Delay({decision.delay.total_seconds():g})" if isinstance(decision, Retry) else "GiveUp"


def schedule(case: Case) -> None:
    """Check the decisions of a schedule of Effect, written with our operators, step after step."""
    data = read(case.data, "op", "of", "steps", "expect", "times", "duration", "at", "interval", "action_duration")
    if is_refused(data["expect"], lambda: word(data["op"], _COMPOSED)(data)):
        return
    policy = word(data["op"], _COMPOSED)(data)
    steps = len(data.get("at") or data["expect"]) if data.get("steps") is None else data["steps"]
    times = data.get("at") or [data.get("action_duration", 0) * place for place in range(steps)]
    history, waited, found = History(1, START), timedelta(0), []
    for elapsed in times[:steps]:
        now = START + timedelta(seconds=elapsed) + waited
        decision = policy.decide(history, FAILURE, now, 0.5)
        if not isinstance(decision, Retry):
            found.append("done")
            break
        found.append(decision.delay.total_seconds())
        waited += timedelta(0) if "at" in data else decision.delay
        history = policy.advance(history, FAILURE, decision.delay, now=now, sample=0.5)
    assert data["expect"] == found


_SCHEDULES: dict[str, Callable[..., Backoff]] = {
    "zero": lambda: Backoff.constant(0),
    "forever": lambda: Backoff.constant(0),
    "recurs": lambda times: Backoff.constant(0).take(int(times)),
    "fixed": Backoff.constant,
    "spaced": Backoff.constant,
    "linear": lambda step: Backoff.linear(step, step),
    "fibonacci": lambda base: Backoff.named("fibonacci", base=base),
    "exponential": lambda base, factor=2: Backoff.exponential(base, None, factor),
    "duration": lambda once: Backoff.constant(once).take(1),
}


def _schedule(text: Any) -> Policy:
    if not isinstance(text, str) or not text.strip():
        raise UnknownWord(f"{text!r} (known: a schedule and its numbers, such as 'fixed 5')")
    name, *numbers = text.split()
    if name == "take" and len(numbers) > 1 and numbers[0].isdigit():
        count, *rest = numbers
        return _schedule(" ".join(rest)).take(int(count))
    make = word(name, _SCHEDULES)
    try:
        backoff = make(*map(float, numbers))
    except (TypeError, ValueError):
        raise UnknownWord(f"{text!r}: {name} does not take these numbers") from None
    return Policy(attempts=MANY, deadline=None, backoff=backoff, jitter="none")


def _one(data: Any, *fields: str) -> Policy:
    given = read(data, "op", "of", "steps", "expect", "at", "action_duration", *fields)["of"]
    if isinstance(given, list) and len(given) != 1:
        raise UnknownWord(f"'of' of {data['op']!r} names {len(given)} schedules (known: one)")
    return _schedule(given[0] if isinstance(given, list) else given)


def _several(data: Any, combine: Callable[[Policy, Policy], Policy]) -> Policy:
    of = read(data, "op", "of", "steps", "expect", "at", "action_duration")["of"]
    if not isinstance(of, list) or not of:
        raise UnknownWord(f"'of' of {data['op']!r} is {of!r} (known: a list of schedules)")
    return reduce(combine, map(_schedule, of))


def _limited(data: Any) -> Policy:
    policy = _one(data, "times", "duration")
    policy = policy.take(data["times"]) if "times" in data else policy
    return policy.up_to(data["duration"]) if "duration" in data else policy


def _every(data: Any) -> Policy:
    data = read(data, "op", "interval", "steps", "expect", "at", "action_duration")
    return _schedule(f"{data['op']} {data['interval']}")


_COMPOSED: dict[str, Callable[[Any], Policy]] = {
    "max": lambda data: _several(data, Policy.__and__),
    "min": lambda data: _several(data, Policy.__or__),
    "concat": lambda data: _several(data, Policy.__rshift__),
    "up_to": _limited,
    "take": lambda data: _one(data, "times").take(data["times"]),
    "fixed": _every,
    "spaced": _every,
}


# ------------------------------------------------------------------------------------------------------ single formulas


def window_fit(case: Case) -> None:
    """Check the first delay of a backoff that fills a window, and that it does fill it."""
    data = read(case.data, "max_calls", "window", "expect_base", "expect")
    demand(data, "expect_base", "expect")
    if is_refused(data.get("expect"), lambda: Backoff.filling(data["window"], data["max_calls"])):
        return
    backoff = Backoff.filling(data["window"], data["max_calls"])
    assert pytest.approx(data["expect_base"], abs=TOLERANCE) == backoff.delay(1)
    if data["max_calls"] > 1:
        assert pytest.approx(data["window"]) == sum(backoff.delays(data["max_calls"] - 1))


def discrete_jitter(case: Case) -> None:
    """Check how two of the smallest units are drawn with half of them to either side; ours are microseconds."""
    data = read(case.data, "u", "expect")
    policy = policy_of({"backoff": "constant", "value": 2 * MICROSECOND, "jitter": "proportional", "p": 0.5})
    decision = policy.decide(History(1, START), FAILURE, START, data["u"])
    assert isinstance(decision, Retry)
    assert data["expect"] == decision.delay // timedelta.resolution


# ----------------------------------------------------------------------------------------------------- exception groups


def exception_group(case: Case) -> None:
    """Check whether a policy for ``ValueError``, or for the errors that the case names, retries an exception group."""
    data = read(case.data, "exc", "groups", "on", "expect")
    demand(data, "expect")
    groups = word(data.get("groups", "all"), {"off": "never", "never": "never", "all": "all", "any": "any"})
    names = data.get("on", "ValueError")
    kinds = tuple(type(_exception(name)) for name in ([names] if isinstance(names, str) else names))
    policy = Policy(on=kinds, groups=groups, deadline=None, idempotent=True)
    decision = policy.decide(History(1, START), Failure.of(_exception(data["exc"])), START, 0.5)
    assert word(data["expect"], {"retry": True, "raise": False}) == isinstance(decision, Retry)


def _exception(text: str) -> BaseException:
    found = re.fullmatch(r"\s*(EG|BEG)\[(.*)\]\s*", text)
    if found:
        group = word(found[1], {"EG": ExceptionGroup, "BEG": BaseExceptionGroup})
        return group("several", [_exception(part) for part in _parts(found[2])])
    text = text.strip()
    kind = asyncio.CancelledError if text == "CancelledError" else getattr(builtins, text, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise UnknownWord(f"{text!r} (known: EG[...], BEG[...], built-in exceptions, CancelledError)")
    return kind()


def _parts(text: str) -> list[str]:
    # Split at the commas that stand outside of brackets.
    depth, parts = 0, [""]
    for char in text:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts
