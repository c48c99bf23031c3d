"""The random numbers of workflows, which are the same in each replay."""

from __future__ import annotations

from random import Random


class FlowRandom(Random):
    """A random number generator with a seed of the run and the branch; see `redrive.Flow.random`."""
