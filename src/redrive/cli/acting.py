"""``redrive jobs``: the commands that act on jobs. Each change leaves an entry in the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from msgspec.structs import astuple, replace

from redrive.app.app import App
from redrive.cli.jobs import SELECTING, Limit, Most, Number, jobs, selecting
from redrive.cli.known import check_names
from redrive.cli.loading import Actor, AsJson, Target, load_existing
from redrive.cli.local import Desk, act, check, is_server, perform, show
from redrive.cli.operations import finish
from redrive.cli.screen import say, say_kept
from redrive.cli.text import jobs as text
from redrive.engine.records import Filter
from redrive.errors import JobNotFound
from redrive.operate.filters import write
from redrive.stores.urls import redacted

# A limit above every number of jobs: an operation without one is to be confirmed by the number of its jobs.
_ALL = 10**9

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
    limit: Most = None,
    why: Annotated[str | None, typer.Option(help="Shown on the jobs.")] = None,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """End jobs that have not ended, by id or by filter; running ones lose their leases, and their handlers stop."""
    wanted = _demanded(where, limit)
    if where.ids is not None and len(where.ids) == 1 and not dry_run and names_all(wanted):
        act(app, "jobs cancel", actor=actor, id=where.ids[0], why=why)
    elif isinstance(app, str) and where.ids and not dry_run:
        check(app, check_names, task=where.task, queue=where.queue)
        say(f"{count(len(load_existing(app).jobs.cancel(wanted, why=why, actor=actor)))} cancelled")
    else:
        _operate(app, "cancel", wanted, "cancelled", actor=actor, dry_run=dry_run, why=why)


@jobs.command()
@selecting
def redrive(
    app: Target,
    where: Filter,
    *,
    limit: Most = None,
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
    if is_server(app) or where.ids is None:
        _operate(app, "redrive", wanted, "redriven", actor=actor, dry_run=dry_run, rate=rate, queue=to)
        return
    check(app, check_names, task=where.task, queue=where.queue)
    loaded, these = load_existing(app), replace(wanted, oldest_first=True)
    done = loaded.jobs.redrive(these, rate=rate, queue=to, dry_run=dry_run, actor=actor)
    say_kept(done.kept)
    say(f"{count(len(done.ids), dry_run=dry_run)} redriven")
    if names_all(wanted):
        check_known(loaded, where.ids, [*done.ids, *(number for number, _ in done.kept)])


@jobs.command()
@selecting
def repolicy(
    app: Target,
    where: Filter,
    *,
    limit: Most = None,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """Give unfinished jobs the present policies of their tasks, by id or by filter; due times stay as they are.

    Jobs that are held because their policies cannot be read (--hold bad_policy) are released by that.
    """
    wanted = _demanded(where, limit)
    check(app, App.check)
    if is_server(app) or where.ids is None:
        _operate(app, "repolicy", wanted, "given the present policy", actor=actor, dry_run=dry_run)
        return
    check(app, check_names, task=where.task, queue=where.queue)
    done = load_existing(app).jobs.repolicy(wanted, dry_run=dry_run, actor=actor)
    say_kept(done.kept)
    say(f"{count(len(done.ids), dry_run=dry_run)} given the present policy")


def _operate(
    app: Desk, action: str, wanted: Filter, did: str, *, actor: str | None, dry_run: bool, **given: str | None
) -> None:
    """Start an operation: here it is carried out to its end, on a server the workers carry it on."""
    check(app, check_names, task=wanted.task, queue=wanted.queue)
    these = {"q": write(wanted), "limit": _ALL if wanted.limit is None else wanted.limit}
    begun = perform(app, f"jobs {action}", given | these, actor=actor, dry_run=dry_run)
    if not isinstance(app, str):
        say(begun.note)
        return
    changed = begun.changes
    if begun.operation is None:
        say_kept(map(astuple, begun.kept))
    else:
        say(f"operation {begun.operation}: workers carry it on if this command is interrupted", err=True)
        changed = finish(app, begun.operation).done
    say(f"{count(changed, dry_run=dry_run)} {did}")


@jobs.command()
def audit(
    app: Target,
    *,
    about: Annotated[
        str | None, typer.Option(help="Only about this, such as queue:mail, schedule:nightly, job:17.")
    ] = None,
    before: Annotated[int | None, typer.Option(min=1, help="Only lines with a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """Show the actions of operators, newest first: all of them, or those about one thing."""
    show(app, "jobs audit", text.audit, json=json, about=about, before=before, limit=limit)


def _demanded(where: Filter, limit: int | None) -> Filter:
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
