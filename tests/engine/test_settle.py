"""What the end of an attempt means for its job: one test for each row of the table in `redrive.engine.settle`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine.lifecycle import LifecycleEvent, State
from redrive.engine.outcome import (
    Cancelled,
    Expired,
    Failed,
    Held,
    Lost,
    Outcome,
    Parked,
    Released,
    Restarted,
    Snoozed,
    Succeeded,
)
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, Hold
from redrive.engine.settle import decide
from redrive.policy import Backoff, History, Policy, Retry, Rule
from tests.engine.helpers import (
    CATCHING,
    LATER,
    NOW,
    ONCE,
    T0,
    claim,
    closed,
    failure,
    in_flight,
    policy,
    seconds,
    settled,
)

FAILED = Failed(failure())
FINAL_FAILURE = Failed(failure(permanent="no such user", reason="GAVE_UP"))


# --------------------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize(
    ("of", "outcome", "counters", "event", "state"),
    [
        (LATER, Succeeded(), (4, 2, 0, 5), LifecycleEvent.SUCCEED, State.SUCCEEDED),
        (LATER, FAILED, (4, 3, 0, 5), LifecycleEvent.RETRY, State.READY),
        (LATER, FINAL_FAILURE, (4, 3, 0, 5), LifecycleEvent.DIE, State.DEAD),
        (CATCHING, FINAL_FAILURE, (4, 3, 0, 5), LifecycleEvent.RETRY, State.READY),
        (LATER, Snoozed(seconds(9)), (3, 2, 0, 6), LifecycleEvent.SNOOZE, State.READY),
        (LATER, Parked(None, "waits"), (3, 2, 0, 5), LifecycleEvent.PARK, State.READY),
        (LATER, Restarted(b"{}"), (3, 2, 0, 5), LifecycleEvent.PARK, State.READY),
        (LATER, Held("other steps"), (3, 2, 1, 5), LifecycleEvent.RELEASE, State.READY),
        (LATER, Released("shutdown"), (3, 2, 1, 5), LifecycleEvent.RELEASE, State.READY),
        (replace(LATER, crashes=0), Lost("gone"), (4, 2, 1, 5), LifecycleEvent.LOSE, State.READY),
        (LATER, Lost("gone"), (4, 2, 2, 5), LifecycleEvent.LOSE, State.READY),
        (replace(LATER, crashes=2), Lost("gone"), (4, 3, 3, 5), LifecycleEvent.DIE, State.DEAD),
        (ONCE, Lost("gone"), (4, 3, 2, 5), LifecycleEvent.DIE, State.DEAD),
        (LATER, Expired(), (3, 2, 1, 5), LifecycleEvent.DIE, State.DEAD),
        (LATER, Cancelled("enough"), (4, 2, 0, 5), LifecycleEvent.CANCEL, State.CANCELLED),
    ],
)
def test_each_outcome_changes_the_counters_as_documented(
    of: Claim, outcome: Outcome, counters: tuple[int, ...], event: LifecycleEvent, state: State
):
    """Attempts, failures, crashes and snoozes after each outcome are those of the documented table."""
    after = settled(of, outcome)

    assert counters == (after.attempt, after.failures, after.crashes, after.snoozes)
    assert (event, state) == (after.event, after.state)


OUTCOMES = st.one_of(
    st.builds(Succeeded, st.none() | st.binary(max_size=3)),
    st.builds(
        Failed,
        st.builds(
            failure,
            hint=st.none() | st.timedeltas(timedelta(0), timedelta(days=3)),
            permanent=st.none() | st.just("no"),
            reason=st.sampled_from(["ERROR", "TIMEOUT", "RETRY_AFTER", "BAD_PAYLOAD"]),
        ),
    ),
    st.builds(Snoozed, st.timedeltas(timedelta(0), timedelta(days=3))),
    st.builds(Released, st.just("shutdown"), st.timedeltas(timedelta(0), timedelta(days=3)), st.booleans()),
    st.builds(Parked, st.none() | st.just(NOW + timedelta(days=1)), st.just("waits")),
    st.builds(Restarted, st.just(b"{}")),
    st.builds(Held, st.just("other steps")),
    st.builds(Cancelled, st.just("enough")),
    st.just(Expired()),
    st.builds(Lost, st.just("gone")),
)

CLAIMS = st.builds(
    lambda failures, crashes, parent, idempotent, retries: claim(
        attempt=failures + crashes + 1,
        failures=failures,
        crashes=crashes,
        parent_id=parent,
        policy=policy(f"{retries} 1s 1m catch mend", idempotent=idempotent, jitter="full"),
    ),
    st.integers(0, 8),
    st.integers(0, 2),
    st.none() | st.just(3),
    st.booleans(),
    st.integers(0, 6),
)


@given(CLAIMS, OUTCOMES, st.floats(0, 1, exclude_max=True))
def test_a_transition_is_fenced_and_complete(of: Claim, outcome: Outcome, sample: float):
    """Transitions name their lease, and are due and held exactly if the job is ready."""
    after = decide(of, outcome, NOW, sample)

    assert (of.id, of.lease_id) == (after.job_id, after.lease_id)
    assert (after.state is State.READY) == (after.scheduled_at is not None) == (after.hold is not None)
    assert 0 <= after.attempt
    assert after == decide(of, outcome, NOW, sample)


@given(CLAIMS, OUTCOMES, st.floats(0, 1, exclude_max=True))
def test_no_job_is_due_early(of: Claim, outcome: Outcome, sample: float):
    """No job is due before its attempt ended, nor before its hint, snooze or release allows."""
    after = decide(of, outcome, NOW, sample)
    floor = timedelta(0)
    if isinstance(outcome, Failed):
        floor = outcome.failure.hint or floor
    elif isinstance(outcome, Snoozed | Released):
        floor = outcome.delay

    assert after.scheduled_at is None or after.scheduled_at >= NOW + floor


@given(CLAIMS, OUTCOMES, st.floats(0, 1, exclude_max=True))
def test_stored_delays_are_the_delays_that_happen(of: Claim, outcome: Outcome, sample: float):
    """If the history contains a delay, the job is due exactly that long after the attempt ended."""
    after = decide(of, outcome, NOW, sample)

    if after.closed is not None and after.closed.delay is not None:
        assert NOW + after.closed.delay == after.scheduled_at


@given(CLAIMS, OUTCOMES, st.floats(0, 1, exclude_max=True))
def test_a_job_dies_into_its_catch_once(of: Claim, outcome: Outcome, sample: float):
    """Catch tasks are enqueued exactly if a job dies that is not a catch job."""
    after = decide(of, outcome, NOW, sample)
    expected = "mend" if after.state is State.DEAD and of.parent_id is None else None

    assert expected == after.catch


# --------------------------------------------------------------------------------------------------- success


def test_a_success_keeps_its_result():
    """Succeeded jobs keep their result unchanged and have no due time."""
    after = settled(LATER, Succeeded(b"[1]"))

    assert b"[1]" == after.result
    assert (None, None, None) == (after.caught, after.catch, after.scheduled_at)


def test_the_success_of_a_catch_job_takes_its_parent():
    """After a catch job has succeeded, its dead parent counts as caught."""
    assert 3 == settled(CATCHING, Succeeded()).caught


def test_the_history_line_of_a_success_has_worker_and_times():
    """Closed attempts name their job, lease, ordinal and worker, and the two instants."""
    expected = AttemptRecord(7, 41, 4, 2, T0, NOW, AttemptOutcome.SUCCEEDED)

    assert expected == closed(LATER, Succeeded(b"[1]"))


# --------------------------------------------------------------------------------------------------- failure


def test_a_retry_is_due_at_the_failure_plus_the_delay():
    """Retries wait the policy's delay from the instant of the failure, in the row and in the history."""
    after = settled(claim(failures=2), FAILED)
    line = closed(claim(failures=2), FAILED)

    assert NOW + seconds(4) == after.scheduled_at
    assert (seconds(4), Hold.RETRY, "retry in 4s (backoff)") == (after.last_delay, after.hold, after.note)
    assert ("ERROR", "boom") == (after.reason, after.error)
    assert (seconds(4), seconds(4), "backoff", "retry in 4s (backoff)") == (
        line.nominal, line.delay, line.rule, line.verdict,
    )  # fmt: skip


def test_the_history_line_of_a_failure_holds_the_error():
    """Failed attempts keep the reason, the stage, the type, the text and the traceback of the error."""
    line = closed(LATER, Failed(in_flight("no answer"), "Traceback ..."))

    assert AttemptOutcome.FAILED == line.outcome
    assert ("ERROR", "in_flight", "builtins.ValueError", "no answer", "Traceback ...") == (
        line.reason, line.stage, line.error_type, line.error, line.traceback,
    )  # fmt: skip


def test_an_empty_traceback_is_stored_as_none():
    """Failures without a traceback store None, not an empty text."""
    assert closed(LATER, FAILED).traceback is None


def test_the_durable_decision_is_the_policy_s_own():
    """Durable retries wait exactly what the same policy decides in process, jitter included."""
    jittered = Policy(attempts=5, backoff=Backoff.exponential("1s", "1m"), jitter="full").durable()
    of = claim(failures=2, policy=jittered)
    decision = jittered.decide(History(3, T0), failure(), NOW, 0.75)
    after = settled(of, FAILED, sample=0.75)

    assert isinstance(decision, Retry)
    assert (decision.delay, NOW + decision.delay) == (after.last_delay, after.scheduled_at)
    assert decision.delay < decision.nominal
    assert after.closed is not None
    assert decision.nominal == after.closed.nominal


def test_a_part_of_a_combination_that_cuts_the_wait_at_its_deadline_ends_the_job():
    """No call follows such a wait, and the combination's own deadline would not stop one: so the job dies at once."""
    cut = Policy(attempts=5, backoff=Backoff.constant("1h"), jitter="none", deadline="2h", over_deadline="truncate")
    endless = Policy(attempts=1)
    late = claim(policy=(endless | cut).durable())
    after = decide(late, FAILED, late.started_at + timedelta(minutes=90), 0.0)

    assert late.policy.deadline is None
    assert after.closed is not None
    assert (State.DEAD, "deadline") == (after.state, after.closed.rule)
    assert timedelta(minutes=30) == after.closed.delay


def test_a_decorrelated_backoff_gets_the_last_delay():
    """Decorrelated backoffs draw from the delay before the failed attempt, which the job carries."""
    drawing = Policy(attempts=9, backoff=Backoff.decorrelated("1s", "1h")).durable()
    of = claim(failures=1, policy=drawing, last_delay=seconds(40))
    decision = drawing.decide(History(2, T0, seconds(40)), failure(), NOW, 0.5)

    assert isinstance(decision, Retry)
    assert decision.delay == settled(of, FAILED, sample=0.5).last_delay
    assert decision.delay != settled(claim(failures=1, policy=drawing), FAILED, sample=0.5).last_delay


def test_a_hint_overrides_the_backoff_and_both_are_kept():
    """Hints of a server decide the delay; the history keeps the delay of the backoff, and the rule."""
    line = closed(claim(), Failed(failure(hint=timedelta(minutes=15))))

    assert (seconds(1), timedelta(minutes=15), "hint") == (line.nominal, line.delay, line.rule)


def test_after_the_last_attempt_the_job_is_dead():
    """After the last attempt no delay is computed, and the note contains the number of failures."""
    after = settled(claim(failures=5), FAILED)

    assert State.DEAD == after.state
    assert (None, None) == (after.scheduled_at, after.hold)
    assert ("6 of 6 attempts failed", "boom") == (after.note, after.error)
    assert after.closed is not None
    assert ("attempts", None, None) == (after.closed.rule, after.closed.delay, after.closed.nominal)


def test_a_permanent_failure_is_final_at_once():
    """Handlers that give up end the job after one attempt, and the rule names the reason."""
    after = settled(claim(), FINAL_FAILURE)

    assert State.DEAD == after.state
    assert after.closed is not None
    assert ("permanent", "no such user") == (after.closed.rule, after.closed.verdict)


def test_a_deferred_retry_is_due_at_its_instant():
    """If the policy defers past the deadline, the job is due at that instant."""
    deferring = Policy(
        attempts=9, deadline="10s", over_deadline="defer", backoff=Backoff.constant("30s"), jitter="none"
    ).durable()
    after = settled(claim(policy=deferring), FAILED)

    assert (State.READY, NOW + seconds(30)) == (after.state, after.scheduled_at)
    assert (seconds(30), Hold.RETRY) == (after.last_delay, after.hold)
    assert "deferred to 2026-01-01 12:00:31 UTC (backoff)" == after.note


def test_failures_are_counted_for_the_rule_that_they_match():
    """Retried failures are counted for the rule that they match, and for no other one."""
    ruled = Policy(
        attempts=4, backoff=Backoff.constant("1s"), jitter="none", rules=[Rule(OSError, attempts=3), Rule(ValueError)]
    ).durable()
    first = settled(claim(policy=ruled), FAILED)
    second = settled(claim(policy=ruled, failures=1, by_rule=first.by_rule), FAILED)

    assert ((0, 1), (0, 2)) == (first.by_rule, second.by_rule)


def test_a_deferred_failure_is_counted_for_its_rule_too():
    """Deferring counts the failure for its rule as a plain retry does."""
    ruled = Policy(
        attempts=4, deadline="1s", over_deadline="defer", backoff=Backoff.constant("1s"), rules=[Rule(ValueError)]
    ).durable()

    assert (1,) == settled(claim(policy=ruled), FAILED).by_rule


def test_the_count_of_a_rule_ends_the_job():
    """Earlier failures of a rule, as the job carries them, count against the limit of the rule."""
    ruled = Policy(attempts=9, backoff=Backoff.constant("1s"), rules=[Rule(ValueError, attempts=3)]).durable()
    after = settled(claim(policy=ruled, failures=2, by_rule=(2,)), FAILED)

    assert State.DEAD == after.state
    assert (2,) == after.by_rule


def test_an_unknown_outcome_is_not_repeated_without_leave():
    """Failures in flight end a task that is not idempotent, because their effect is unknown (RFC 0049)."""
    after = settled(claim(policy=policy(idempotent=False)), Failed(in_flight()))

    assert State.DEAD == after.state
    assert after.closed is not None
    assert "not_idempotent" == after.closed.rule
