"""The tables of the documentation, in Markdown."""

from __future__ import annotations

from pathlib import Path

from benchmarks.quality.targets import TARGETS
from redrive.cli.simulate.text import cells, setting
from redrive.simulate import ScenarioResult

__all__ = ["PAGE", "tables", "verdict", "written"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "simulations.md"
"""Where the tables stand."""

_START, _END = "<!-- {name}: made by python -m benchmarks.quality --docs -->", "<!-- end -->"


def tables(finding: ScenarioResult) -> str:
    """Write the figures of a scenario, its drawing, and the results of its targets."""
    name, title = finding.scenario.name, finding.scenario.title
    head, *rows = cells(finding)
    lines = [head, ["---", *(["---:"] * (len(head) - 1))], *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    drawn = f"![{title}](../quality/{name}.svg)"
    targets = "\n".join(f"* {line}" for line in verdict(finding))
    return "\n\n".join([f"{title}. {setting(finding)}", drawn, table, *([targets] if targets else [])])


def verdict(finding: ScenarioResult) -> list[str]:
    """Write the results of the targets of a scenario, one line each."""
    found = [each for each in TARGETS if each.scenario == finding.scenario.name]
    words = {True: "met", False: "**not met**"}
    return [
        f"{words[each.met(finding)]}: {each.contender}, {each.measure}: {each.text} ({each.source})" for each in found
    ]


def written(text: str, finding: ScenarioResult) -> str:
    """Return a page with the part of one scenario replaced.

    Args:
        text: the page.
        finding: the result of the scenario.

    Raises:
        ValueError: the page has no part for it.
    """
    start = _START.format(name=finding.scenario.name)
    before, found, rest = text.partition(start)
    _, _, after = rest.partition(_END)
    if not found:
        raise ValueError(f"the page has no line {start!r}")
    return f"{before}{start}\n\n{tables(finding)}\n\n{_END}{after}"
