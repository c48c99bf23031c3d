"""The execution of scenarios, and their results as values. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from redrive.errors import ConfigurationError
from redrive.simulate.contender import Contender
from redrive.simulate.rng import SeededRandom
from redrive.simulate.scenarios import SCENARIOS
from redrive.simulate.scenarios.scenario import Scenario

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, over all seeds.

    Attributes:
        mean: of the seeds; ``inf`` if it was never reached with one of them.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FigureRow:
    """The figures of one contender, one for each measure of the scenario."""

    contender: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The result of one scenario, with a row for each contender."""

    scenario: Scenario
    clients: int
    seeds: tuple[int, ...]
    rows: tuple[FigureRow, ...]

    def figure(self, contender: str, measure: str) -> Figure:
        """Return one figure by the names of its row and column; raise KeyError if there is none."""
        names = [each.name for each in self.scenario.measures]
        rows = {row.contender: row for row in self.rows}
        if contender not in rows or measure not in names:
            raise KeyError(f"{contender!r}, {measure!r}: the rows are {[*rows]}, the columns {names}")
        return rows[contender].figures[names.index(measure)]


def scenario(name: str) -> Scenario:
    """Return a scenario by its name; raise `ConfigurationError` if there is none."""
    for each in SCENARIOS:
        if each.name == name:
            return each
    raise ConfigurationError(f"there is no scenario {name!r}; there are {', '.join(each.name for each in SCENARIOS)}")


def run(
    trouble: Scenario,
    guests: Iterable[Contender] = (),
    *,
    seeds: Iterable[int] = (0,),
    clients: int | None = None,
    alone: bool = False,
) -> ScenarioResult:
    """Run a scenario with all its contenders.

    Args:
        trouble: the scenario.
        guests: contenders besides those of the scenario.
        seeds: the scenario runs once for each; all contenders get the same random numbers.
        clients: number of clients; by default that of the scenario.
        alone: True to leave out the contenders of the scenario.

    Raises:
        ConfigurationError: the number of clients or of seeds is zero.
    """
    count = trouble.clients if clients is None else clients
    numbers = tuple(seeds)
    if not 1 <= count <= _MOST or not numbers:
        raise ConfigurationError(f"clients={count}, {len(numbers)} seeds: 1 to {_MOST} clients, and one seed or more")
    rows = []
    for contender in (*(() if alone else trouble.contenders), *guests):
        able = trouble.prepare(contender)
        trials = [trouble.trial(able, SeededRandom(f"{seed}:{trouble.name}"), count) for seed in numbers]
        rows.append(FigureRow(contender.name, tuple([_figure(column) for column in zip(*trials, strict=True)])))
    return ScenarioResult(trouble, count, numbers, tuple(rows))


def _figure(values: tuple[float, ...]) -> Figure:
    return Figure(sum(values) / len(values), min(values), max(values))
