"""``redrive jobs``: the commands that act on jobs. Each change leaves an entry in the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from redrive.app.app import App
from redrive.cli.jobs import SELECTING, Limit, Number, jobs, selecting
from redrive.cli.known import check_names
from redrive.cli.loading import Actor, AsJson, Target, load_existing
from redrive.cli.local import act, is_server, show
from redrive.cli.screen import say, say_kept
from redrive.cli.text import jobs as text
from redrive.engine.bulk import BulkAction
from redrive.engine.commands import LIMIT
from redrive.engine.records import Filter
from redrive.errors import JobNotFound
from redrive.operate.filters import write
from redrive.stores.operations.bulk import BulkPreview
from redrive.stores.urls import redacted

if TYPE_CHECKING:
    from redrive.cli.remote import Server

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list them.")]


@jobs.command()
def retry(app: Target, number: Number, *, actor: Actor = None) -> None:
    """Run a job once more, now: a waiting one is due at once, a dead or cancelled one starts again."""
    act(app, "jobs retry", actor=actor, id=number)


@jobs.command()
def skip(app: Target, number: Number, *, actor: Actor = None) -> None:
    """Let those pass that a dead job of an ordered queue holds up; it stays dead."""
    act(app, "jobs skip", actor=actor, id=number)


@jobs.command()
@selecting
def cancel(
    app: Target,
    where: Filter,
    *,
    limit: Limit = LIMIT,
    why: Annotated[str | None, typer.Option(help="Shown on the jobs.")] = None,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """End jobs that have not ended, by id or by filter; running ones lose their leases, and their handlers stop."""
    wanted = _demanded(where, limit)
    if where.ids is not None and len(where.ids) == 1 and not dry_run and names_all(wanted):
        act(app, "jobs cancel", actor=actor, id=where.ids[0], why=why)
        return
    if is_server(app):
        _begin(app, "cancel", wanted, actor=actor, dry_run=dry_run, why=why)
        return
    loaded = load_existing(app)
    check_names(loaded, task=where.task, queue=where.queue)
    if where.ids and not dry_run:
        say(f"{count(len(loaded.jobs.cancel(wanted, why=why, actor=actor)))} cancelled")
        return
    found = loaded.operations.preview(BulkAction.CANCEL, wanted, why=why)
    say(f"{count(_carry_out(loaded, found, actor=actor, dry_run=dry_run), dry_run=dry_run)} cancelled")


@jobs.command()
@selecting
def redrive(
    app: Target,
    where: Filter,
    *,
    limit: Limit = LIMIT,
    rate: Annotated[str | None, typer.Option(help="How many are due within how long, for example 100/s.")] = None,
    to: Annotated[str | None, typer.Option(help="The queue where they go; by default they stay.")] = None,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """Start dead jobs again, by id or by filter, oldest first, with all their failures forgiven.

    By filter it is an operation, which workers carry on if the command is interrupted: redrive operations stop ends it,
    and redrive operations undo cancels what has not started.
    """
    wanted = _demanded(where, limit)
    if is_server(app):
        _begin(app, "redrive", wanted, actor=actor, dry_run=dry_run, rate=rate, queue=to)
        return
    loaded = load_existing(app)
    check_names(loaded, task=where.task, queue=where.queue)
    if where.ids:
        these = replace(wanted, oldest_first=True)
        done = loaded.jobs.redrive(these, rate=rate, queue=to, dry_run=dry_run, actor=actor)
        say_kept(done.kept)
        say(f"{count(len(done.ids), dry_run=dry_run)} redriven")
        if names_all(wanted):
            check_known(loaded, where.ids, [*done.ids, *(number for number, _ in done.kept)])
        return
    found = loaded.operations.preview(BulkAction.REDRIVE, wanted, queue=to)
    changed = _carry_out(loaded, found, rate=rate, actor=actor, dry_run=dry_run)
    say(f"{count(changed, dry_run=dry_run)} redriven")


@jobs.command()
@selecting
def repolicy(
    app: Target,
    where: Filter,
    *,
    limit: Limit = LIMIT,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """Give unfinished jobs the present policies of their tasks, by id or by filter; due times stay as they are.

    Jobs that are held because their policies cannot be read (--hold bad_policy) are released by that.
    """
    wanted = _demanded(where, limit)
    if is_server(app):
        _begin(app, "repolicy", wanted, actor=actor, dry_run=dry_run)
        return
    loaded = load_existing(app)
    check_names(loaded, task=where.task, queue=where.queue)
    loaded.check()
    if where.ids:
        done = loaded.jobs.repolicy(wanted, dry_run=dry_run, actor=actor)
        say_kept(done.kept)
        changed = len(done.ids)
    else:
        found = loaded.operations.preview(BulkAction.REPOLICY, wanted)
        changed = _carry_out(loaded, found, actor=actor, dry_run=dry_run)
    say(f"{count(changed, dry_run=dry_run)} given the present policy")


def _begin(app: Server, action: str, wanted: Filter, *, dry_run: bool, **given: str | None) -> None:
    """Start the operation of a command on a server, whose workers carry it on, or have it checked."""
    from redrive.operate.table import call

    say(app.perform(call(f"jobs {action}", given | {"q": write(wanted)}), dry_run=dry_run).note)


def _carry_out(
    app: App, found: BulkPreview, *, rate: str | None = None, actor: str | None, dry_run: bool = False
) -> int:
    """Carry out the operation of a preview, write the jobs that stay, and return the number of the changed ones."""
    if dry_run or not found.changes:
        say_kept(found.reasons)
        return found.changes
    begun = app.operations.start(found, rate=rate, actor=actor)
    say(f"operation {begun.id}: workers carry it on if this command is interrupted", err=True)
    ended = app.operations.finish(begun.id)
    for each in app.operations.batches(begun.id):
        say_kept(each.kept)
    return ended.done


@jobs.command()
def audit(
    app: Target,
    *,
    before: Annotated[int | None, typer.Option(min=1, help="Only lines with a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """Show the actions of operators on jobs and queues, newest first."""
    show(app, "jobs audit", text.audit, json=json, before=before, limit=limit)


def _demanded(where: Filter, limit: int) -> Filter:
    """Return a filter with a limit; refuse one without a condition, which would act on all jobs by accident."""
    if not where.conditions:
        raise typer.BadParameter(f"give ids, or at least one of --{', --'.join(SELECTING)}")
    return replace(where, limit=len(where.ids) if where.ids else limit)


def names_all(wanted: Filter) -> bool:
    """Return True if the jobs are given by their ids alone."""
    return wanted.conditions.keys() == {"ids"}


def count(found: int, *, dry_run: bool = False) -> str:
    """Return the number of jobs, with the verb of the sentence that follows."""
    what, are = ("1 job", "is") if found == 1 else (f"{found} jobs", "are")
    return f"{what} {'would be' if dry_run else are}"


def check_known(app: App, numbers: Iterable[int] | None, found: list[int]) -> None:
    """Raise `JobNotFound` if a given job was not found."""
    missing = sorted(set(numbers or ()) - set(found))
    if missing:
        raise JobNotFound(f"there is no job {', '.join(map(str, missing))} in {redacted(app.url)}")
