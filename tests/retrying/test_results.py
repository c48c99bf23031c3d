"""Results that a policy rejects, in combinations: how often a function is called, and what comes out."""

from __future__ import annotations

import pytest

import redrive
from redrive.policy import Backoff, Policy, Rule
from redrive.policy.outcome import GaveUp, Ok
from tests.retrying.helpers import Busy, Script

ERRORS = Policy(on=Busy, attempts=9, backoff=Backoff.constant(0))


def results(attempts, rejected=None):
    """Return a policy that retries one result."""
    return Policy(on_result=lambda result: result is rejected, attempts=attempts, backoff=Backoff.constant(0))


def both_kinds(attempts):
    """Return a policy that retries errors and one result."""
    return ERRORS.with_(attempts=attempts, on_result=lambda result: result is None)


CASES = {
    "errors or results, a result": (ERRORS | results(2), [None], 2, None),
    "results or errors, a result": (results(2) | ERRORS, [None], 2, None),
    "errors or results, an error": (ERRORS | results(2), [Busy(), Busy(), Busy(), 1], 4, 1),
    "the predicate of the right part": (results(3) | results(3, False), [False, None, 1], 3, 1),
    "executions count for both parts": (ERRORS | results(2), [Busy(), None], 2, None),
    "errors and results": (ERRORS & results(3), [None], 1, None),
    "both reject": (results(3) & results(4), [None], 3, None),
    "one of both accepts": (results(3) & results(4, False), [None], 1, None),
    "one after the other": (results(2) >> results(3), [None], 4, None),
    "the second one takes over": (results(5) >> results(3, False), [False, False, False, False], 3, False),
    "the first one is not asked again": (results(5) >> results(3, False), [False, None], 2, None),
    "errors, then results": (ERRORS.with_(attempts=2) >> results(2), [Busy(), None, None], 3, None),
    "per another name": (both_kinds(4).per(Busy), [None], 1, None),
    "per its own name": (both_kinds(4).per("RESULT"), [None], 4, None),
    "per an error": (results(4).per(Busy), [None], 1, None),
    "take": (both_kinds(9).take(2), [None], 3, None),
    "take, with rules": (both_kinds(9).with_(rules=[Rule(Busy, attempts=9)]).take(2), [None], 3, None),
    "at least": (both_kinds(3).at_least(0), [None], 3, None),
    "a name in place of a predicate": (results(9) & ERRORS.with_(on=("RESULT", Busy), attempts=3), [None], 3, None),
}


@pytest.mark.parametrize(("policy", "steps", "calls", "returned"), CASES.values(), ids=CASES)
def test_a_combination_of_predicates(policy, steps, calls, returned, run):
    """Each part asks its own predicate; what is accepted or given up on is returned, in every colour."""
    script, awaited = Script(*steps), Script(*steps)

    assert returned is redrive.retry(policy)(script)()
    assert returned is run(redrive.retry(policy)(awaited.as_async()))
    assert (calls, calls) == (script.calls, awaited.calls)


@pytest.mark.parametrize(
    ("policy", "kind", "rule"),
    [
        (ERRORS | results(2), GaveUp, "attempts"),
        (results(2) | ERRORS, GaveUp, "attempts"),
        (results(1) & results(1), GaveUp, "attempts"),
        (results(1) >> ERRORS, GaveUp, "attempts"),
        (results(1) & ERRORS, Ok, "ok"),
        (ERRORS & results(1), Ok, "ok"),
        (results(1) & results(2, False), Ok, "ok"),
        (results(9).per(Busy), Ok, "ok"),
    ],
    ids=["or", "or, the other way round", "and", "then", "and no predicate", "no predicate and", "and another", "per"],
)
def test_a_result_is_accepted_or_given_up_on(policy, kind, rule):
    """Results that no part of a combination rejects are successes; others are given up on."""
    outcome = policy.outcome(Script(None))

    assert (kind, rule, None) == (type(outcome), outcome.record.rule, outcome.value)


def test_the_predicates_of_a_combination_are_asked_once_for_each_result():
    """Each predicate of a combination is called once for each result, whatever the operators."""
    asked = []

    def noting(name):
        return lambda result: asked.append((name, result)) or result is None

    a, b, c = (Policy(on_result=noting(name), attempts=3, backoff=Backoff.constant(0)) for name in "abc")
    ((a | b) & c).call(Script(None, 1))

    assert [(name, result) for result in (None, 1) for name in "abc"] == asked
