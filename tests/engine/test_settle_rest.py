"""What becomes of catch jobs, of crashes, and of endings that are no failure; the rest of `redrive.engine.settle`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Cancelled, Expired, Failed, Lost, Outcome, Released, Snoozed, Unreadable
from redrive.engine.records import AttemptOutcome, Claim, Hold
from redrive.engine.settle import decide
from redrive.policy import Backoff
from tests.engine.helpers import CATCHING, LATER, NOW, ONCE, claim, closed, failure, policy, seconds, settled

FAILED = Failed(failure())

# --------------------------------------------------------------------------------------------------- catch jobs


@pytest.mark.parametrize("failures", [0, 1, 2, 4])
def test_a_failing_catch_is_tried_again_at_the_last_delay(failures: int):
    """Catch jobs are retried at their parent's last delay until they are stuck."""
    after = settled(replace(CATCHING, failures=failures), FAILED)

    assert (State.READY, NOW + seconds(4)) == (after.state, after.scheduled_at)
    assert after.closed is not None
    assert ("catch", seconds(4), seconds(4)) == (after.closed.rule, after.closed.nominal, after.closed.delay)


@pytest.mark.parametrize(
    ("hint", "expected"), [(None, 4), (seconds(0), 4), (seconds(3), 4), (seconds(90), 90)], ids=str
)
def test_a_hint_is_a_floor_for_a_catch_too(hint: timedelta | None, expected: int):
    """Hints lengthen the wait of a failed catch job and never shorten it."""
    assert NOW + seconds(expected) == settled(CATCHING, Failed(failure(hint=hint))).scheduled_at


@pytest.mark.parametrize(
    ("failures", "wait", "stuck"),
    [(3, "4s", False), (4, "4s", True), (5, "8s", True), (6, "16s", True), (14, "1h", True), (10**6, "1h", True)],
)
def test_a_catch_is_stuck_from_the_fifth_failure(failures: int, wait: str, stuck: bool):
    """From the fifth failure on, the note of a catch job contains "stuck", and its waits double up to an hour."""
    note = settled(replace(CATCHING, failures=failures), FAILED).note
    expected = f"catch again in {wait}{f'; stuck: {failures + 1} failures' if stuck else ''}"

    assert expected == note


def test_a_catch_with_a_payload_that_cannot_be_read_is_dead():
    """Catch jobs with a request that the code cannot read end, since no retry would change that."""
    bad = Failed(failure("no field 'amount'", reason="BAD_PAYLOAD", permanent="no field 'amount'"))
    after = settled(CATCHING, bad)

    assert (State.DEAD, None) == (after.state, after.catch)
    assert "BAD_PAYLOAD" == after.reason


# --------------------------------------------------------------------------------------------------- crashes


def test_a_crash_runs_again_at_once():
    """Lost attempts of an idempotent task are due at once, and their note counts the crashes left."""
    after = settled(claim(), Lost("worker 2 vanished"))

    assert (NOW, Hold.LOST) == (after.scheduled_at, after.hold)
    assert ("WORKER_LOST", "worker 2 vanished") == (after.reason, after.error)
    assert "runs again after crash 1 of at most 2" == after.note


def test_the_history_line_of_a_crash_has_the_stage_in_flight():
    """Crashes are "in flight" in RFC 0049's terms, and close their attempt as lost, without an exception's type."""
    line = closed(claim(), Lost("worker 2 vanished"))

    assert (AttemptOutcome.LOST, "WORKER_LOST", "in_flight") == (line.outcome, line.reason, line.stage)
    assert ("crash", "worker 2 vanished") == (line.rule, line.error)
    assert not line.error_type


def test_the_third_crash_in_a_row_is_poison():
    """Jobs that have lost three workers in a row are dead with the reason POISON."""
    after = settled(claim(crashes=2, attempt=3), Lost("gone"))

    assert (State.DEAD, "POISON") == (after.state, after.reason)
    assert "3 crashes in a row: presumed to kill its workers" == after.note
    assert after.closed is not None
    assert (AttemptOutcome.LOST, "poison limit") == (after.closed.outcome, after.closed.rule)


def test_poison_outranks_lost_in_flight():
    """After a third crash the reason is POISON for tasks that are not idempotent, too."""
    assert "POISON" == settled(replace(ONCE, crashes=2), Lost("gone")).reason


def test_a_crash_is_final_for_a_task_that_is_not_idempotent():
    """Tasks that may not be repeated are dead after one crash, with the reason LOST_IN_FLIGHT."""
    after = settled(claim(policy=policy("3 1s catch mend", idempotent=False)), Lost("gone"))

    assert (State.DEAD, "LOST_IN_FLIGHT", "mend") == (after.state, after.reason, after.catch)
    assert after.closed is not None
    assert "not_idempotent" == after.closed.rule


def test_a_catch_job_survives_a_crash_under_the_policy_of_any_parent():
    """Catch jobs run again after a crash, although they carry the policy of a parent that may not be repeated."""
    of = replace(CATCHING, crashes=0, policy=policy("2 1s catch mend", idempotent=False))

    assert State.READY == settled(of, Lost("gone")).state


@pytest.mark.parametrize(
    ("crashes", "pause"), [(0, 0), (1, 0), (2, 4), (3, 8), (4, 16), (11, 2048), (12, 3600), (500, 3600)]
)
def test_a_catch_job_never_dies_of_crashes_but_waits_longer(crashes: int, pause: int):
    """From the third crash in a row on, a catch job waits for its policy's last delay, doubled up to an hour."""
    after = settled(replace(CATCHING, crashes=crashes, failures=0), Lost("gone"))

    assert (State.READY, "WORKER_LOST", Hold.LOST) == (after.state, after.reason, after.hold)
    assert (crashes + 1, NOW + seconds(pause)) == (after.crashes, after.scheduled_at)


def test_a_policy_that_waits_longer_than_an_hour_keeps_its_delay_for_a_catch_job():
    """Crashes never make a catch job wait less than its policy's last delay."""
    after = settled(replace(CATCHING, crashes=9, policy=policy("1 3h")), Lost("gone"))

    assert NOW + timedelta(hours=3) == after.scheduled_at


def test_a_catch_job_is_shown_as_stuck_from_the_fifth_failure_on_crashes_included():
    """Crashes and failures of a catch job are counted together, also in its line."""
    third, fourth = (settled(replace(CATCHING, crashes=1, failures=n), Lost("gone")) for n in (3, 4))

    assert (4, 5) == (third.failures, fourth.failures)
    assert ("catch again in 0s after crash 2", "catch again in 0s after crash 2; stuck: 5 failures") == (
        third.note,
        fourth.note,
    )


# --------------------------------------------------------------------------------------------------- the others


def test_a_snooze_waits_for_its_delay_and_is_not_counted():
    """Snoozed jobs are due after their delay; they keep no error, and their history contains the reason of the wait."""
    after = settled(LATER, Snoozed(timedelta(minutes=30), "the bank is closed"))

    assert (NOW + timedelta(minutes=30), Hold.SNOOZE) == (after.scheduled_at, after.hold)
    assert ("the bank is closed", None, None) == (after.note, after.reason, after.error)
    line = closed(LATER, Snoozed(timedelta(minutes=30)))
    assert (AttemptOutcome.SNOOZED, timedelta(minutes=30), "snoozed for 30m") == (
        line.outcome,
        line.delay,
        line.verdict,
    )


@pytest.mark.parametrize("hold", [Hold.RELEASE, Hold.UNKNOWN_TASK, Hold.BREAKER])
def test_a_release_leaves_no_line_in_the_history(hold: Hold):
    """Released jobs were not executed: they wait as asked, and no attempt is closed."""
    after = settled(LATER, Released("shutdown", seconds(15), hold))

    assert (None, "shutdown", NOW + seconds(15)) == (after.closed, after.note, after.scheduled_at)
    assert hold is after.hold


UNREADABLE = Unreadable("no field 'amount'")


@pytest.mark.parametrize(
    ("waited", "look"),
    [(None, 15), (0, 15), (14, 15), (15, 15), (40, 40), (60, 60), (600, 60), (839, 60), (880, 20), (899.5, 0.5)],
)
def test_a_job_with_unreadable_arguments_waits_for_other_code(waited: float | None, look: float):
    """Unreadable arguments are tried again after 15 s to a minute, and exactly at the end of the wait."""
    since = None if waited is None else NOW - seconds(waited)
    after = settled(replace(LATER, unreadable_at=since), UNREADABLE)

    assert (State.READY, Hold.BAD_PAYLOAD, None) == (after.state, after.hold, after.closed)
    assert (NOW + seconds(look), since or NOW) == (after.scheduled_at, after.unreadable_at)
    assert (LATER.attempt - 1, LATER.failures, LATER.crashes) == (after.attempt, after.failures, after.crashes)


def test_a_job_with_unreadable_arguments_has_a_note_with_error_and_end():
    """Notes contain the error and the end of the wait."""
    expected = "no field 'amount'; waits until 12:15:01 UTC for a worker that can read them"

    assert expected == settled(LATER, UNREADABLE).note


@pytest.mark.parametrize("of", [LATER, replace(LATER, origin="refresh:fresh/a")], ids=["a task", "a refresh"])
def test_a_job_with_encoded_arguments_waits_without_an_end(of: Claim):
    """A job whose arguments this worker cannot decode is looked at once a minute, and never dies of that."""
    waited = replace(of, unreadable_at=NOW - timedelta(days=30))
    after = settled(waited, Unreadable("it is encoded", encoded=True))

    assert (State.READY, Hold.BAD_PAYLOAD, NOW + seconds(60)) == (after.state, after.hold, after.scheduled_at)
    assert "it is encoded; waits for a worker that can" == after.note


@pytest.mark.parametrize(
    ("of", "catch"),
    [
        (replace(LATER, policy=policy("2 1s catch mend")), "mend"),
        (CATCHING, None),
    ],
    ids=["job", "catch job"],
)
def test_arguments_unreadable_for_a_quarter_of_an_hour_end_the_job(of: Claim, catch: str | None):
    """After a quarter of an hour the job is dead without a retry, with its catch; a catch job has none."""
    after = settled(replace(of, unreadable_at=NOW - timedelta(minutes=15)), UNREADABLE)

    assert (State.DEAD, "BAD_PAYLOAD", catch) == (after.state, after.reason, after.catch)
    assert ("no field 'amount'", None) == (after.error, after.unreadable_at)


@pytest.mark.parametrize(
    ("origin", "state"),
    [("refresh:prices/k", State.DEAD), ("cron:nightly/2026-01-01T03:00:00Z", State.READY)],
)
def test_an_attempt_at_a_refresh_does_not_wait_for_other_code(origin: str, state: State):
    """Refreshes make another attempt by their own schedule."""
    assert state is settled(replace(LATER, origin=origin), UNREADABLE).state


@pytest.mark.parametrize(
    "outcome", [Released("shutdown"), Snoozed(seconds(9)), Lost("gone"), FAILED], ids=lambda each: type(each).__name__
)
def test_only_a_release_continues_the_wait_for_other_code(outcome: Outcome):
    """After a handler was called, the wait for unreadable arguments begins anew."""
    since = NOW - seconds(30)
    after = settled(replace(LATER, crashes=0, unreadable_at=since), outcome)

    assert (since if isinstance(outcome, Released) else None) == after.unreadable_at


@pytest.mark.parametrize(
    "outcome", [Snoozed(seconds(9)), Released("shutdown"), Lost("gone")], ids=lambda outcome: type(outcome).__name__
)
def test_an_attempt_that_is_not_counted_does_not_change_the_backoff(outcome: Outcome):
    """After a snooze, a release or a crash the next failure is decided as if that attempt had not been."""
    after = settled(replace(LATER, crashes=0), outcome)

    assert (LATER.failures, LATER.by_rule, LATER.last_delay) == (after.failures, after.by_rule, after.last_delay)


def test_an_interrupted_attempt_is_recorded_and_not_counted():
    """Interrupted jobs are given back under the same number, and their history contains the interruption."""
    after = settled(LATER, Released("worker 1 shut down", started=True))

    assert (State.READY, Hold.RELEASE, LATER.attempt - 1) == (after.state, after.hold, after.attempt)
    assert (LATER.failures, LATER.crashes, NOW) == (after.failures, after.crashes, after.scheduled_at)
    assert after.closed is not None
    assert (AttemptOutcome.RELEASED, "cut off: worker 1 shut down") == (after.closed.outcome, after.closed.verdict)


def test_an_interrupted_attempt_of_a_task_that_is_not_idempotent_is_the_last():
    """Interrupted attempts of tasks that are not idempotent end the job, since their effect is unknown."""
    once = claim(policy=policy("3 1s catch mend", idempotent=False))
    after = settled(once, Released("worker 1 shut down", started=True))

    assert (State.DEAD, "LOST_IN_FLIGHT", "mend") == (after.state, after.reason, after.catch)
    assert after.closed is not None
    assert (AttemptOutcome.LOST, "in_flight", "not_idempotent") == (
        after.closed.outcome,
        after.closed.stage,
        after.closed.rule,
    )
    assert (State.READY, 0) == (settled(once, Released("x")).state, settled(once, Released("x")).attempt)


def test_an_interrupted_catch_job_is_given_back_under_any_policy():
    """Catch jobs that were interrupted are repeated, although the policy of their parent forbids it."""
    of = replace(CATCHING, policy=policy("2 1s catch mend", idempotent=False))

    assert State.READY == settled(of, Released("shutdown", started=True)).state


def test_a_handler_can_cancel_its_job():
    """Jobs that their own handler cancels are final, without a catch, and keep the reason."""
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
    """Jobs that passed their deadline while no worker was running are dead without a further execution."""
    after = settled(of, Expired())

    assert (State.DEAD, "DEADLINE", None) == (after.state, after.reason, after.closed)
    assert (expected, expected) == (after.note, after.error)


@pytest.mark.parametrize(("parent", "catch"), [(None, "mend"), (3, None)])
def test_an_expired_job_is_caught(parent: int | None, catch: str | None):
    """Catch tasks are enqueued for expired jobs, except for catch jobs."""
    of = claim(parent_id=parent, policy=policy("2 1s catch mend", deadline="90s"))

    assert catch == settled(of, Expired()).catch


MEMORY: list[int] = []
"""Empty where a backoff of these tests has to fail."""


@pytest.fixture(autouse=True)
def memory() -> None:
    """Let the backoffs work while policies are made."""
    MEMORY[:] = [1]


def short_of_memory(retry: int) -> float:
    """Return a delay, or raise MemoryError once a test has cleared `MEMORY`."""
    if not MEMORY:
        raise MemoryError
    return retry


Backoff.register("tests.settle.short_of_memory", short_of_memory)


def test_a_memory_error_does_not_end_the_job():
    """After a MemoryError no decision is taken about the job."""
    poor = claim(policy=policy(backoff=Backoff.named("tests.settle.short_of_memory")))

    MEMORY.clear()
    with pytest.raises(MemoryError):
        decide(poor, FAILED, NOW, 0.5)


def test_an_end_that_is_no_failure_and_cannot_be_written_is_an_error():
    """Snoozes beyond the last date raise an error, and no decision is taken."""
    with pytest.raises(OverflowError):
        decide(claim(), Snoozed(timedelta.max), NOW, 0.5)


def out_of_range(retry: int) -> float:
    """Return a delay, or raise KeyError once a test has cleared `MEMORY`."""
    return {1: 1.0}[retry if MEMORY else 0]


Backoff.register("tests.settle.out_of_range", out_of_range)


@pytest.mark.parametrize(("attempt", "state"), [(LATER, State.DEAD), (CATCHING, State.READY)])
def test_a_policy_that_raises_ends_the_job_and_runs_its_catch_again(attempt: Claim, state: State):
    """To ask it again would not help; a catch job may not die of a failure."""
    broken = replace(attempt, policy=policy(backoff=Backoff.named("tests.settle.out_of_range")))
    MEMORY.clear()
    moved = decide(broken, FAILED, NOW, 0.5)

    assert state is moved.state
    assert "KeyError: 0" in moved.closed.error + (moved.closed.verdict or "")


def test_a_feeder_runs_again_after_any_number_of_crashes():
    """Feeders never die of crashes: they run again at once, and later after many."""
    feeders = [claim(origin="topic:payments/log@0", crashes=crashes) for crashes in (0, 2, 9)]
    decided = [decide(each, Lost("gone"), NOW, 0.0) for each in feeders]

    assert [State.READY] * 3 == [each.state for each in decided]
    assert [0.0, 0.0, 30.0] == [(each.scheduled_at - NOW).total_seconds() for each in decided]
