"""``python -m benchmarks.flows [--rounds N] [--only PART or SUBJECT] [--json] [--docs]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.flows.part import Part, PartReport, run
from benchmarks.flows.parts import PARTS
from benchmarks.page import PAGE, markdown, slower, written
from benchmarks.queue import PEERS, formatted

__all__ = ["main"]


def main(
    arguments: Sequence[str] | None = None,
    parts: Sequence[Part] = PARTS,
    prog: str = "benchmarks.flows",
    description: str = "Workflows, machines and topics.",
) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
        parts: what is measured.
        prog: the name of the module.
        description: for its help.
    """
    known = sorted({part.name for part in parts} | {name for part in parts for name in part.subjects})
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--json", action="store_true", help="print the reports as JSON instead of tables")
    parser.add_argument("--docs", action="store_true", help="write the tables into the page of the documentation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", action="append", default=[], choices=known, metavar="NAME", help=f"may be repeated: {known}"
    )
    chosen = parser.parse_args(arguments)
    subjects = [name for name in chosen.only if name not in {part.name for part in parts}]
    reports = []
    for part in parts:
        if chosen.only and part.name not in chosen.only and chosen.only != subjects:
            continue
        reports.append(report := run(part, chosen.rounds, subjects))
        if chosen.docs:
            _write(part, report, prog.removeprefix("benchmarks."))
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
    for name, reason in report.failed.items():
        console.print(f"{name} failed: {reason}", markup=False)


def _write(part: Part, report: PartReport, module: str) -> None:
    """Write the medians of a report into the page of the documentation."""
    rows = [[name, *(formatted(found[each]) for each in part.headings)] for name, found in report.medians.items()]
    about = f"{part.title[0].upper()}{part.title[1:]}; medians of {len(report.rounds)} rounds."
    lines = [about, "", markdown(["subject", *part.headings.values()], rows)]
    if "redrive" in report.medians:
        lines += ["", "Compared with redrive:", "", *slower(report.medians, part.headings)]
    text = written(PAGE.read_text(encoding="utf-8"), part.name, module, "\n".join(lines))
    PAGE.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
