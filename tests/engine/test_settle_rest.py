"""What becomes of catch jobs, of crashes, and of endings that are no failure; the rest of `redrive.engine.settle`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Outcome, Released, Snoozed
from redrive.engine.records import Claim, Closing, Hold
from tests.engine.helpers import CATCHING, LATER, NOW, ONCE, claim, closed, failure, policy, seconds, settled

FAILED = Failed(failure())

# --------------------------------------------------------------------------------------------------- catch jobs


@pytest.mark.parametrize("failures", [0, 1, 2, 7])
def test_a_failing_catch_is_tried_again_at_the_last_delay(failures: int):
    """A catch job is retried at its parent's last delay, however often it has failed (seed 001)."""
    after = settled(replace(CATCHING, failures=failures), FAILED)

    assert (State.READY, NOW + seconds(4)) == (after.state, after.scheduled_at)
    assert after.closed is not None
    assert ("catch", seconds(4), seconds(4)) == (after.closed.rule, after.closed.nominal, after.closed.delay)


@pytest.mark.parametrize(
    ("hint", "expected"), [(None, 4), (seconds(0), 4), (seconds(3), 4), (seconds(90), 90)], ids=str
)
def test_a_hint_is_a_floor_for_a_catch_too(hint: timedelta | None, expected: int):
    """A hint lengthens the wait of a failed catch job and never shortens it."""
    assert NOW + seconds(expected) == settled(CATCHING, Failed(failure(hint=hint))).scheduled_at


@pytest.mark.parametrize(("failures", "stuck"), [(3, False), (4, True), (5, True)])
def test_a_catch_is_stuck_from_the_fifth_failure(failures: int, stuck: bool):
    """From its fifth failure on, the note of a catch job says that it is stuck."""
    note = settled(replace(CATCHING, failures=failures), FAILED).note
    expected = f"catch again in 4s; stuck: {failures + 1} failures" if stuck else "catch again in 4s"

    assert expected == note


def test_a_catch_with_a_payload_that_cannot_be_read_is_dead():
    """A catch job whose request the code cannot read ends: no retry would change that."""
    bad = Failed(failure("no field 'amount'", reason="BAD_PAYLOAD", permanent="no field 'amount'"))
    after = settled(CATCHING, bad)

    assert (State.DEAD, None) == (after.state, after.catch)
    assert "BAD_PAYLOAD" == after.reason


# --------------------------------------------------------------------------------------------------- crashes


def test_a_crash_runs_again_at_once():
    """A lost attempt of an idempotent task is due at once, and its note counts the crashes left."""
    after = settled(claim(), Lost("worker 2 vanished"))

    assert (NOW, Hold.LOST) == (after.scheduled_at, after.hold)
    assert ("WORKER_LOST", "worker 2 vanished") == (after.reason, after.error)
    assert "runs again after crash 1 of at most 2" == after.note


def test_the_history_line_of_a_crash_says_in_flight():
    """A crash is RFC 0049's "in flight", and closes its attempt as lost, without an exception's type."""
    line = closed(claim(), Lost("worker 2 vanished"))

    assert (Closing.LOST, "WORKER_LOST", "in_flight") == (line.outcome, line.reason, line.stage)
    assert ("crash", "worker 2 vanished") == (line.rule, line.error)
    assert not line.error_type


def test_the_third_crash_in_a_row_is_poison():
    """A job that has lost three workers in a row is dead with the reason POISON (D19)."""
    after = settled(claim(crashes=2, attempt=3), Lost("gone"))

    assert (State.DEAD, "POISON") == (after.state, after.reason)
    assert "3 crashes in a row: presumed to kill its workers" == after.note
    assert after.closed is not None
    assert (Closing.LOST, "poison limit") == (after.closed.outcome, after.closed.rule)


def test_poison_outranks_lost_in_flight():
    """A third crash is called POISON for a task that is not idempotent too."""
    assert "POISON" == settled(replace(ONCE, crashes=2), Lost("gone")).reason


def test_a_crash_is_final_for_a_task_that_is_not_idempotent():
    """A task that may not be repeated is dead after one crash, with the reason LOST_IN_FLIGHT."""
    after = settled(claim(policy=policy("3 1s catch mend", idempotent=False)), Lost("gone"))

    assert (State.DEAD, "LOST_IN_FLIGHT", "mend") == (after.state, after.reason, after.catch)
    assert after.closed is not None
    assert "not_idempotent" == after.closed.rule


def test_a_catch_job_survives_a_crash_whatever_its_parent_declared():
    """A catch job runs again after a crash, although it carries the policy of a parent that may not be repeated."""
    of = replace(CATCHING, crashes=0, policy=policy("2 1s catch mend", idempotent=False))

    assert State.READY == settled(of, Lost("gone")).state


def test_three_crashes_end_a_catch_job():
    """A catch job that kills its workers is dead, and nothing catches it."""
    after = settled(replace(CATCHING, crashes=2), Lost("gone"))

    assert (State.DEAD, "POISON", None) == (after.state, after.reason, after.catch)


# --------------------------------------------------------------------------------------------------- the others


def test_a_snooze_waits_as_asked_and_spends_nothing():
    """A snoozed job is due after its delay; it keeps no error, and its history says why it waits (D10)."""
    after = settled(LATER, Snoozed(timedelta(minutes=30), "the bank is closed"))

    assert (NOW + timedelta(minutes=30), Hold.SNOOZE) == (after.scheduled_at, after.hold)
    assert ("the bank is closed", None, None) == (after.note, after.reason, after.error)
    line = closed(LATER, Snoozed(timedelta(minutes=30)))
    assert (Closing.SNOOZED, timedelta(minutes=30), "snoozed for 30m") == (line.outcome, line.delay, line.verdict)


@pytest.mark.parametrize("unknown", [False, True])
def test_a_release_leaves_no_line_in_the_history(unknown: bool):
    """A job that was given back was not executed: it waits as asked, and no attempt is closed (D11)."""
    after = settled(LATER, Released("shutdown", seconds(15), unknown_task=unknown))

    assert (None, "shutdown", NOW + seconds(15)) == (after.closed, after.note, after.scheduled_at)
    assert (Hold.UNKNOWN_TASK if unknown else Hold.RELEASE) == after.hold


@pytest.mark.parametrize(
    "outcome", [Snoozed(seconds(9)), Released("shutdown"), Lost("gone")], ids=lambda outcome: type(outcome).__name__
)
def test_an_attempt_that_is_not_counted_leaves_the_backoff_as_it_was(outcome: Outcome):
    """After a snooze, a release or a crash the next failure is decided as if that attempt had not been."""
    after = settled(replace(LATER, crashes=0), outcome)

    assert (LATER.failures, LATER.by_rule, LATER.last_delay) == (after.failures, after.by_rule, after.last_delay)


def test_a_handler_can_cancel_its_job():
    """A job that its own handler cancels is final, without a catch, and says why."""
    after = settled(replace(LATER, policy=policy("2 1s catch mend")), Cancelled("no longer wanted"))

    assert (State.CANCELLED, "no longer wanted", None) == (after.state, after.note, after.catch)
    assert "no longer wanted" == closed(LATER, Cancelled("no longer wanted")).verdict


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (claim(policy=policy(deadline="90s")), "the deadline of 1m30s had passed before the attempt could start"),
        (claim(), "the deadline had passed before the attempt could start"),
    ],
    ids=["bounded", "unbounded"],
)
def test_an_attempt_after_the_deadline_never_starts(of: Claim, expected: str):
    """A job whose deadline passed while nobody worked is dead without a further execution (D09)."""
    after = settled(of, Expired())

    assert (State.DEAD, "DEADLINE", None) == (after.state, after.reason, after.closed)
    assert (expected, expected) == (after.note, after.error)


@pytest.mark.parametrize(("parent", "catch"), [(None, "mend"), (3, None)])
def test_an_expired_job_is_caught(parent: int | None, catch: str | None):
    """The catch task hears of an expired job, unless the job is itself a catch job."""
    of = claim(parent_id=parent, policy=policy("2 1s catch mend", deadline="90s"))

    assert catch == settled(of, Expired()).catch
