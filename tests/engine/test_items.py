"""Tracked items: their rows, the results reported to them, and the notification when they are given up."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.frozen import freeze
from redrive.engine.items import (
    TrackedItem,
    columns,
    disabled,
    ended,
    sweep_at,
    unreadable,
)
from redrive.engine.lifecycle import State
from redrive.engine.origin import Kind, Origin, OriginResult
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Released, Snoozed, Succeeded, Suspended, Unreadable
from redrive.engine.recurring import JobTemplate, RefreshDefinition, policy_document
from redrive.engine.reports import began_at, spread
from redrive.errors import ScheduleError
from redrive.schedule import (
    Action,
    GiveUpSince,
    RefreshEffect,
    RefreshOutcome,
    RefreshPolicy,
    RefreshState,
    Schedule,
    refresh,
)
from tests.engine.helpers import CATCHING, T0, claim, failure, policy, seconds, settled

HOUR = timedelta(hours=1)
POLICY = RefreshPolicy(schedule=Schedule.cron("30 * * * *"), delays=(seconds(60),), give_up_after=5 * HOUR)
MADE = JobTemplate("do", "default", 0, freeze(policy("0")))
DEFINITION = RefreshDefinition("fresh", POLICY, MADE, replace(MADE, task="mourn", parameter="news"))
ORIGIN = Origin(Kind.REFRESH, "fresh", "a")
ATTEMPT = claim(origin=str(ORIGIN), policy=policy("0"))
STARTED = refresh.trigger(POLICY, RefreshState(), now=T0, uid="7").state


def item(**changes: Any) -> TrackedItem:
    """Return the row of an item with job 7 as its attempt."""
    state = columns(POLICY, STARTED) | {"job_id": 7}
    return replace(TrackedItem("fresh", "a", b"{}", None, DEFINITION.timing, T0, **state), **changes)


# ------------------------------------------------------------------------------------------------------------ reporting


REPORTS = {
    Succeeded(b"1"): OriginResult(ORIGIN, 7, succeeded=True, sample=0.25, attempt=1),
    Failed(failure("boom")): OriginResult(
        ORIGIN, 7, succeeded=False, dead=True, why="boom", sample=0.25, began_at=T0, attempt=1
    ),
    Failed(failure("no", permanent="The password is wrong", hint=seconds(9))): OriginResult(
        ORIGIN, 7, False, True, "no", "The password is wrong", seconds(9), 0.25, began_at=T0, attempt=1
    ),
    Cancelled("enough"): OriginResult(ORIGIN, 7, succeeded=False, why="enough", sample=0.25, began_at=T0, attempt=1),
    Expired(): OriginResult(
        ORIGIN, 7, succeeded=False, dead=True, why="it could not start in time", sample=0.25, began_at=T0
    ),
}


@pytest.mark.parametrize("outcome", REPORTS, ids=str)
def test_the_end_of_a_job_is_reported(outcome: Any):
    """Results contain success or failure, the reason, and all that is known of the failure."""
    assert REPORTS[outcome] == settled(ATTEMPT, outcome, 0.25).report


def test_a_job_that_is_poison_is_reported():
    """After the third crash the job ends, and the attempt with it."""
    third = replace(ATTEMPT, crashes=2)

    assert (
        OriginResult(ORIGIN, 7, succeeded=False, dead=True, why="gone", sample=spread(7), began_at=T0, attempt=1)
        == settled(third, Lost("gone")).report
    )


def test_the_time_of_an_attempt_that_has_snoozed_began_with_its_first_claim():
    """Snoozes belong to the attempt; a job that waits in its queue has not begun."""
    later = replace(ATTEMPT, claimed_at=T0 + HOUR)

    assert [T0 + HOUR, T0, None] == [
        began_at(later),
        began_at(replace(later, snoozes=1)),
        began_at(replace(later, lease_id=None)),
    ]


def test_numbers_of_jobs_are_spread_evenly():
    """Of a hundred that follow one another, ten lie in each tenth, or hardly more or fewer."""
    tenths = [int(spread(number) * 10) for number in range(1000, 1100)]

    assert all(9 <= tenths.count(each) <= 11 for each in range(10))


@pytest.mark.parametrize("outcome", [Lost("gone"), Snoozed(seconds(1)), Released("x"), Suspended(seconds(1))], ids=str)
def test_an_unfinished_job_reports_nothing(outcome: Any):
    """Before the job has ended, no result is reported."""
    assert None is settled(ATTEMPT, outcome).report


def test_a_failure_that_is_retried_reports_nothing():
    """Jobs of a cron are retried by their own policy, and report no result before they end."""
    assert None is settled(replace(ATTEMPT, policy=policy("5 1s")), Failed(failure())).report


@pytest.mark.parametrize("origin", [None, "news:topic/7"])
@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure())], ids=str)
def test_a_job_without_an_origin_reports_nothing(origin: str | None, outcome: Any):
    """Jobs without an origin, or with one of a newer redrive, report no result."""
    moved = settled(replace(ATTEMPT, origin=origin), outcome)

    assert (None, True) == (moved.report, moved.state in {State.SUCCEEDED, State.DEAD})


def test_the_success_of_a_catch_job_reports_nothing():
    """Catch jobs report no result; the job that they catch has reported its own."""
    assert None is settled(CATCHING, Succeeded()).report


def test_arguments_that_cannot_be_read_are_reported_as_a_fault_of_the_program():
    """Unreadable arguments are reported with the error, and without a reason to give up."""
    reported = settled(ATTEMPT, Unreadable("no such field")).report

    assert ("no such field", None, True) == (reported.why, reported.permanent, reported.dead)


@pytest.mark.parametrize("reason", ["BAD_PAYLOAD", "BAD_RESULT"])
def test_faults_of_the_program_are_not_permanent(reason: str):
    """Defects of the code are not permanent failures of the item."""
    reported = settled(ATTEMPT, Failed(failure("no such field", permanent="no such field", reason=reason))).report

    assert ("no such field", None) == (reported.why, reported.permanent)


# -------------------------------------------------------------------------------------------------------------- the row


def test_a_row_is_read_as_the_state_that_was_written():
    """Columns of a state, with the id of its job, are read as that state."""
    assert STARTED == item().state


@pytest.mark.parametrize(
    "state",
    [
        RefreshState(),
        refresh.update(POLICY, RefreshState(), now=T0).state,
        refresh.failure(POLICY, STARTED, now=T0, uid="7").state,
        refresh.failure(POLICY, STARTED, now=T0, uid="7", permanent="wrong").state,
        refresh.pause(refresh.success(POLICY, STARTED, now=T0, uid="7").state).state,
    ],
)
def test_a_state_without_an_attempt_has_no_job(state: RefreshState):
    """States that wait, were given up or are paused are read back, too."""
    assert state == item(**columns(POLICY, state), job_id=None).state


def test_an_item_may_have_its_own_policy():
    """Items use their own policy, or that of the refresh; one that cannot be read raises an error."""
    own = RefreshPolicy(timeout=seconds(5))

    assert [POLICY, own] == [item(own=each).policy(DEFINITION) for each in (None, policy_document(own))]
    with pytest.raises(ScheduleError):
        item(own="whenever it suits").policy(DEFINITION)


FAILED = refresh.failure(POLICY, STARTED, now=T0 + seconds(5), uid="7").state


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (STARTED, T0 + seconds(600)),
        (refresh.pause(STARTED).state, T0 + seconds(600)),
        (FAILED, T0 + 5 * HOUR),
        (refresh.pause(FAILED).state, None),
        (refresh.failure(POLICY, STARTED, now=T0, uid="7", permanent="wrong").state, None),
        (refresh.success(POLICY, STARTED, now=T0, uid="7").state, None),
    ],
    ids=["runs", "runs in a pause", "fails", "fails in a pause", "given up", "fresh"],
)
def test_the_next_sweep_time_is_the_deadline_or_the_end_of_give_up_after(state: RefreshState, expected: Any):
    """Sweeps look at the deadline of a running attempt, and at the end of ``give_up_after`` of a failing item."""
    assert expected == sweep_at(POLICY, state)


def test_the_next_sweep_time_counts_from_the_last_success_if_the_policy_does():
    """It is earlier then, and nothing is to be swept while no attempt has failed."""
    policy = replace(POLICY, give_up_since=GiveUpSince.LAST_SUCCESS)
    fresh = refresh.success(policy, STARTED, now=T0, uid="7").state

    assert None is sweep_at(policy, fresh)
    assert T0 + 4 * HOUR == sweep_at(policy, replace(FAILED, succeeded_at=T0 - HOUR))


def test_without_give_up_after_there_is_nothing_to_sweep():
    """Policies without ``give_up_after`` need no sweep."""
    assert None is sweep_at(RefreshPolicy(delays=(HOUR,)), FAILED)


# -------------------------------------------------------------------------------------------------------------- the end


def test_a_success_is_recorded():
    """After a success the next refresh is planned."""
    move = ended(POLICY, STARTED, OriginResult(ORIGIN, 7, succeeded=True), T0 + seconds(9))

    assert (RefreshOutcome.SUCCEEDED, T0 + HOUR / 2) == (move.outcome, move.state.refresh_at)


def test_a_failure_counts_from_the_instant_of_its_report():
    """Results with an instant count from it; others count from now."""
    reported = OriginResult(ORIGIN, 7, succeeded=False)
    moves = [
        ended(POLICY, STARTED, each, T0 + seconds(90)) for each in (reported, replace(reported, at=T0 + seconds(9)))
    ]

    assert [T0 + seconds(150), T0 + seconds(69)] == [each.state.refresh_at for each in moves]


def test_a_permanent_failure_gives_up():
    """After a permanent failure the item is given up with the reason of the attempt."""
    move = ended(POLICY, STARTED, OriginResult(ORIGIN, 7, succeeded=False, permanent="wrong"), T0)

    assert (RefreshOutcome.GAVE_UP, "wrong") == (move.outcome, move.state.disabled_reason)


def test_a_lasting_failure_waits_for_the_plan():
    """After a failure that a retry would repeat the item waits for its next planned refresh."""
    move = ended(POLICY, STARTED, OriginResult(ORIGIN, 7, succeeded=False, lasting=True), T0)

    assert (RefreshOutcome.WAITING_NEXT, T0 + HOUR / 2) == (move.outcome, move.state.refresh_at)


def test_a_retry_waits_for_its_hint():
    """Retries wait as long as the other side has asked for."""
    move = ended(POLICY, STARTED, OriginResult(ORIGIN, 7, succeeded=False, retry_after=seconds(500)), T0)

    assert T0 + seconds(500) == move.state.refresh_at


def test_an_item_with_an_unreadable_policy_is_disabled_with_the_error():
    """Items with an unreadable policy wait for no refresh until they are updated."""
    move = unreadable(STARTED, ScheduleError("line 1: not understood"))
    state = move.state

    assert (RefreshOutcome.GAVE_UP, (RefreshEffect.DISABLE, RefreshEffect.NOTIFY)) == (move.outcome, move.effects)
    assert (True, "line 1: not understood") == (state.disabled_until_update, state.disabled_reason)
    assert (None,) * 4 == (state.refresh_at, state.deadline_at, state.attempt_uid, state.planned_at)


def test_the_arguments_of_a_notification_are_complete():
    """Arguments of the notification contain the item, the reason, the error, the streak and the actions."""
    acting = RefreshPolicy(on_give_up=(Action("email", "customer"),))
    state = unreadable(STARTED, ScheduleError("wrong")).state

    assert {
        "news": {
            "refresh": "fresh",
            "key": "a",
            "reason": "wrong",
            "error": "boom",
            "attempts": 1,
            "failing_since": "2026-01-01T12:00:00Z",
            "actions": [{"name": "email", "to": "customer", "text": None}],
        }
    } == json.loads(disabled(DEFINITION, "a", acting, state, "boom"))


def test_a_notification_task_is_optional_in_the_arguments():
    """Without a task to notify, the arguments have no parameter."""
    silent = replace(DEFINITION, on_disabled=None)

    assert [""] == [*json.loads(disabled(silent, "a", POLICY, STARTED, None))]
