"""``redrive plan``: a table and a timeline of what a policy does.

`source` reads the argument; `redrive.plan` computes and draws the plan.

Exit status: 0 if the policy was drawn; 2 if it cannot be read, is invalid, or an option is wrong.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from redrive.cli.loading import read_instant
from redrive.cli.plan.source import find
from redrive.cli.screen import draw, say_lines, write_drawing
from redrive.clock import SystemClock
from redrive.drawing import glyphs_for
from redrive.errors import ConfigurationError
from redrive.plan import gantt
from redrive.plan.mermaid import as_mermaid
from redrive.plan.read import read_policy
from redrive.plan.rows import as_json, plan_of
from redrive.plan.svg import as_svg
from redrive.plan.text import as_text

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
    start: Annotated[
        datetime | None,
        typer.Option(parser=read_instant, metavar="TIME", help="When a refresh begins, ISO 8601; by default now."),
    ] = None,
) -> None:
    """Show what a policy does: each retry, how long it waits, when it comes, the worst case, and the catch."""
    if json and mermaid:
        raise ConfigurationError("give --json or --mermaid, not both")
    origin, text = ("", policy) if gantt.is_english(policy) else find(policy)
    if gantt.is_english(text):
        if json or strict:
            raise ConfigurationError("--json and --strict are about retry policies; a refresh has --mermaid and --svg")
        chart = gantt.chart_of(text, answers=answers, start=start, most=retries, now=SystemClock().now())
        page = partial(gantt.as_mermaid, chart) if mermaid else None
        _draw(partial(gantt.as_svg, chart), page, partial(gantt.as_text, chart), svg)
        return
    read = read_policy(origin, text, strict=strict)
    made = plan_of(read.policy, title=read.name, retries=retries)
    page = partial(as_mermaid, made) if mermaid else partial(as_json, made, read.policy) if json else None
    _draw(partial(as_svg, made), page, partial(as_text, made), svg)


def _draw(
    as_svg: Callable[[], str], page: Callable[[], str] | None, lines: Callable[..., Iterable[Text]], svg: Path | None
) -> None:
    # Characters that the terminal cannot write become question marks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if svg is not None:
        write_drawing(svg, as_svg(), "the timeline")
    if page is not None:
        say_lines(page())
        return
    console = Console(highlight=False)
    width = console.width if console.is_terminal else PLAIN_WIDTH
    for line in lines(width=width, glyphs=glyphs_for(console.encoding)):
        draw(console, line)
