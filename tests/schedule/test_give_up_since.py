"""The instant from which ``give_up_after`` counts: the first failure, or the last success."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.errors import ScheduleError
from redrive.schedule import GiveUpSince, RefreshOutcome, RefreshPolicy, RefreshState, Schedule, refresh

T0 = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
HOURLY = Schedule.cron("0 * * * *")
DAILY = Schedule.cron("0 6 * * *")
SINCE_SUCCESS = RefreshPolicy(
    schedule=HOURLY, delays=[10 * MINUTE] * 30, give_up_after="3h", give_up_since="last_success"
)
SINCE_FAILURE = replace(SINCE_SUCCESS, give_up_since=GiveUpSince.FIRST_FAILURE)
NEW = refresh.update(SINCE_SUCCESS, RefreshState(), now=T0).state


def started(state: RefreshState, now: datetime, policy: RefreshPolicy = SINCE_SUCCESS) -> RefreshState:
    """Return the state after a start, due or not."""
    return refresh.trigger(policy, state, now=now, uid="u").state


def succeeded(state: RefreshState, now: datetime, policy: RefreshPolicy = SINCE_SUCCESS) -> RefreshState:
    """Return the state after a start and a success a minute later."""
    return refresh.success(policy, started(state, now, policy), now=now + MINUTE, uid="u").state


def failed(state: RefreshState, now: datetime, policy: RefreshPolicy = SINCE_SUCCESS) -> RefreshState:
    """Return the state after a start and a failure a minute later."""
    return refresh.failure(policy, started(state, now, policy), now=now + MINUTE, uid="u").state


def test_the_limit_counts_from_the_end_of_the_last_success():
    """The same history is given up later if its limit counts from the first failure."""
    fresh = succeeded(NEW, T0)
    failing = failed(fresh, T0 + HOUR)

    assert T0 + MINUTE == fresh.succeeded_at == failing.succeeded_at
    assert (T0 + MINUTE + 3 * HOUR, T0 + 4 * HOUR) == (
        refresh.limit_at(SINCE_SUCCESS, failing),
        refresh.limit_at(SINCE_FAILURE, failing),
    )
    before, end = T0 + 3 * HOUR, T0 + MINUTE + 3 * HOUR
    assert RefreshOutcome.NOTHING is refresh.sweep(SINCE_SUCCESS, failing, now=before).outcome
    assert RefreshOutcome.GAVE_UP is refresh.sweep(SINCE_SUCCESS, failing, now=end).outcome
    assert RefreshOutcome.NOTHING is refresh.sweep(SINCE_FAILURE, failing, now=end).outcome


def test_an_item_that_never_succeeded_has_the_limit_of_its_first_failure():
    """There is no success to count from; the instant of its creation does not count either."""
    failing = failed(replace(NEW, refresh_at=T0 + HOUR), T0 + HOUR)

    assert None is failing.succeeded_at
    assert T0 + 4 * HOUR == refresh.limit_at(SINCE_SUCCESS, failing)


def test_a_success_long_ago_does_not_prevent_the_next_attempt():
    """A daily refresh with a limit of three hours is tried, although its last success is older; then it is given up."""
    policy = replace(SINCE_SUCCESS, schedule=DAILY)
    fresh = succeeded(NEW, T0 + 6 * HOUR, policy)
    due = T0 + DAY + 6 * HOUR
    asked = refresh.start(policy, fresh, now=due, uid="u")

    assert None is refresh.limit_at(policy, fresh)
    assert RefreshOutcome.NOTHING is refresh.sweep(policy, fresh, now=due).outcome
    assert RefreshOutcome.STARTED is asked.outcome
    assert RefreshOutcome.GAVE_UP is refresh.failure(policy, asked.state, now=due, uid="u").outcome


def test_an_update_forgets_the_last_success():
    """Otherwise an item that was given up would be given up again at its next failure, without a retry."""
    gone = refresh.sweep(SINCE_SUCCESS, failed(succeeded(NEW, T0), T0 + HOUR), now=T0 + 9 * HOUR).state
    again = failed(refresh.update(SINCE_SUCCESS, gone, now=T0 + DAY).state, T0 + DAY)

    assert gone.disabled_until_update
    assert (None, False) == (again.succeeded_at, again.disabled_until_update)
    assert T0 + DAY + 3 * HOUR == refresh.limit_at(SINCE_SUCCESS, again)


def test_a_trigger_and_a_pause_keep_the_last_success():
    """Neither is a success; time passes during a pause."""
    failing = failed(succeeded(NEW, T0), T0 + HOUR)
    paused = refresh.pause(started(failing, T0 + 2 * HOUR)).state
    resumed = refresh.resume(SINCE_SUCCESS, failed(paused, T0 + 2 * HOUR), now=T0 + 5 * HOUR).state

    assert T0 + MINUTE == resumed.succeeded_at
    assert RefreshOutcome.GAVE_UP is refresh.sweep(SINCE_SUCCESS, resumed, now=T0 + 5 * HOUR).outcome


def test_a_new_policy_counts_from_the_next_success():
    """A policy that counts from the first failure stores no success, so that its items can share their moves."""
    failing = failed(succeeded(NEW, T0, SINCE_FAILURE), T0 + HOUR, SINCE_FAILURE)
    replanned = refresh.replan(SINCE_SUCCESS, failing, now=T0 + HOUR + MINUTE).state

    assert None is replanned.succeeded_at
    assert T0 + 4 * HOUR == refresh.limit_at(SINCE_SUCCESS, replanned)
    assert T0 + 2 * HOUR + MINUTE == succeeded(replanned, T0 + 2 * HOUR).succeeded_at
    assert None is succeeded(succeeded(NEW, T0), T0 + HOUR, SINCE_FAILURE).succeeded_at


def test_a_clock_that_was_set_back_does_not_move_the_limit_away():
    """A success of the far future counts as one of now, and never later than the failure that came after it."""
    ahead = T0 + 1000 * DAY
    waiting = replace(failed(succeeded(NEW, T0), T0 + HOUR), succeeded_at=ahead)
    back = refresh.set_back(SINCE_SUCCESS, waiting, now=T0 + 2 * HOUR)
    near = replace(waiting, succeeded_at=T0 + 2 * HOUR + MINUTE)

    assert T0 + 4 * HOUR == refresh.limit_at(SINCE_SUCCESS, waiting)
    assert (RefreshOutcome.REPLANNED, T0 + 2 * HOUR) == (back.outcome, back.state.succeeded_at)
    assert waiting.refresh_at == back.state.refresh_at
    assert RefreshOutcome.NOTHING is refresh.set_back(SINCE_SUCCESS, near, now=T0 + 2 * HOUR).outcome


@given(st.timedeltas(timedelta(0), 5 * DAY), st.none() | st.timedeltas(-5 * DAY, 5 * DAY))
def test_the_limit_is_never_later_than_that_of_the_first_failure(failing: timedelta, success: timedelta | None):
    """Whatever the clock did, counting from the last success gives up no later."""
    state = RefreshState(failing_since=T0 + failing, succeeded_at=None if success is None else T0 + success)
    limit, usual = refresh.limit_at(SINCE_SUCCESS, state), refresh.limit_at(SINCE_FAILURE, state)

    assert limit is not None
    assert usual is not None
    assert limit <= usual == T0 + failing + 3 * HOUR
    assert success is None or limit <= T0 + success + 3 * HOUR


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"give_up_after": "3h", "give_up_since": "creation"}, "give_up_since is 'first_failure', 'last_success', not"),
        ({"give_up_after": "3h", "give_up_since": None}, "give_up_since is 'first_failure', 'last_success', not None"),
        (
            {"give_up_since": "last_success"},
            "give_up_since='last_success' needs a limit that is counted: give_up_after",
        ),
    ],
)
def test_a_wrong_instant_is_refused(fields: dict, message: str):
    """The error names the field and the values."""
    with pytest.raises(ScheduleError, match=message):
        RefreshPolicy(schedule=HOURLY, **fields)


@pytest.mark.parametrize(
    "sentence",
    [
        "Give up 3 hours after the last success",
        "Give up only 3 hours after its last successful refresh",
        "Give up after 3 hours since the last success",
        "After 3 hours since the last success, give up",
    ],
)
def test_english_has_sentences_for_it(sentence: str):
    """One of them is that which is written."""
    policy = RefreshPolicy.parse(f"Refresh every hour\n{sentence}")

    assert (3 * HOUR, GiveUpSince.LAST_SUCCESS) == (policy.give_up_after, policy.give_up_since)
    assert "Give up 3 hours after the last success" == str(policy).splitlines()[-1]
    assert policy == RefreshPolicy.parse(str(policy)) == RefreshPolicy.from_dict(policy.to_dict())


@given(st.timedeltas(timedelta.resolution, 9999 * DAY))
def test_every_limit_is_written_and_read_back(limit: timedelta):
    """In English and in JSON."""
    policy = replace(SINCE_SUCCESS, give_up_after=limit)

    assert policy == RefreshPolicy.parse(str(policy)) == RefreshPolicy.from_dict(policy.to_dict())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Refresh hourly; give up one week after the last success; give up after one day", "two limits in time"),
        ("Refresh hourly; give up 3 hours after lunch", "not understood: '3 hours after lunch'"),
        ("Refresh hourly; give up 0 hours after the last success", "the time must be positive"),
    ],
)
def test_other_sentences_are_refused(text: str, message: str):
    """One limit in time, and one of the known instants."""
    with pytest.raises(ScheduleError, match=message):
        RefreshPolicy.parse(text)


def test_a_limit_that_makes_the_first_failure_final_is_warned_of():
    """The gap between planned refreshes is longer than the limit, or there is no plan."""
    (gap,) = RefreshPolicy.parse("Refresh daily; give up 1 day after the last success").lint()
    (unplanned,) = RefreshPolicy(
        delays=["1m"], repeat_last=True, give_up_after="1h", give_up_since="last_success"
    ).lint()
    usual = RefreshPolicy(delays=["1m"], repeat_last=True, give_up_after="1h").lint()

    assert gap == (
        "It gives up 1 day after the last success, and planned refreshes lie up to 1 day apart: the first failure can "
        "be final, and no retry is made. Wait longer than that, or count from the first failure."
    )
    assert unplanned == (
        "It gives up 1 hour after the last success, and has no schedule: if it is started later than that, the first "
        "failure is final, and no retry is made. Count from the first failure, or add a schedule."
    )
    assert () == usual
