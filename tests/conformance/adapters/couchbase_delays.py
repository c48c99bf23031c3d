"""Adapters for the delays of ``couchbase.json``: calculators, and jitter. All numbers of the cases are milliseconds."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from redrive.errors import PolicyValueError
from redrive.orchestrator import (
    BestEffort,
    RandomJitter,
    Request,
    RetryReason,
    controlled_backoff,
    exponential_backoff,
    previous_backoff,
)
from redrive.policy import Backoff
from redrive.retrying.context import using
from tests.conformance.adapters.couchbase_words import Reading, parts, text
from tests.conformance.adapters.vocabulary import word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.conformance.loading import Case

Json = dict[str, Any]

MILLISECOND = timedelta(milliseconds=1)
NEARLY = {"rel": 1e-9, "abs": 1e-6}
LAST_SAMPLE = 1 - 1e-12


_BOUNDS = {"min_ms": "minimum", "max_ms": "maximum", "factor": "factor"}


def backoff(case: Case) -> None:
    """Check the delay of a calculator, the arguments that it refuses, and its repr."""
    fields = ("calculator", "args", "sdk", "construct", "kind", "ms", "retry_attempts", "previous_ms")
    outcomes = ("delay_ms", "effective", "retry", "raises", "reason", "ok", "grows_until")
    data, expected = parts(case, (*fields, "based_on_previous", *_BOUNDS), (*outcomes, "repr_contains_all_parameters"))
    if "construct" in data:
        _check_construction(Reading(data["construct"], _BOUNDS), expected)
    elif "kind" in data:
        assert expected["repr_contains_all_parameters"] == _names_all(data)
    else:
        _check_delay(data, expected)
    data.finish()
    expected.finish()


def _check_delay(data: Reading, expected: Reading) -> None:
    calculator = word(data["sdk"], _SDKS)() if "sdk" in data else _calculator(text(data["calculator"]), data)
    request = Request()
    if data.get("previous_ms") is not None:
        request.record_retry(RetryReason.KV_LOCKED, data["previous_ms"] * MILLISECOND)
        request.begin_next()
    request.retry_attempts = data.get("retry_attempts", request.retry_attempts)
    action = asyncio.run(BestEffort(calculator).retry_after(request, RetryReason.KV_LOCKED))
    assert expected.get("retry", True) == (action is not None)
    if "delay_ms" in expected:
        delay = None if action is None or action.duration is None else action.duration / MILLISECOND
        assert expected["delay_ms"] == (delay if delay is None else pytest.approx(delay, **NEARLY))
    for name, value in expected.get("effective", {}).items():
        assert pytest.approx(value) == _effective(calculator, name)


def _effective(calculator: Any, name: str) -> float:
    found = {"min_ms": calculator.initial * 1000, "max_ms": calculator.maximum * 1000, "factor": calculator.factor}
    return float(word(name, found))


def _bounds(data: Mapping[str, Any]) -> Json:
    """Return the arguments of an exponential backoff; null is no bound."""
    lengths = {_BOUNDS[name]: data[name] for name in _BOUNDS if name in data}
    return {name: value if name == "factor" or value is None else value / 1000 for name, value in lengths.items()}


def _exponential(data: Reading) -> Backoff:
    if "args" not in data:
        return exponential_backoff(**_bounds(data))
    # In Go and C++ a missing argument is passed as zero.
    given = Reading(data["args"], _BOUNDS)
    return exponential_backoff(**_bounds({name: given[name] for name in given if given[name]}))


_CALCULATORS: dict[str, Callable[[Reading], Any]] = {
    "controlled": lambda _: controlled_backoff,
    "exponential": _exponential,
    "exponential_prev": lambda data: previous_backoff(**_bounds(data)),
    "fixed": lambda data: Backoff.constant(data["ms"] / 1000),
    "constant": lambda data: Backoff.constant(data["ms"] / 1000),
    "zero": lambda _: Backoff.constant(0),
}
_FUNCTION = re.compile(r"fn attempts ?-> ?(?:(\d+) ?\* ?)?attempts(?: ?\* ?(\d+))?(?: ?\+ ?(\d+))? ?ms")


def _calculator(shown: str, data: Reading) -> Any:
    if found := _FUNCTION.fullmatch(shown):
        times, plus = int(found[1] or found[2] or 1), int(found[3] or 0)
        return lambda attempts: (times * attempts + plus) * MILLISECOND
    return word(shown, _CALCULATORS)(data)


_SDKS: dict[str, Callable[[], Any]] = {  # the calculators with the delays of each SDK
    "jvm": lambda: Backoff.constant(0).take(1) >> Backoff.exponential("1ms", "500ms"),
    "dotnet": lambda: lambda attempts: min(500, 2 ** min(attempts + 1, 9) - 1) * MILLISECOND,
    "rust": lambda: exponential_backoff(maximum="1s"),
    "cxx": lambda: controlled_backoff,
    "python": lambda: controlled_backoff,
    "go": exponential_backoff,
}

_COMPLAINTS = {"min must be > 0": "minimum=", "max must be >= min": "maximum=", "factor must be >= 1": "factor"}
"""The words that a refusal must contain."""


def _check_construction(data: Reading, expected: Reading) -> None:
    if "raises" in expected:
        word(expected["raises"], {"InvalidArgument": None})
        problem = word(expected["reason"], _COMPLAINTS) if "reason" in expected else ""
        with pytest.raises(PolicyValueError, match=problem):
            exponential_backoff(**_bounds(data))
        return
    calculator = exponential_backoff(**_bounds(data))
    if "ok" in expected:
        assert expected["ok"] is True
    if "grows_until" in expected:
        word(expected["grows_until"], {"representable limit, never raises": None})
        delays = [calculator.delay(10**power) or 0.0 for power in range(10)]
        assert sorted(delays) == delays
        assert delays[0] < delays[1] < float("inf")


def _names_all(data: Reading) -> bool:
    shown = repr(BestEffort(word(data["kind"], _KINDS)(data)))
    numbers = [data[name] for name in ("ms", "min_ms", "max_ms") if data.get(name) is not None]
    parameters = [number / 1000 for number in numbers] + ([data["factor"]] if "factor" in data else [])
    is_named = data.get("based_on_previous", False) == ("previous" in shown)
    return is_named and all(re.search(rf"\b{re.escape(f'{each:g}')}\b", shown) for each in parameters)


_KINDS: dict[str, Callable[[Reading], Backoff]] = {
    "zero": lambda _: Backoff.constant(0),
    "fixed": lambda data: Backoff.constant(data["ms"] / 1000),
    "exponential": lambda data: (previous_backoff if data.get("based_on_previous") else exponential_backoff)(
        **_bounds(data)
    ),
}


def jitter(case: Case) -> None:
    """Check how far jitter may move a delay, and which settings are refused."""
    data, expected = parts(
        case,
        ("delay_ms", "factor", "min_ms", "max_ms", "offset_ms", "calculator", "attempt_1_based", "retry_attempts"),
        ("offset_ms", "low_bound_ms", "high_bound_ms", "raises", "delay_ms", "range_ms"),
    )
    if "calculator" in data:
        word(data["calculator"], {"full_jitter": None})
        _check_range(expected["range_ms"], lambda sample: _full(data, sample))
    elif "raises" in expected:
        word(expected["raises"], {"InvalidArgument": None})
        with pytest.raises(PolicyValueError):
            _random(data).apply(data.get("delay_ms", 0) / 1000, 0.5)
    else:
        _check_random(data, expected)
    data.finish()
    expected.finish()


def _check_random(data: Reading, expected: Reading) -> None:
    random, delay = _random(data), data["delay_ms"] / 1000
    if "offset_ms" in expected:
        assert pytest.approx(expected["offset_ms"]) == random.offset(delay) * 1000
    if "offset_ms" in data:
        low, high = random.bounds(delay, data["offset_ms"] / 1000)
        found = {"low_bound_ms": (low - delay) * 1000, "high_bound_ms": (high - delay) * 1000}
        for name in [name for name in found if name in expected]:
            assert pytest.approx(expected[name]) == found[name]
    if "delay_ms" in expected:
        _check_range([expected["delay_ms"]] * 2, lambda sample: random.apply(delay, sample) * 1000)
    if "range_ms" in expected:
        _check_range(expected["range_ms"], lambda sample: random.apply(delay, sample) * 1000)


def _random(data: Reading) -> RandomJitter:
    bounds = {
        name: data[field] / 1000 for field, name in (("min_ms", "minimum"), ("max_ms", "maximum")) if field in data
    }
    return RandomJitter(data.get("factor", 0.5), **bounds)


def _full(data: Reading, sample: float) -> float:
    request = Request()
    request.retry_attempts = data["retry_attempts"] if "retry_attempts" in data else data["attempt_1_based"] - 1
    with using(sample=sample):
        delay = BestEffort(exponential_backoff(**_bounds(data)), jitter="full").delay(request)
    assert delay is not None
    return delay / MILLISECOND


def _check_range(expected: list[float], draw: Callable[[float], float]) -> None:
    assert pytest.approx(expected, rel=1e-6, abs=1e-6) == [draw(0.0), draw(LAST_SAMPLE)]
    assert expected[0] - 1e-6 <= draw(0.5) <= expected[1] + 1e-6
