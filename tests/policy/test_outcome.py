"""Tests of outcomes and records."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from redrive.policy import Failure, GiveUp, Retry
from redrive.policy.outcome import Deferred, GaveUp, Ok, Record, Try

SECOND = timedelta(seconds=1)
BUSY = Failure(("app.Busy", "builtins.Exception"), "busy")
RESULT = Failure((), "result None", "RESULT")
WAIT = Retry(SECOND, SECOND, "backoff")
LAST = GiveUp("3 of 3 attempts failed", "attempts")


def record(*failures, elapsed=3 * SECOND, inner=None, rule="attempts"):
    """Return a record of attempts that failed with these errors."""
    decisions = [WAIT] * (len(failures) - 1) + [LAST][: len(failures)]
    timeline = [
        Try(number, number * SECOND, SECOND, failure, decision)
        for number, (failure, decision) in enumerate(zip(failures, decisions, strict=True), 1)
    ]
    return Record("app.fetch", tuple(timeline), elapsed, rule, "3 of 3 attempts failed", inner)


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (record(BUSY), "gave up after 1 attempt in 3.00 s: 3 of 3 attempts failed (Busy)"),
        (record(BUSY, RESULT, BUSY), "gave up after 3 attempts in 3.00 s: 3 of 3 attempts failed (Busy x2, RESULT)"),
        (
            record(BUSY, elapsed=timedelta(milliseconds=4)),
            "gave up after 1 attempt in 0.00 s: 3 of 3 attempts failed (Busy)",
        ),
        (
            record(BUSY, elapsed=timedelta(hours=1, milliseconds=4)),
            "gave up after 1 attempt in 1h: 3 of 3 attempts failed (Busy)",
        ),
        (
            record(BUSY, inner=record(BUSY, rule="nested")._replace(function="app.inner")),
            "gave up after 1 attempt in 3.00 s: 3 of 3 attempts failed (Busy); app.inner left the retrying to it",
        ),
        (record(BUSY, inner=record(BUSY)), "gave up after 1 attempt in 3.00 s: 3 of 3 attempts failed (Busy)"),
        (
            record(BUSY)._replace(timeline=(*record(BUSY, BUSY).timeline[:1], Try(2, SECOND, SECOND))),
            "gave up after 2 attempts in 3.00 s: 3 of 3 attempts failed (Busy)",
        ),
    ],
)
def test_a_note_is_one_readable_line(result, note):
    """Notes have attempts, time, reason, kinds of failures, and the call that left the retries to this one."""
    assert note == result.note


def test_a_record_counts():
    """Records have the number of attempts and the waits between them."""
    result = record(BUSY, BUSY, BUSY)

    assert (3, (SECOND, SECOND)) == (result.attempts, result.delays)


def test_a_record_of_copies_counts_them():
    """Calls of a hedged call are those of all its copies, and the note has the number of copies."""
    result = record(BUSY, BUSY)._replace(copies=(record(BUSY), record()))

    assert (2, 3) == (result.attempts, result.calls)
    assert result.note.endswith("(Busy x2); there were 3 copies")


AT = datetime(2026, 1, 1, tzinfo=UTC)
OUTCOMES = [Ok(42, record(BUSY)), GaveUp(None, 0, record(BUSY)), Deferred(AT, None, 0, record(BUSY))]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes_are_values(outcome):
    """Outcomes are frozen, equal to equal ones, and can be pickled."""
    assert outcome == pickle.loads(pickle.dumps(outcome))
    assert outcome.record.timeline == outcome.timeline
    with pytest.raises(AttributeError):
        outcome.value = 1


def test_outcomes_unwrap():
    """Unwrapping gives the value, or raises the error as it is."""
    error = OSError()
    error.__context__ = context = KeyError()

    assert [42, 0, 0] == [outcome.unwrap() for outcome in OUTCOMES]
    for outcome in (GaveUp(error, None, record(BUSY)), Deferred(AT, error, None, record(BUSY))):
        try:
            int("no number")
        except ValueError:
            with pytest.raises(OSError) as caught:
                outcome.unwrap()
        assert caught.value is error
        assert error.__context__ is context


def test_outcomes_can_be_matched():
    """Outcomes are taken apart by position and by name."""
    seen = []
    for outcome in OUTCOMES:
        match outcome:
            case Ok(value):
                seen.append(value)
            case GaveUp(None, rule=rule, why=why):
                seen.append((rule, why))
            case Deferred(at, rule=rule):
                seen.append((at, rule))

    assert [42, ("attempts", "3 of 3 attempts failed"), (AT, "attempts")] == seen
