"""The figures of the documentation are those that the simulation makes."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from benchmarks.quality.__main__ import SEEDS
from benchmarks.quality.page import PAGE, tables
from benchmarks.quality.peers import checked
from benchmarks.quality.rows import known, rows
from benchmarks.quality.targets import TARGETS
from redrive.cli.simulate.svg import as_svg
from redrive.cli.simulate.text import cells
from redrive.simulate import SCENARIOS, run, scenario

DRAWINGS = PAGE.parents[1] / "quality"
QUICK = ("contention", "pushback", "deadline")
"""Scenarios that are run whole; of the others one row is, with one seed."""
ONE = {
    "outage": "redrive + TokenBudget()",
    "flaky": "redrive + RatioBudget()",
    "stack": "redrive + RatioBudget()",
    "herd": "redrive",
    "metastable": "redrive + breaker",
    "tail": 'redrive, Hedge("20ms")',
    "isolation": "redrive",
}


def part(name: str) -> str:
    """Return the part of the page for a scenario."""
    return PAGE.read_text().partition(f"<!-- {name}: ")[2].partition("-->\n\n")[2].partition("\n\n<!-- end -->")[0]


@pytest.mark.parametrize("name", QUICK)
def test_the_page_and_the_drawing_are_what_the_benchmark_makes(name):
    """Made anew, they are the same to the last character."""
    finding = run(scenario(name), seeds=range(SEEDS))

    assert tables(finding) == part(name)
    assert as_svg(finding) == (DRAWINGS / f"{name}.svg").read_text()


@pytest.mark.parametrize("name", ONE)
def test_a_row_of_the_page_is_what_the_benchmark_makes(name):
    """For each slow scenario, one contender has, with one seed, figures within the spread on the page."""
    whole = scenario(name)
    trouble = replace(whole, contenders=tuple(each for each in whole.contenders if each.name == ONE[name]))
    _, (contender, *row) = cells(run(trouble))
    (line,) = [line for line in part(name).splitlines() if line.startswith(f"| {contender} |")]
    spreads = [list(map(float, re.findall(r"[\d.]+", cell))) for cell in line.strip("| ").split(" | ")[1:]]

    assert len(row) == len(spreads)
    assert [] == [value for value, known in zip(row, spreads, strict=True) if not _within(float(value), known)]


def _within(value: float, known: list[float]) -> bool:
    return min(known) <= value <= max(known)


@pytest.mark.parametrize("each", SCENARIOS, ids=lambda each: each.name)
def test_no_row_has_changed_since_the_page_was_made(each):
    """With few clients every row is unchanged to six digits; otherwise run ``python -m benchmarks.quality --docs``."""
    assert known(each) == rows(each)


@pytest.mark.parametrize("each", SCENARIOS, ids=lambda each: each.name)
def test_a_drawing_shows_the_figures_of_the_page(each):
    """Each cell of the table stands in the drawing, and each row of the scenario in the table."""
    lines = [line for line in part(each.name).splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    drawn = set(map(unescape, re.findall(r">([^<>]+)</text>", (DRAWINGS / f"{each.name}.svg").read_text())))

    assert [contender.name for contender in each.contenders] == [row[0] for row in table[2:]]
    assert set() == {cell for row in [table[0], *table[2:]] for cell in row if cell} - drawn


@pytest.mark.parametrize("drawing", sorted(DRAWINGS.glob("*.svg")), ids=lambda path: path.stem)
def test_drawings_are_small_and_belong_to_a_scenario(drawing: Path):
    """No figure is larger than 30 kB or left over."""
    assert drawing.stat().st_size < 30_000
    assert drawing.stem in {each.name for each in SCENARIOS}


def test_each_target_is_about_a_figure_that_there_is():
    """Its scenario has such a row and such a column."""
    names = {
        (each.name, contender.name, measure.name)
        for each in SCENARIOS
        for contender in each.contenders
        for measure in each.measures
    }

    assert set() == {(each.scenario, each.contender, each.measure) for each in TARGETS} - names


def test_the_formulas_of_others_are_checked_where_they_are_installed():
    """Each library has a line that shows whether it was compared."""
    assert ["tenacity", "stamina"] == [line.split()[0] for line in checked()]
