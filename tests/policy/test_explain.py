"""Tests of `redrive.policy.explain`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Failure, Jitter, Policy, Retry, Rule
from redrive.policy.duration import LONGEST, LONGEST_WAIT
from redrive.policy.explain import refuse_endless
from tests.policy.strategies import backoffs, failures, jitters, journey, names, policies, samples

SECOND = timedelta(seconds=1)
_AND, _OR, _THEN = Policy.__and__, Policy.__or__, Policy.__rshift__


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
def test_explain_returns_a_sentence(policy: Policy, clauses: list[str]):
    """`explain` describes a policy in one sentence, with its worst cases."""
    assert "; ".join(clauses) + "." == policy.explain().sentence == str(policy.explain())


def test_the_worst_cases():
    """Worst cases are counted with all rules, and bounded by the deadline."""
    policy = Policy(attempts=3, backoff=Backoff.constant(10), attempt_timeout=5, rules=[Rule(OSError, attempts=4)])

    assert (6, 50 * SECOND, 80 * SECOND) == policy.explain()[:3]
    assert (6, 50 * SECOND, 60 * SECOND) == policy.with_(deadline=60).explain()[:3]
    assert (6, 20 * SECOND, 20 * SECOND) == policy.with_(deadline=20).explain()[:3]


def test_a_part_without_retries_shortens_no_delay():
    """A part of `|` that grants no retry does not make the delay of the other part shorter, also if it draws."""
    one = Policy(attempts=2, deadline=None, backoff=Backoff.constant(1), jitter="none")
    drawn = Policy(attempts=1, deadline=None, backoff=Backoff.decorrelated(0, 0))

    assert (2, SECOND) == (one | drawn).explain()[:2] == (drawn | one).explain()[:2]
    assert (2, 0 * SECOND) == (one | drawn.with_(attempts=2)).explain()[:2]


def test_unlimited_policies_have_no_worst_case():
    """Without limits there are no worst cases."""
    assert (None, None, None) == Policy(attempts=None, catch="x").explain()[:3]
    assert (None, None, None) == Policy(attempts=None, catch="x", rules=[Rule(OSError, attempts=2)]).explain()[:3]
    assert (None, None, None) == Policy(attempts=None, catch="x", rules=[Rule(OSError)]).explain()[:3]
    assert (3, timedelta(milliseconds=300), None) == Policy().explain()[:3]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy.parse("1000000000 1s"), "1,000,000,001 attempts would go on for 114,077 years"),
        (Policy.parse("1000 1s 10000d"), "1,001 attempts would go on for 26,591 years"),
        (
            Policy(rules=[Rule(OSError, attempts=9, backoff=Backoff.constant("4000d"))]),
            "11 attempts would go on for 88",
        ),
    ],
)
def test_waits_of_more_than_fifty_years_are_refused(policy: Policy, message: str):
    """The error has the number of attempts, and the time that they would take."""
    policy = policy.with_(deadline=None)

    with pytest.raises(PolicyValueError, match=f"^{message}.*, and the longest wait is 50: give fewer, shorter delays"):
        refuse_endless(policy)
    refuse_endless(policy.with_(deadline="30d"))


@pytest.mark.parametrize(
    "policy",
    [
        Policy.parse("5 100d 900d"),
        Policy(attempts=None, catch="mend", deadline=None),
        Policy(attempts=9, backoff=Backoff.constant(LONGEST_WAIT / 8), jitter="none", deadline=None),
        Policy(attempts=3, backoff=Backoff.named("fibonacci"), deadline=None),
    ],
)
def test_other_waits_are_no_error(policy: Policy):
    """Waits without end are so on purpose, and the longest ones add up to fifty years."""
    refuse_endless(policy)


def test_many_retries_are_added_up_at_once():
    """Billions of retries are added up without counting each; beyond a thousand years there is no bound."""
    policy = Policy(attempts=2**31, backoff=Backoff.constant(1), attempt_timeout="1000d", jitter="none")
    explained = policy.explain()

    assert (2**31, (2**31 - 1) * SECOND) == (explained.executions, explained.waiting)
    assert None is explained.time


def test_a_combination_is_explained_by_its_parts():
    """Combinations add up the worst cases of their parts, and their sentence has the delays of each."""
    late = Policy(on=TimeoutError, attempts=3, deadline=None, backoff=Backoff.constant(1), jitter="none")
    refused = Policy(on=OSError, attempts=4, deadline=None, backoff=Backoff.exponential(10), jitter="none")

    assert (6, 72 * SECOND, None) == (late >> refused).explain()[:3]
    assert (3, 30 * SECOND, None) == (late & refused).explain()[:3]
    assert (4, 70 * SECOND, None) == (late | refused).explain()[:3]
    assert (3, 30 * SECOND, None) == (late & (late >> refused)).explain()[:3]
    assert (4, 42 * SECOND, None) == (late.with_(on=OSError) | refused).explain()[:3]
    assert "waits (1s each time), after that (10s, 20s, 40s); at most 1m12s" in str((late >> refused).explain())
    assert "waits the longer of (1s each time) and (10s, 20s, 40s);" in str((late & refused).explain())
    assert "waits the shorter of (1s each time) and (10s, 20s, 40s);" in str((late | refused).explain())
    assert "waits 10s, 20s, 40s; at most 1m10s" in str(refused.per(ConnectionError).explain())
    assert "waits (1s each time), after that (not at all)" in str((late >> refused.with_(attempts=1)).explain())


def test_only_a_part_that_gives_up_bounds_the_whole():
    """Deadlines bound a combination if both parts end by them, or if one that gives up can end both."""
    short, long = Policy(deadline=10), Policy(deadline=20)
    patient = long.with_(over_deadline="defer")

    assert [10, 20, 20] == [each.explain().time / SECOND for each in (short & long, short | long, short >> long)]
    assert 10 * SECOND == (short & patient).explain().time
    assert None is (Policy() & patient).explain().time
    assert "ends after" not in str((short | patient).explain())
    assert "ends after 10s at the latest" in str(((short & long) & patient).explain())


def test_unbounded_figures_are_none():
    """Unbounded figures are None: a user's function may draw any delay, and a part without end has no sum."""
    random_policy = Policy(deadline=None, backoff=Backoff.named("test any sample"))
    endless = Policy(on=OSError, attempts=None, deadline=None, catch="x", backoff=Backoff.constant(1), jitter="none")
    drawn = Policy(attempts=3, backoff=Backoff.decorrelated(1, 20))
    ruled = drawn.with_(rules=[Rule(OSError, backoff=Backoff.constant(5))])
    apart = Policy(attempts=3, backoff=Backoff.constant(1), rules=[Rule(OSError, attempts=2)], jitter="none")

    assert (3, None) == random_policy.explain()[:2]
    assert (3, None) == (random_policy & random_policy).explain()[:2]
    assert (5, None) == random_policy.with_(rules=[Rule(OSError, attempts=3)]).explain()[:2]
    assert (3, None) == random_policy.with_(rules=[Rule(OSError, backoff=Backoff.named("test any sample"))]).explain()[
        :2
    ]
    assert (None, None) == (endless >> drawn).explain()[:2]
    assert (None, None) == (endless | drawn).explain()[:2]
    assert (3, 40 * SECOND) == (endless & drawn).explain()[:2]
    assert (3, 40 * SECOND) == ruled.explain()[:2]
    assert (3, 42 * SECOND) == (endless.with_(attempts=3) & ruled).explain()[:2]
    assert (4, 6 * SECOND) == (apart & apart).explain()[:2]
    assert (7, 6 * SECOND) == (apart | apart).explain()[:2]


Backoff.register("test any sample", lambda retry, previous, sample: sample, draws=True)

drawing = st.builds(
    lambda kind, attempts, initial, more: Policy(
        attempts=attempts, deadline=None, backoff=kind(initial, initial + more)
    ),
    st.sampled_from([Backoff.decorrelated, Backoff.smooth]),
    st.integers(1, 5),
    st.integers(0, 10),
    st.integers(0, 100),
)
wholes = st.recursive(
    policies() | drawing,
    lambda parts: st.one_of(
        st.builds(lambda a, b: a & b, parts, parts),
        st.builds(lambda a, b: a | b, parts, parts),
        st.builds(lambda a, b: a >> b, parts, parts),
        st.builds(lambda a, n: a.take(n), parts, st.integers(0, 6)),
        st.builds(lambda a, t: a.up_to(t), parts, st.integers(1, 10**6)),
        st.builds(lambda a, t: a.at_least(t), parts, st.integers(0, 100)),
        st.builds(lambda a, name: a.per(name), parts, names),
    ),
    max_leaves=4,
)
"""Policies of all kinds and combinations of them."""

short = st.builds(
    lambda on, attempts, backoff, rules: Policy(
        on=on, attempts=attempts, deadline=None, backoff=backoff, jitter="none", rules=rules
    ),
    st.none() | names,
    st.integers(1, 4),
    backoffs,
    st.lists(st.builds(Rule, names, backoff=st.none() | backoffs, attempts=st.none() | st.integers(1, 3)), max_size=2),
)
"""Policies that give up only when their retries are used, with rules: these get far in a journey."""
shorts = short | st.builds(lambda a, b, op: op(a, b), short, short, st.sampled_from([_AND, _OR, _THEN]))

unhinted = failures.map(lambda failure: failure._replace(hint=None))
ordinary = st.sampled_from(
    [Failure.of(OSError()), Failure.of(ValueError()), Failure(("app.Busy", "builtins.Exception"), "busy")]
)


def check(policy: Policy, failed: list[Failure], numbers: list[float]):
    """Compare a journey with the worst case."""
    explained = policy.explain()
    retries = [each for each in journey(policy, failed, numbers) if isinstance(each, Retry)]
    waited = sum([retry.delay / SECOND for retry in retries])

    assert explained.executions is None or len(retries) + 1 <= explained.executions
    assert explained.waiting is None or waited <= explained.waiting / SECOND * (1 + 1e-9) + 1e-6 * (len(retries) + 1)


@given(wholes, st.lists(unhinted, min_size=1, max_size=20), st.lists(samples, min_size=20, max_size=20))
def test_no_journey_is_worse_than_the_worst_case(policy: Policy, failed: list[Failure], numbers: list[float]):
    """Whatever goes wrong in whatever order, a call has no more executions and no longer waits than explained."""
    check(policy, failed, numbers)


@given(shorts, st.lists(ordinary, min_size=8, max_size=20))
def test_no_long_journey_is_worse_than_the_worst_case(policy: Policy, failed: list[Failure]):
    """Calls that only end when all retries are used stay within the worst case, too."""
    check(policy, failed, [0.5] * 20)


def test_a_sum_of_more_than_a_thousand_years_is_no_bound():
    """Each delay is cut to a thousand years; their sum would be more, so that none is given."""
    explained = Policy(attempts=3, backoff=Backoff.exponential("900000d", factor=1), attempt_timeout="1d").explain()

    assert (3, None, None) == (explained.executions, explained.waiting, explained.time)


@given(st.integers(1, 8), backoffs, jitters, st.lists(samples, min_size=8, max_size=8))
def test_no_call_is_worse_than_the_worst_case(attempts: int, backoff: Backoff, jitter: Jitter, numbers: list[float]):
    """Whatever the samples are, a call that fails in one way is no worse than explained."""
    policy = Policy(attempts=attempts, deadline=None, backoff=backoff, jitter=jitter)

    check(policy, [Failure.of(OSError())] * 8, numbers)


@given(st.integers(1, 8), backoffs)
def test_without_jitter_the_worst_case_happens(attempts: int, backoff: Backoff):
    """Without rules and random samples the worst case is what happens when everything fails."""
    policy = Policy(attempts=attempts, deadline=None, backoff=backoff, jitter="none")
    retries = [each for each in journey(policy, [Failure.of(OSError())] * 8, [0.0] * 8) if isinstance(each, Retry)]

    total, waiting = sum([retry.delay / SECOND for retry in retries]), policy.explain().waiting
    assert len(retries) + 1 == policy.explain().executions
    # Waits that add up to more than a thousand years have no bound.
    assert (
        (total > LONGEST.total_seconds()) if waiting is None else (pytest.approx(total, abs=1e-5) == waiting / SECOND)
    )
