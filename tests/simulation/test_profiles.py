"""Faults beside those of every run, each in a profile of its own; the present code does not survive some of them."""

from __future__ import annotations

import pytest

from tests.selection import sized
from tests.simulation.faults import PROFILES, make
from tests.simulation.fleet import simulate

SEEDS = sized(10, 40)

KNOWN: dict[str, set[str]] = {}
"""By profile, the invariants that the present code breaks. A repaired defect fails the test: delete its line then."""


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "default"])
def test_a_profile_breaks_only_its_known_invariants(profile, image, folder):
    """Seeds of the profile break no invariant except for the known defects, and these are found."""
    broken: dict[str, str] = {}
    for seed in range(SEEDS):
        violation = simulate(make(seed, profile), image, folder).violation
        if violation is not None:
            broken.setdefault(violation.name, f"python -m tests.simulation.replay {seed} --profile {profile}")

    assert KNOWN.get(profile, set()) == set(broken), broken
