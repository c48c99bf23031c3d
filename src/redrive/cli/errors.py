"""``redrive errors``: which errors occur, how often, and since when; and which of them are muted."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.jobs import ByTask, Limit
from redrive.cli.known import check_names
from redrive.cli.loading import AsJson, Target
from redrive.cli.local import act, check, name_of
from redrive.cli.local import show as show_view
from redrive.cli.screen import say
from redrive.cli.text import errors as text
from redrive.operate.errors import SPANS
from redrive.stores.operations.counters import read_place

errors: typer.Typer = typer.Typer(help="Look at groups of equal errors.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Its fingerprint.")]


@errors.command("list")
def list_(
    app: Target,
    *,
    task: ByTask = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only groups with dead jobs.")] = False,
    before: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Only groups behind this place, which the list before named.")
    ] = None,
    span: Annotated[
        str | None, typer.Option(help="1h, 24h or 7d: only groups that failed within that, the most frequent first.")
    ] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List error groups, the latest failure first, with their dead jobs and their failures of the last 24 hours.

    Workers count failures and write the numbers every 10 seconds.
    """
    if span is not None and span not in SPANS:
        raise typer.BadParameter(f"--span {span!r} is none of {', '.join(SPANS)}")
    if before is not None and read_place(before) is None:
        raise typer.BadParameter(f"--before {before!r} is no place that a list before this one named")
    check(app, check_names, task=task)
    view = show_view(
        app,
        "errors list",
        text.groups,
        json=json,
        task=task,
        dead=int(dead) or None,
        before=before,
        span=span,
        limit=limit,
    )
    if view.before is not None:
        say(f"... --before {view.before} shows earlier groups, --limit more at once", err=True)


@errors.command()
def show(app: Target, group: Group, *, json: AsJson = False) -> None:
    """Show one error group, and how its dead jobs are listed and started again."""
    show_view(app, "errors show", lambda view: text.group(view, name_of(app)), json=json, group=group)


@errors.command()
def mute(
    app: Target,
    group: Group,
    *,
    span: Annotated[
        str | None, typer.Option("--for", help="Such as 24h; without it until the group fails again.")
    ] = None,
) -> None:
    """Leave a group out on the overview of the dashboard. Its failures still count."""
    act(app, "errors mute", group=group, span=span)


@errors.command()
def unmute(app: Target, group: Group) -> None:
    """Show a muted group on the overview of the dashboard again."""
    act(app, "errors unmute", group=group)
