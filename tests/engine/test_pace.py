"""The number of jobs that a worker claims ahead, as arithmetic and in a simulated worker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engine.pace import FEW, GATHERED, HORIZON, LINGER, LONGEST, MOST, SHORT, STALE, WINDOW, Pace

WINDOWS = st.lists(
    st.tuples(st.integers(0, 2000), st.floats(0, 1), st.floats(0, STALE), st.booleans()), min_size=1, max_size=30
)
"""Attempts that ended, how long each of them ran, the time since the window before, and whether the worker was idle."""


def test_a_new_worker_claims_nothing_ahead():
    """Nothing is claimed ahead before a rate is measured."""
    assert 0 == Pace().ahead(0.0) == Pace().after(50, 0.001, 1.0).ahead(1.0)


def steady(ended: int, busy: float, every: float, windows: int = 12) -> int:
    """Return the jobs to claim ahead after equal windows, in each of which attempts have ended."""
    pace = Pace()
    for number in range(windows):
        pace = pace.after(ended, ended * busy, number * every)
    return pace.ahead((windows - 1) * every)


def test_jobs_are_claimed_ahead_in_proportion_to_the_rate():
    """Claim ahead what starts within the horizon, at the rate at which attempts end."""
    assert int(5_000 * HORIZON) == pytest.approx(steady(50, 0.001, 0.01), abs=2)
    assert int(2_000 * HORIZON) == pytest.approx(steady(100, 0.001, 0.05), abs=2)


def test_long_handlers_are_not_claimed_ahead():
    """Nothing is claimed ahead while the mean handler takes longer than `SHORT`, however many run."""
    assert 0 == steady(1000, SHORT * 1.01, 0.01) < steady(1000, SHORT * 0.99, 0.01)


def test_slower_handlers_count_at_once():
    """The first window of long handlers ends claims ahead; short ones need several windows to bring them back."""
    pace = Pace(since=0.0, rate=10_000.0, mean=0.001).after(50, 50 * 1.0, 0.01)
    again = pace.after(50, 0.0, 0.02)

    assert 0 == pace.ahead(0.01) == again.ahead(0.02)


def test_a_rate_is_measured_over_a_window():
    """Ends of attempts that are written a moment apart count as one window."""
    first = Pace(since=0.0).after(10, 0.0, WINDOW / 2)

    assert (Pace(0.0, 10), 0) == (first, first.ahead(WINDOW / 2))
    assert 20 / WINDOW / 2 == pytest.approx(first.after(10, 0.0, WINDOW).rate)


def test_a_window_without_an_end_stays_open():
    """Writes without an attempt that ended do not lower the rate."""
    assert Pace(0.0, rate=9.0) == Pace(0.0, rate=9.0).after(0, 0.0, WINDOW * 2)


def test_an_old_rate_is_forgotten():
    """After a pause nothing is claimed ahead, and the rate is measured anew."""
    pace = Pace(since=0.0, rate=500 / HORIZON)

    assert (500, 0) == (pace.ahead(STALE), pace.ahead(STALE * 1.01))
    assert Pace(STALE * 2) == pace.after(1, 0.0, STALE * 2)


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [
        (0.0, LINGER),
        (FEW / LONGEST - 1, LINGER),
        (FEW / LONGEST, LONGEST),
        (GATHERED / LONGEST, LONGEST),
        (20_000.0, GATHERED / 20_000),
        (10 * GATHERED / LINGER, LINGER),
    ],
)
def test_ends_wait_for_each_other_by_the_rate(rate: float, seconds: float):
    """Ends wait until a commit has many, and only a moment if few would come."""
    assert seconds == pytest.approx(Pace(0.0, rate=rate).linger(0.0))


def test_ends_of_long_handlers_wait_only_a_moment():
    """Handlers that take long do not end together."""
    assert [LINGER, LINGER] == [
        Pace(0.0, rate=5_000.0, mean=SHORT * 2).linger(0.0),
        Pace(0.0, rate=5_000.0).linger(STALE * 2),
    ]


@given(windows=WINDOWS)
def test_the_number_is_bounded(windows: list[tuple[int, float, float, bool]]):
    """Never claim ahead more than the limit or than the fastest window would start, and none for long handlers."""
    pace, at, fastest = Pace(), 0.0, 0.0
    for ended, busy, elapsed, idle in windows:
        at += elapsed + STALE * idle
        pace = pace.after(ended, ended * busy, at)
        fastest = max(fastest, pace.rate)
        ahead = pace.ahead(at)

        assert 0 <= ahead <= min(MOST, fastest * HORIZON)
        assert ahead == 0 or pace.mean <= SHORT


@dataclass
class Simulated:
    """A worker with fixed costs: a claim and a settle take time of the database, each job time of the worker."""

    concurrency: int
    seconds: float  # for which a handler waits
    cost: float  # seconds of the event loop for each job
    trip: float = 0.003  # seconds that a claim or a settle takes
    per_job: float = 25e-6  # seconds that they take more for each job

    def drain(self, jobs: int, *, ahead: bool) -> float:
        """Run the jobs in batches, as the settler does; return the seconds."""
        at, pace = 0.0, Pace()
        while jobs > 0:
            batch = min(jobs, self.concurrency + (pace.ahead(at) if ahead else 0))
            jobs -= batch
            turns = -(-batch // self.concurrency)
            # The next claim overlaps the handlers of this batch only if some of it waits.
            working, written = max(batch * self.cost, turns * self.seconds), self.trip + batch * self.per_job
            at += max(working, written) if batch > self.concurrency else working + written
            pace = pace.after(batch, batch * max(self.seconds, self.cost), at)
        return at


def test_a_simulated_worker_of_short_handlers_is_as_fast_as_with_many_slots():
    """In a simulation, fifty slots with claims ahead drain short jobs at 0.85 times the best rate of chosen slots."""
    by_default = Simulated(50, 0.0, 30e-6).drain(20_000, ahead=True)
    best = min(Simulated(chosen, 0.0, 30e-6).drain(20_000, ahead=False) for chosen in (50, 100, 200, 400, 800))

    assert best >= 0.85 * by_default
    assert Simulated(50, 0.0, 30e-6).drain(20_000, ahead=False) > 1.5 * by_default


def test_a_simulated_worker_of_long_handlers_claims_none_ahead():
    """In a simulation, claims ahead change nothing for handlers of a second."""
    worker = Simulated(50, 1.0, 30e-6)

    assert worker.drain(200, ahead=False) == worker.drain(200, ahead=True)
