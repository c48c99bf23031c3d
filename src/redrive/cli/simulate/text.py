"""The result of a scenario as text: as a table in the terminal, and as JSON, in which an endless duration is null."""

from __future__ import annotations

from math import isinf

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.simulate import Figure, Quantity, ScenarioResult
from redrive.visible import visible

NEVER = "never"


def shown(figure: Figure, measure: Quantity) -> str:
    """Return a figure with the digits of its measure, and the range over the seeds if they differ."""
    mean = _number(figure.mean, measure.digits)
    low, high = _number(figure.low, measure.digits), _number(figure.high, measure.digits)
    return mean if low == high else f"{mean} ({low} to {high})"


def cells(finding: ScenarioResult) -> list[list[str]]:
    """Return the rows of the table, each with the contender's name first; the first row has the headings."""
    measures = finding.scenario.measures
    head = ["", *(measure.heading for measure in measures)]
    return [head, *([row.contender, *map(shown, row.figures, measures)] for row in finding.rows)]


def setting(finding: ScenarioResult) -> str:
    """Return the description of the scenario, and how this run differs."""
    description, usual = finding.scenario.setting, finding.scenario.clients
    differs = f" (Here there are {finding.clients} clients, not {usual}.)" if finding.clients != usual else ""
    return description + differs


def _number(value: float, digits: int) -> str:
    return NEVER if isinf(value) else f"{value:.{digits}f}"


def as_table(finding: ScenarioResult, console: Console) -> None:
    """Print the question, the setting and the figures of a scenario."""
    head, *rows = cells(finding)
    table = Table(box=None, pad_edge=False)
    table.add_column(Text(head[0]))
    for heading in head[1:]:
        table.add_column(Text(heading), justify="right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(Text.assemble((finding.scenario.name, "bold"), f": {finding.scenario.title}"))
    console.print(Text(setting(finding), "dim"))
    console.print(table)
    console.print()


def as_json(finding: ScenarioResult) -> str:
    """Return the result as one line of JSON."""
    units = {measure.name: measure.unit for measure in finding.scenario.measures}
    rows = [{"name": row.contender, "figures": dict(zip(units, row.figures, strict=True))} for row in finding.rows]
    document = {"scenario": finding.scenario.name, "clients": finding.clients, "seeds": finding.seeds}
    return msgspec.json.encode(document | {"units": units, "contenders": rows}).decode()
