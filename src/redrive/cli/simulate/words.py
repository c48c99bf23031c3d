"""The figures of a scenario as text. PURE."""

from __future__ import annotations

from math import isinf

from redrive.simulate import Figure, Quantity, ScenarioResult

__all__ = ["cells", "setting", "shown"]

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
    return [
        head,
        *(
            [row.contender, *(shown(figure, measure) for figure, measure in zip(row.figures, measures, strict=True))]
            for row in finding.rows
        ),
    ]


def setting(finding: ScenarioResult) -> str:
    """Return the description of the scenario, and how this run differs."""
    description, usual = finding.scenario.setting, finding.scenario.clients
    return (
        description
        if finding.clients == usual
        else f"{description} (Here there are {finding.clients} clients, not {usual}.)"
    )


def _number(value: float, digits: int) -> str:
    return NEVER if isinf(value) else f"{value:.{digits}f}"
