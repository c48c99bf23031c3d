"""``redrive plan``: a table and a timeline of what a policy does.

==============================  ==================================================================
`source`                        reads the argument: a directive, JSON, or a file
`kinds`                         finds the kinds of failures that the policy treats differently
`rows`                          computes a `PolicyPlan`: each retry, its time, and whether it is in time
`text`, `svg`, `mermaid`,       draw the plan
`plain`
`refreshing`, `gantt`           do the same for refresh policies in English
==============================  ==================================================================

No module here computes a delay: ``rows`` calls `redrive.policy.Policy.decide` after each failure, once with the lowest
random sample and once with the highest, so that the drawing cannot differ from the behaviour.

Exit status: 0 if the policy was drawn; 2 if it cannot be read, is invalid, or an option is wrong.
"""

from __future__ import annotations

import io
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from redrive.cli.plan import gantt
from redrive.cli.plan.gantt import Chart
from redrive.cli.plan.mermaid import as_mermaid
from redrive.cli.plan.plain import as_json
from redrive.cli.plan.refreshing import chart_of, is_english
from redrive.cli.plan.rows import PolicyPlan, plan_of
from redrive.cli.plan.source import find, read_policy
from redrive.cli.plan.svg import as_svg
from redrive.cli.plan.text import as_text, glyphs_for
from redrive.cli.screen import draw, say, say_lines
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError

__all__ = ["plan"]

# Columns where the output is no terminal: what fits into most pages and mails.
PLAIN_WIDTH = 100


def plan(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="POLICY",
            help='A directive such as "5 1s catch recover", a policy as JSON, or a refresh policy in English, such as '
            '"Refresh every 2 hours"; the path of a .json file, @FILE for any other file, - for standard input.',
        ),
    ],
    *,
    retries: Annotated[int, typer.Option(min=1, max=1000, help="Draw at most so many for each kind of failure.")] = 20,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the timeline into this SVG file too.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid gantt diagram instead of the table.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object in a line instead of the table.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Read the directive exactly as FTL does.")] = False,
    answers: Annotated[
        str | None,
        typer.Option(metavar="LIST", help='What the attempts of a refresh come to: "fail 4m, timeout, ok 2m".'),
    ] = None,
    start: Annotated[datetime | None, typer.Option(help="When a refresh begins; by default now.")] = None,
) -> None:
    """Show what a policy does: each retry, how long it waits, when it comes, the worst case, and the catch."""
    if json and mermaid:
        message = "give --json or --mermaid, not both"
        raise ConfigurationError(message)
    origin, text = ("", policy) if is_english(policy) else find(policy)
    if is_english(text):
        if json or strict:
            message = "--json and --strict are about retry policies; a refresh has --mermaid and --svg"
            raise ConfigurationError(message)
        _draw(chart_of(text, answers=answers, start=start, most=retries, now=SystemClock().now()), svg, mermaid=mermaid)
        return
    read = read_policy(origin, text, strict=strict)
    made = plan_of(read.policy, title=read.name, retries=retries)
    _tolerate()
    if svg is not None:
        _write(svg, as_svg(made))
    if json:
        say(as_json(made, read.policy))
    elif mermaid:
        say_lines(as_mermaid(made))
    else:
        _show(made)


def _draw(chart: Chart, svg: Path | None, *, mermaid: bool) -> None:
    """Draw the chart of a refresh policy."""
    _tolerate()
    if svg is not None:
        _write(svg, gantt.as_svg(chart))
    if mermaid:
        say_lines(gantt.as_mermaid(chart))
        return
    console = Console(highlight=False)
    width = console.width if console.is_terminal else PLAIN_WIDTH
    plain = glyphs_for(console.encoding) is not glyphs_for("utf-8")
    for line in gantt.as_text(chart, width=width, plain=plain):
        draw(console, line)


def _show(made: PolicyPlan) -> None:
    console = Console(highlight=False)
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in as_text(made, width=width, glyphs=glyphs_for(console.encoding)):
        draw(console, line)


def _tolerate() -> None:
    """Replace characters that the terminal cannot write by question marks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _write(path: Path, drawing: str) -> None:
    try:
        path.write_text(drawing, encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise ConfigurationError(message) from error
    say(f"the timeline is drawn in {path}", err=True)
