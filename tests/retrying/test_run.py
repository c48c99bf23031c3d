"""The loop: when it calls again, how long it waits, and why it ends."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

import redrive
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Defer, GiveUp, History, Jitter, Policy, Retry, Rule
from redrive.policy.outcome import Deferred, GaveUp, Ok
from redrive.retrying.context import using
from tests.retrying.helpers import START, Busy, Other, Script

SECONDS = Policy(on=Busy, attempts=10, deadline=None, backoff=Backoff.constant(1), jitter="none")


def test_the_time_of_attempts_counts_for_the_deadline(clock):
    """Deadlines include the time of attempts and waits."""
    script = Script(Busy(), clock=clock, takes=2)
    outcome = SECONDS.with_(deadline=10).outcome(script)

    assert (4, [1.0, 1.0, 1.0], "deadline") == (script.calls, clock.slept, outcome.rule)
    assert timedelta(seconds=11) == outcome.record.elapsed


def test_a_first_attempt_longer_than_the_deadline_is_the_only_one(clock):
    """First attempts longer than the deadline are the only ones."""
    script = Script(Busy(), clock=clock, takes=46)

    with pytest.raises(Busy):
        redrive.retry(SECONDS.with_(attempts=3, deadline=45))(script)()

    assert 1 == script.calls


def test_without_a_deadline_retries_end_after_45_seconds(clock):
    """Without a deadline no retry begins after 45 s in process."""
    script = Script(Busy(), clock=clock, takes=10)
    policy = Policy(on=Busy, attempts=10, backoff=Backoff.constant(1), jitter="none")

    assert "deadline" == policy.outcome(script).rule
    assert 5 == script.calls


def test_a_directive_has_no_deadline(clock):
    """Directives have no deadline."""
    script = Script(Busy())

    Policy.parse("10 5s 1m").with_(on=Busy).outcome(script)

    assert [5, 10, 20, 40, 60, 60, 60, 60, 60, 60] == clock.slept


def test_truncate_waits_until_the_deadline_and_does_not_call(clock):
    """`over_deadline="truncate"` waits what is left and then ends with the last error, without calling again."""
    error = Busy()
    script = Script(error, clock=clock, takes=2)
    policy = SECONDS.with_(deadline=2.5, over_deadline="truncate")

    for call in (redrive.retry(policy), lambda function: lambda: policy.call(function)):
        clock.slept.clear()
        script.calls = 0
        with pytest.raises(Busy) as caught:
            call(script)()
        assert ([0.5], 1) == (clock.slept, script.calls)
        assert caught.value is error
        assert ("deadline", (timedelta(seconds=0.5),)) == (error.__retry__.rule, error.__retry__.delays)


def test_a_truncated_error_keeps_its_context(clock):
    """Errors that are raised after a truncated wait keep their context, also inside an `except` clause."""

    def call():
        try:
            {}["nothing"]
        except KeyError:
            raise Busy  # noqa: B904 - its context is the subject

    try:
        int("no number")
    except ValueError:
        with pytest.raises(Busy) as caught:
            SECONDS.with_(deadline=0.5, over_deadline="truncate").call(call)

    assert isinstance(caught.value.__context__, KeyError)


def test_truncate_of_a_result_returns_it(clock):
    """Rejected results with a wait cut at the deadline are returned after it."""
    script = Script(0, clock=clock, takes=2)
    policy = SECONDS.with_(deadline=2.5, over_deadline="truncate", on_result=lambda value: value == 0)

    outcome = policy.outcome(script)

    assert (0, "deadline", [0.5], 1) == (outcome.value, outcome.rule, clock.slept, script.calls)


def test_defer_hands_the_error_over(clock):
    """`over_deadline="defer"` raises the error in process, with the instant at which it may be repeated."""
    script = Script(Busy(), clock=clock, takes=2)
    policy = SECONDS.with_(deadline=2.5, over_deadline="defer")
    outcome = policy.outcome(script)

    assert isinstance(outcome, Deferred)
    assert (START + timedelta(seconds=3), "backoff", 1) == (outcome.at, outcome.rule, script.calls)
    with pytest.raises(Busy) as caught:
        outcome.unwrap()
    assert Defer(outcome.at, "backoff") == outcome.timeline[-1].decision
    with pytest.raises(Busy) as caught:
        policy.call(script)
    assert "deferred to 2026-01-01" in caught.value.__retry__.note


def test_results_can_fail(clock):
    """`on_result` retries results; without `on` no exception is a candidate."""
    policy = SECONDS.with_(on=(), on_result=lambda value: value is None)
    script, other = Script(None, None, 42), Script(Busy())

    assert 42 == policy.call(script)
    assert [1.0, 1.0] == clock.slept
    assert "not_matched" == policy.outcome(other).rule


def test_a_result_that_stays_bad_is_returned(clock):
    """After all attempts the last result is returned, and the outcome is GaveUp."""
    policy = SECONDS.with_(attempts=3, on_result=lambda value: value < 0)

    assert -3 == redrive.retry(policy)(Script(-1, -2, -3, -4))()
    outcome = policy.outcome(Script(-1, -2, -3, -4))

    assert isinstance(outcome, GaveUp)
    assert (None, -3, "attempts", -3) == (outcome.error, outcome.value, outcome.rule, outcome.unwrap())
    assert ["RESULT"] * 3 == [each.failure.reason for each in outcome.timeline]


def test_results_and_errors_share_the_attempts(clock):
    """Rejected results and exceptions share the attempts of a call."""
    policy = SECONDS.with_(attempts=3, on_result=lambda value: value is None)
    script = Script(None, Busy(), None, 42)

    assert policy.call(script) is None
    assert 3 == script.calls


def test_rules_are_counted_apart(clock):
    """Rules with attempts have their own count and their own backoff within one call."""
    policy = SECONDS.with_(
        on=(Busy, Other), attempts=2, rules=[Rule(on=Other, attempts=3, backoff=Backoff.listed([10, 20]))]
    )
    script = Script(Other(), Busy(), Other(), Busy())

    outcome = policy.outcome(script)

    assert [10.0, 1.0, 20.0] == clock.slept
    assert ("attempts", 4) == (outcome.rule, script.calls)


def test_a_combined_policy_decides_by_its_parts(clock):
    """`a >> b` in process: the retries of a, then those of b."""
    policy = SECONDS.with_(attempts=3) >> SECONDS.with_(attempts=2, backoff=Backoff.constant(7))
    script = Script(Busy())

    policy.outcome(script)

    assert [1.0, 1.0, 7.0] == clock.slept


def test_jitter_uses_the_given_random_number_generator(clock):
    """Full jitter draws between nothing and the backoff, with the random numbers of the scope."""
    policy = SECONDS.with_(jitter="full", attempts=3)
    with using(sample=0.25):
        policy.outcome(Script(Busy()))

    assert [0.25, 0.25] == clock.slept


def test_decorrelated_jitter_remembers_its_own_delay(clock):
    """Decorrelated backoffs draw from the previous delay of the same call."""
    policy = Policy(on=Busy, attempts=4, deadline=None, backoff=Backoff.decorrelated(1, 100))
    with using(sample=0.5):
        policy.outcome(Script(Busy()))

    assert [2.0, 3.5, 5.75] == clock.slept


def test_a_call_decides_what_the_policy_decides(clock):
    """Decisions in a record are those of `Policy.decide` for the same history."""
    policy = Policy(on=Busy, attempts=4, backoff=Backoff.exponential(0.5, 3), jitter="equal")
    with using(sample=0.5):
        timeline = policy.outcome(Script(Busy(), clock=clock, takes=1)).timeline

    local, last, at = policy.in_process(), None, START
    for each in timeline:
        now = START + each.started_after + each.took
        decision = local.decide(History(each.number, START, last), each.failure, now, 0.5)
        assert decision == each.decision
        last, at = getattr(decision, "delay", None), now
    assert START + timedelta(seconds=9) > at


def test_a_zero_wait_is_no_sleep(clock):
    """Zero delays cause no sleep."""
    SECONDS.with_(backoff=Backoff.constant(0)).outcome(Script(Busy()))

    assert [] == clock.slept


def test_an_outcome_is_never_raised(clock):
    """Success, exhaustion and an error that is no candidate are all values."""
    good, bad, other = (SECONDS.with_(attempts=2).outcome(Script(step)) for step in (42, Busy("b"), Other("o")))

    assert isinstance(good, Ok)
    assert (42, 42, "ok", 1) == (good.value, good.unwrap(), good.record.rule, len(good.timeline))
    assert ("attempts", "not_matched") == (bad.rule, other.rule)
    assert ("b", "o") == (str(bad.error), str(other.error))
    with pytest.raises(Busy, match="b"):
        bad.unwrap()


def test_an_outcome_can_be_matched(clock):
    """Outcomes are taken apart by `match`."""
    match SECONDS.with_(attempts=2).outcome(Script(Busy())):
        case GaveUp(error=Busy(), rule="attempts", record=record):
            assert 2 == record.attempts
        case other:
            pytest.fail(f"{other} did not match")


def test_arguments_are_passed_each_time(clock):
    """Each attempt gets the same arguments."""
    seen = []

    def call(*args, **kwargs):
        seen.append((args, kwargs))
        if len(seen) < 3:
            raise Busy
        return len(seen)

    assert 3 == SECONDS.call(call, 1, 2, three=3)
    assert [((1, 2), {"three": 3})] * 3 == seen


def test_verbs_need_on():
    """Methods of a policy without `on` raise an error with the name of the function."""
    with pytest.raises(PolicyValueError, match=r"Script.*on="):
        Policy(attempts=3).call(Script(1))
    with pytest.raises(PolicyValueError, match="test_verbs_need_on"):
        for _ in Policy(attempts=3):
            pass


def test_a_policy_with_an_unhashable_classifier_works():
    """Policies with an unhashable classifier can be used."""

    class Judge:
        __hash__ = None

        def __call__(self, error):
            return isinstance(error, Busy)

    assert 42 == Policy(on=Judge(), backoff=Backoff.constant(0)).call(Script(Busy(), 42))


@pytest.mark.case("isolation.08")
def test_a_policy_is_the_same_after_a_run(clock):
    """Policies are unchanged by calls, and can be pickled and used again."""
    policy, same = (Policy(on=Busy, attempts=3, jitter=Jitter.equal) for _ in range(2))
    policy.outcome(Script(Busy()))

    copy = pickle.loads(pickle.dumps(policy))

    assert same == policy == copy
    assert 42 == copy.call(Script(Busy(), 42))


def test_give_up_of_a_listed_backoff(clock):
    """Listed backoffs end the call when they are used up."""
    outcome = SECONDS.with_(backoff=Backoff.listed([1, 2], end="stop")).outcome(Script(Busy()))

    assert ([1.0, 2.0], "backoff") == (clock.slept, outcome.rule)
    assert isinstance(outcome.timeline[-1].decision, GiveUp)
    assert isinstance(outcome.timeline[0].decision, Retry)


def test_many_attempts_overflow_nothing(clock):
    """Thousands of failures later the wait is still the cap."""
    policy = Policy(on=Busy, attempts=3000, deadline=None, backoff=Backoff.exponential(1, 60), jitter="none")
    policy.outcome(Script(Busy()))

    assert (2999, 60.0) == (len(clock.slept), clock.slept[-1])
