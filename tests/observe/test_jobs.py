"""Events of durable jobs: their texts, their facts, and their metrics."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from redrive import observe
from redrive.observe import Event
from redrive.observe.logs import facts
from redrive.observe.measures import METRICS, OTHER, Bounded, measures
from redrive.policy import Failure, Stage

SECOND = timedelta(seconds=1)
AT = datetime(2026, 1, 1, tzinfo=UTC)
JOB = {"task": "charge", "queue": "mail", "job_id": 7}
ATTEMPT = JOB | {"attempt": 2, "lease_id": 5}
ENDED = ATTEMPT | {"took": 3 * SECOND}
FAILED = ENDED | {
    "rule": "backoff",
    "reason": "CONNECTION",
    "error_type": "builtins.ConnectionError",
    "error": "connection refused",
}
WORKER = {"worker_id": 3, "queues": None}
EVENTS = {
    "1 job of charge on queue mail": observe.JobsEnqueuing(task="charge", queue="mail", count=1),
    "2 jobs of charge on queue mail": observe.JobsEnqueuing(task="charge", queue="mail", count=2),
    "job 7 (charge) is enqueued on mail": observe.JobEnqueued(**JOB, delay=0 * SECOND, in_transaction=False),
    "job 7 (charge) is enqueued on mail, due in 5s": observe.JobEnqueued(**JOB, delay=5 * SECOND, in_transaction=True),
    "job 7 (charge) starts: attempt 2 on worker 3": observe.JobStarted(**ATTEMPT, worker_id=3, waited=SECOND),
    "job 7 (charge) succeeded at attempt 2 in 3.000 s": observe.JobSucceeded(**ENDED),
    "job 7 (charge) is retried in 1s (backoff): attempt 2 failed: ConnectionError: connection refused": (
        observe.JobRetryScheduled(**FAILED, delay=SECOND)
    ),
    (
        "job 7 (charge) is retried in 1s, at 2026-01-01 00:00:00 UTC (backoff): "
        "attempt 2 of 3 failed: ConnectionError: connection refused"
    ): observe.JobRetryScheduled(**FAILED, delay=SECOND, due_at=AT, max_attempts=3),
    (
        "job 7 (charge) is retried in 1s (catch): attempt 2 failed: ConnectionError: connection refused; "
        "the catch is stuck: 5 failures"
    ): observe.CatchStuck(**FAILED | {"rule": "catch"}, delay=SECOND, failures=5),
    (
        "job 7 (charge) died at attempt 2 of 2 (attempts): 2 of 2 attempts failed; "
        "last failure: ConnectionError: connection refused"
    ): observe.JobDied(
        **FAILED | {"rule": "attempts"}, why="2 of 2 attempts failed", catch=None, max_attempts=2, traceback="Trace"
    ),
    "job 7 (charge) died at attempt 2 (poison limit): it crashes; last failure: POISON; recover catches it": (
        observe.JobDied(
            **FAILED | {"rule": "poison limit", "reason": "POISON", "error_type": None, "error": None},
            why="it crashes",
            catch="recover",
        )
    ),
    (
        "job 7 (charge, refresh:charge/a): attempt 3 failed: ConnectionError: connection refused; "
        "next at 2026-01-01 00:00:00 UTC (retry)"
    ): observe.RefreshAttemptFailed(
        **FAILED, origin="refresh:charge/a", why="1 of 1", catch=None, number=3, next_at=AT, next_is="retry"
    ),
    "job 7 (charge) is snoozed for 1s: not yet": observe.JobSnoozed(**ENDED, delay=SECOND, why="not yet"),
    "job 7 (charge) waits for an answer from outside, until 2026-01-01 00:00:00 UTC": (
        observe.JobSuspended(**ATTEMPT, until=AT)
    ),
    "job 7 (charge) is parked: sleeps": observe.JobParked(**ATTEMPT, until=AT, why="sleeps"),
    "job 7 (charge) is given back: shut down": (
        observe.JobReleased(**ATTEMPT, due_at=AT, hold="release", why="shut down")
    ),
    "job 7 (charge) is given back: no such task": (
        observe.JobHeld(**ATTEMPT, due_at=AT, hold="unknown_task", why="no such task")
    ),
    "job 7 (charge) is cancelled: enough": observe.JobCancelled(**JOB, attempt=2, why="enough"),
    "job 7 (charge): connection refused; it runs again": observe.JobRescued(**FAILED, worker_id=3),
    "job 7 (charge): its lease was lost; what attempt 2 did changes nothing": observe.JobLeaseLost(**ATTEMPT),
    "job 6 is caught by job 7 (charge)": observe.JobCaught(**JOB | {"job_id": 6}, catch_id=7),
    "worker 3 serves all queues, 9 at once": observe.WorkerStarted(**WORKER, concurrency=9),
    "worker 3 serves all queues but b, c, 9 at once": observe.WorkerStarted(
        **WORKER, concurrency=9, excluded=("b", "c")
    ),
    "worker 3 (host:7) serves a, b of sqlite:///a.db, 9 at once; tasks: charge, refund": observe.WorkerStarted(
        worker_id=3,
        queues=("a", "b"),
        concurrency=9,
        worker="host:7",
        database="sqlite:///a.db",
        tasks=("charge", "refund"),
    ),
    f"worker 3 serves all queues, 9 at once; tasks: {', '.join(['t'] * 20)}, 2 more": observe.WorkerStarted(
        **WORKER, concurrency=9, tasks=("t",) * 22
    ),
    "worker 3 has stopped": observe.WorkerStopped(**WORKER, abandoned=0),
    "worker 3: sweeping failed, 2 times in a row: KeyError: 'b'": (
        observe.WorkerDutyFailed(**WORKER, duty="sweeping", error="KeyError: 'b'", failures=2)
    ),
    "worker 3: another database server has taken over; until then it was worker 2; 5 attempts are given back, 1 go on; "
    "lost with the last moment of the server before: 1 starts and 0 ends of attempts": (
        observe.WorkerServerReplaced(**WORKER, before=2, dropped=5, kept=1, starts_lost=1, ends_lost=0)
    ),
    "worker 3: another database server has taken over; until then it was worker 2; 0 attempts are given back; "
    "lost with the last moment of the server before: no start or end": (
        observe.WorkerServerReplaced(**WORKER, before=2, dropped=0, kept=0, starts_lost=0, ends_lost=0)
    ),
    "worker 3 has stopped; 2 handlers do not stop": observe.WorkerStopped(**WORKER, abandoned=2),
}
LEVELS = {
    logging.ERROR: {observe.JobDied, observe.CatchStuck},
    logging.WARNING: {
        observe.JobRetryScheduled,
        observe.JobRescued,
        observe.JobLeaseLost,
        observe.JobHeld,
        observe.RefreshAttemptFailed,
        observe.WorkerDutyFailed,
        observe.WorkerServerReplaced,
    },
    logging.DEBUG: {
        observe.JobParked,
        observe.JobsEnqueuing,
        observe.JobEnqueued,
        observe.JobStarted,
        observe.JobSucceeded,
    },
}


@pytest.mark.parametrize("text", EVENTS)
def test_an_event_has_a_one_line_text(text: str):
    """Texts have one line; ends are errors, other failures warnings, and frequent events are for debugging."""
    event = EVENTS[text]
    level = next((level for level, kinds in LEVELS.items() if type(event) in kinds), logging.INFO)

    assert (text, level) == (str(event), event.level)
    assert event.name in {"charge", "worker 3"}


@pytest.mark.parametrize("text", EVENTS)
def test_labels_are_fields_with_few_values(text: str):
    """Each label is a field; none is an id, a number, an instant or a text of an error."""
    event = EVENTS[text]
    known = set(event.arguments())

    assert set(event.labels) <= known & {"task", "queue", "reason", "rule", "hold", "duty"}


def test_every_event_is_exported_by_name():
    """Each name that `redrive.observe` exports exists, whichever is imported first."""
    assert [] == [name for name in observe.__all__ if not hasattr(observe, name)]


def test_exported_fields_are_plain_values():
    """Spans are seconds, instants ISO 8601, lists words; the trace of a job is left out."""
    started = EVENTS["job 7 (charge) starts: attempt 2 on worker 3"]
    suspended = observe.JobSuspended(**ATTEMPT, until=AT)
    worker = next(event for text, event in EVENTS.items() if "serves a, b" in text)
    shown = dict(facts(started)) | dict(facts(suspended)) | dict(facts(worker))

    assert (1.0, "2026-01-01T00:00:00+00:00", "a, b") == (shown["waited"], shown["until"], shown["queues"])
    assert (None, "mail", 7) == (shown["delay"], shown["queue"], shown["job_id"])
    assert "trace" not in shown


def test_exported_fields_of_a_call_contain_its_failure():
    """Facts of a call have its name as `call` and three facts of its failure, without the exception."""
    event = observe.CallGaveUp(
        name="fetch",
        attempts=1,
        elapsed=SECOND,
        waited=0 * SECOND,
        rule="attempts",
        why="1 of 1",
        failure=Failure(("builtins.ValueError",), "bad"),
        error=ValueError("bad"),
    )
    shown = dict(facts(event))

    assert ("fetch", "builtins.ValueError", "bad") == (shown["call"], shown["error_type"], shown["error"])
    assert "name" not in shown


def test_exported_fields_of_other_objects_are_text():
    """Enumerations become their name, other objects their repr; events without fields have no facts."""

    class FieldsEvent(observe.CallEvent):
        _fields = ("kind", "blob")
        kind = Stage.IN_FLIGHT
        blob = b"x"

        def __init__(self) -> None:
            """Take no arguments."""

    assert {"kind": "IN_FLIGHT", "blob": "b'x'"} == dict(facts(FieldsEvent()))
    assert [] == list(facts(Event()))


def test_the_logging_sink_passes_fields_to_handlers(caplog: pytest.LogCaptureFixture):
    """Each fact is an attribute of the record; an attribute that the record has already stays."""
    with caplog.at_level(logging.DEBUG, "redrive.jobs"):
        observe.log(
            EVENTS["job 7 (charge) is retried in 1s (backoff): attempt 2 failed: ConnectionError: connection refused"]
        )
    (record,) = caplog.records

    assert (7, "charge", 2, 1.0, "CONNECTION") == (
        record.job_id,
        record.task,
        record.attempt,
        record.delay,
        record.reason,
    )
    assert "redrive.jobs" == record.name


def test_a_label_keeps_a_bounded_number_of_values():
    """Values that come first keep their names, the others share one, and each label counts separately."""
    bounded = Bounded(limit=2)

    assert ["a", "b", OTHER, "a", OTHER] == [bounded.value("queue", value) for value in "abcac"]
    assert "c" == bounded.value("task", "c")


def test_a_label_needs_room_for_one_value():
    """Require room for at least one value."""
    with pytest.raises(ValueError, match="at least, got limit=0"):
        Bounded(limit=0)


@pytest.mark.parametrize("text", EVENTS)
def test_measurements_match_their_metrics(text: str):
    """Measures have a value for each label of their metric, and no negative number."""
    booked = list(measures(EVENTS[text]))

    assert [] == [each for each in booked if len(each.values) != len(each.metric.labels) or each.amount < 0]
    assert {each.metric.name for each in booked} <= {metric.name for metric in METRICS}


def test_an_attempt_is_counted_once():
    """Started it is not counted but measured; ended it is counted by its outcome, and measured where it took time."""
    booked = [(each.metric.name, each.values[3:]) for event in EVENTS.values() for each in measures(event)]
    attempts = [values for name, values in booked if name == "redrive.job.attempts"]

    assert [
        ("succeeded", ""),
        ("retried", "CONNECTION"),
        ("retried", "CONNECTION"),
        ("retried", "CONNECTION"),
        ("died", "CONNECTION"),
        ("died", "POISON"),
        ("died", "CONNECTION"),
        ("snoozed", ""),
        ("suspended", ""),
        ("parked", ""),
        ("released", "release"),
        ("released", "unknown_task"),
        ("cancelled", ""),
        ("rescued", "CONNECTION"),
        ("lost", ""),
    ] == attempts
    assert 9 == sum(name == "redrive.job.duration" for name, _ in booked)


def test_the_logging_sink_respects_the_level_of_its_logger(caplog: pytest.LogCaptureFixture):
    """Events below the level of the logger are not written."""
    with caplog.at_level(logging.WARNING, "redrive.jobs"):
        observe.log(EVENTS["job 7 (charge) succeeded at attempt 2 in 3.000 s"])

    assert [] == caplog.records


def test_calls_that_were_retried_are_counted_by_their_end():
    """Calls that succeeded have no rule; deferred ones have the rule that chose the instant."""
    succeeded = observe.CallSucceeded(name="fetch", attempts=2, elapsed=SECOND, waited=SECOND)
    assert [("fetch", "succeeded", "")] == [each.values for each in measures(succeeded)]
    event = observe.CallDeferred(
        name="fetch", attempts=1, elapsed=SECOND, waited=SECOND, at=AT, rule="hint", failure=None
    )

    assert [("fetch", "deferred", "hint")] == [each.values for each in measures(event)]
