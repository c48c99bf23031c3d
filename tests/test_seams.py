"""Seams: the providers that lower layers call by name."""

from __future__ import annotations

import redrive.seams
from redrive.policy.call_methods import Runner
from redrive.seams import Seam


def test_every_seam_leads_to_a_provider_of_the_promised_form():
    """import-linter cannot see an import by name, so this looks each one up and asks it for every promised verb."""
    seams = {name: value for name, value in vars(redrive.seams).items() if isinstance(value, Seam)}
    promised = [name for name in vars(Runner) if not name.startswith("_")]

    assert ["in_process"] == list(seams)
    assert [] == [verb for verb in promised if not callable(getattr(seams["in_process"](), verb, None))]
