"""The parts of ``python -m benchmarks.flows``."""

from __future__ import annotations

from benchmarks.flows import fan_out, machines_part, parked_part, runs_part, starts_part
from benchmarks.flows.part import Part

__all__ = ["PARTS"]

PARTS: tuple[Part, ...] = (
    *runs_part.PARTS,
    *starts_part.PARTS,
    *parked_part.PARTS,
    *machines_part.PARTS,
    *fan_out.PARTS,
)
"""In the order in which they are measured."""
