"""History: every execution has one line, in order, and lines never change."""

from __future__ import annotations

from redrive.engine.outcome import Lost, Released, Snoozed, Succeeded
from redrive.engine.records import AttemptOutcome
from tests.stores.helpers import FATAL, Harness, failed, new, seconds


def test_an_unknown_job_has_no_history(store: Harness):
    """Jobs that are missing or were never executed have an empty history."""
    assert ((), ()) == (store.history(store.put()), store.history(404))


def test_every_execution_leaves_a_line_in_order(store: Harness):
    """History lists all executions of a job, oldest first, across retries, crashes and redrives."""
    number = store.put(new(retry="9 1s"))
    for outcome in (failed("a"), Snoozed(seconds(1)), Released("shutdown"), Lost("b"), failed("c"), FATAL):
        store.end(store.take(), outcome)
        store.wait(600)
    store.redrive()
    store.end(store.take(), Succeeded(b"1"))
    lines = store.history(number)

    assert ["failed", "snoozed", "lost", "failed", "failed", "succeeded"] == [line.outcome.value for line in lines]
    assert ["a", None, "b", "c", "no such user", None] == [line.error for line in lines]
    assert [1, 2, 2, 3, 4, 5] == [line.number for line in lines]
    assert sorted(line.lease_id for line in lines) == [line.lease_id for line in lines]
    assert all(line.started_at <= line.finished_at for line in lines)


def test_stored_delays_are_those_that_happened(store: Harness):
    """Stored delays are the time from the end of an attempt to the earliest start of the next."""
    number = store.put(new(retry="9 1s 1m", jitter="full"))
    for sample in (0.1, 0.9, 0.5, 0.0, 0.99):
        claim = store.take()
        store.wait(0.5)
        store.settle((claim, failed()), sample=sample)
        line = store.history(number)[-1]
        row = store.job(number)

        assert line.finished_at + line.delay == row.scheduled_at
        assert seconds(0) <= line.delay <= line.nominal
        store.now = row.scheduled_at
    assert [seconds(n) for n in (1, 2, 4, 8, 16)] == [line.nominal for line in store.history(number)]


def test_lines_of_other_jobs_do_not_mix(store: Harness):
    """Histories hold the lines of their own job only."""
    store.enqueue(*[new() for _ in range(3)])
    claims = store.claim(3)
    store.settle(*[(claim, failed(f"of {claim.id}")) for claim in claims])

    assert [[f"of {claim.id}"] for claim in claims] == [
        [line.error for line in store.history(claim.id)] for claim in claims
    ]


def test_a_result_is_kept_with_its_job(store: Harness):
    """Succeeded jobs have the result of that success; a result of None is not stored."""
    first, second = store.take(new()), store.take(new())
    store.end(first, Succeeded(b"[1,2]"))
    store.end(second, Succeeded(None))

    assert (b"[1,2]", None) == (store.result(first.id), store.result(second.id))
    assert [AttemptOutcome.SUCCEEDED] == [line.outcome for line in store.history(second.id)]
