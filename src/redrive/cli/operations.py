"""``redrive operations``: show bulk operations, stop them, and take them back."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.loading import Actor, AsJson, Target, load_existing
from redrive.cli.local import ask, is_server, most
from redrive.cli.local import show as show_view
from redrive.cli.screen import say, say_kept
from redrive.cli.text import operations as text
from redrive.engine.bulk import BulkOperation

operations: typer.Typer = typer.Typer(
    help="Look at bulk operations, stop them, and take them back.", no_args_is_help=True
)

Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the operation.")]


@operations.command("list")
def list_(
    app: Target,
    *,
    before: Annotated[int | None, typer.Option(min=1, help="Only operations with a smaller id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    json: AsJson = False,
) -> None:
    """List bulk operations, newest first: their actions, their filters, and how far they are."""
    show_view(app, "operations list", text.operations, json=json, before=before, limit=limit)


@operations.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one operation: how far it is, and the jobs that stay as they are, with the reasons."""
    show_view(app, "operations show", text.operation, json=json, id=number, limit=most(app))


@operations.command()
def stop(app: Target, number: Number, *, actor: Actor = None) -> None:
    """End an operation that runs; what it has done stays."""
    ask(app, "operations stop", actor=actor, id=number)
    found = ask(app, "operations show", id=number).operation
    say(f"operation {number} is stopped: {found.done} jobs changed, {found.kept} kept")


@operations.command()
def undo(app: Target, number: Number, *, actor: Actor = None) -> None:
    """Take a redrive or a cancel back: jobs that have not started are cancelled, and cancelled ones start again."""
    begun = ask(app, "operations undo", actor=actor, id=number)
    if is_server(app):
        say(begun.note)
        return
    ended = finish(app, begun.operation)
    say(f"operation {ended.id} has taken operation {number} back: {ended.done} jobs changed, {ended.kept} kept")


def finish(app: str, number: str) -> BulkOperation:
    """Carry out an operation to its end, and write the jobs that stay as they are."""
    carried = load_existing(app).operations
    ended = carried.finish(int(number))
    for each in carried.batches(ended.id):
        say_kept(each.kept)
    return ended
