"""Every row once more, with few clients, one seed and six digits: cheap enough to be compared in each run of the tests.

The page has whole crowds and few digits, so that making it anew takes long, and a small change may hide in the spread.
A change of any row shows here first; then the page is out of date as well.
"""

from __future__ import annotations

from pathlib import Path

from redrive.simulate import Scenario, run

__all__ = ["keep", "known", "rows"]

_KEPT = Path(__file__).with_name("rows.txt")
_CLIENTS = 10


def rows(trouble: Scenario) -> list[str]:
    """A line for each contender of a scenario, with its figures."""
    return sorted(
        f"{trouble.name}: {row.contender}: {' '.join(f'{figure.mean:.6g}' for figure in row.figures)}"
        for row in run(trouble, clients=_CLIENTS).rows
    )


def known(trouble: Scenario) -> list[str]:
    """The lines of a scenario as they were when its part of the page was made."""
    return [line for line in _KEPT.read_text().splitlines() if line.startswith(f"{trouble.name}: ")]


def keep(trouble: Scenario) -> None:
    """Write down the lines of a scenario.

    Args:
        trouble: whose part of the page has been made anew.
    """
    others = [line for line in _KEPT.read_text().splitlines() if not line.startswith(f"{trouble.name}: ")]
    _KEPT.write_text("\n".join(sorted([*others, *rows(trouble)])) + "\n", encoding="utf-8", newline="\n")
