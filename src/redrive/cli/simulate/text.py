"""A finding as a table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redrive.cli.plan.words import clean
from redrive.cli.simulate.words import cells, setting
from redrive.simulate import Finding

__all__ = ["as_table"]


def as_table(finding: Finding, console: Console) -> None:
    """Print a finding: its question, its setting and its figures.

    Args:
        finding: what came of a scenario.
        console: where to.
    """
    head, *rows = cells(finding)
    table = Table(box=None, pad_edge=False)
    table.add_column(escape(head[0]))
    for heading in head[1:]:
        table.add_column(escape(heading), justify="right")
    for row in rows:
        table.add_row(*(escape(clean(cell)) for cell in row))
    trouble = finding.scenario
    console.print(f"[bold]{trouble.name}[/bold]: {trouble.title}")
    console.print(escape(setting(finding)), style="dim")
    console.print(table)
    console.print()
