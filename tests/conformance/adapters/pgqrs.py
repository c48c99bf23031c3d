"""Adapters for ``pgqrs.json``: the delays and limits of its retry policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.policy import Backoff, History, Jitter, Policy, Retry
from tests.conformance.adapters.policies import FAILURE, START, drawn
from tests.conformance.adapters.vocabulary import read, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.loading import Case

QUARTER = 0.25
"""Of ``exponential_jitter``: as much above as below."""
SAMPLES = [place / 100 for place in range(100)]


def backoff(case: Case) -> None:
    """The delay after a number of retries, and whether there is another one."""
    data = read(case.data, "group", "title", "given", "steps", "for_us")
    given = read(data["given"], "policy")["policy"]
    policy = word(given["kind"], KINDS)(given)
    for step in data["steps"]:
        word(step["do"], STEPS)(policy, read(step, "do", "attempt", "expect"))


def _delay(policy: Policy, step: Any) -> None:
    retry, expected = step["attempt"] + 1, step["expect"]
    bounds = read(expected, "min", "max") if isinstance(expected, dict) else {"min": expected, "max": expected}
    unlimited = policy.with_(attempts=None, deadline=None, catch="anybody")
    for sample in SAMPLES:
        (found,) = drawn(unlimited, [sample], first=retry)
        assert bounds["min"] <= found <= bounds["max"]


def _should_retry(policy: Policy, step: Any) -> None:
    decision = policy.decide(History(step["attempt"] + 1, START), FAILURE, START, 0.5)
    assert step["expect"] == isinstance(decision, Retry)


STEPS: dict[str, Callable[[Policy, Any], None]] = {"delay": _delay, "should_retry": _should_retry}
"""What a step asks. Its ``attempt`` counts the retries that were made before, from 0."""


def _policy(data: Any, schedule: Backoff, jitter: Jitter) -> Policy:
    # Their max_attempts counts retries.
    return Policy(attempts=data["max_attempts"] + 1, deadline=None, backoff=schedule, jitter=jitter)


def _fixed(data: Any) -> Policy:
    read(data, "kind", "delay_s", "max_attempts")
    return _policy(data, Backoff.constant(data["delay_s"]), Jitter.none)


def _exponential(data: Any) -> Policy:
    read(data, "kind", "base_s", "max_s", "max_attempts")
    return _policy(data, Backoff.exponential(data["base_s"], data["max_s"]), Jitter.none)


def _exponential_jitter(data: Any) -> Policy:
    # As proportional jitter in policies.py: shorter by a quarter, and jitter on top.
    read(data, "kind", "base_s", "max_s", "max_attempts")
    below = 1 - QUARTER
    schedule = Backoff.exponential(data["base_s"] * below, data["max_s"] * below)
    return _policy(data, schedule, Jitter.plus(2 * QUARTER / below))


KINDS: dict[str, Callable[[Any], Policy]] = {
    "fixed": _fixed,
    "exponential": _exponential,
    "exponential_jitter": _exponential_jitter,
}
