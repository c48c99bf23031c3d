"""Tests of `redrive.policy.decider`: the decision, step by step, and its laws."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError, RetryAfter
from redrive.policy import (
    Backoff,
    Decision,
    Defer,
    Failure,
    GiveUp,
    History,
    Jitter,
    Policy,
    Retry,
    Rule,
    Stage,
)
from redrive.policy.classify import is_control_flow, matches
from tests.policy.strategies import (
    START,
    failures,
    histories,
    jitters,
    lengths,
    nows,
    plain_backoffs,
    policies,
    samples,
    spans,
)

SECOND = timedelta(seconds=1)
OS_ERROR = Failure.of(OSError("no route"))
PLAIN = Policy(on=OSError, attempts=6, backoff=Backoff.exponential(1, 60), jitter="none")


def decide(
    policy: Policy, failure: Failure = OS_ERROR, attempts: int = 1, elapsed: float = 0, sample: float = 0.5, **more: Any
) -> Decision:
    """Return the decision of a policy for a history given in numbers."""
    return policy.decide(History(attempts, START, **more), failure, START + elapsed * SECOND, sample)


# --- the steps


def test_a_failure_is_retried_after_the_backoff():
    """Ordinary failures are retried after the delay of their number."""
    assert [Retry(n * SECOND, n * SECOND, "backoff") for n in (1, 2, 4, 8, 16)] == [
        decide(PLAIN, attempts=attempts) for attempts in range(1, 6)
    ]


def test_a_permanent_failure_is_never_retried():
    """Failures that the handler declares final are given up at once, whatever the policy."""
    failure = OS_ERROR._replace(permanent="stolen card", candidate=True, hint=SECOND)

    assert GiveUp("stolen card", "permanent") == decide(PLAIN, failure)


def test_other_failures_are_given_up():
    """Failures that the policy does not name are given up."""
    assert GiveUp("ValueError is not one of the failures that this policy retries", "not_matched") == decide(
        PLAIN, Failure.of(ValueError())
    )
    assert GiveUp("POISON is not one of the failures that this policy retries", "not_matched") == decide(
        PLAIN, Failure((), "crashed", "POISON")
    )


@pytest.mark.parametrize("policy", [Policy(), Policy(on=BaseException)], ids=repr)
def test_control_flow_is_never_retried_even_if_its_base_is_named(policy: Policy):
    """KeyboardInterrupt is never retried, not even if its base class is named or it was called a candidate."""
    failure = Failure.of(KeyboardInterrupt())

    assert "not_matched" == decide(policy, failure).rule
    assert "not_matched" == decide(policy, failure._replace(candidate=True)).rule


def test_a_settled_candidate_stays_settled():
    """Settled candidates are retried and settled non-candidates given up, whatever the policy names."""
    assert "backoff" == decide(PLAIN, Failure.of(ValueError())._replace(candidate=True)).rule
    assert "not_matched" == decide(PLAIN, OS_ERROR._replace(candidate=False)).rule


def test_a_reason_can_be_named():
    """Policies that name a reason distinguish failures of one type by it."""
    policy = Policy(on="TIMEOUT", jitter="none")

    assert ["backoff", "not_matched"] == [
        decide(policy, Failure.of(OSError(), reason=reason)).rule for reason in ("TIMEOUT", "ERROR")
    ]


@pytest.mark.parametrize(
    ("stage", "idempotent", "reason", "expected"),
    [
        (Stage.IN_FLIGHT, False, "ERROR", "not_idempotent"),
        (Stage.IN_FLIGHT, None, "ERROR", "not_idempotent"),
        (Stage.IN_FLIGHT, False, "KV_LOCKED", "backoff"),
        (Stage.IN_FLIGHT, True, "ERROR", "backoff"),
        (Stage.NOT_SENT, False, "ERROR", "backoff"),
        (Stage.ANSWERED, False, "ERROR", "backoff"),
    ],
)
def test_an_unknown_outcome_is_repeated_only_if_idempotent(
    stage: Stage, idempotent: bool | None, reason: str, expected: str
):
    """In flight, only an idempotent call is repeated, or one with a reason that allows it (RFC 0049)."""
    failure = Failure.of(OSError(), stage=stage, reason=reason)

    assert expected == decide(Policy(idempotent=idempotent), failure).rule


def test_the_last_attempt_computes_no_delay():
    """After the last attempt the error surfaces and no delay is computed, so an invalid backoff has no effect."""
    Backoff.register("test bomb", lambda retry: 1.0 if retry == 1 else float("nan"))
    policy = Policy(attempts=2, backoff=Backoff.named("test bomb"), jitter="none")

    assert GiveUp("2 of 2 attempts failed", "attempts") == decide(policy, attempts=2)
    assert GiveUp("3 of 2 attempts failed", "attempts") == decide(policy, attempts=3)
    with pytest.raises(PolicyValueError, match="gave nan"):
        decide(policy.with_(attempts=9), attempts=2)


def test_a_backoff_may_end():
    """Schedules without further delays make the policy give up."""
    policy = Policy(attempts=9, backoff=Backoff.listed([1], end="stop"), jitter="none")

    assert GiveUp("all 1 retries of the backoff are used", "backoff") == decide(policy, attempts=2)


@pytest.mark.parametrize(
    ("jitter", "expected"), [("full", 3), ("equal", 4.5), (Jitter.plus(0.5), 7.5), ("none", 6)], ids=str
)
def test_jitter_is_drawn_after_the_backoff(jitter: Jitter | str, expected: float):
    """Delays are drawn from the backoff, and the decision also has the nominal delay."""
    policy = Policy(backoff=Backoff.constant(6), jitter=jitter)

    assert Retry(expected * SECOND, 6 * SECOND, "backoff") == decide(policy, sample=0.5)


def test_a_backoff_that_draws_gets_the_previous_delay():
    """Decorrelated delays depend on the delay before, and the decision has their maximum as nominal delay."""
    policy = Policy(backoff=Backoff.decorrelated(1, 20), attempts=9)

    assert Retry(2 * SECOND, 3 * SECOND, "backoff") == decide(policy)
    assert Retry(8 * SECOND, 9 * SECOND, "backoff") == decide(policy, attempts=2, last_delay=5 * SECOND)


# --- hints


@pytest.mark.parametrize(("hint", "expected"), [(0, 1), (0.5, 1), (30, 30)])
def test_a_hint_is_a_floor(hint: float, expected: float):
    """Hints longer than the backoff replace the delay, shorter ones do not."""
    failure = OS_ERROR._replace(hint=hint * SECOND)

    assert Retry(expected * SECOND, SECOND, "hint" if hint > 1 else "backoff") == decide(PLAIN, failure)


def test_a_hint_can_be_ignored():
    """Policies may ignore hints."""
    assert Retry(SECOND, SECOND, "backoff") == decide(PLAIN.with_(hints="ignore"), OS_ERROR._replace(hint=30 * SECOND))


@pytest.mark.parametrize("hints", ["obey", "ignore", "ai"])
@pytest.mark.parametrize("delay", [0.25, 30])
def test_retry_after_replaces_the_backoff(hints: str, delay: float):
    """Delays of `RetryAfter` apply whether they are shorter or longer than the backoff, even if hints are ignored."""
    assert Retry(delay * SECOND, SECOND, "hint") == decide(PLAIN.with_(hints=hints), Failure.of(RetryAfter(delay)))


def test_a_hint_is_only_jittered_upwards():
    """Jitter on top is added to a hint; no other jitter touches it."""
    failure = OS_ERROR._replace(hint=30 * SECOND)

    assert [30 * SECOND, 45 * SECOND, 30 * SECOND] == [
        decide(PLAIN.with_(jitter=jitter), failure, sample=0.5).delay for jitter in ("full", Jitter.plus(1), "equal")
    ]


def test_a_hint_may_be_too_long():
    """Hints longer than the policy accepts end the call."""
    policy = PLAIN.with_(max_hint="1m")

    assert GiveUp("asked to wait 1m1s, longer than max_hint=1m", "hint") == decide(
        policy, OS_ERROR._replace(hint=61 * SECOND)
    )
    assert 60 * SECOND == decide(policy, OS_ERROR._replace(hint=60 * SECOND)).delay


def test_a_hint_beyond_all_time_does_not_overflow():
    """Hints are cut to a thousand years, and still pass any deadline."""
    failure = OS_ERROR._replace(hint=timedelta.max)

    assert timedelta(days=365_250) == decide(PLAIN.with_(max_hint=None), failure).delay
    assert "deadline" == decide(PLAIN.with_(max_hint=None, deadline="1d"), failure).rule


def test_a_hint_in_the_past_is_no_delay():
    """Negative hints of an adapter mean no delay."""
    failure = OS_ERROR._replace(hint=-SECOND, reason="RETRY_AFTER")

    assert timedelta(0) == decide(PLAIN, failure).delay


# --- the deadline


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [(8.999, "backoff"), (9, "deadline"), (10, "deadline"), (99, "deadline")],
)
def test_a_wait_must_end_before_the_deadline(elapsed: float, expected: str):
    """Waits that would end at the deadline or after it are not started."""
    assert expected == decide(PLAIN.with_(deadline=10), elapsed=elapsed).rule


def test_the_deadline_has_three_modes():
    """Over the deadline a policy gives up, defers, or waits what is left."""
    decisions = [decide(PLAIN.with_(deadline=10, over_deadline=mode), elapsed=9.5) for mode in MODES]

    assert [GiveUp, Defer, Retry] == [type(decision) for decision in decisions]
    assert Defer(START + 10.5 * SECOND, "backoff") == decisions[1]
    assert Retry(0.5 * SECOND, SECOND, "deadline") == decisions[2]


MODES = ("give_up", "defer", "truncate")


# --- rules

RULED = Policy(
    attempts=3,
    backoff=Backoff.exponential(1, 60),
    jitter="none",
    rules=[
        Rule("TIMEOUT", attempts=2, backoff=Backoff.constant(7)),
        Rule(ConnectionError, backoff=Backoff.linear(10, 1)),
        Rule(OSError, attempts=5),
        Rule(KeyError),
    ],
)
TIMEOUT = Failure.of(OSError(), reason="TIMEOUT")
CONNECTION = Failure.of(ConnectionError())
KEY = Failure.of(KeyError())
VALUE = Failure.of(ValueError())


def test_the_first_rule_that_matches_decides():
    """Among several matching rules the first one decides, and the decision names it."""
    assert [0, 1, 2, 3, None] == [RULED.rule_for(failure) for failure in (TIMEOUT, CONNECTION, OS_ERROR, KEY, VALUE)]
    assert [
        "rule 1 (TIMEOUT)",
        "rule 2 (ConnectionError)",
        "rule 3 (OSError)",
        "rule 4 (KeyError)",
        "backoff",
    ] == [decide(RULED, failure).rule for failure in (TIMEOUT, CONNECTION, OS_ERROR, KEY, VALUE)]


def test_a_rule_with_attempts_is_counted_apart():
    """Attempts of a rule count its own failures, whatever other failures there are."""
    spent = decide(RULED, TIMEOUT, attempts=2, by_rule=(1,))

    assert Retry(7 * SECOND, 7 * SECOND, "rule 1 (TIMEOUT)") == decide(RULED, TIMEOUT, attempts=9)
    assert GiveUp("2 of 2 attempts failed that rule 1 (TIMEOUT) allows", "rule 1 (TIMEOUT)") == spent


def test_failures_counted_apart_do_not_use_up_the_policy():
    """Failures that a rule counts itself do not count for the policy."""
    assert Retry(2 * SECOND, 2 * SECOND, "backoff") == decide(RULED, VALUE, attempts=7, by_rule=(1, 0, 4, 0))
    assert "attempts" == decide(RULED, VALUE, attempts=8, by_rule=(1, 0, 4, 0)).rule


def test_a_rule_without_attempts_counts_for_the_policy():
    """Rules without attempts share the policy's, and start their own backoff at their own first failure."""
    assert 10 * SECOND == decide(RULED, CONNECTION, attempts=2).delay
    assert 11 * SECOND == decide(RULED, CONNECTION, attempts=2, by_rule=(0, 1)).delay
    assert "attempts" == decide(RULED, CONNECTION, attempts=3, by_rule=(0, 2)).rule


def test_a_rule_without_backoff_waits_as_the_policy():
    """Rules without a backoff use the policy's, at the policy's count."""
    assert 2 * SECOND == decide(RULED, KEY, attempts=2).delay
    assert 4 * SECOND == decide(RULED, OS_ERROR, attempts=3, by_rule=()).delay


def test_the_history_advances():
    """After a retry the history has one attempt more, the delay, and one more for the rule that matched."""
    first = History(1, START)
    second = RULED.advance(first, CONNECTION, SECOND, now=START, sample=0.5)
    third = RULED.advance(second, VALUE, 2 * SECOND, now=START, sample=0.5)

    assert History(2, START, SECOND, (0, 1, 0, 0)) == second
    assert History(3, START, 2 * SECOND, (0, 1, 0, 0)) == third
    assert History(2, START, SECOND) == PLAIN.advance(first, OS_ERROR, SECOND, now=START, sample=0.5)


def remembered(policy: Policy, draws: list[float], failed: Failure = OS_ERROR) -> tuple[list[float], tuple[int, ...]]:
    """Return the delays of one call in seconds, and the numbers that its history keeps at the end."""
    history, delays = History(1, START), []
    for sample in draws:
        decision = policy.decide(history, failed, START, sample)
        assert isinstance(decision, Retry)
        delays.append(decision.delay / SECOND)
        history = policy.advance(history, failed, decision.delay, now=START, sample=sample)
    return delays, history.by_rule


def test_the_sample_of_a_stateful_schedule_is_kept():
    """Histories keep the previous sample after the counts of rules; one written by hand has none."""
    smooth = Backoff.smooth(1)
    policy = PLAIN.with_(backoff=smooth, jitter=None)
    expected = [smooth.draw(1, None, 0.25), smooth.draw(2, None, 0.75, 0.25), smooth.draw(3, None, 0.5, 0.75)]
    delays, kept = remembered(policy, [0.25, 0.75, 0.5])

    assert pytest.approx(expected, abs=1e-6) == delays
    assert ((500_000_001,), 1) == (kept, policy.counters)
    assert pytest.approx(smooth.draw(2, None, 0.5, 0.5)) == decide(policy, attempts=2).delay / SECOND


def test_each_stateful_schedule_has_its_own_state():
    """Rules with a schedule of their own keep their own samples; other rules share those of the policy."""
    smooth, own = Backoff.smooth(1), Backoff.smooth(10)
    rules = [Rule(TimeoutError, backoff=own), Rule(ConnectionError), Rule(OSError, backoff=Backoff.constant(1))]
    policy = Policy(attempts=9, deadline=None, backoff=smooth, rules=rules, idempotent=True)

    assert 5 == policy.counters
    assert (1, 0, 0, 0, 250_000_001) == remembered(policy, [0.25], Failure.of(TimeoutError()))[1]
    assert (0, 2, 0, 750_000_001, 0) == remembered(policy, [0.25, 0.75], Failure.of(ConnectionError()))[1]
    assert (0, 0, 1, 0, 0) == remembered(policy, [0.25], OS_ERROR)[1]
    assert (0, 0, 0, 250_000_001, 0) == remembered(policy, [0.25], Failure.of(ValueError()))[1]


def test_counts_of_another_policy_are_ignored():
    """Counts that do not fit the policy or the number of attempts leave at least this failure to be counted."""
    assert SECOND == decide(RULED, VALUE, attempts=2, by_rule=(5, 0, 5, 0, 7)).delay


# --- classifiers


def test_a_classifier_sees_the_exception():
    """Classifiers may return True or False, a reason, or the whole failure."""
    answers: dict[type[BaseException], Any] = {
        OSError: True,
        ValueError: False,
        KeyError: None,
        TypeError: "TIMEOUT",
        IndexError: Failure((), "mine", "BUSY"),
        EOFError: Failure((), "mine", "BUSY", candidate=False),
    }
    policy = Policy(on=lambda error: answers[type(error)], jitter="none")

    assert ["backoff", "not_matched", "not_matched", "backoff", "backoff", "not_matched"] == [
        decide(policy, policy.classify(kind())).rule for kind in answers
    ]
    assert "TIMEOUT" == policy.classify(TypeError()).reason
    assert Failure((), "mine", "BUSY", candidate=True) == policy.classify(IndexError())


def test_a_signal_beats_a_classifier():
    """Signals of a handler take precedence over a classifier."""
    assert policy_no.classify(RetryAfter(5)).candidate is True


policy_no = Policy(on=lambda error: False)


def test_a_classifier_cannot_be_left_out():
    """Failures that the classifier has not seen are refused."""
    with pytest.raises(PolicyValueError, match="pass what policy.classify"):
        decide(policy_no)


def test_without_a_classifier_an_exception_is_described():
    """Without a classifier an exception is described as it is, with its stage."""
    error = OSError("x")

    assert Failure.of(error, stage=Stage.IN_FLIGHT) == PLAIN.classify(error, stage=Stage.IN_FLIGHT)


# --- laws


@given(policies(), histories, failures, nows, samples)
def test_a_decision_is_pure(policy: Policy, history: History, failure: Failure, now: datetime, sample: float):
    """Equal questions have equal answers, also from an equal policy."""
    fresh = Policy.from_dict(policy.to_dict())

    assert policy.decide(history, failure, now, sample) == policy.decide(history, failure, now, sample)
    assert fresh.decide(history, failure, now, sample) == policy.decide(history, failure, now, sample)


@given(policies(), histories, failures, nows, samples, spans)
def test_a_retry_is_never_earlier_than_a_hint(
    policy: Policy, history: History, failure: Failure, now: datetime, sample: float, hint: timedelta
):
    """No retry comes before its hint, except where no call follows it or hints are ignored."""
    policy = policy.with_(hints="obey", max_hint=None)
    decision = policy.decide(history, failure._replace(hint=hint), now, sample)

    assert not isinstance(decision, Retry) or decision.rule == "deadline" or decision.delay >= hint
    assert not isinstance(decision, Defer) or decision.at - now >= hint


@given(plain_backoffs, jitters, lengths, st.integers(1, 30), samples)
def test_a_delay_stays_within_the_cap(backoff: Backoff, jitter: Jitter, cap: float, attempts: int, sample: float):
    """Without a hint no delay is longer than the cap and what jitter may add to it."""
    policy = Policy(attempts=100, backoff=backoff.cap(cap), jitter=jitter)
    decision = decide(policy, attempts=attempts, sample=sample)

    assert not isinstance(decision, Retry) or decision.delay.total_seconds() <= jitter.highest(cap) * (1 + 1e-9) + 1e-6


@given(policies(), st.integers(1, 7), st.timedeltas(SECOND / 1000, 100 * SECOND), spans, samples)
def test_no_retry_passes_the_deadline(
    policy: Policy, attempts: int, deadline: timedelta, elapsed: timedelta, sample: float
):
    """Retries end before the deadline, or at it without a call."""
    policy = policy.with_(on=None, attempts=9, deadline=deadline)
    elapsed %= deadline * 2
    decision = policy.decide(History(attempts, START), OS_ERROR, START + elapsed, sample)

    if isinstance(decision, Retry):
        ends = elapsed + decision.delay
        assert ends == deadline if decision.rule == "deadline" else ends < deadline
    elif isinstance(decision, Defer):
        assert decision.at - START >= deadline


@given(policies(), histories, failures, nows, samples)
def test_only_candidates_are_retried(policy: Policy, history: History, failure: Failure, now: datetime, sample: float):
    """Whatever is retried was a candidate, or lasting and named by a rule, and no control flow."""
    decision = policy.decide(history, failure, now, sample)
    named = None if policy.on is None else frozenset(policy.on)
    candidate = matches(named, policy.groups, failure) if failure.candidate is None else failure.candidate
    if failure.lasting is not None and named is None and failure.candidate is None:
        candidate = candidate or any(failure.reason in (rule.on or ()) for rule in policy.rules)

    assert isinstance(decision, GiveUp) or (candidate and not is_control_flow(failure) and failure.permanent is None)


@pytest.mark.parametrize(
    ("policy", "longest"),
    [
        (PLAIN, timedelta(days=7)),
        (PLAIN.durable(), timedelta(days=7)),
        (Policy.parse("5 1s").with_(on=OSError).in_process(), timedelta(hours=1)),
        (Policy.parse("5 1s").with_(on=OSError, max_hint="2h").in_process(), timedelta(hours=2)),
        (Policy.parse("5 1s").with_(max_hint="8d"), timedelta(days=8)),
    ],
    ids=["default", "durable", "directive", "given", "longer"],
)
def test_hints_are_bounded_by_default(policy: Policy, longest: timedelta):
    """Hints longer than an hour in process, or than a week, give up at once, unless the policy has another bound."""
    assert longest == decide(policy, OS_ERROR._replace(hint=longest)).delay
    assert "hint" == decide(policy, OS_ERROR._replace(hint=longest + SECOND)).rule


def test_the_default_bound_leaves_handlers_free():
    """`RetryAfter` of a handler may be longer than the default bound, and not longer than a bound that is given."""
    failure = OS_ERROR._replace(hint=timedelta(days=9), reason="RETRY_AFTER", candidate=True)

    assert timedelta(days=9) == decide(PLAIN, failure).delay
    assert "hint" == decide(PLAIN.with_(max_hint="8d"), failure).rule
