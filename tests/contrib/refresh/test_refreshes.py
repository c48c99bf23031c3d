"""Moves of rows, with every supported library."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.errors import ScheduleError
from redrive.schedule import GiveUpSince, RefreshEffect, RefreshOutcome, RefreshPolicy, RefreshState
from tests.contrib.refresh.conftest import EVERY_TWO_HOURS, at, saved, started


def test_a_new_row_is_never_due(table):
    """Rows that were added but not saved by a user have the initial state and are not started."""
    key = table.add()

    with table.within() as moves:
        assert [] == moves.start_due()
    assert RefreshState() == table.row(key).refresh_state


def test_a_saved_row_is_started_once(table):
    """Saved rows are due at once; once started, they are not due again."""
    key = saved(table)

    with table.within() as moves:
        (moved,) = moves.start_due()
    with table.within() as moves:
        assert [] == moves.start_due()

    assert RefreshOutcome.STARTED == moved.outcome
    state = table.row(key).refresh_state
    assert moved.state == state == moved.row.refresh_state
    assert (1, at("00:00"), at("00:30"), at("00:30")) == (
        state.attempt_no,
        state.started_at,
        state.deadline_at,
        state.refresh_at,
    )
    assert timedelta(0) == state.started_at.utcoffset()


def test_the_earliest_come_first(table):
    """If more rows are due than the limit, the earliest are started."""
    first = saved(table)
    table.clock.advance("1m")
    saved(table)

    with table.within() as moves:
        assert [first] == [each.row.id for each in moves.start_due(limit=1)]


def test_a_success_waits_for_the_schedule(table):
    """After a success the next planned refresh is due, and the counters are cleared."""
    key, uid = started(table)
    table.clock.advance("10m")

    with table.within() as moves:
        moved = moves.success(key, uid=uid)

    assert RefreshOutcome.SUCCEEDED == moved.outcome
    state = table.row(key).refresh_state
    assert (at("02:00"), 0, None) == (state.refresh_at, state.attempt_no, state.attempt_uid)
    assert table.row(key).sweep_at is None


def test_a_failure_is_retried(table):
    """After a failure the retry is due after its delay, counted as the second attempt."""
    key, uid = started(table)

    with table.within() as moves:
        assert RefreshOutcome.RETRY_SCHEDULED == moves.failure(key, uid=uid).outcome
    with table.within() as moves:
        (moved,) = moves.start_due()

    assert 2 == moved.state.attempt_no
    assert uid != moved.state.attempt_uid


def test_a_result_may_carry_a_hint(table):
    """Retries come no earlier than the result has asked for."""
    key, uid = started(table)

    with table.within() as moves:
        moves.failure(key, uid=uid, retry_after=timedelta(minutes=20))

    assert at("00:20") == table.row(key).refresh_at


def test_a_stale_answer_changes_nothing(table):
    """Results that arrive twice, with another token or none, or for a deleted row, are ignored."""
    key, uid = started(table)
    with table.within() as moves:
        moves.failure(key, uid=uid)
    before = table.row(key).refresh_state
    gone = table.add()
    table.remove(gone)

    with table.within() as moves:
        assert [None] * 4 == [
            moves.success(key, uid=uid),
            moves.failure(key, uid="of another attempt"),
            moves.success(key, uid=None),
            moves.success(gone, uid=uid),
        ]
    assert before == table.row(key).refresh_state


def test_a_lost_answer_is_a_failure_at_the_deadline(table):
    """Without a result the attempt has failed at its deadline, however late the sweep is, and the row is due."""
    key, uid = started(table)
    table.clock.advance("29m")
    with table.within() as moves:
        assert [] == moves.sweep()
    table.clock.advance("11m")

    with table.within() as moves:
        (moved,) = moves.sweep()
    with table.within() as moves:
        assert [] == moves.sweep()
        assert moves.success(key, uid=uid) is None

    assert RefreshOutcome.RETRY_SCHEDULED == moved.outcome
    assert at("00:30") == table.row(key).refresh_at


def test_an_answer_between_deadline_and_sweep_counts(table):
    """Results after the deadline are accepted until the sweep."""
    key, uid = started(table)
    table.clock.advance("40m")

    with table.within() as moves:
        assert RefreshOutcome.SUCCEEDED == moves.success(key, uid=uid).outcome
        assert [] == moves.sweep()


def test_the_last_failure_gives_up_until_an_edit(table):
    """After the last retry the row is disabled with a reason and reported once; an edit enables it from the start."""
    key, uid = started(table)
    effects = []
    for _ in range(3):
        with table.within() as moves:
            effects += moves.failure(key, uid=uid).effects
            table.clock.advance("5m")
            uid = next((each.state.attempt_uid for each in moves.start_due()), None)

    assert [RefreshEffect.DISABLE, RefreshEffect.NOTIFY] == effects
    assert uid is None
    assert (True, "Cannot refresh after 3 attempt(s)") == (
        table.row(key).disabled_until_update,
        table.row(key).disabled_reason,
    )
    with table.within() as moves:
        assert RefreshOutcome.DISABLED == moves.trigger(key).outcome
        assert RefreshOutcome.ENABLED == moves.update(key).outcome
        (moved,) = moves.start_due()
    assert (1, None) == (moved.state.attempt_no, moved.state.disabled_reason)


def test_a_permanent_failure_gives_up_at_once(table):
    """Permanent failures give up at once, with the worker's message for the customer."""
    key, uid = started(table)

    with table.within() as moves:
        moved = moves.failure(key, uid=uid, permanent="Provided URL is invalid: https://example.com/broken")

    assert RefreshOutcome.GAVE_UP == moved.outcome
    assert "Provided URL is invalid: https://example.com/broken" == table.row(key).disabled_reason


def test_a_sweep_disables_a_row_that_failed_for_too_long(table):
    """Rows that have failed for as long as the policy allows are given up by the sweep, although they are not due."""
    policy = RefreshPolicy.parse("Refresh every month on the 1st at 00:00; retry after 10 days; give up after 1 week")
    key = table.add()
    with table.within(policy) as moves:
        moves.update(key)
        (moved,) = moves.start_due()
        moves.failure(key, uid=moved.state.attempt_uid)
    assert table.row(key).sweep_at - table.clock.now() == timedelta(weeks=1)
    table.clock.advance("7d")

    with table.within(policy) as moves:
        assert [] == moves.start_due()
        assert [RefreshOutcome.GAVE_UP] == [each.outcome for each in moves.sweep()]
        assert [] == moves.sweep()


def test_a_sweep_follows_an_extended_time_limit(table):
    """If a changed policy allows more time, the sweep returns to the row after that time, and not repeatedly."""
    text = "Refresh every month on the 1st at 00:00; retry after 20 days; give up after {}"
    key = table.add()
    with table.within(RefreshPolicy.parse(text.format("1 week"))) as moves:
        moves.update(key)
        (moved,) = moves.start_due()
        moves.failure(key, uid=moved.state.attempt_uid)
    table.clock.advance("7d")

    with table.within(RefreshPolicy.parse(text.format("2 weeks"))) as moves:
        assert [] == moves.sweep()

    assert table.row(key).sweep_at - table.clock.now() == timedelta(weeks=1)


def test_a_paused_row_is_not_started(table):
    """Paused rows are not due; resumed rows are."""
    key = saved(table)
    with table.within() as moves:
        assert RefreshOutcome.PAUSED == moves.pause(key).outcome
        assert [] == moves.start_due()
        assert RefreshOutcome.RESUMED == moves.resume(key).outcome
        assert [RefreshOutcome.STARTED] == [each.outcome for each in moves.start_due()]


def test_a_row_that_waits_gets_another_schedule(table):
    """It waits for the first planned refresh of the new schedule."""
    key, uid = started(table)
    with table.within() as moves:
        moves.success(key, uid=uid)

    with table.within(RefreshPolicy.parse("Refresh every hour")) as moves:
        assert RefreshOutcome.REPLANNED == moves.replan(key).outcome
    assert at("01:00") == table.row(key).refresh_state.refresh_at


def test_a_trigger_starts_a_row_at_once(table):
    """Triggers start rows that are not due, and make the result of a running attempt stale."""
    key, uid = started(table)

    with table.within() as moves:
        moved = moves.trigger(key)
        assert moves.success(key, uid=uid) is None
        assert RefreshOutcome.SUCCEEDED == moves.success(key, uid=moved.state.attempt_uid).outcome


def test_moves_of_a_deleted_row_have_no_effect(table):
    """Moves of a deleted row have no effect."""
    key = table.add()
    table.remove(key)

    with table.within() as moves:
        assert [None] * 4 == [moves.update(key), moves.trigger(key), moves.pause(key), moves.resume(key)]
        assert None is moves.replan(key)


def _of(row) -> RefreshPolicy:
    return RefreshPolicy.parse(row.plan) if row.plan else EVERY_TWO_HOURS


def test_each_row_may_have_its_own_policy(table):
    """Policies that a user has stored in a column apply to that row."""
    key = table.add("Refresh every 3 hours; allow 1 minute to complete")
    with table.within(_of) as moves:
        moves.update(key)
        (moved,) = moves.start_due()
        moves.success(key, uid=moved.state.attempt_uid)

    assert at("03:00") == table.row(key).refresh_at


def test_a_row_with_an_unreadable_policy_blocks_no_other(table):
    """If the policy of a row cannot be read, the row is given up with the message, and the others are started."""
    wrong, right = table.add(), table.add()
    with table.within(_of) as moves:
        moves.update(wrong)
        moves.update(right)

    with table.within(lambda row: _unreadable(row) if row.id == wrong else _of(row)) as moves:
        found = {each.row.id: each.outcome for each in moves.start_due()}

    assert {wrong: RefreshOutcome.GAVE_UP, right: RefreshOutcome.STARTED} == found
    assert table.row(wrong).disabled_until_update
    assert table.row(wrong).disabled_reason.startswith("line 1, column ")


def test_an_answer_for_an_unreadable_policy_ends_in_the_reason(table):
    """Results for a row with an unreadable policy give the row up, and do not stop the poller."""
    key, uid = started(table)

    with table.within(_unreadable) as moves:
        moved = moves.failure(key, uid=uid)

    assert (RefreshOutcome.GAVE_UP, None) == (moved.outcome, table.row(key).sweep_at)


def test_saving_an_unreadable_policy_raises_an_error(table):
    """Saving a policy that cannot be read raises the error, and nothing is written."""
    key = table.add()

    with table.within(_unreadable) as moves, pytest.raises(ScheduleError, match="line 1"):
        moves.update(key)

    assert RefreshState() == table.row(key).refresh_state


def _unreadable(row) -> RefreshPolicy:
    return RefreshPolicy.parse("Refresh now and then")


def test_the_limit_of_a_row_counts_from_its_last_success(table):
    """The row stores the success, and the policy, which is not stored, has a function without a name."""
    policy = replace(
        EVERY_TWO_HOURS,
        give_up_after=timedelta(hours=3),
        give_up_since=GiveUpSince.LAST_SUCCESS,
        strategy=lambda retry_at, planned_at, failures: "planned_only",
    )
    key, uid = started(table)
    with table.within(policy) as moves:
        moves.success(key, uid=uid)
    table.clock.advance("2h")
    with table.within(policy) as moves:
        (moved,) = moves.start_due()
        moves.failure(key, uid=moved.state.attempt_uid)
    failing = table.row(key)
    table.clock.advance("1h")
    with table.within(policy) as moves:
        (gone,) = moves.sweep()

    assert (at("00:00"), at("03:00"), at("04:00")) == (failing.succeeded_at, failing.sweep_at, failing.refresh_at)
    assert RefreshOutcome.GAVE_UP == gone.outcome
