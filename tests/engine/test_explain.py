"""One line on why a job is not running."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine.explain import CatchJob, Circumstances, Obstacle, span, unserved, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import Hold, JobRecord, WorkerRecord
from redrive.engine.runs import FAR
from tests.engine.helpers import T0, job, policy, seconds, worker

RUNNING = job(state=State.RUNNING, claimed_at=T0, attempt=2, worker_id=9, lease_id=1)
DEAD = job(state=State.DEAD, note="3 of 3 attempts failed", error="boom", reason="ERROR", finished_at=T0)
CAUGHT_BY = replace(DEAD, policy=policy("2 1s catch mend"))
LATER = job(scheduled_at=T0 + seconds(90))


def test_a_job_that_was_claimed_ahead_is_not_running():
    """Jobs for which their worker has no slot have not started."""
    at = T0 + seconds(1)

    assert "running for 1s: attempt 2 on worker 9" == why_not_running(RUNNING, Circumstances(at))
    assert "claimed ahead for 1s by worker 9: it starts when a slot is free, or is given back" == why_not_running(
        RUNNING, Circumstances(at, is_ahead=True)
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (RUNNING, "running for 1m 30s: attempt 2 on worker 9"),
        (replace(RUNNING, claimed_at=None), "running: attempt 2 on worker 9"),
        (job(state=State.SUCCEEDED), "finished"),
        (job(state=State.CANCELLED), "cancelled: by an operator"),
        (job(state=State.CANCELLED, note="no longer wanted"), "cancelled: no longer wanted"),
        (DEAD, "dead: 3 of 3 attempts failed (boom)"),
        (replace(DEAD, error="\nboom\nat line 7"), "dead: 3 of 3 attempts failed (boom)"),
        (replace(DEAD, error="b" * 201), f"dead: 3 of 3 attempts failed ({'b' * 200}...)"),
        (replace(DEAD, error=""), "dead: 3 of 3 attempts failed (ERROR)"),
        (replace(DEAD, note="never retried: boom"), "dead: never retried: boom"),
        (replace(DEAD, note=None), "dead: boom"),
        (replace(DEAD, note=None, error=None), "dead: ERROR"),
        (CAUGHT_BY, "dead: 3 of 3 attempts failed (boom)"),
        (replace(CAUGHT_BY, caught_at=T0), "caught: 3 of 3 attempts failed (boom)"),
        (replace(DEAD, finished_at=T0, skipped_at=T0), "dead: 3 of 3 attempts failed (boom)"),
        (
            replace(DEAD, finished_at=T0, skipped_at=T0 + timedelta(microseconds=1)),
            "dead, and skipped: 3 of 3 attempts failed (boom)",
        ),
        (job(), "due since 1m 30s, waiting for a free worker"),
        (job(note="unused"), "due since 1m 30s, waiting for a free worker"),
        (job(hold=Hold.LOST), "due since 1m 30s, waiting for a free worker; its worker was lost"),
        (
            job(hold=Hold.RETRY, note="retry in 1s (backoff)"),
            "due since 1m 30s, waiting for a free worker; retrying (retry in 1s (backoff))",
        ),
        (job(scheduled_at=T0 + seconds(91)), "due: due in 1s"),
    ],
)
def test_one_line_explains_why_a_job_is_not_running(row: JobRecord, expected: str):
    """Each line contains the state, since or until when, and the last decision."""
    actual = why_not_running(row, Circumstances(T0 + seconds(90), (worker(),)))

    assert expected == actual


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.READY, "catching by mend"),
        (State.RUNNING, "catching by mend"),
        (State.WAITING, "catching by mend"),
        (State.DEAD, "dead, and its catch job 8 is dead"),
        (State.CANCELLED, "dead, and its catch job 8 is cancelled"),
    ],
)
def test_the_line_of_a_dead_job_names_its_catch(state: State, expected: str):
    """It is being caught only while its catch job has not ended."""
    around = Circumstances(T0, catch=CatchJob(7, 8, "mend", state))

    assert f"{expected}: 3 of 3 attempts failed (boom)" == why_not_running(CAUGHT_BY, around)


@pytest.mark.parametrize(
    ("error_type", "error", "expected"),
    [
        ("builtins.KeyError", "'id'", "dead: 3 of 3 attempts failed (KeyError: 'id')"),
        ("shop.Declined", "no credit", "dead: 3 of 3 attempts failed (shop.Declined: no credit)"),
        ("shop.Declined", "", "dead: 3 of 3 attempts failed (shop.Declined)"),
    ],
)
def test_the_line_of_a_dead_job_names_its_last_error(error_type: str, error: str, expected: str):
    """Dead jobs show the class and the message of the last exception beside the decision."""
    assert expected == why_not_running(replace(DEAD, error=error), Circumstances(T0, error_type=error_type))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ((), "no worker is alive"),
        ((worker(expires_at=T0),), "no worker is alive"),
        ((worker(queues=("letters",)),), "no live worker serves queue 'mail'"),
        ((worker(queues=("mail",), expires_at=T0), worker(queues=("letters",))), "no live worker serves queue 'mail'"),
        ((worker(tasks=("print",)),), "no live worker has the task 'send' in queue 'mail'"),
        (
            (worker(tasks=("print",)), worker(queues=("letters",), tasks=("send",))),
            "no live worker has the task 'send' in queue 'mail'",
        ),
        ((worker(tasks=("print",)), worker(tasks=("send",))), "waiting for a free worker"),
        ((worker(trouble="settling: KeyError"),), "worker 9 is in trouble: settling: KeyError"),
        ((worker(trouble="settling: KeyError"), worker()), "waiting for a free worker"),
        ((worker(queues=("letters", "mail")),), "waiting for a free worker"),
        ((worker(queues=("letters",)), worker()), "waiting for a free worker"),
    ],
)
def test_the_line_of_a_due_job_names_a_missing_worker(workers: tuple[WorkerRecord, ...], expected: str):
    """It waits for a free worker only where a live one serves its queue."""
    assert f"due since 1m 30s, {expected}" == why_not_running(job(), Circumstances(T0 + seconds(90), workers))


def test_only_a_due_job_lacks_a_worker():
    """Nothing is missing for jobs that are not due, that run, or that have a worker, however busy."""
    around = Circumstances(T0 + seconds(30))

    assert Obstacle("no worker is alive", "worker") == unserved(job(), around)
    assert unserved(LATER, around) is None
    assert unserved(RUNNING, around) is None
    assert unserved(job(), replace(around, workers=(worker(concurrency=4, running=4),))) is None


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ((0, 0), "waiting for a free worker"),
        ((3, 0), "waiting for a free worker"),
        ((4, 0), "waiting for a free worker: all are busy (4 of 4 slots)"),
        ((0, 4), "waiting for a free worker"),
    ],
)
def test_the_line_of_a_due_job_has_the_busy_slots(busy: tuple[int, int], expected: str):
    """Slots are full if the workers that have its task run as many attempts as they may."""
    around = Circumstances(T0 + seconds(90), (worker(running=busy[0]), worker(id=8, tasks=("print",), running=busy[1])))

    assert f"due since 1m 30s, {expected}" == why_not_running(job(), around)


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (Hold.DELAY, "scheduled: due in 1m 30s"),
        (Hold.RETRY, "retrying: due in 1m 30s"),
        (Hold.SNOOZE, "snoozed: due in 1m 30s"),
        (Hold.PARKED, "parked: due in 1m 30s"),
        (Hold.PAUSED, "run paused: due in 1m 30s"),
        (Hold.BATCH, "waits for the jobs of its batch: due in 1m 30s"),
        (Hold.HELD, "held: its code does not fit its recorded steps: due in 1m 30s"),
        (Hold.RELEASE, "given back: due in 1m 30s"),
        (Hold.UNKNOWN_TASK, "unknown task: due in 1m 30s"),
        (Hold.BAD_PAYLOAD, "arguments cannot be read: due in 1m 30s"),
        (Hold.LOST, "its worker was lost: due in 1m 30s"),
        (Hold.REDRIVE, "redriven: due in 1m 30s"),
        (Hold.DEBOUNCE, "debounced: due in 1m 30s"),
        (Hold.BREAKER, "circuit open: due in 1m 30s"),
    ],
)
def test_each_hold_has_its_own_text(hold: Hold, expected: str):
    """Each reason to wait has its own words."""
    assert expected == why_not_running(replace(LATER, hold=hold), Circumstances(T0))


def test_a_run_that_waits_without_a_limit_has_no_due_time():
    """Runs that wait for a signal without a timeout show the wait and no due time."""
    row = replace(LATER, hold=Hold.PARKED, scheduled_at=FAR, note="waits for signal 'shipped'")

    assert "parked (waits for signal 'shipped')" == why_not_running(row, Circumstances(T0))


def test_a_waiting_job_shows_its_note():
    """Jobs that wait show the sentence of the last decision."""
    row = replace(LATER, hold=Hold.SNOOZE, note="the bank is closed")

    assert "snoozed: due in 1m 30s (the bank is closed)" == why_not_running(row, Circumstances(T0))


@given(st.sampled_from(State), st.none() | st.sampled_from(Hold))
def test_every_row_is_explained_in_one_line(state: State, hold: Hold | None):
    """There is no state and no hold without its line."""
    line = why_not_running(job(state=state, hold=hold, claimed_at=T0), Circumstances(T0))

    assert line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("given_span", "expected"),
    [
        (timedelta(0), "0ms"),
        (timedelta(seconds=-3), "0ms"),
        (timedelta(milliseconds=40), "40ms"),
        (timedelta(microseconds=999_600), "1s"),
        (seconds(1), "1s"),
        (seconds(3.24), "3.2s"),
        (seconds(59.97), "1m"),
        (seconds(60), "1m"),
        (seconds(61), "1m 1s"),
        (seconds(3600), "1h"),
        (seconds(3605), "1h"),
        (seconds(3900), "1h 5m"),
        (seconds(86_400 * 10), "10d"),
        (seconds(86_400 + 7200), "1d 2h"),
    ],
)
def test_a_span_is_written_to_two_units(given_span: timedelta, expected: str):
    """Spans are formatted to two units, rounded into the unit in which they are shown."""
    assert expected == span(given_span)
