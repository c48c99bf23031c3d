"""Every row of the page again, with few clients, one seed and six digits: cheap enough for each run of the tests.

The page has whole crowds and few digits, so that making it again takes long, and a small change may be within
the spread.
A change of any row is detected here first; then the page is out of date as well.
"""

from __future__ import annotations

from pathlib import Path

from redrive.simulate import Scenario, run

__all__ = ["keep", "known", "rows"]

_KEPT = Path(__file__).with_name("rows.txt")
_CLIENTS = 10


def rows(scenario: Scenario) -> list[str]:
    """Yield a line with the figures of each contender of a scenario."""
    return sorted(
        f"{scenario.name}: {row.contender}: {' '.join(f'{figure.mean:.6g}' for figure in row.figures)}"
        for row in run(scenario, clients=_CLIENTS).rows
    )


def known(scenario: Scenario) -> list[str]:
    """Return the lines of a scenario at the time when its part of the page was made."""
    return [line for line in _KEPT.read_text().splitlines() if line.startswith(f"{scenario.name}: ")]


def keep(scenario: Scenario) -> None:
    """Store the lines of a scenario."""
    others = [line for line in _KEPT.read_text().splitlines() if not line.startswith(f"{scenario.name}: ")]
    _KEPT.write_text("\n".join(sorted([*others, *rows(scenario)])) + "\n", encoding="utf-8", newline="\n")
