"""``python -m benchmarks.flows [--rounds N] [--only PART or SUBJECT] [--json]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.flows.part import Part, PartReport, run
from benchmarks.flows.parts import PARTS
from benchmarks.queue import PEERS, formatted

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    known = sorted({part.name for part in PARTS} | {name for part in PARTS for name in part.subjects})
    parser = argparse.ArgumentParser(prog="benchmarks.flows", description="Workflows, machines and topics.")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON instead of tables")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", action="append", default=[], choices=known, metavar="NAME", help=f"may be repeated: {known}"
    )
    chosen = parser.parse_args(arguments)
    subjects = [name for name in chosen.only if name not in {part.name for part in PARTS}]
    reports = []
    for part in PARTS:
        if chosen.only and part.name not in chosen.only and chosen.only != subjects:
            continue
        reports.append(report := run(part, chosen.rounds, subjects))
        if not chosen.json:
            _show(part, report)
    if chosen.json:
        print(msgspec.json.encode(reports).decode())


def _show(part: Part, report: PartReport) -> None:
    if not report.medians:
        return
    console = Console(width=150)
    table = Table(title=f"{part.title}, medians of {len(report.rounds)} rounds")
    table.add_column("subject")
    for heading in part.headings.values():
        table.add_column(heading, justify="right")
    for name, figures in report.medians.items():
        table.add_row(name, *(formatted(figures[each]) for each in part.headings))
    console.print(table)
    for met in report.goals:
        console.print(str(met), highlight=False)
    for name in report.missing:
        console.print(f"{name}: left out, it has no {PEERS / name}: make bench-peers")


if __name__ == "__main__":
    main()
