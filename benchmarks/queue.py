"""Durable jobs: ``python -m benchmarks.queue --store sqlite [--json]``.

Each round measures every subject once, in turns, because a shared machine is fast in one minute and slow in the next.
Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.goals import GOALS, Met, judge
from benchmarks.measure import Figures, Sizes, measure
from benchmarks.subjects import SUBJECTS, Subject, subjects

__all__ = ["Report", "main", "run"]

HEADINGS = {
    "single": "single\nenqueues/s",
    "bulk": "bulk\nenqueues/s",
    "handled": "drained/s,\nuntil handled",
    "settled": "drained/s,\nuntil settled",
    "cpu": "CPU\nµs/job",
    "p50": "pick-up\np50 ms",
    "p99": "pick-up\np99 ms",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run answers.

    Attributes:
        store: what the subjects kept their jobs in.
        sizes: how much was measured.
        medians: by the name of the subject.
        kept: what each leaves of a finished job.
        goals: what became of them.
        rounds: the figures of each round.
    """

    store: str
    sizes: Sizes
    medians: dict[str, Figures]
    kept: dict[str, str]
    goals: list[Met]
    rounds: list[dict[str, Figures]]


def run(store: str, sizes: Sizes, rounds: int, only: Sequence[str] = ()) -> Report:
    """Measure all subjects of a store.

    Args:
        store: a key of `SUBJECTS`.
        sizes: how much.
        rounds: how often.
        only: the names of the subjects that are wanted; all without it.

    Returns:
        The report.

    Raises:
        Stuck: a worker got nowhere.
    """
    chosen = [each for each in subjects(store) if not only or each.name in only]
    measured = [_round(_turned(chosen, number), sizes, number) for number in range(1, rounds + 1)]
    medians = {each.name: _median([figures[each.name] for figures in measured]) for each in chosen}
    return Report(store, sizes, medians, {each.name: each.kept for each in chosen}, judge(store, measured), measured)


def _turned(chosen: Sequence[Subject], number: int) -> Sequence[Subject]:
    """Another one begins in each round."""
    first = number % len(chosen)
    return [*chosen[first:], *chosen[:first]]


def _round(chosen: Sequence[Subject], sizes: Sizes, number: int) -> dict[str, Figures]:
    # Not in the system's folder for temporary files: where that is memory, a sync to disk costs nothing.
    home = Path("build")
    home.mkdir(exist_ok=True)
    figures = {}
    with tempfile.TemporaryDirectory(dir=home, prefix="bench-") as folder:
        for subject in chosen:
            print(f"round {number}: {subject.name}", file=sys.stderr, flush=True)
            figures[subject.name] = measure(subject, sizes, Path(folder).absolute())
    return figures


def _median(measured: Sequence[Figures]) -> Figures:
    names = [field.name for field in fields(Figures)]
    return Figures(*[statistics.median(getattr(each, name) for each in measured) for name in names])


def _show(report: Report) -> None:
    console = Console(width=150)
    table = Table(title=f"{report.store}: {report.sizes.jobs:,} no-op jobs, one worker process, synced commits")
    table.add_column("subject")
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right")
    table.add_column("kept of a finished job")
    for name, figures in report.medians.items():
        cells = [_number(getattr(figures, field)) for field in HEADINGS]
        table.add_row(name, *cells, report.kept[name])
    console.print(table)
    for met in report.goals:
        verdict = "reached" if met.reached else "not reached"
        console.print(
            f"redrive / {met.goal.against}: {met.ratio:.3g} (rounds: {met.lowest:.3g} to {met.highest:.3g}), "
            f"goal {met.goal.at_least:g}: {verdict}"
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.queue", description="Durable jobs, side by side.")
    parser.add_argument("--store", choices=sorted(SUBJECTS.keys() & GOALS.keys()), default="sqlite")
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--only", action="append", default=[], metavar="SUBJECT", help="may be repeated")
    chosen = parser.parse_args(arguments)
    report = run(chosen.store, Sizes(jobs=chosen.jobs), chosen.rounds, chosen.only)
    if chosen.json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)


if __name__ == "__main__":
    main()
