"""Scenarios and their measures. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redrive.simulate.contender import DEFAULTS, Contender
from redrive.simulate.rng import SeededRandom

# One run with a contender, a generator of random numbers and a number of clients. It returns one figure for each
# measure; ``inf`` means never.
Trial = Callable[[Contender, SeededRandom, int], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One column of figures.

    Attributes:
        name: of what is measured.
        unit: behind each figure, as "s" or "%"; "" for a number.
        digits: behind the point.
    """

    name: str
    unit: str = ""
    digits: int = 0

    @property
    def heading(self) -> str:
        """Return the name, with the unit if there is one."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


@dataclass(frozen=True, slots=True)
class Scenario:
    """A situation in which policies are compared.

    Attributes:
        title: its question, as a sentence.
        setting: the situation, with its sizes.
        measures: the measured quantities.
        trial: runs it once.
        clients: default number of clients.
        contenders: the compared policies.
        prepare: the change that the scenario needs in each policy.
    """

    name: str
    title: str
    setting: str
    measures: tuple[Quantity, ...]
    trial: Trial
    clients: int
    contenders: tuple[Contender, ...] = DEFAULTS
    prepare: Callable[[Contender], Contender] = lambda contender: contender
