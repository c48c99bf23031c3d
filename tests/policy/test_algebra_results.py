"""Tests of `redrive.policy.algebra`: the laws of combinations on results that ``on_result`` rejects."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Failure, GiveUp, History, Policy, Retry
from tests.policy.strategies import START

NAMES = "abc"
ACCEPTED, GIVEN_UP = (0, timedelta(0)), (1, timedelta(0))

results = st.frozensets(st.sampled_from(NAMES))
"""A result is the set of the names of those predicates that reject it."""


def rejecting(name):
    """Return the predicate of a name."""
    return lambda result: name in result


leaves = st.builds(
    lambda name, attempts, delay: Policy(
        on=OSError,
        on_result=rejecting(name) if name else None,
        attempts=attempts,
        deadline=None,
        backoff=Backoff.constant(delay),
        jitter="none",
    ),
    st.sampled_from(["", *NAMES]),
    st.integers(1, 4),
    st.integers(0, 9),
)
policies = st.recursive(
    leaves,
    lambda parts: st.builds(
        lambda a, b, op: {"&": a & b, "|": a | b, ">>": a >> b}[op], parts, parts, st.sampled_from(["&", "|", ">>"])
    ),
    max_leaves=4,
)
counts = st.integers(1, 5)


def verdict(policy, result, attempts=1):
    """Return what becomes of a result, in an order: accepted, given up on, retried late, retried soon."""
    failure = policy.classify_result(result)
    if failure is None:
        return ACCEPTED
    decision = policy.decide(History(attempts, START), failure, START, 0.5)
    if isinstance(decision, GiveUp):
        return ACCEPTED if decision.rule == "not_matched" else GIVEN_UP
    return 2, -decision.delay


@given(policies, policies, results, counts)
def test_or_is_the_greater_verdict_and_and_the_lesser(a, b, result, attempts):
    """`a | b` retries what either retries and rejects what either rejects; `a & b` what both do."""
    verdicts = verdict(a, result, attempts), verdict(b, result, attempts)

    assert max(verdicts) == verdict(a | b, result, attempts) == verdict(b | a, result, attempts)
    assert min(verdicts) == verdict(a & b, result, attempts) == verdict(b & a, result, attempts)


@given(policies, policies, policies, results, counts)
def test_the_laws_of_a_distributive_lattice_hold_for_results(a, b, c, result, attempts):
    """`&` and `|` are associative and idempotent, absorb each other and distribute over each other."""

    def equal(one, other):
        return verdict(one, result, attempts) == verdict(other, result, attempts)

    assert equal((a & b) & c, a & (b & c))
    assert equal((a | b) | c, a | (b | c))
    assert equal(a & a, a)
    assert equal(a | a, a)
    assert equal(a & (a | b), a)
    assert equal(a | (a & b), a)
    assert equal(a & (b | c), (a & b) | (a & c))


def stream(policy, received):
    """Return the verdicts on one result after the other, as far as the policy retries them."""
    history, found = History(1, START), []
    for result in received:
        failure = policy.classify_result(result)
        decision = None if failure is None else policy.decide(history, failure, START, 0.5)
        if not isinstance(decision, Retry):
            accepted = decision is None or decision.rule == "not_matched"
            return [*found, ACCEPTED if accepted else GIVEN_UP]
        found.append((2, -decision.delay))
        history = policy.advance(history, failure, decision.delay, now=START, sample=0.5)
    return found


@given(leaves, leaves, st.lists(results, min_size=1, max_size=9))
def test_then_is_one_policy_after_the_other(a, b, received):
    """`a >> b` retries what a retries; the first result that a does not retry, and all that follow, are b's alone.

    A result that a gives up on and b accepts is given up on.
    """
    first = stream(a, received)
    expected = first
    if first[-1] in (ACCEPTED, GIVEN_UP):
        rest = stream(b, received[len(first) - 1 :])
        expected = first[:-1] + (rest if len(rest) > 1 else [max(first[-1], rest[0])])

    assert expected == stream(a >> b, received)


@given(policies, policies, policies, st.lists(results, min_size=1, max_size=9))
def test_then_is_associative_on_results(a, b, c, received):
    """Brackets make no difference to `>>`, whatever is rejected and when."""
    assert stream((a >> b) >> c, received) == stream(a >> (b >> c), received)


@given(policies, results, counts)
def test_per_accepts_results_unless_it_names_them(policy, result, attempts):
    """`per` accepts every result, and judges as before where it names the reason ``RESULT``."""
    assert ACCEPTED == verdict(policy.per(OSError), result, attempts)
    assert verdict(policy, result, attempts) == verdict(policy.per("RESULT"), result, attempts)


@given(leaves, leaves, results, counts, st.sampled_from(["&", "|"]))
def test_per_distributes_over_both(a, b, result, attempts, op):
    """`per` of a combination is that of its parts, for results too."""
    for name in (OSError, "RESULT"):
        whole = (a & b if op == "&" else a | b).per(name)
        parts = a.per(name) & b.per(name) if op == "&" else a.per(name) | b.per(name)
        assert verdict(whole, result, attempts) == verdict(parts, result, attempts)


@given(policies, results, counts)
def test_limits_leave_predicates_alone(policy, result, attempts):
    """`take`, `up_to`, `cap` and `at_least` that limit nothing change no verdict."""
    unlimited = policy.up_to("1d").cap("1d").at_least(0)

    assert verdict(policy, result, attempts) == verdict(unlimited, result, attempts)
    assert verdict(policy, result) == verdict(policy.take(99), result)


def test_per_does_not_widen_a_policy_for_results():
    """Policies that judge results only retry no exception after `per` has named one."""
    policy = Policy(on_result=bool, attempts=4).per(OSError).in_process()

    assert "not_matched" == policy.decide(History(1, START), Failure.of(OSError()), START, 0.5).rule


def test_a_policy_without_a_predicate_can_name_results():
    """``RESULT`` and ``BaseException`` match rejected results in a policy without a predicate."""
    failure = (Policy(on_result=bool) & Policy(on=OSError)).classify_result(1)
    assert (0,) == failure.rejected_by
    for on, rule in (("RESULT", "backoff"), (BaseException, "backoff"), (OSError, "not_matched")):
        policy = Policy(on_result=bool, jitter="none") & Policy(on=on, jitter="none")
        assert rule == policy.decide(History(1, START), failure, START, 0.5).rule


def test_a_classifier_is_not_asked_about_results():
    """Parts with a classifier and no predicate accept every result."""
    policy = Policy(on=lambda _: True)
    decision = policy.decide(History(1, START), Failure.of_result(1, (3,)), START, 0.5)

    assert "not_matched" == decision.rule


def test_a_result_with_a_given_failure_fails_every_part():
    """Without a list of the predicates that reject it, a failed result is a failure for every part."""
    policy = Policy(on=OSError, jitter="none") | Policy(on=KeyError, jitter="none")

    assert "backoff" == policy.decide(History(1, START), Failure.of_result(1), START, 0.5).rule


def test_then_keeps_the_decision_on_a_result_that_the_second_part_accepts():
    """If a has no attempts left for a rejected result and b accepts it, `a >> b` gives up as a does."""
    first = Policy(on_result=bool, attempts=1, deadline=None)
    second = Policy(on=OSError, attempts=1, deadline=None)
    failure = Failure.of_result(1, (0,))

    assert "not_matched" == second.decide(History(1, START), failure._replace(rejected_by=()), START, 0.5).rule
    assert "attempts" == (first >> second).decide(History(1, START), failure, START, 0.5).rule


async def never_awaited(_):
    """Return nothing, ever."""


@pytest.mark.parametrize("field", ["on", "on_result"])
def test_an_awaitable_is_refused_in_pure_code(field):
    """Pure code awaits nothing: an awaitable is refused by the name of the field, and closed."""
    policy = Policy(**{field: never_awaited})
    with pytest.raises(PolicyValueError, match=f"^{field}=.* returned an awaitable where nothing awaits it"):
        policy.classify(OSError()) if field == "on" else policy.classify_result(1)
