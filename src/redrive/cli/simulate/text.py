"""The result of a scenario as a table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.cli.simulate.words import cells, setting
from redrive.simulate import ScenarioResult
from redrive.visible import visible

__all__ = ["as_table"]


def as_table(finding: ScenarioResult, console: Console) -> None:
    """Print the question, the setting and the figures of a scenario."""
    head, *rows = cells(finding)
    table = Table(box=None, pad_edge=False)
    table.add_column(Text(head[0]))
    for heading in head[1:]:
        table.add_column(Text(heading), justify="right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    trouble = finding.scenario
    console.print(Text.assemble((trouble.name, "bold"), f": {trouble.title}"))
    console.print(Text(setting(finding), "dim"))
    console.print(table)
    console.print()
