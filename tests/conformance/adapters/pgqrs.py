"""Adapters for ``pgqrs.json``: the delays and limits of its retry policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.policy import Backoff, History, Jitter, Policy, Retry
from tests.conformance.adapters.policies import FAILURE, START, drawn, exponential
from tests.conformance.adapters.vocabulary import Mismatch, UnknownWord, read, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.loading import Case

QUARTER = 0.25
"""The jitter of ``exponential_jitter``: as much above as below."""
SAMPLES = [place / 100 for place in range(100)]


def backoff(case: Case) -> None:
    """Check the delay after a number of retries, and whether there is another one."""
    data = read(case.data, "group", "title", "given", "steps", "for_us", required=("given", "steps"))
    given = read(data["given"], "policy", required=("policy",))["policy"]
    policy = word(given.get("kind"), KINDS)(given)
    answers = [_answer(policy, read(step, "do", "attempt", "expect", required=STEP)) for step in data["steps"]]
    expected = [_bounds(step["expect"]) for step in data["steps"]]
    if not all(low <= least <= most <= high for (low, high), (least, most) in zip(expected, answers, strict=True)):
        raise Mismatch(expected, answers)


STEP = ("do", "attempt", "expect")


def _answer(policy: Policy, step: Any) -> tuple[float, float]:
    """Return the least and the greatest answer to a step, over all samples."""
    return word(step["do"], STEPS)(policy, step["attempt"])


def _bounds(expected: Any) -> tuple[float, float]:
    bounds = expected if isinstance(expected, dict) else {"min": expected, "max": expected}
    read(bounds, "min", "max", required=("min", "max"))
    if not all(isinstance(each, (int, float)) for each in bounds.values()):
        raise UnknownWord(f"expect: {expected!r} (known: a number, true, false, min and max)")
    return bounds["min"], bounds["max"]


def _delays(policy: Policy, attempt: int) -> tuple[float, float]:
    unlimited = policy.with_(attempts=None, deadline=None, catch="anybody")
    found = [delay for sample in SAMPLES for delay in drawn(unlimited, [sample], first=attempt + 1)]
    return min(found), max(found)


def _should_retry(policy: Policy, attempt: int) -> tuple[bool, bool]:
    found = [isinstance(policy.decide(History(attempt + 1, START), FAILURE, START, each), Retry) for each in SAMPLES]
    return min(found), max(found)


STEPS: dict[str, Callable[[Policy, int], tuple[float, float]]] = {"delay": _delays, "should_retry": _should_retry}
"""The questions of a step. Its ``attempt`` counts the retries made before, from 0."""


def _policy(data: Any, schedule: Backoff, jitter: Jitter) -> Policy:
    # Their max_attempts counts retries.
    return Policy(attempts=data["max_attempts"] + 1, deadline=None, backoff=schedule, jitter=jitter)


def _fixed(data: Any) -> Policy:
    read(data, "kind", "delay_s", "max_attempts", required=("delay_s", "max_attempts"))
    return _policy(data, Backoff.constant(data["delay_s"]), Jitter.none)


EXPONENTIAL = ("kind", "base_s", "max_s", "max_attempts")


def _exponential(data: Any) -> Policy:
    read(data, *EXPONENTIAL, required=EXPONENTIAL)
    return _policy(data, exponential(data["base_s"], data["max_s"]), Jitter.none)


def _exponential_jitter(data: Any) -> Policy:
    # As proportional jitter in policies.py: shorter by a quarter, and jitter on top.
    read(data, *EXPONENTIAL, required=EXPONENTIAL)
    below = 1 - QUARTER
    schedule = exponential(data["base_s"] * below, data["max_s"] * below)
    return _policy(data, schedule, Jitter.plus(2 * QUARTER / below))


KINDS: dict[str, Callable[[Any], Policy]] = {
    "fixed": _fixed,
    "exponential": _exponential,
    "exponential_jitter": _exponential_jitter,
}
