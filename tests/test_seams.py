"""Seams: the providers that lower layers call by name."""

from __future__ import annotations

import redrive.seams
from redrive.policy.call_methods import Runner
from redrive.seams import Seam


def test_every_seam_has_a_provider_of_the_declared_form():
    """Each seam leads to its provider, which import-linter cannot see, and the runner has all promised methods."""
    seams = {name: value for name, value in vars(redrive.seams).items() if isinstance(value, Seam)}
    promised = [name for name in vars(Runner) if not name.startswith("_")]

    operations = ["policy_operators", "policy_to_dict", "policy_from_dict", "composed_schedules"]
    assert ["in_process", *operations, "command_line", "main"] == list(seams)
    assert all(seam() for seam in (*seams.values(), *redrive.seams.FAILURE_READERS.values()))
    assert [] == [verb for verb in promised if not callable(getattr(seams["in_process"](), verb, None))]
