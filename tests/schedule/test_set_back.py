"""A clock that is set back leaves nothing waiting until it has caught up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.schedule import RefreshOutcome, RefreshPolicy, RefreshState, refresh

T0 = datetime(2026, 11, 23, 8, 30, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
POLICY = RefreshPolicy.parse("Refresh every hour; allow 10 minutes; retry after 5 minutes; give up after one week")
AHEAD = T0 + 1000 * DAY
NEXT = T0 + HOUR / 2

WAITING = refresh.update(POLICY, RefreshState(), now=AHEAD, at_once=False).state
RUNNING = refresh.start(POLICY, WAITING, now=WAITING.refresh_at, uid="u").state
FAILED = refresh.failure(POLICY, RUNNING, now=RUNNING.started_at + MINUTE, uid="u").state
WANTED = refresh.update(POLICY, RefreshState(), now=AHEAD).state
DISABLED = refresh.failure(POLICY, RUNNING, now=AHEAD, uid="u", permanent="no").state


@pytest.mark.parametrize(
    ("state", "fields"),
    [
        (WAITING, {"refresh_at": NEXT, "planned_at": NEXT}),
        (replace(WAITING, started_at=AHEAD, due_at=AHEAD), {"refresh_at": NEXT, "started_at": T0, "due_at": T0}),
        (RUNNING, {"started_at": T0, "deadline_at": T0 + 10 * MINUTE, "failing_since": T0, "attempt_uid": "u"}),
        (FAILED, {"refresh_at": T0 + 6 * MINUTE, "attempt_no": 1, "failing_since": T0}),
        (WANTED, {"refresh_at": T0}),
        (RefreshState(completed=True, started_at=T0 - DAY), {"refresh_at": NEXT, "completed": False}),
        (replace(RUNNING, failing_since=T0 - DAY), {"failing_since": T0 - DAY, "started_at": T0}),
    ],
)
def test_far_due_times_are_replanned_after_the_clock_was_set_back(state: RefreshState, fields: dict[str, object]):
    """After the clock was set back, planned refreshes are planned anew, and attempts count as having happened now."""
    move = refresh.set_back(POLICY, state, now=T0)

    assert RefreshOutcome.REPLANNED is move.outcome
    assert fields == {name: getattr(move.state, name) for name in fields}


@pytest.mark.parametrize(
    "state",
    [
        RefreshState(),
        refresh.update(POLICY, RefreshState(), now=T0, at_once=False).state,
        refresh.trigger(POLICY, RefreshState(), now=T0 + MINUTE, uid="u").state,
        replace(DISABLED, started_at=T0, due_at=None, failing_since=T0),
        RefreshState(refresh_at=T0 + MINUTE),
        RefreshState(refresh_at=NEXT + 5 * HOUR, planned_at=NEXT + 5 * HOUR, started_at=T0, attempts_since_success=1),
    ],
)
def test_near_due_times_are_kept(state: RefreshState):
    """Up to a minute is no reason, as clocks are adjusted all the time; nor is a wait that a hint has asked for."""
    assert (state, RefreshOutcome.NOTHING) == (refresh.set_back(POLICY, state, now=T0).state, RefreshOutcome.NOTHING)


def test_without_a_schedule_there_is_nothing_to_plan():
    """Without a schedule a completed refresh on demand waits for the next demand."""
    assert RefreshOutcome.NOTHING is refresh.set_back(RefreshPolicy(), RefreshState(completed=True), now=T0).outcome


@given(st.sampled_from([WAITING, RUNNING, FAILED, WANTED]), st.timedeltas(2 * MINUTE, 1000 * DAY), st.floats(0, 1))
def test_after_any_step_back_the_next_event_is_soon(state: RefreshState, back: timedelta, sample: float):
    """Within the gap of the schedule, or the time of an attempt and its retry; and a second move changes nothing."""
    now = AHEAD - back
    after = refresh.set_back(POLICY, state, now=now, sample=sample).state

    assert min(each for each in (after.refresh_at, after.deadline_at) if each is not None) <= now + HOUR + MINUTE
    assert RefreshOutcome.NOTHING is refresh.set_back(POLICY, after, now=now).outcome
