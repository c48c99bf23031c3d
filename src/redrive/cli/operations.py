"""``redrive operations``: show bulk operations, stop them, and take them back."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.acting import say_kept
from redrive.cli.loading import Actor, AsJson, Target, load_existing
from redrive.cli.screen import Grid, print_document, say, utc
from redrive.engine.bulk import BulkOperation, BulkState
from redrive.engine.explain import span

operations = typer.Typer(help="Look at bulk operations, stop them, and take them back.", no_args_is_help=True)

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
    found = load_existing(app).operations.select(before_id=before, limit=limit)
    if json:
        for each in found:
            print_document(_plain(each))
        return
    if not found:
        say("no operation has been started")
        return
    table = Grid("id", "state", "action", "jobs", "done", "kept", "of", "rate", "who", wide=("jobs", "who"))
    for each in found:
        numbers = (str(each.done), str(each.kept), "many" if each.matched is None else str(each.matched))
        table.add(str(each.id), each.state, each.action, _means(each), *numbers, each.rate or "-", each.actor)
    table.show()


@operations.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one operation: how far it is, and the jobs that stay as they are, with the reasons."""
    loaded = load_existing(app)
    found = loaded.operations.get(number)
    if json:
        print_document(_plain(found) | {"batches": list(loaded.operations.batches(number))})
        return
    say(f"  {found.state}", head=f"operation {number}")
    say(f"{found.action} of {_means(found)}, started by {found.actor}")
    if found.undoes is None:
        say(f"frozen at {utc(found.frozen_at)}, at job {found.bound_id}: later ones are not changed")
    left = "" if found.left_for is None else f", {span(found.left_for)} left"
    many = "more than were counted" if found.matched is None else str(found.matched)
    rate = "" if found.rate is None else f", at {found.rate}"
    say(f"{found.done} jobs changed, {found.kept} kept, of {many}{rate}{left}")
    if found.last_error is not None:
        say(f"the last batch failed and is tried again: {found.last_error}")
    if found.undone_by is not None:
        say(f"undone by operation {found.undone_by}")
    for each in loaded.operations.batches(number):
        say_kept(each.kept)


@operations.command()
def stop(app: Target, number: Number, *, actor: Actor = None) -> None:
    """End an operation that runs; what it has done stays."""
    found = load_existing(app).operations.stop(number, actor=actor)
    say(f"operation {number} is stopped: {found.done} jobs changed, {found.kept} kept")


@operations.command()
def undo(app: Target, number: Number, *, actor: Actor = None) -> None:
    """Take a redrive or a cancel back: jobs that have not started are cancelled, and cancelled ones start again."""
    loaded = load_existing(app)
    begun = loaded.operations.undo(number, actor=actor)
    ended = loaded.operations.finish(begun.id)
    for each in loaded.operations.batches(begun.id):
        say_kept(each.kept)
    say(f"operation {begun.id} has taken operation {number} back: {ended.done} jobs changed, {ended.kept} kept")


def _means(each: BulkOperation) -> str:
    """Return the jobs that an operation means."""
    if each.undoes is not None:
        return f"operation {each.undoes}"
    conditions = each.wanted.conditions
    return ", ".join(f"{name} {value}" for name, value in conditions.items()) or "all jobs"


def _plain(each: BulkOperation) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(each, name) for name in each.__struct_fields__}
    del plain["options"]
    running = each.state is BulkState.RUNNING
    return (
        plain
        | {"wanted": each.wanted.conditions, "queue": each.options.queue, "why": each.options.why}
        | {"left_for": each.left_for if running else None}
    )
