"""One part of the benchmark: subjects that are measured in turns, their figures, and the goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from benchmarks.goals import Goal, Met, Round, judge
from benchmarks.place import Server
from benchmarks.queue import home, python, server_for
from benchmarks.rounds import in_turns

__all__ = ["Measure", "Part", "PartReport", "run"]

Measure: TypeAlias = Callable[[str, Path, Server | None], Mapping[str, float]]
"""Measure a subject once, in a folder and on a server."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is measured in turns.

    Attributes:
        name: for the command line.
        store: ``sqlite`` or ``postgres``.
        subjects: their names, in the order of the table.
        measure: measures one of them once.
        headings: the headings of the table, by the name of the figure.
        goals: ratios and limits.
        title: of the table.
    """

    name: str
    store: str
    subjects: Sequence[str]
    measure: Measure
    headings: Mapping[str, str]
    goals: Sequence[Goal] = field(default=())
    title: str = ""


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a run of one part answers.

    Attributes:
        name: of the part.
        medians: by subject and figure.
        rounds: the figures of each round.
        goals: what became of them.
        missing: peers that have no environment.
        failed: the reasons of subjects that failed; they have no figures.
    """

    name: str
    medians: Round
    rounds: Sequence[Round]
    goals: Sequence[Met]
    missing: Sequence[str]
    failed: Mapping[str, str]


def run(part: Part, rounds: int, only: Sequence[str] = ()) -> PartReport:
    """Measure the subjects of a part in turns.

    Args:
        part: what.
        rounds: how often.
        only: names of subjects; all without it.

    Returns:
        The report.
    """
    names = [name for name in part.subjects if not only or name in only]
    missing = [name for name in names if not python(name).exists()]
    chosen = [name for name in names if name not in missing]
    with home() as place, server_for(part.store, place) as server:
        measured, failed = in_turns(chosen, rounds, lambda name: part.measure(name, place, server), f"{part.name}, ")
    medians = {name: _median([each[name] for each in measured]) for name in chosen if name not in failed}
    return PartReport(part.name, medians, measured, judge(part.goals, measured), missing, failed)


def _median(measured: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    return {figure: statistics.median(each[figure] for each in measured) for figure in measured[0]}
