"""Sums of ended attempts: what is counted, when it is dropped, and how it is rolled up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine import counters
from redrive.engine.counters import (
    BUCKETS,
    HOUR,
    MINUTE,
    ROLLED,
    ErrorHour,
    MinuteSums,
    Tally,
    floor,
    percentile,
    rolled,
)
from redrive.engine.outcome import (
    Cancelled,
    Expired,
    Failed,
    Lost,
    Outcome,
    Released,
    Settlement,
    Snoozed,
    Succeeded,
    Suspended,
)
from redrive.engine.settle import decide
from tests.engine.helpers import NOW, T0, claim, failure, seconds

FATAL = Failed(failure("no such user", permanent="no"))
WORKER = 3


def ended(outcome: Outcome = Succeeded(), at: datetime = NOW, **changes: Any) -> Settlement:  # noqa: B008 - a frozen value
    """Return the end of an attempt that took a second."""
    return decide(claim(claimed_at=at - seconds(1), **changes), outcome, at, 0.0)


def counted(*moved: Settlement) -> Tally:
    """Return a tally that has counted some ends."""
    tally = Tally()
    tally.add(moved, WORKER)
    return tally


def sums(tally: Tally) -> list[tuple[datetime, str, str, int]]:
    """Return the number of attempts of each row."""
    return [
        (row.at, row.queue, row.task, row.succeeded + row.retried + row.died + row.snoozed + row.lost + row.cancelled)
        for row in tally.rows().minutes
    ]


def test_each_end_is_counted_by_its_kind():
    """Successes, retries, deaths, snoozes, losses and cancellations are counted, and how long they took."""
    outcomes = [
        Succeeded(), Succeeded(), Failed(failure()), FATAL, Snoozed(seconds(1), ""), Lost("gone"), Cancelled("no"),
    ]  # fmt: skip
    (row,) = counted(*map(ended, outcomes)).rows().minutes

    assert (2, 1, 1, 1, 1, 1) == (
        row.succeeded, row.retried, row.died, row.snoozed, row.lost, row.cancelled,
    )  # fmt: skip
    assert {BUCKETS.index(1.0): 7} == {place: jobs for place, jobs in enumerate(row.took) if jobs}


def test_retries_are_counted_by_the_number_of_the_attempt():
    """First attempts are in no such count, and those beyond the seventh are counted as the seventh."""
    ends = [ended(Succeeded()) for _ in range(4)]
    numbered = [
        replace(each, closed=replace(each.closed, number=number))
        for each, number in zip(ends, (1, 2, 7, 40), strict=True)
    ]
    tally = counted(*numbered)
    (row,) = tally.rows().minutes

    assert [1, 0, 0, 0, 0, 2] == row.tries
    assert [2, 0, 0, 0, 0, 4] == rolled([row, row], T0)[0].tries


@pytest.mark.parametrize("outcome", [Released("shut down"), Suspended(seconds(9))])
def test_open_attempts_are_not_counted(outcome: Outcome):
    """Attempts that were given back or wait for an answer have not ended."""
    tally = counted(ended(outcome))

    assert ([], False) == (sums(tally), tally.changed)


def test_a_job_that_expired_in_the_queue_counts_as_a_death():
    """Jobs without an attempt are counted at the instant of their death."""
    (row,) = counted(ended(Expired())).rows().minutes

    assert (T0.replace(second=0), 1, 0) == (row.at, row.died, sum(row.took))


def test_a_cancelled_transition_without_a_record_is_counted_in_the_open_minute():
    """Ends without an instant of their own belong to the present."""
    tally = counted(ended())
    tally.rows()
    tally.add([replace(ended(Cancelled("no")), closed=None)], WORKER)

    assert [(T0, "mail", "send", 2)] == sums(tally)


def test_rows_are_absolute_until_their_minute_is_over():
    """Rows of the latest minute are written again with more; earlier ones are written once."""
    tally = counted(ended())
    assert [1] == [row.succeeded for row in tally.rows().minutes]
    tally.written()
    tally.add([ended(), ended(at=NOW + MINUTE)], WORKER)

    assert [(T0, "mail", "send", 2), (T0 + MINUTE, "mail", "send", 1)] == sums(tally)
    tally.written()
    assert [(T0 + MINUTE, "mail", "send", 1)] == sums(tally)


def test_late_ends_are_counted_in_the_open_minute():
    """Rows that were dropped are not begun again, because they would replace what was written."""
    tally = counted(ended(), ended(at=NOW + MINUTE))
    tally.rows()
    tally.written()
    tally.add([ended(), ended(FATAL)], WORKER)

    assert [(T0 + MINUTE, "mail", "send", 3)] == sums(tally)


def test_rows_that_cannot_be_written_are_kept_for_an_hour():
    """Sums stay in memory while the store is away; after an hour the oldest are dropped."""
    tally = counted(ended(), ended(FATAL))
    tally.add([ended(FATAL, at=NOW + MINUTE * 59)], WORKER)
    assert (2, 1) == (len(tally.rows().minutes), len(tally.rows().hours))
    tally.add([ended(FATAL, at=NOW + MINUTE * 121)], WORKER)
    rows = tally.rows()

    assert [T0 + MINUTE * 121] == [row.at for row in rows.minutes]
    assert [T0 + HOUR * 2] == [row.at for row in rows.hours]


def test_names_beyond_the_limit_are_counted_as_other(monkeypatch: pytest.MonkeyPatch):
    """Workers distinguish a limited number of queues and tasks; a known queue keeps its name."""
    monkeypatch.setattr(counters, "MOST", 2)
    made = [("a", "x"), ("b", "y"), ("b", "z"), ("c", "x"), ("a", "x"), ("c", "y")]
    tally = counted(*(replace(ended(), queue=queue, task=task) for queue, task in made))

    assert [("a", "x", 2), ("b", "y", 1), ("b", "other", 1), ("other", "other", 2)] == [
        (queue, task, jobs) for _, queue, task, jobs in sums(tally)
    ]


def test_failures_are_counted_by_group_and_hour():
    """Groups have their first and their last failure, and the jobs that gave up."""
    later = NOW + seconds(5)
    tally = counted(ended(Failed(failure())), ended(Failed(failure()), later, id=8), ended(FATAL, at=NOW, id=9))
    rows = tally.rows()

    assert [(2, 0), (1, 1)] == [(row.failures, row.deaths) for row in rows.hours]
    assert [("boom", NOW, later, 8), ("no such user", NOW, NOW, 9)] == [
        (row.title, row.first_at, row.last_at, row.last_job_id) for row in rows.errors
    ]
    assert {T0} == {row.at for row in rows.hours}


def test_an_earlier_failure_does_not_become_the_last_one():
    """Failures may be counted out of their order."""
    tally = counted(ended(Failed(failure()), NOW + seconds(5), id=8), ended(Failed(failure()), NOW, id=7))

    assert [8] == [row.last_job_id for row in tally.rows().errors]


def test_groups_beyond_the_limit_are_counted_as_other(monkeypatch: pytest.MonkeyPatch):
    """Workers distinguish a limited number of groups in an hour; the others share one without a title."""
    monkeypatch.setattr(counters, "MOST", 1)
    tally = counted(*(ended(Failed(failure(text))) for text in ("boom", "bang", "crash", "boom")))

    assert [2, 2] == [row.failures for row in tally.rows().hours]
    assert ["boom", ""] == [row.title for row in tally.rows().errors]


def test_written_hours_are_dropped():
    """Failures of an hour are written until the next hour has begun."""
    tally = counted(ended(FATAL), ended(FATAL, at=NOW + HOUR))
    assert 2 == len(tally.rows().hours)
    tally.written()
    tally.add([ended(FATAL)], WORKER)

    assert [ErrorHour(tally.rows().errors[0].fingerprint, T0 + HOUR, WORKER, 2, 2)] == [*tally.rows().hours]


def row(minute: int, worker: int, task: str, succeeded: int) -> MinuteSums:
    """Return the sums of a task in a minute."""
    took = [0] * (len(BUCKETS) + 1)
    took[2] = succeeded
    return MinuteSums(T0 + MINUTE * minute, worker, "mail", task, succeeded, 1, 0, 0, 0, 0, took)


def test_a_roll_up_adds_all_workers_up():
    """Rows of one queue and task become one; nothing is lost."""
    made = rolled([row(0, 1, "send", 2), row(3, 2, "send", 3), row(3, 2, "read", 1)], T0)

    assert [(T0, ROLLED, "send", 5, 2, 5), (T0, ROLLED, "read", 1, 1, 1)] == [
        (each.at, each.worker_id, each.task, each.succeeded, each.retried, each.took[2]) for each in made
    ]


@pytest.mark.parametrize(
    ("took", "share", "expected"),
    [
        ([0] * 17, 0.5, None),
        ([10] + [0] * 16, 0.5, 0.0025),
        ([0, 0, 4, 0, 4] + [0] * 12, 0.5, 0.025),
        ([0, 0, 4, 0, 4] + [0] * 12, 0.75, 0.075),
        ([0] * 16 + [3], 0.95, 3600.0),
    ],
)
def test_percentiles_are_interpolated(took: list[int], share: float, expected: float | None):
    """Attempts within a bucket are taken as evenly spread; above the last bucket, its limit is the answer."""
    found = percentile(took, share)

    assert expected == (None if found is None else pytest.approx(found))


@given(st.lists(st.integers(0, 1000), min_size=17, max_size=17), st.floats(0.001, 1.0))
def test_percentiles_lie_in_a_bucket_with_attempts(took: list[int], share: float):
    """Percentiles are within the limits of a bucket that is not empty."""
    found = percentile(took, share)
    limits = [0.0, *BUCKETS, BUCKETS[-1]]

    assert (found is None) == (not any(took))
    assert found is None or any(
        jobs and limits[place] - 1e-9 <= found <= limits[place + 1] + 1e-9 for place, jobs in enumerate(took)
    )


def test_spans_begin_at_multiples_of_their_width():
    """Spans of ten minutes begin at whole ten minutes."""
    assert T0 == floor(T0 + timedelta(minutes=9, seconds=59), timedelta(minutes=10))
