"""Another policy for a refresh that is under way: what is owed stays, and what is only planned is planned anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.schedule import (
    RecurrenceRule,
    RefreshOutcome,
    RefreshPolicy,
    RefreshState,
    RefreshTransition,
    Schedule,
    Strategy,
    refresh,
)
from tests.schedule.test_refresh import EVENTS, HOUR, MINUTE, POLICIES, T0, moved

EVERY_2 = RefreshPolicy.parse("Refresh every 2 hours; allow 30 minutes; retry after 10 minutes, then after 20 minutes")
EVERY_3 = RefreshPolicy.parse("Refresh every 3 hours; allow 30 minutes; retry after 50 minutes")
BY_HAND = RefreshPolicy(timeout=HOUR)
OVER = RefreshPolicy(schedule=Schedule(times=(datetime(2020, 1, 1),)))  # noqa: DTZ001 - naive is the wall clock
NEW = RefreshState()


def clock(hour: int, minute: int = 0) -> datetime:
    """Return an instant on the day of `T0`, which is at noon."""
    return T0.replace(hour=hour, minute=minute)


def replanned(policy: RefreshPolicy, state: RefreshState, now: datetime, sample: float = 0.0) -> RefreshState:
    """Return the state under another policy."""
    move = refresh.replan(policy, state, now=now, sample=sample)
    assert RefreshTransition(move.state, RefreshOutcome.REPLANNED) == move
    return move.state


def waiting(policy: RefreshPolicy = EVERY_2, now: datetime = T0) -> RefreshState:
    """Return a state that waits for its first planned refresh."""
    return refresh.update(policy, NEW, now=now, at_once=False).state


def running(policy: RefreshPolicy = EVERY_2, now: datetime = T0) -> RefreshState:
    """Return a state with a running attempt."""
    return refresh.trigger(policy, NEW, now=now, uid="u").state


def test_a_running_attempt_keeps_its_deadline():
    """Only what a timeout would give, and the next planned refresh, are those of the new policy."""
    before = running()
    expected = replace(before, refresh_at=clock(13, 20), planned_at=clock(15))

    assert (clock(12, 30), clock(12, 40), clock(14)) == (before.deadline_at, before.refresh_at, before.planned_at)
    assert expected == replanned(EVERY_3, before, clock(12, 15))


def test_a_sweep_uses_the_new_policy():
    """However late it comes."""
    after = replanned(EVERY_3, running(), clock(12, 30))

    assert after.refresh_at == refresh.sweep(EVERY_3, after, now=clock(19)).state.refresh_at


def test_a_running_attempt_may_be_given_up_at_its_deadline():
    """Under a policy without retries, the timeout of the running attempt gives up."""
    once = RefreshPolicy(schedule=EVERY_3.schedule)
    after = replanned(once, running(), T0)

    assert ("u", clock(12, 30), None) == (after.attempt_uid, after.deadline_at, after.refresh_at)


def test_a_retry_keeps_its_time():
    """It was decided; only the next planned refresh is another one."""
    failed = refresh.failure(EVERY_2, running(), now=T0, uid="u").state

    assert replace(failed, planned_at=clock(15)) == replanned(EVERY_3, failed, clock(12, 5))
    assert replace(failed, planned_at=None) == replanned(BY_HAND, failed, clock(12, 5))


def test_a_requested_start_keeps_its_time():
    """Starts at once after an update keep their time under any policy."""
    wanted = refresh.update(EVERY_2, NEW, now=clock(12, 1)).state

    assert replace(wanted, planned_at=clock(15)) == replanned(EVERY_3, wanted, clock(12, 2))


def test_a_planned_refresh_is_that_of_the_new_schedule():
    """With the jitter of the new policy."""
    spread = RefreshPolicy(schedule=EVERY_3.schedule, jitter=HOUR)
    before = waiting(now=clock(12, 30))
    expected = replace(before, refresh_at=clock(15, 30), planned_at=clock(15))

    assert clock(14) == before.refresh_at
    assert expected == replanned(spread, before, clock(12, 45), sample=0.5)


@pytest.mark.parametrize("now", [clock(14), clock(14, 10), clock(23)])
def test_a_due_planned_refresh_is_kept(now: datetime):
    """Occurrences that wait for a free worker or for their jitter are not left out by a deployment."""
    spread = RefreshPolicy(schedule=EVERY_2.schedule, jitter=HOUR)
    before = refresh.update(spread, NEW, now=clock(12, 30), at_once=False, sample=0.5).state

    assert (clock(14), clock(14, 30)) == (before.planned_at, before.refresh_at)
    assert before == replanned(EVERY_3, before, now)


def test_an_occurrence_that_was_used_up_is_not_used_again():
    """It was started at this very instant."""
    done = refresh.success(EVERY_2, running(), now=T0, uid="u").state

    assert clock(15) == replanned(EVERY_3, done, T0).refresh_at


def test_a_disabled_refresh_stays_disabled():
    """Another schedule does not mend it; what is planned next is shown."""
    stopped = refresh.failure(EVERY_2, running(), now=T0, uid="u", permanent="no").state

    assert replace(stopped, planned_at=clock(15)) == replanned(EVERY_3, stopped, T0)


def test_a_completed_refresh_is_planned_again():
    """Completed refreshes are planned again if the new schedule has an occurrence."""
    completed = waiting(OVER)

    assert completed.completed
    assert completed == replanned(OVER, completed, T0)
    assert waiting(EVERY_3, clock(13)) == replanned(EVERY_3, completed, clock(13))


def test_a_refresh_without_a_schedule_is_planned():
    """It was started by hand until now."""
    by_hand = refresh.success(BY_HAND, running(BY_HAND), now=T0, uid="u").state

    assert (None, False) == (by_hand.refresh_at, by_hand.completed)
    assert by_hand == replanned(BY_HAND, by_hand, T0)
    assert clock(15) == replanned(EVERY_3, by_hand, T0).refresh_at


@pytest.mark.parametrize("without", [BY_HAND, OVER])
def test_a_removed_schedule_can_be_restored(without: RefreshPolicy):
    """Without a schedule a refresh counts as completed until it gets one again."""
    lost = replanned(without, waiting(now=clock(13)), clock(13))

    assert (None, None, True) == (lost.refresh_at, lost.planned_at, lost.completed)
    assert waiting(EVERY_3, clock(13)) == replanned(EVERY_3, lost, clock(13))


def test_a_row_without_an_update_is_never_due():
    """Rows without an update are never due."""
    assert replanned(EVERY_3, NEW, T0) == NEW


def test_replanning_keeps_a_pause():
    """Planned anew beneath it."""
    paused = refresh.pause(waiting(now=clock(13))).state

    assert replace(paused, refresh_at=clock(15), planned_at=clock(15)) == replanned(EVERY_3, paused, clock(13))


def test_past_occurrences_are_not_planned_again_after_a_clock_step():
    """Occurrences before the last start are not planned again."""
    done = refresh.success(EVERY_2, running(now=clock(15, 30)), now=clock(15, 40), uid="u").state

    assert clock(18) == replanned(EVERY_3, done, T0 - 9 * HOUR).refresh_at


@given(POLICIES, POLICIES, EVENTS, st.timedeltas(timedelta(0), timedelta(days=3)), st.floats(0, 1))
def test_replanning_keeps_attempts_and_due_times(
    old: RefreshPolicy, new: RefreshPolicy, events: list[tuple[str, timedelta, float]], later: timedelta, sample: float
):
    """Whatever has happened: attempts, tokens, deadlines and failures stay as they are; what is due stays due; and a
    time that changes is one of the new schedule, later than now, or what follows the deadline."""
    now, before = T0, NEW
    for event, step, each in [("update", timedelta(0), 0.0), *events]:
        now += step
        before = moved(old, before, event, now, **({} if event == "pause" else {"sample": each})).state
    now += later
    after = replanned(new, before, now, sample)

    same = {"refresh_at": before.refresh_at, "planned_at": before.planned_at, "completed": before.completed}
    assert before == replace(after, **same)
    assert refresh.is_due(after, now) or not refresh.is_due(before, now)
    if before.attempt_uid is not None:
        assert refresh.sweep(new, after, now=before.deadline_at, sample=sample).state.refresh_at == after.refresh_at
    elif before.attempt_no or before.disabled_until_update:
        assert before.refresh_at == after.refresh_at
    elif after.refresh_at != before.refresh_at and after.refresh_at is not None:
        assert now <= after.planned_at <= after.refresh_at
        assert after.planned_at in new.schedule.since(after.planned_at)
    assert after == replanned(new, after, now, sample)


def test_an_aligned_retry_keeps_the_slot_that_it_waits_for():
    """Also where the planned refresh is the retry, its time was decided."""
    policy = RefreshPolicy(schedule=EVERY_2.schedule, timeout=HOUR, delays=(MINUTE,), strategy=Strategy.PLANNED_ONLY)
    failed = refresh.failure(policy, running(policy), now=T0, uid="u").state
    yearly = RefreshPolicy(schedule=Schedule(rules=(RecurrenceRule.parse("FREQ=YEARLY"),)))

    assert clock(14) == replanned(yearly, failed, T0).refresh_at
    assert datetime(2027, 1, 1, tzinfo=UTC) == replanned(yearly, failed, T0).planned_at
