"""The tables of the documentation, in Markdown; ``--docs`` of a part writes them into the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["PAGE", "markdown", "slower", "written"]

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"
"""Where the tables stand."""

_START, _END = "<!-- {name}: made by python -m benchmarks.{part} --docs -->", "<!-- end -->"

LESS_IS_BETTER = frozenset({"cpu", "p50", "p99", "wal", "commits", "idle_commits", "dead"})

OURS = "redrive"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; columns but the first are aligned to the right.

    Args:
        headings: of the columns.
        rows: their cells.
    """
    lines = [headings, ["---", *(["---:"] * (len(headings) - 1))], *rows]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)


def slower(figures: Mapping[str, Mapping[str, float]], headings: Mapping[str, str]) -> list[str]:
    """Describe where another subject has a better figure than redrive, one line for each subject.

    Args:
        figures: by subject and figure.
        headings: what the figures are called.
    """
    lines = []
    for name, others in figures.items():
        if name.startswith(OURS):
            continue
        found = []
        for figure, title in headings.items():
            ours, theirs = figures[OURS][figure], others[figure]
            ratio = (ours / theirs if figure in LESS_IS_BETTER else theirs / ours) if ours and theirs else 0.0
            # NaN, for a figure that a subject does not have, is not greater.
            if ratio > 1:
                found.append(f"{title.replace(chr(10), ' ')} {ratio:.2g} times")
        if found:
            lines.append(f"* {name} is better: {', '.join(found)}")
    return lines or ["* no other subject has a better figure"]


def written(text: str, name: str, part: str, content: str) -> str:
    """Return the page with one part replaced.

    Args:
        text: the page.
        name: of the part of the page.
        part: the module that makes it.
        content: what it shall be.

    Raises:
        ValueError: the page has no such part.
    """
    start = _START.format(name=name, part=part)
    before, found, rest = text.partition(start)
    _, _, after = rest.partition(_END)
    if not found:
        raise ValueError(f"the page has no line {start!r}")
    return f"{before}{start}\n\n{content}\n\n{_END}{after}"
