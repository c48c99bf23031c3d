"""Whole fleets under faults, in virtual time: 100 fixed seeds, 500 in `make test-all`, and 100,000 in `make soak`."""

from __future__ import annotations

import os

import pytest

from tests.selection import sized
from tests.simulation.faults import DEFAULT, make
from tests.simulation.fleet import simulate
from tests.simulation.replay import explain

SEEDS = int(os.environ.get("REDRIVE_SEEDS", sized(100, 500)))
CHUNK = 25


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_all_invariants_hold_in_a_fleet_under_faults(first, image, folder, figure):
    """Whatever the faults of a seed, no invariant is broken, and the fleet comes to rest when they end."""
    commits = starts = 0
    for seed in range(first, min(first + CHUNK, SEEDS)):
        plan = make(seed)
        report = simulate(plan, image, folder)
        commits, starts = commits + report.commits, starts + report.starts
        if report.violation is not None:
            pytest.fail(explain(plan, image, folder), pytrace=False)

    assert commits > starts > 0
    if first + CHUNK >= SEEDS:
        figure(f"{SEEDS} seeds; the last {CHUNK} made {commits} commits and started {starts} handlers")


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_replays_exactly(seed, image, folder):
    """Two runs of one plan make the same commits and start the same handlers at the same instants."""
    first, second = (simulate(make(seed), image, folder) for _ in range(2))

    assert (first.trace, first.commits, first.took) == (second.trace, second.commits, second.took)


def test_seeds_differ(image, folder):
    """Each seed makes another run, and the first 500 use both kinds of stores and all faults."""
    plans = [make(seed) for seed in range(500)]

    assert 8 == len({simulate(plan, image, folder).trace for plan in plans[:8]})
    assert {"memory", "file"} == {plan.store for plan in plans}
    assert set(DEFAULT.faults) <= {step.kind for plan in plans for step in plan.steps}
