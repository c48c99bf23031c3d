"""Tests of `redrive.policy.algebra`: the laws of policies, on decisions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError, RetryAfter
from redrive.policy import Backoff, Decision, Defer, Failure, GiveUp, History, Jitter, Policy, Retry, Rule, Stage
from redrive.policy.algebra import Both, Combined, Either, Then
from redrive.policy.decider import NO_WAIT
from redrive.policy.duration import LONGEST
from redrive.policy.policy import only_limits
from tests.policy.strategies import START, backoffs, failures, journey, lengths, names, nows, policies, samples

SECOND = timedelta(seconds=1)
OS_ERROR = Failure.of(OSError("no route"))
histories = st.builds(History, st.integers(1, 10), st.just(START), st.none() | st.just(SECOND), st.just(()))
questions = st.tuples(histories, failures, nows, samples)
Question = tuple[History, Failure, datetime, float]

NEVER = Policy(attempts=1, deadline=None)
simple = st.builds(
    lambda attempts, backoff: Policy(attempts=attempts, deadline=None, backoff=backoff, jitter="none"),
    st.integers(1, 4),
    backoffs,
)
"""Policies that give up only when their retries are used."""


def due(policy: Policy, question: Question) -> datetime | None:
    """Return the instant of the next call of a policy, or None if it gives up."""
    decision = policy.decide(*question)
    match decision:
        case Retry():
            return question[2] + decision.delay
        case Defer():
            return decision.at
    return None


def decide(policy: Policy, attempts: int = 1, failure: Failure = OS_ERROR, **more: object) -> Decision:
    """Return the decision of a policy at the start of a call."""
    return policy.decide(History(attempts, **{"started_at": START, **more}), failure, START, 0.5)


def delays(policy: Policy, count: int = 9, failure: Failure = OS_ERROR) -> list[float | None]:
    """Return the delays that a policy decides for one failure again and again, None after it has given up."""
    decisions = journey(policy, [failure] * count, [0.5] * count, now=START)
    found = [each.delay.total_seconds() if isinstance(each, Retry) else None for each in decisions]
    return found + [None] * (count - len(found))


def with_delays(*seconds: float, attempts: int = 9) -> Policy:
    """Return a policy with these delays."""
    return Policy(attempts=attempts, deadline=None, backoff=Backoff.listed(seconds), jitter="none")


# --- what the operators do


def test_both_waits_longer_and_ends_first():
    """`&` gives up if either does, and waits the longer delay."""
    assert [3, 2, None] == delays(with_delays(1, 2, attempts=3) & with_delays(3, 1, attempts=4), 3)
    assert [3, 2, None] == delays(with_delays(3, 1, attempts=4) & with_delays(1, 2, attempts=3), 3)


def test_either_waits_shorter_and_ends_last():
    """`|` gives up if both do, and waits the shorter delay."""
    assert [1, 1, 1, None] == delays(with_delays(1, 2, attempts=3) | with_delays(3, 1, attempts=4), 4)
    assert [1, 1, 1, None] == delays(with_delays(3, 1, attempts=4) | with_delays(1, 2, attempts=3), 4)


def test_then_starts_over():
    """`>>` goes on with the second policy from its beginning when the first has given up."""
    assert [1, 2, 7, 8, 9, None] == delays(with_delays(1, 2, attempts=3) >> with_delays(7, 8, 9, attempts=4), 6)
    assert [1, 7] == delays(Policy(backoff=Backoff.constant(1).take(1), jitter="none") >> with_delays(7), 2)


def test_the_second_part_of_then_counts_its_own_retries():
    """Failures that only the second policy retries get exactly the second policy's retries."""
    a = with_delays(1, 2, attempts=3).with_(on=TimeoutError, idempotent=True)
    b = Policy(on=OSError, attempts=4, deadline=None, backoff=Backoff.exponential(10), jitter="none", idempotent=True)
    refused, late = Failure.of(ConnectionError()), Failure.of(TimeoutError())

    assert [10, 20, 40, None] == delays(a >> b, 4, refused)
    assert [1, 2, 10, 20, 40, None] == delays(a >> b, 6, late)
    assert [1, 10, 20, 40] == waits(journey(a >> b, [late, refused, refused, refused, refused], [0.5] * 9))


def test_then_does_not_go_back():
    """Once the first policy has given up it is not asked again, even for failures that it names."""
    policy = with_delays(1).with_(on=TimeoutError) >> with_delays(7).with_(on=ConnectionError)
    failed = [Failure.of(ConnectionError()), Failure.of(TimeoutError())]
    taken, refused = journey(policy, failed, [0.5, 0.5])

    assert 7 * SECOND == taken.delay
    assert "not_matched" == refused.rule


def test_then_in_then_keeps_three_counts():
    """Each part of a longer sequence has its own count, however the sequence is bracketed."""
    a, b, c = (with_delays(wait, attempts=3) for wait in (1, 7, 9))

    assert [1, 1, 7, 7, 9, 9, None] == delays((a >> b) >> c, 7) == delays(a >> (b >> c), 7)
    assert [1, 1, 8, 8, None] == delays(a >> (b & with_delays(8, attempts=5)), 5)


def test_a_history_without_counters_is_the_first_policys():
    """Without counters, the failures before this one count as the first policy's, up to its number of retries."""
    policy = with_delays(1, attempts=3) >> with_delays(7, 8, 9)
    open_ended = Policy(attempts=None, deadline=10, backoff=Backoff.constant(1), jitter="none") >> with_delays(7, 8)

    assert [1, 1, 7, 8] == [decide(policy, attempts).delay / SECOND for attempts in (1, 2, 3, 4)]
    assert 7 * SECOND == open_ended.decide(History(5, START), OS_ERROR, START + 20 * SECOND, 0.5).delay


def test_then_restarts_a_random_schedule():
    """Delays that the second policy draws do not depend on the delays of the first."""
    policy = with_delays(100, attempts=2) >> Policy(attempts=9, deadline=None, backoff=Backoff.decorrelated(1, 90))

    assert [100, 2, 3.5] == delays(policy, 3)


def waits(decisions: list[Decision]) -> list[float]:
    """Return the delays of the retries among some decisions, in seconds."""
    return [each.delay / SECOND for each in decisions if isinstance(each, Retry)]


def test_the_decision_names_the_part_that_decided():
    """Combined decisions have the rule of the part that decided."""
    hinted = OS_ERROR._replace(hint=30 * SECOND)
    ignoring = with_delays(5).with_(hints="ignore")

    assert "hint" == decide(with_delays(5) & ignoring, failure=hinted).rule
    assert "backoff" == decide(with_delays(5) | ignoring, failure=hinted).rule
    assert "not_matched" == decide(Policy(on=KeyError) | NEVER).rule
    assert "attempts" == decide(Policy(on=KeyError) >> NEVER).rule


def test_deferred_instants_compare_with_delays():
    """Deferrals are compared with delays by their instant."""
    deferring = with_delays(60).with_(deadline=10, over_deadline="defer")

    assert Defer(START + 60 * SECOND, "backoff") == decide(deferring & with_delays(5))
    assert 5 * SECOND == decide(deferring | with_delays(5)).delay
    assert Defer(START + 60 * SECOND, "backoff") == decide(deferring | with_delays(90))


def test_a_truncated_wait_is_an_end():
    """Waits until the deadline end a call under `&`, whatever the other part's wait, and lose under `|`."""
    cut, sooner = (with_delays(60).with_(deadline=limit, over_deadline="truncate") for limit in (10, 8))

    assert ("deadline", 10 * SECOND) == (decide(cut & with_delays(30)).rule, decide(with_delays(5) & cut).delay)
    assert ("backoff", 30 * SECOND) == (decide(cut | with_delays(30)).rule, decide(with_delays(30) | cut).delay)
    assert [8 * SECOND, 10 * SECOND] == [decide(cut & sooner).delay, decide(cut | sooner).delay]


def test_the_longer_wait_must_suit_both():
    """By `&` the later retry is asked of the other part, too: where that would pass its deadline, it ends the call."""
    hurried = Policy(on=OSError, deadline=10, backoff=Backoff.constant(1), jitter="none")
    lasting = hurried.with_(deadline=90, backoff=Backoff.constant(70))
    deferring = hurried.with_(over_deadline="defer")
    cut = hurried.with_(over_deadline="truncate")

    assert ["deadline"] * 2 == [decide(each).rule for each in (hurried & with_delays(60), with_delays(60) & hurried)]
    assert Defer(START + 60 * SECOND, "backoff") == decide(with_delays(60) & deferring)
    assert ("deadline", 10 * SECOND) == (decide(with_delays(60) & cut).rule, decide(with_delays(60) & cut).delay)
    assert 70 * SECOND == decide(with_delays(60) & (hurried | lasting)).delay
    assert "deadline" == decide(with_delays(60) & (hurried | lasting), started_at=START - 30 * SECOND).rule
    assert 60 * SECOND == decide(with_delays(60) & (hurried >> with_delays(5))).delay


def test_the_count_of_a_part_that_does_not_decide_is_unchanged():
    """If the first policy of `>>` cannot wait as long as another part asks, the second one has granted the retry."""
    first = Policy(on=OSError, attempts=9, deadline=10, backoff=Backoff.constant(1), jitter="none")
    policy = with_delays(60) & (first >> with_delays(5, 6, 7, attempts=3))

    assert [60, 60, None] == delays(policy, 3)


def test_each_part_counts_its_own_rules():
    """Each part of a combination counts its own rules."""
    left = with_delays(1).with_(rules=[Rule(KeyError, attempts=2), Rule(OSError, attempts=3)])
    right = with_delays(2).with_(rules=[Rule(OSError, attempts=4)])
    policy = left | right
    history = History(1, START)
    delays = []
    for _ in range(4):
        decision = policy.decide(history, OS_ERROR, START, 0.5)
        delays.append(decision.delay / SECOND if isinstance(decision, Retry) else None)
        history = policy.advance(history, OS_ERROR, SECOND, now=START, sample=0.5)

    assert [1, 1, 2, None] == delays
    assert (0, 4, 4) == history.by_rule


# --- the laws


def test_a_wait_until_the_deadline_hides_no_end():
    """A part that gives up at the wait of another ends `&` also if a third one would wait until its deadline."""
    a = Policy(attempts=2, backoff=Backoff.constant(1).take(1), jitter="none")
    b = Policy(attempts=2, deadline=0.000001, backoff=Backoff.constant(0), jitter="none", over_deadline="truncate")
    c = b.with_(over_deadline="give_up")
    question = (History(1, START), OS_ERROR._replace(stage=Stage.NOT_SENT), START, 0.5)

    for whole in ((a & b) & c, a & (b & c), (c & b) & a, a & c):
        assert isinstance(whole.decide(*question), GiveUp), whole
    assert Retry(timedelta(microseconds=1), timedelta(0), "deadline") == (a & b).decide(*question)


@pytest.mark.case("algebra.laws.01")
@pytest.mark.case("algebra.laws.02")
@given(policies(), policies(), policies(), questions)
def test_and_and_or_are_associative(a: Policy, b: Policy, c: Policy, question: Question):
    """Brackets make no difference to `&` and `|`."""
    assert due((a & b) & c, question) == due(a & (b & c), question)
    assert due((a | b) | c, question) == due(a | (b | c), question)


@pytest.mark.case("algebra.laws.01")
@pytest.mark.case("algebra.laws.02")
@given(policies(), policies(), questions)
def test_and_and_or_are_commutative(a: Policy, b: Policy, question: Question):
    """`&` and `|` give the same decision for either order of the parts."""
    assert due(a & b, question) == due(b & a, question)
    assert due(a | b, question) == due(b | a, question)


@pytest.mark.case("algebra.laws.01")
@pytest.mark.case("algebra.laws.02")
@given(policies(), questions)
def test_and_and_or_are_idempotent(a: Policy, question: Question):
    """Combined with itself, a policy decides as before."""
    assert due(a, question) == due(a & a, question) == due(a | a, question)


@pytest.mark.case("algebra.laws.02")
@given(policies(), questions)
def test_never_is_the_identity_of_or_and_then(a: Policy, question: Question):
    """Policies that never retry change nothing under `|`, nor as the first or the last part of `>>`."""
    assert due(a, question) == due(a | NEVER, question) == due(NEVER >> a, question) == due(a >> NEVER, question)


@pytest.mark.case("algebra.laws.01")
@given(policies(), questions)
def test_at_once_for_ever_is_the_identity_of_and(a: Policy, question: Question):
    """Policies that always retry at once change nothing under `&`."""
    failure = question[1]._replace(candidate=True, hint=None, permanent=None)
    if failure.leaves or "builtins.Exception" not in failure.types:
        failure = OS_ERROR
    question = (question[0], failure, *question[2:])
    always = Policy(attempts=10**9, deadline=None, backoff=Backoff.constant(0), idempotent=True)

    assert due(a, question) == due(a & always, question)


@given(policies(), policies(), questions)
def test_and_and_or_absorb_each_other(a: Policy, b: Policy, question: Question):
    """Each of `&` and `|` absorbs the other."""
    assert due(a, question) == due(a & (a | b), question) == due(a | (a & b), question)


@given(policies(), policies(), policies(), questions)
def test_and_and_or_distribute(a: Policy, b: Policy, c: Policy, question: Question):
    """Each of `&` and `|` distributes over the other."""
    assert due(a & (b | c), question) == due((a & b) | (a & c), question)
    assert due(a | (b & c), question) == due((a | b) & (a | c), question)


streams = st.lists(failures, min_size=1, max_size=12)
draw_lists = st.lists(samples, min_size=12, max_size=12)
steps = st.timedeltas(timedelta(0), timedelta(days=1))


# The first policy has no attempts left, and the second one does not name the failure: its decision is the last one.
@example(NEVER, NEVER.with_(on=OSError), [Failure.of(ValueError(), stage=Stage.NOT_SENT)], [0.0] * 12, timedelta(0))
@given(policies(), policies(), streams, draw_lists, steps)
def test_then_is_one_journey_after_the_other(
    a: Policy, b: Policy, failed: list[Failure], draws: list[float], takes: timedelta
):
    """`a >> b` decides as a alone until a gives up, and from that failure on as b alone from its beginning.

    The law is about exceptions: if b accepts a rejected result, the decision of a stands (`test_algebra_results`).
    """
    first = journey(a, failed, draws, takes=takes)
    expected = first
    if isinstance(first[-1], GiveUp):
        at = len(first) - 1
        then = START + sum([each.delay + takes for each in first[:at]], timedelta(0))
        expected = first[:at] + journey(b, failed[at:], draws[at:], now=then, takes=takes)

    assert expected == journey(a >> b, failed, draws, takes=takes)


@given(policies(), policies(), policies(), streams, draw_lists)
def test_then_is_associative_on_journeys(a: Policy, b: Policy, c: Policy, failed: list[Failure], draws: list[float]):
    """Brackets make no difference to `>>`, whatever goes wrong and when."""
    assert journey((a >> b) >> c, failed, draws) == journey(a >> (b >> c), failed, draws)


@given(policies(), policies(), streams, draw_lists, st.integers(0, 6))
def test_take_bounds_every_journey(a: Policy, b: Policy, failed: list[Failure], draws: list[float], n: int):
    """With n retries taken of `a >> b`, a call goes as without for n retries, and has no more of them."""
    whole = journey(a >> b, failed, draws)
    taken = journey((a >> b).take(n), failed, draws)

    assert whole[: min(n, len(whole))] == taken[:n]
    assert n >= sum(not isinstance(each, GiveUp) for each in taken)


@given(policies(), streams, draw_lists, st.integers(0, 6))
def test_take_counts_all_retries_of_a_policy(a: Policy, failed: list[Failure], draws: list[float], n: int):
    """With n retries taken of a policy, a call goes as without for n retries, those of rules included, and then ends.

    A rule with attempts of its own is no way around it: n bounds the executions of the call, not one of its counts.
    """
    whole, taken = journey(a, failed, draws), journey(a.take(n), failed, draws)

    assert whole[: min(n, len(whole))] == taken[:n]
    assert n >= sum(not isinstance(each, GiveUp) for each in taken)
    assert n + 1 >= (a.take(n).explain().executions or 0)


@given(policies(), streams, draw_lists, st.integers(0, 6), st.integers(0, 6))
def test_the_smaller_take_counts(a: Policy, failed: list[Failure], draws: list[float], n: int, m: int):
    """Taking n retries and then m of a policy is taking the smaller number of them."""
    assert journey(a.take(min(n, m)), failed, draws) == journey(a.take(n).take(m), failed, draws)


@given(simple, simple, simple)
def test_then_is_associative(a: Policy, b: Policy, c: Policy):
    """Brackets make no difference to `>>` where policies give up only when their retries are used."""
    assert delays((a >> b) >> c) == delays(a >> (b >> c))


@given(simple, simple)
def test_a_combination_decides_as_its_fields_show(a: Policy, b: Policy):
    """Combinations decide on exactly the delays and the attempts that their fields show."""
    for policy in (a & b, a | b, a >> b):
        decided = [delay for delay in delays(policy, 12) if delay is not None]
        assert pytest.approx(decided, abs=1e-6) == policy.delays(12)
        assert policy.attempts is not None
        assert len(decided) < policy.attempts


OPERATORS: list[Callable[[Policy, Policy], Policy]] = [Policy.__and__, Policy.__or__, Policy.__rshift__]


@given(simple, simple, st.integers(0, 6), st.sampled_from(OPERATORS))
def test_take_limits_a_whole(a: Policy, b: Policy, n: int, operator: Callable[[Policy, Policy], Policy]):
    """Taking n retries of a combination gives its first n delays."""
    whole = operator(a, b)

    assert delays(whole)[:n] == delays(whole.take(n))[:n]
    assert {None} >= set(delays(whole.take(n))[n:])


@pytest.mark.case("algebra.laws.08")
@given(simple, simple, lengths, st.sampled_from(OPERATORS))
def test_cap_limits_a_whole(a: Policy, b: Policy, cap: float, operator: Callable[[Policy, Policy], Policy]):
    """Caps shorten the delays of a combination and keep its end."""
    whole = operator(a, b)
    capped = delays(whole.cap(cap))

    assert [delay is None for delay in delays(whole)] == [delay is None for delay in capped]
    assert pytest.approx(numbers(whole, cap), abs=1e-6) == [-1 if delay is None else delay for delay in capped]


@given(policies(), lengths, questions)
def test_at_least_lifts_each_wait(a: Policy, minimum: float, question: Question):
    """Waits are at least the minimum, however they were drawn; longer waits and ends stay as they are."""
    question = (question[0], question[1]._replace(reason="ERROR"), *question[2:])
    before, after = a.decide(*question), a.at_least(minimum).decide(*question)
    least = min(timedelta(seconds=minimum), LONGEST)

    if isinstance(before, GiveUp):
        assert before == after
    elif isinstance(after, Retry) and isinstance(before, Retry) and "deadline" not in (before.rule, after.rule):
        assert max(before.delay, least) == after.delay


@given(policies(), policies(), lengths, st.sampled_from([Policy.__and__, Policy.__or__]), questions)
def test_at_least_distributes(
    a: Policy, b: Policy, minimum: float, operator: Callable[[Policy, Policy], Policy], question: Question
):
    """For a combination, a minimum has the same effect as a minimum for each part."""
    assert due(operator(a.at_least(minimum), b.at_least(minimum)), question) == due(
        operator(a, b).at_least(minimum), question
    )


def test_at_least_lies_over_jitter_and_hints_and_under_the_deadline():
    """Minimums raise short jitter and short hints, but not the delay of `RetryAfter`, and do not pass the deadline."""
    policy = Policy(on=OSError, deadline=20, backoff=Backoff.constant(2), jitter=Jitter.added(2)).at_least(5)
    with_delays, longer = OS_ERROR._replace(hint=SECOND), OS_ERROR._replace(hint=10 * SECOND)
    dictated = Failure.of(RetryAfter(1))
    late = policy.decide(History(1, START), OS_ERROR, START + 15 * SECOND, 0.5)
    deferring = policy.with_(over_deadline="defer").decide(History(1, START), OS_ERROR, START + 15 * SECOND, 0.5)

    assert [5, 5, 11] == [decide(policy, failure=each).delay / SECOND for each in (OS_ERROR, with_delays, longer)]
    assert timedelta(seconds=1.5) <= decide(policy, failure=dictated).delay < 3 * SECOND
    assert "deadline" == late.rule
    assert Defer(START + 20 * SECOND, "backoff") == deferring
    assert 45 * SECOND == Policy(on=OSError).at_least(5).in_process().deadline


def test_at_least_requires_a_duration():
    """Invalid durations of a minimum are refused by the field's name."""
    with pytest.raises(PolicyValueError, match="at_least: -1 is not a duration"):
        Policy().at_least(-1)


def numbers(policy: Policy, cap: float) -> list[float]:
    """Return the capped delays of a policy, -1 where it gives up."""
    return [-1 if delay is None else min(delay, cap) for delay in delays(policy)]


@given(policies(), names, questions)
def test_per_restricts_a_policy(a: Policy, name: str, question: Question):
    """Policies restricted by `per` decide as before for the named failures, and give up on others."""
    # A lasting failure is retried only by a policy that names it, as `per` does.
    failure = question[1]._replace(candidate=None, leaves=(), permanent=None, lasting=None)
    question = (question[0], failure, *question[2:])
    named = name == failure.reason or name in failure.types

    assert (due(a, question) if named else None) == due(a.per(name), question)


@given(policies(), policies(), names, st.sampled_from(OPERATORS), questions)
def test_per_distributes(
    a: Policy, b: Policy, name: str, operator: Callable[[Policy, Policy], Policy], question: Question
):
    """For a combination, `per` has the same effect as `per` for each part."""
    assert due(operator(a.per(name), b.per(name)), question) == due(operator(a, b).per(name), question)


@given(policies(), policies(), st.integers(1, 10**6), st.sampled_from(OPERATORS))
def test_up_to_bounds_each_part(a: Policy, b: Policy, total: int, operator: Callable[[Policy, Policy], Policy]):
    """For a combination, `up_to` has the same effect as `up_to` for each part."""
    assert operator(a.up_to(total), b.up_to(total)) == operator(a, b).up_to(total)


# --- the value


def test_a_combination_is_a_policy():
    """Combinations are policies with their parts, equal to those with the same parts and operator."""
    a, b = with_delays(1), with_delays(2)

    assert (Both, Either, Then) == (type(a & b), type(a | b), type(a >> b))
    assert a & b == with_delays(1) & with_delays(2)
    assert hash(a & b) == hash(with_delays(1) & with_delays(2))
    assert a & b != a | b
    assert a & b != b & a
    assert f"({a!r} >> {b!r})" == repr(a >> b)


def test_a_combination_survives_pickling():
    """Combinations are pickled with their parts."""
    policy = with_delays(1) & (with_delays(2) >> with_delays(3))

    assert policy == pickle.loads(pickle.dumps(policy))


def test_the_whole_has_the_bounds_of_its_parts():
    """Bounds around a call are the narrower ones by `&` and the wider ones otherwise."""
    a = Policy(attempts=3, deadline=10, attempt_timeout=5, catch="x", nested="both", idempotent=True, budget="b")
    b = Policy(attempts=5, deadline=20, attempt_timeout=2, nested="both", idempotent=True, jitter="none")
    open_ended = Policy(attempts=None, deadline=5)

    assert [3, 5, 7] == [policy.attempts for policy in (a & b, a | b, a >> b)]
    assert [10, 20, 20] == [policy.deadline / SECOND for policy in (a & b, a | b, a >> b)]
    assert [3, None, None] == [policy.attempts for policy in (a & open_ended, a | open_ended, a >> open_ended)]
    assert ("x", "both", True, "b", 2 * SECOND, "full") == (
        (b & a).catch, (a & b).nested, (a & b).idempotent, (a | b).budget, (a & b).attempt_timeout, (a & b).jitter.kind
    )  # fmt: skip
    assert (None, False, "outer") == ((a | Policy()).deadline, (a | Policy()).idempotent, (a | Policy()).nested)
    assert 10 * SECOND == (a & Policy()).deadline
    assert not (Policy() & Policy()).deadline_given


def test_changes_reach_the_parts():
    """Fields and places of a combination are those of its parts."""
    a, b = Policy(on=OSError), Policy(on=KeyError)

    assert a.with_(attempts=1) & b.with_(attempts=1) == (a & b).with_(attempts=1)
    assert a.in_process() | b.in_process() == (a | b).in_process()
    assert a.durable() >> b.durable() == (a >> b).durable()
    assert ("builtins.KeyError", "builtins.OSError") == (a | b).on
    assert (a | Policy()).on is None


def test_a_limit_does_not_change_other_fields():
    """Limits do not change candidates, idempotence, a deadline that the place gives, or jitter."""
    whole = Policy(on=OSError, idempotent=False) >> Policy(on=KeyError, idempotent=False)
    taken, flipped = whole.take(1), Policy(attempts=1, on=BaseException, idempotent=True) & Policy(on=OSError)
    slow = Policy(on=OSError, deadline=120).per(ConnectionError).in_process()

    assert (whole.on, False, None) == (taken.on, taken.idempotent, taken.deadline)
    assert (("builtins.OSError",), None) == (flipped.on, flipped.idempotent)
    assert 45 * SECOND == taken.in_process().deadline
    assert 120 * SECOND == slow.deadline
    assert isinstance(slow.decide(History(1, START), Failure.of(ConnectionError()), START + 60 * SECOND, 0.5), Retry)


def test_a_limit_does_not_change_nested():
    """Limits leave ``nested`` as it is."""
    both = Policy(on=OSError, nested="both", rules=[Rule(OSError, attempts=9)])

    assert [False, True] == [only_limits(part) for part in (both.take(1).left, both.take(1).right)]

    assert ["both"] * 3 == [each.nested for each in (both.take(1), both.per(OSError), both.at_least(1))]
    assert "both" == (both >> both).take(1).nested


def test_a_policy_without_retries_has_no_rules():
    """With no retry taken, a policy has no rules that could retry, and equals one with a single attempt."""
    policy = Policy(on=OSError, rules=[Rule(OSError, attempts=9)])

    assert policy.with_(attempts=1, rules=()) == policy.take(0)


def test_take_of_what_never_ends():
    """After a policy without end the next one is never reached, and `take` takes no retry of it."""
    forever = Policy(attempts=None, deadline="1h", backoff=Backoff.constant(1), jitter="none")

    assert [1, 1, None, None] == delays((forever >> with_delays(7)).take(2), 4)


def test_a_combination_has_no_precomputed_answer():
    """Only the parts know; there is no quick answer."""
    assert NO_WAIT == (with_delays(1) & with_delays(1)).wait_for(OSError, 1)


def test_only_policies_without_classifiers_combine():
    """Combining refuses values that are not policies, and policies with a classifier."""
    with pytest.raises(PolicyValueError, match="5 is not a Policy"):
        _ = Policy() & 5
    with pytest.raises(PolicyValueError, match="a policy with a classifier cannot be combined"):
        _ = Policy() | Policy(on=callable)
    with pytest.raises(PolicyValueError, match="a policy with a classifier cannot be combined"):
        _ = Policy(on=OSError) & Policy(on=callable)


def test_a_policy_with_a_classifier_can_be_limited():
    """Limits do not choose candidates, so the classifier of the other part decides alone."""
    policy = Policy(on=lambda error: "busy" in str(error), rules=[Rule(OSError, attempts=9)], jitter="none").take(2)
    busy, other = (policy.classify(OSError(text)) for text in ("busy", "broken"))

    assert [True, True, None] == [delay and delay > 0 for delay in delays(policy, 3, busy)]
    assert "not_matched" == decide(policy, failure=other).rule
    assert 5 * SECOND == decide(policy.at_least(5), failure=busy).delay


def test_an_operator_must_define_its_decision():
    """`Combined` itself decides nothing."""
    with pytest.raises(NotImplementedError):
        Combined(Policy(), Policy())
    with pytest.raises(NotImplementedError):
        Combined.decide(Policy() & Policy(), History(1, START), OS_ERROR, START, 0.5)
    with pytest.raises(NotImplementedError):
        Combined._whole_backoff(Policy() & Policy(), Backoff.constant(1), Backoff.constant(1))


def test_give_up_of_both_parts():
    """If both parts give up, `&` and `|` give the reason of the first."""
    first, second = Policy(on=KeyError), NEVER

    assert "not_matched" == decide(first & second).rule
    assert isinstance(decide(second & first), GiveUp)
    assert "attempts" == decide(second & first).rule
