"""The figures of a finding as people read them. PURE."""

from __future__ import annotations

from math import isinf

from redrive.simulate import Figure, Quantity, ScenarioResult

__all__ = ["cells", "setting", "shown"]

NEVER = "never"


def shown(figure: Figure, measure: Quantity) -> str:
    """A figure with the digits of its measure, and the spread of the seeds where there is one.

    Args:
        figure: over all seeds.
        measure: what was measured.
    """
    mean = _number(figure.mean, measure.digits)
    low, high = _number(figure.low, measure.digits), _number(figure.high, measure.digits)
    return mean if low == high else f"{mean} ({low} to {high})"


def cells(finding: ScenarioResult) -> list[list[str]]:
    """The rows of the table, each with the contender's name first; the headings are the first row."""
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
    """What happens in the scenario, and where this run of it differs."""
    said, usual = finding.scenario.setting, finding.scenario.clients
    return said if finding.clients == usual else f"{said} (Here there are {finding.clients} clients, not {usual}.)"


def _number(value: float, digits: int) -> str:
    return NEVER if isinf(value) else f"{value:.{digits}f}"
