"""The goals, as ratios of figures from one run, and what became of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import Figures

__all__ = ["GOALS", "Goal", "Met", "judge"]


@dataclass(frozen=True, slots=True)
class Goal:
    """One ratio that redrive should reach.

    Attributes:
        against: the name of the other subject.
        at_least: redrive's jobs per second, until settled, divided by the other's.
    """

    against: str
    at_least: float


@dataclass(frozen=True, slots=True)
class Met:
    """What became of a goal.

    Attributes:
        goal: which.
        ratio: what was measured.
        lowest: the lowest ratio of a round.
        highest: the highest.
    """

    goal: Goal
    ratio: float
    lowest: float
    highest: float

    @property
    def reached(self) -> bool:
        """Was it reached?"""
        return self.ratio >= self.goal.at_least


GOALS = {
    "sqlite": (Goal("raw sqlite3", 0.20), Goal("huey", 8.0)),
}
"""By store. The raw loop runs no handler, starts nothing, keeps no history; see its module."""


def judge(store: str, rounds: Sequence[Mapping[str, Figures]]) -> list[Met]:
    """Compare what was measured with the goals.

    A ratio is taken within each round, where both subjects met the same weather, and then the median of these.

    Args:
        store: a key of `GOALS`.
        rounds: the figures of each round by the name of the subject.

    Returns:
        What became of each goal whose subject was measured.
    """
    judged = []
    for goal in GOALS[store]:
        ratios = [each["redrive"].settled / each[goal.against].settled for each in rounds if goal.against in each]
        if ratios:
            judged.append(Met(goal, statistics.median(ratios), min(ratios), max(ratios)))
    return judged
