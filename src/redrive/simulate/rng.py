"""Seeded random numbers: the same seed gives the same simulation on every machine."""

from __future__ import annotations

from random import Random


class SeededRandom(Random):
    """``SeededRandom("7:herd")``: its samples are the same for the same text, in every version of Python."""
