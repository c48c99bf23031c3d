"""The simulation finds faults: each mutation of the product breaks the invariant that is meant for it."""

from __future__ import annotations

import pytest

from tests.simulation.faults import Plan, make
from tests.simulation.fleet import simulate
from tests.simulation.interleavings import explore
from tests.simulation.mutations import MUTATIONS, SETTLE
from tests.simulation.shrink import shrink

SEEDS = 1000

FOUND = {
    "settle without the lease check": 10,
    "progress without the lease check": 10,
    "a dead worker's heartbeat is accepted": 189,
    "running attempts are not counted against the limit": 43,
    "cancelled handlers are not counted against the limit": 6,
    "the rescuer ignores when a lease ends": 0,
    "a lost attempt of an at-most-once task is released": 24,
    "a cron fires an occurrence again": 0,
    "an absence of the database counts as silence": 7,
    "lent transactions share the default executor": 0,
    "a clock that is set is followed at once": 5,
    "the heartbeat has no deadline": 4,
    "the stop waits for the heartbeat": 1,
    "every cancellation is a release": 0,
    "attempts outlive the lease": 4,
    "a turn of a feeder without the turn before it": 35,
    "a heartbeat of any process with the id": 40,
    "a row of a run without the row before it": 8,
    "a call of a child run without the row before it": 8,
    "a worker that registers again has a plain id": 28,
    "a lost delivery counts as done": 9,
    "attempts go on in a new era": 14,
    "a sweep does not wait in a new era": 39,
    "a worker forgets its earlier ids": 53,
    "a run parks although the row of its wait is lost": 30,
    "ends that must not be lost are not written again": 151,
}
"""The seed that found it last, which is tried first; the others follow."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found(name, image, folder, figure):
    """Within a thousand seeds, the named invariant finds the mutation."""
    mutate, invariant, profile = MUTATIONS[name]
    with mutate():
        for seed in sorted(range(SEEDS), key=lambda each: each != FOUND[name]):
            violation = simulate(make(seed, profile), image, folder).violation
            if violation is not None and violation.name == invariant:
                break
        else:
            pytest.fail(f"{name}: not found by {invariant} in {SEEDS} seeds", pytrace=False)

    figure(f"{name}: found by {invariant} with seed {seed}")


def test_without_the_mutation_its_seed_passes(image, folder):
    """Seeds that find mutations find no fault in the product itself."""
    plans = [make(seed, MUTATIONS[name][2]) for name, seed in FOUND.items()]

    assert [None] * len(FOUND) == [simulate(plan, image, folder).violation for plan in plans]


def test_a_failing_plan_shrinks_to_its_necessary_faults(image, folder):
    """Of a plan that loses an attempt of an at-most-once task, no step is left that the loss does not need."""
    mutate, invariant, _ = MUTATIONS["a lost attempt of an at-most-once task is released"]
    plan = make(FOUND["a lost attempt of an at-most-once task is released"])

    def run(candidate: Plan):
        return simulate(candidate, image, folder).violation

    with mutate():
        smallest, violation = shrink(plan, run)

        assert invariant == violation.name
        assert violation == run(smallest)
        assert all(run(smallest.without({index})) is None for index in range(len(smallest.steps)))
    assert "once" in {step.target for step in smallest.steps}
    assert len(smallest.steps) < len(plan.steps)


def test_a_plan_that_does_not_fail_cannot_be_shrunk(image, folder):
    """Raise an error at once."""
    with pytest.raises(ValueError, match="seed 0 does not fail"):
        shrink(make(0), lambda plan: simulate(plan, image, folder).violation)


def test_the_exhaustive_search_finds_a_mutation(image):
    """Find an order of two workers in which a settle without the lease check changes the job."""
    mutate, _, _ = MUTATIONS[SETTLE]
    with mutate():
        explored = explore(image, idempotent=True)

    assert any("is not current, and its settle changed the job" in problem for problem in explored.problems)
