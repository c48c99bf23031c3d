"""``redrive workers``: show the workers, what they serve, and how busy they are."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.loading import AsJson, Target
from redrive.cli.local import name_of, show
from redrive.cli.text import workers as text

workers: typer.Typer = typer.Typer(help="Look at workers.", no_args_is_help=True)


@workers.callback()
def _group() -> None:
    """Look at workers."""


@workers.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List the workers that have not shut down: what they serve, their slots, and when each was last heard from."""
    show(app, "workers list", lambda view: text.workers(view, name_of(app)), json=json)


@workers.command("builds")
def builds_(app: Target, *, json: AsJson = False) -> None:
    """Compare the failures of each task before and after workers began to run the newest build."""
    show(app, "workers builds", text.builds, json=json)


@workers.command("show")
def show_(
    app: Target, number: Annotated[int, typer.Argument(metavar="ID", help="Id of the worker.")], *, json: AsJson = False
) -> None:
    """Show one worker: whether it is stuck, which code it runs, and the jobs that it runs."""
    show(app, "workers show", lambda view: text.worker(view, name_of(app)), json=json, id=number)
