"""Tests of `redrive.policy.explain`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.policy import Backoff, Failure, History, Jitter, Policy, Retry, Rule
from tests.policy.strategies import START, backoffs, jitters, samples

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("policy", "clauses"),
    [
        (
            Policy.parse("10 5s 1m catch recover"),
            [
                "Calls up to 11 times",
                "waits 5s, 10s, 20s, 40s, 1m, 1m, then 1m each time",
                "at most 7m15s of waiting in all",
                "then hands over to recover",
            ],
        ),
        (Policy.parse("0"), ["Calls once"]),
        (Policy.parse("0 catch x"), ["Calls once", "then hands over to x"]),
        (
            Policy.parse("10 1s"),
            [
                "Calls up to 11 times",
                "waits 1s, 2s, 4s, 8s, 16s, 32s, and so on",
                "at most 17m3s of waiting in all",
            ],
        ),
        (
            Policy(),
            [
                "Calls up to 3 times",
                "waits 100ms, 200ms, each drawn between nothing and that",
                "at most 300ms of waiting in all",
            ],
        ),
        (
            Policy(attempts=2, jitter="equal", attempt_timeout=2),
            [
                "Calls up to 2 times",
                "waits 100ms, each drawn between half and all of that",
                "at most 100ms of waiting in all",
                "takes at most 4s100ms",
            ],
        ),
        (
            Policy(attempts=3, jitter=Jitter.plus(0.5), backoff=Backoff.constant(2)),
            [
                "Calls up to 3 times",
                "waits 2s each time, each with up to 50% on top",
                "at most 6s of waiting in all",
            ],
        ),
        (
            Policy(attempts=None, deadline="1m", backoff=Backoff.constant(0)),
            [
                "Calls any number of times",
                "waits 0s each time, each drawn between nothing and that",
                "at most 1m of waiting in all",
                "ends after 1m at the latest",
            ],
        ),
        (
            Policy(attempts=3, backoff=Backoff.constant(0), jitter="none"),
            ["Calls up to 3 times", "waits 0s each time"],
        ),
        (
            Policy(attempts=3, backoff=Backoff.decorrelated(1, 20)),
            ["Calls up to 3 times", "waits 3s, 9s, each drawn at random", "at most 12s of waiting in all"],
        ),
        (
            Policy(jitter="none", rules=[Rule(OSError, attempts=3, backoff=Backoff.constant(5))]),
            [
                "Calls up to 5 times",
                "waits 100ms, 200ms",
                "at most 10s300ms of waiting in all",
                "1 rule treats some otherwise",
            ],
        ),
        (
            Policy(jitter="none", rules=[Rule(OSError, backoff=Backoff.constant(5)), Rule(KeyError)]),
            [
                "Calls up to 3 times",
                "waits 100ms, 200ms",
                "at most 10s of waiting in all",
                "2 rules treat some otherwise",
            ],
        ),
        (Policy(backoff=Backoff.constant(1).take(0)), ["Calls once"]),
    ],
    ids=repr,
)
def test_the_sentence(policy: Policy, clauses: list[str]):
    """A policy is explained in one sentence, with its worst cases."""
    assert "; ".join(clauses) + "." == policy.explain().sentence == str(policy.explain())


def test_the_worst_cases():
    """The worst cases are counted with all rules, and bounded by the deadline."""
    policy = Policy(attempts=3, backoff=Backoff.constant(10), attempt_timeout=5, rules=[Rule(OSError, attempts=4)])

    assert (6, 50 * SECOND, 80 * SECOND) == policy.explain()[:3]
    assert (6, 50 * SECOND, 60 * SECOND) == policy.with_(deadline=60).explain()[:3]
    assert (6, 20 * SECOND, 20 * SECOND) == policy.with_(deadline=20).explain()[:3]


def test_nothing_bounds_some_policies():
    """Without limits there are no worst cases."""
    assert (None, None, None) == Policy(attempts=None, catch="x").explain()[:3]
    assert (None, None, None) == Policy(attempts=None, catch="x", rules=[Rule(OSError, attempts=2)]).explain()[:3]
    assert (None, None, None) == Policy(attempts=None, catch="x", rules=[Rule(OSError)]).explain()[:3]
    assert (3, timedelta(milliseconds=300), None) == Policy().explain()[:3]


def test_many_retries_are_added_up_at_once():
    """Billions of retries are added up without counting each, and saturate."""
    policy = Policy(attempts=2**31, backoff=Backoff.constant(1), attempt_timeout="1000d", jitter="none")
    explained = policy.explain()

    assert (2**31, (2**31 - 1) * SECOND) == (explained.executions, explained.waiting)
    assert timedelta(days=365_250) <= explained.time


@given(st.integers(1, 8), backoffs, jitters, st.lists(samples, min_size=8, max_size=8))
def test_no_call_is_worse_than_the_worst_case(attempts: int, backoff: Backoff, jitter: Jitter, luck: list[float]):
    """However the dice fall, a call has no more executions and no longer waits than explained."""
    policy = Policy(attempts=attempts, deadline=None, backoff=backoff, jitter=jitter)
    explained = policy.explain()
    waited, executions, history = timedelta(0), 1, History(1, START)
    for sample in luck:
        decision = policy.decide(history, Failure.of(OSError()), START, sample)
        if not isinstance(decision, Retry):
            break
        waited += decision.delay
        executions += 1
        history = policy.advance(history, Failure.of(OSError()), decision.delay)

    assert executions <= explained.executions
    assert waited <= explained.waiting + 8 * timedelta(microseconds=1)
