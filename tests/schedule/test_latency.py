"""Attempts that start a little late follow the plan; attempts that wait in a queue have not begun."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.schedule import Exhausted, RefreshOutcome, RefreshPolicy, RefreshState, refresh
from redrive.schedule.dry_run import AttemptEnd, SimulatedAnswer, dry_run

T0 = datetime(2026, 11, 23, 8, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LATE = timedelta(seconds=0.3)


def starts_with_latency(policy: RefreshPolicy, late: timedelta, count: int, sample: float = 0.0) -> list[datetime]:
    """Return when attempts start that all time out, each `late` after it is due."""
    state = refresh.update(policy, RefreshState(), now=T0, at_once=False, sample=sample).state
    starts = []
    for number in range(count):
        if state.refresh_at is None:
            break
        now = max(state.refresh_at, state.started_at or T0) + late
        started = refresh.start(policy, state, now=now, uid=str(number), sample=sample)
        if started.outcome is not RefreshOutcome.STARTED:
            break
        state = started.state
        starts.append(now)
        state = refresh.sweep(policy, state, now=state.deadline_at + late, sample=sample).state
    return starts


def planned_starts(policy: RefreshPolicy, count: int) -> list[datetime]:
    """Return when the attempts start by the plan."""
    answers = itertools.repeat(SimulatedAnswer(AttemptEnd.TIMEOUT), count)
    return [each.began for each in dry_run(policy, answers, start=T0).attempts]


@pytest.mark.parametrize(
    "text",
    [
        "Refresh every 2 hours; allow 1 hour; retry immediately",
        "Refresh every hour; allow 30 minutes; retry immediately, then immediately",
        "Refresh every hour; allow 20 minutes; retry after 10 minutes, then after 10 minutes; give up after 3 hours",
        "Refresh every hour; allow 30 minutes; retry immediately; retry until the next scheduled refresh",
        "Refresh every hour; allow 1 hour; on the first failure, wait for the next scheduled refresh",
        (
            "Refresh every hour; allow 30 minutes; retry immediately, then after 40 minutes; "
            "retry or refresh whichever comes first"
        ),
    ],
)
def test_a_chain_of_timeouts_follows_the_plan(text: str):
    """With 0.3 s from due to start, attempts fall behind the plan by no more than these delays."""
    policy = RefreshPolicy.parse(text)

    planned, real = planned_starts(policy, 8), starts_with_latency(policy, LATE, 8)

    assert len(planned) == len(real)
    assert all(timedelta(0) <= start - due < 8 * LATE + SECOND for due, start in zip(planned, real, strict=True))


def test_a_retry_that_fits_exactly_is_made_between_planned_refreshes():
    """With one hour allowed every two hours, the retry is at 09:00, not at 10:00."""
    policy = RefreshPolicy.parse("Refresh every 2 hours; allow 1 hour; retry 2 times")

    assert [T0, T0 + HOUR, T0 + 2 * HOUR] == [
        each.replace(microsecond=0) for each in starts_with_latency(policy, LATE, 3)
    ]


@pytest.mark.parametrize("sample", [0.0, 0.5, 1.0])
def test_jitter_moves_the_whole_chain(sample: float):
    """Planned starts that jitter has put off leave room for the same retries."""
    policy = RefreshPolicy.parse("Refresh every 2 hours; allow 1 hour; retry 2 times; spread starts over 10 minutes")
    put_off = 10 * MINUTE * sample

    assert [T0 + put_off, T0 + HOUR + put_off, T0 + 2 * HOUR + put_off] == [
        each.replace(microsecond=0) for each in starts_with_latency(policy, LATE, 3, sample)
    ]


def test_beyond_the_tolerance_the_real_start_counts():
    """Starts that are more than a minute late leave no room for a retry that needs all the time."""
    policy = RefreshPolicy.parse("Refresh every 2 hours; allow 1 hour; retry immediately")
    state = refresh.update(policy, RefreshState(), now=T0, at_once=False).state

    def retry_of(late: timedelta) -> datetime | None:
        started = refresh.start(policy, state, now=T0 + late, uid="u").state
        return refresh.sweep(policy, started, now=T0 + 5 * HOUR).state.refresh_at

    assert [T0 + HOUR + MINUTE, T0 + 2 * HOUR] == [
        retry_of(refresh.TOLERANCE),
        retry_of(refresh.TOLERANCE + timedelta.resolution),
    ]


def test_a_missed_planned_refresh_is_not_repeated():
    """Every 10 seconds, and 25 seconds late: the start stands for three planned ones."""
    policy = RefreshPolicy.parse("Refresh every 10 seconds; allow 5 seconds; retry immediately")
    state = refresh.update(policy, RefreshState(), now=T0, at_once=False).state
    started = refresh.start(policy, state, now=T0 + 25 * SECOND, uid="u").state

    assert T0 + 25 * SECOND == started.due_at
    assert T0 + 30 * SECOND == refresh.failure(policy, started, now=T0 + 26 * SECOND, uid="u").state.refresh_at


@given(
    st.sampled_from([SECOND, MINUTE, HOUR]),
    st.sampled_from([SECOND, 30 * SECOND, 30 * MINUTE, HOUR]),
    st.lists(st.sampled_from([timedelta(0), SECOND, MINUTE]), max_size=3).map(tuple),
    st.timedeltas(timedelta(0), 3 * MINUTE),
)
def test_a_delay_counts_from_the_real_failure(
    period: timedelta, timeout: timedelta, delays: tuple[timedelta, ...], late: timedelta
):
    """No retry starts before its delay is over, however late the start, unless a planned one takes its place."""
    schedule = RefreshPolicy.parse(f"Refresh every {period // SECOND} seconds").schedule
    policy = RefreshPolicy(schedule=schedule, timeout=timeout, delays=delays, on_exhausted=Exhausted.WAIT_NEXT)
    state = refresh.update(policy, RefreshState(), now=T0, at_once=False).state
    started = refresh.start(policy, state, now=T0 + late, uid="u").state
    failed_at = T0 + late + timeout
    after = refresh.sweep(policy, started, now=failed_at).state

    assert after.refresh_at == after.planned_at or after.refresh_at >= failed_at + delays[0]
    assert after.planned_at > started.started_at


# -------------------------------------------------------------------------------------------------------------- queued


def test_the_timeout_counts_from_the_start_by_a_worker():
    """Attempts that have waited in a queue for 20 minutes have all of their time."""
    policy = RefreshPolicy.parse("Refresh every 2 hours; allow 10 minutes; retry after 1 minute; give up after 3 hours")
    queued = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state
    begun = refresh.begun(policy, queued, now=T0 + 20 * MINUTE, uid="u")

    assert RefreshOutcome.STARTED is begun.outcome
    assert (T0 + 20 * MINUTE, T0 + 30 * MINUTE, 1) == (
        begun.state.failing_since,
        begun.state.deadline_at,
        begun.state.attempt_no,
    )
    assert T0 + 31 * MINUTE == begun.state.refresh_at


def test_a_streak_of_failures_keeps_its_beginning():
    """Only the first attempt of a streak moves the instant from which the limit in time counts."""
    policy = RefreshPolicy.parse("Retry after 1 minute; allow 10 minutes")
    first = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state
    second = refresh.trigger(policy, refresh.failure(policy, first, now=T0, uid="u").state, now=T0 + MINUTE, uid="v")
    begun = refresh.begun(policy, second.state, now=T0 + 5 * MINUTE, uid="v").state

    assert (T0, 2) == (begun.failing_since, begun.attempt_no)


def test_a_superseded_attempt_does_not_begin():
    """Superseded jobs that a worker claims change no state."""
    policy = RefreshPolicy()
    state = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state

    assert RefreshOutcome.STALE is refresh.begun(policy, state, now=T0, uid="other").outcome
    assert RefreshOutcome.STALE is refresh.begun(policy, RefreshState(), now=T0, uid="other").outcome


@pytest.mark.parametrize(("timeout", "look"), [(SECOND, MINUTE), (HOUR, HOUR)])
def test_an_attempt_that_waits_in_a_queue_does_not_time_out(timeout: timedelta, look: timedelta):
    """It is looked at again, at most once a minute."""
    policy = RefreshPolicy(timeout=timeout)
    state = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state

    assert replace(state, deadline_at=T0 + 2 * HOUR + look) == refresh.wait(policy, state, now=T0 + 2 * HOUR).state


def test_a_queue_may_delay_an_attempt_beyond_the_plan():
    """Within a minute the plan counts; after that the moment at which it has begun."""
    policy = RefreshPolicy.parse("Refresh every 2 hours; allow 1 hour; retry immediately")
    state = refresh.update(policy, RefreshState(), now=T0, at_once=False).state
    queued = refresh.start(policy, state, now=T0, uid="u").state
    dues = [refresh.begun(policy, queued, now=T0 + each, uid="u").state.due_at for each in (LATE, 5 * MINUTE)]

    assert [T0, T0 + 5 * MINUTE] == dues


# ---------------------------------------------------------------------------------------------------------- superseded


def test_superseding_an_attempt_spends_no_retry():
    """However often a person presses the button while an attempt runs, its first failure has its first retry."""
    policy = RefreshPolicy(delays=(MINUTE,))
    state = refresh.trigger(policy, RefreshState(), now=T0, uid="u0").state
    for number in range(1, 5):
        state = refresh.trigger(policy, state, now=T0 + number * SECOND, uid=f"u{number}").state
    failed = refresh.failure(policy, state, now=T0 + MINUTE, uid="u4")

    assert (1, 1) == (state.attempt_no, state.attempts_since_success)
    assert (RefreshOutcome.RETRY_SCHEDULED, T0 + 2 * MINUTE) == (failed.outcome, failed.state.refresh_at)


def test_superseding_an_expired_attempt_counts_as_another_attempt():
    """It has failed at its deadline, although no sweep has seen that yet."""
    policy = RefreshPolicy(delays=(MINUTE,))
    state = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state

    assert 2 == refresh.trigger(policy, state, now=T0 + policy.timeout, uid="v").state.attempt_no
