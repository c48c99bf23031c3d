"""``python -m benchmarks.quality [SCENARIO...] [--json] [--svg DIR] [--seeds N] [--docs]``: all figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.quality.page import PAGE, verdict, written
from benchmarks.quality.peers import checked
from benchmarks.quality.rows import keep
from redrive.cli.simulate.svg import as_svg
from redrive.cli.simulate.text import as_json, as_table
from redrive.simulate import SCENARIOS, ScenarioResult, run, scenario

__all__ = ["SEEDS", "main"]

SEEDS = 3
"""Of the figures in the documentation."""


def main() -> int:
    """Run all scenarios.

    Returns:
        0; a target that is not met is printed and does not fail the run, since it is a finding.
    """
    options = _options()
    console = Console(highlight=False, width=160)
    for line in [] if options.json else checked():
        console.print(line, style="dim")
    chosen = [scenario(name) for name in options.scenarios] or SCENARIOS
    for each in chosen:
        finding = run(each, seeds=range(options.seeds))
        if options.json:
            print(as_json(finding))
        else:
            as_table(finding, console)
            for line in verdict(finding):
                console.print("  " + line.replace("**", ""))
            console.print()
        if options.svg is not None:
            _draw(options.svg, finding)
        if options.docs:
            _draw(PAGE.parents[1] / "quality", finding)
            PAGE.write_text(written(PAGE.read_text(), finding))
            keep(each)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.quality")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="by default all")
    parser.add_argument("--json", action="store_true", help="one JSON object in a line for each scenario")
    parser.add_argument("--svg", type=Path, metavar="DIR", help="draw each scenario into this folder")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many; the spread is printed")
    parser.add_argument("--docs", action="store_true", help="write the page and the drawings of the documentation")
    return parser.parse_args()


def _draw(folder: Path, finding: ScenarioResult) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{finding.scenario.name}.svg").write_text(as_svg(finding), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main())
