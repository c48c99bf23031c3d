"""The goals, as ratios of figures from one run, and their results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["GOALS", "Goal", "Met", "Round", "judge", "singles"]

Round = Mapping[str, Mapping[str, float]]
"""The figures of one round, by the names of the subject and of the figure."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure of redrive, and the figure that it is compared with.

    Attributes:
        figure: its name.
        against: the subject with the same figure by which it is divided; None compares the figure itself.
        at_least: the ratio should not be lower.
        at_most: the ratio, or the figure, should not be higher.
        of: the subject that has the goal.
    """

    figure: str
    against: str | None = None
    at_least: float = -math.inf
    at_most: float = math.inf
    of: str = "redrive"

    @property
    def wanted(self) -> str:
        """Describe the bound in words."""
        return f"at least {self.at_least:.3g}" if math.isfinite(self.at_least) else f"at most {self.at_most:g}"

    def __str__(self) -> str:
        """Describe the comparison in words."""
        return f"{self.of}: {self.figure}" + (f" / {self.against}" if self.against else "")


@dataclass(frozen=True, slots=True)
class Met:
    """What became of a goal.

    Attributes:
        goal: which.
        value: what was measured.
        lowest: in any round.
        highest: in any round.
    """

    goal: Goal
    value: float
    lowest: float
    highest: float

    @property
    def reached(self) -> bool:
        """Return True if the goal was reached."""
        return self.goal.at_least <= self.value <= self.goal.at_most

    def __str__(self) -> str:
        """Describe the result in one line."""
        verdict = "reached" if self.reached else "not reached"
        rounds = f"rounds: {self.lowest:.3g} to {self.highest:.3g}"
        return f"{self.goal}: {self.value:.3g} ({rounds}), {self.goal.wanted}: {verdict}"


LATENCY = (Goal("p50", at_most=5.0), Goal("p99", at_most=20.0))
WEIGHTY = tuple(
    Goal("settled", "redrive", at_least=1 / 1.2, of=f"redrive, {condition}")
    for condition in ("a million waiting", "ten million finished", "held snapshot")
)

PLAIN = Goal("settled", "redrive", at_least=0.6, of="redrive, def handlers")
DEFAULT = Goal("settled", "redrive, best concurrency", at_least=0.85)


def singles(store: str) -> tuple[Goal, ...]:
    """Return the goals of jobs that are enqueued one by one.

    Args:
        store: a key of `GOALS`.
    """
    raw, peer = ("raw sqlite3", "huey") if store == "sqlite" else ("raw asyncpg", "pgqueuer")
    return tuple(
        Goal("single", against, at_least=bound, of=of)
        for of in ("redrive", "redrive, awaited")
        for against, bound in ((raw, 0.6), (peer, 1.0))
    )


GOALS = {
    "sqlite": (
        Goal("settled", "raw sqlite3", at_least=0.20),
        Goal("settled", "huey", at_least=8.0),
        Goal("settled", "dbos", at_least=100.0),
        Goal("bulk", "raw sqlite3", at_least=0.30),
        DEFAULT,
        PLAIN,
        *LATENCY,
        *WEIGHTY,
    ),
    "postgres": (
        Goal("settled", "raw asyncpg", at_least=0.40),
        Goal("settled", "procrastinate", at_least=20.0),
        Goal("settled", "pgqueuer", at_least=1.5),
        Goal("bulk", "raw asyncpg", at_least=0.30),
        DEFAULT,
        PLAIN,
        *LATENCY,
        *WEIGHTY,
    ),
}
"""By store. The raw loops run no handler, start nothing, keep no history; see their modules."""


def judge(goals: Sequence[Goal], rounds: Sequence[Round]) -> list[Met]:
    """Compare measured figures with the goals.

    A ratio is taken within each round, in which both subjects had the same conditions, and then the median of these.

    Args:
        goals: the goals; those without a measured subject are left out.
        rounds: the figures of each round.

    Returns:
        The result of each goal with measured subjects.
    """
    judged = []
    for goal in goals:
        values = [value for each in rounds if (value := _value(goal, each)) is not None]
        if values:
            judged.append(Met(goal, statistics.median(values), min(values), max(values)))
    return judged


def _value(goal: Goal, figures: Round) -> float | None:
    if goal.of not in figures or (goal.against is not None and goal.against not in figures):
        return None
    value = figures[goal.of][goal.figure]
    if goal.against is not None:
        value /= figures[goal.against][goal.figure]
    return None if math.isnan(value) else value
