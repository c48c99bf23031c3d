"""``redrive simulate``: the effect of policies on a target, by `redrive.simulate`.

Exit status: 0 if it was simulated; 2 if a policy cannot be read, a scenario is unknown, or an option is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from redrive.cli.plan.source import find
from redrive.cli.screen import say
from redrive.cli.simulate.svg import as_svg
from redrive.cli.simulate.text import as_json, as_table
from redrive.errors import ConfigurationError
from redrive.plan.read import read_policy
from redrive.simulate import SCENARIOS, Contender, ScenarioResult, of_policy, run, scenario

# Columns where the output is no terminal: the widest table with the longest name.
_WIDTH = 140


def simulate(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCENARIO]...", help=f"{', '.join(each.name for each in SCENARIOS)}; by default all."),
    ] = None,
    *,
    policy: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="Put this policy beside the others; written as for `redrive plan`."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed; the same seed gives the same figures.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Run so many seeds and show the mean of them.")] = 1,
    clients: Annotated[int | None, typer.Option(help="How many clients, instead of as many as published.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw each scenario into this folder too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object in a line for each scenario.")] = False,
) -> None:
    """Show what policies do in an outage, in a crowd, on a full target: calls, load, completion, recovery."""
    guests = [] if policy is None else [_guest(policy)]
    chosen = [scenario(name) for name in dict.fromkeys(scenarios or [])] or SCENARIOS
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    for each in chosen:
        finding = run(each, guests, seeds=range(seed, seed + seeds), clients=clients)
        if svg is not None:
            _draw(svg, finding)
        if json:
            say(as_json(finding))
        else:
            as_table(finding, console)


def _guest(given: str) -> Contender:
    read = read_policy(*find(given))
    return of_policy(f"yours: {read.name}", read.policy)


def _draw(folder: Path, finding: ScenarioResult) -> None:
    path = folder / f"{finding.scenario.name}.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(as_svg(finding), encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    say(f"{finding.scenario.name} is drawn in {path}", err=True)
