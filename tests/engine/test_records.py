"""Records as they are read from a store."""

from __future__ import annotations

from msgspec.structs import replace

from redrive.engine.outcome import Failed
from redrive.engine.records import Count, Stats
from tests.engine.helpers import CATCHING, LATER, closed, failure


def test_unfinished_jobs_are_those_that_workers_will_still_end():
    """Jobs that are due, scheduled, retrying, running or waiting are unfinished; all others have ended."""
    counted = Stats(
        due=1, scheduled=20, retrying=300, running=4000, waiting=50000, succeeded=9, dead=9, caught=9, cancelled=9
    )

    assert 54321 == counted.unfinished


def test_numbers_of_jobs_that_reach_their_limit_are_named():
    """A number that may be larger is among the capped ones, and a smaller one is exact."""
    exact = Stats(
        due=9_999, scheduled=0, retrying=0, running=0, waiting=0, succeeded=1, dead=9_999, caught=0, cancelled=0
    )

    assert () == exact.capped
    assert ("scheduled", "dead") == replace(exact, scheduled=10_000, dead=10_000).capped


def test_a_catch_job_is_one_with_a_parent():
    """Claims with a parent are those of catch jobs."""
    assert (False, True) == (LATER.catching, CATCHING.catching)


def test_an_attempt_shows_itself_without_its_traceback():
    """Attempts are shown without their long traceback."""
    line = closed(LATER, Failed(failure(), "Traceback (most recent call last)"))

    assert "Traceback (most recent call last)" == line.traceback
    assert "Traceback" not in repr(line)
    assert repr(line).startswith("AttemptRecord(job_id=7, lease_id=41, number=4,")
    assert "error='boom'" in repr(line)


def test_a_number_beyond_its_limit_may_be_more():
    """Numbers that reach their limit say so, and so does each sum with one of them."""
    known, cut = Count.exact_to(3, 10), Count.exact_to(11, 10)

    assert [Count(3), Count(10, capped=True)] == [known, cut]
    assert [Count(6), Count(13, capped=True)] == [known + known, known + cut]
