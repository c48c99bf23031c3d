"""``redrive jobs``: the commands that act on jobs. Each change leaves an entry in the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from redrive.app.app import App
from redrive.cli.jobs import (
    ByCaught,
    ByError,
    ByGroup,
    ByHold,
    ByQueue,
    ByReason,
    ByState,
    ByTag,
    ByTask,
    Limit,
    Number,
    Numbers,
    jobs,
)
from redrive.cli.known import check_names
from redrive.cli.loading import Actor, AsJson, Target, load_existing
from redrive.cli.screen import document, print_document, say, utc
from redrive.engine.bulk import BulkAction
from redrive.engine.commands import LIMIT
from redrive.engine.records import Filter
from redrive.errors import JobNotFound
from redrive.stores.operations.bulk import BulkPreview
from redrive.stores.urls import redacted

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list them.")]


@jobs.command()
def retry(app: Target, number: Number, *, actor: Actor = None) -> None:
    """Run a job once more, now: a waiting one is due at once, a dead or cancelled one starts again."""
    load_existing(app).job(number).retry(actor=actor)
    say(f"job {number} is due now")


@jobs.command()
def skip(app: Target, number: Number, *, actor: Actor = None) -> None:
    """Let those pass that a dead job of an ordered queue holds up; it stays dead."""
    was_blocking = load_existing(app).job(number).skip(actor=actor)
    say(f"job {number} " + ("blocks no other job any more" if was_blocking else "blocked no other job"))


@jobs.command()
def cancel(
    app: Target,
    numbers: Numbers = None,
    *,
    state: ByState = None,
    task: ByTask = None,
    queue: ByQueue = None,
    reason: ByReason = None,
    error: ByError = None,
    group: ByGroup = None,
    hold: ByHold = None,
    tag: ByTag = None,
    caught: ByCaught = None,
    limit: Limit = LIMIT,
    why: Annotated[str | None, typer.Option(help="Shown on the jobs.")] = None,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """End jobs that have not ended, by id or by filter; running ones lose their leases, and their handlers stop."""
    wanted = _wanted(
        numbers,
        limit,
        state=state,
        task=task,
        queue=queue,
        reason=reason,
        error=error,
        group=group,
        hold=hold,
        tag=tag,
        caught=caught,
    )
    loaded = load_existing(app)
    if numbers is not None and len(numbers) == 1 and not dry_run and names_all(wanted):
        job = loaded.job(numbers[0])
        is_done = job.cancel(why, actor=actor)
        say(f"job {job.id} " + ("is cancelled" if is_done else f"had ended before: {job.refresh().state}"))
        return
    check_names(loaded, task=task, queue=queue)
    if numbers and not dry_run:
        say(f"{count(len(loaded.jobs.cancel(wanted, why=why, actor=actor)))} cancelled")
        return
    found = loaded.operations.preview(BulkAction.CANCEL, wanted, why=why)
    say(f"{count(_carry_out(loaded, found, actor=actor, dry_run=dry_run), dry_run=dry_run)} cancelled")


@jobs.command()
def redrive(
    app: Target,
    numbers: Numbers = None,
    *,
    state: ByState = None,
    task: ByTask = None,
    queue: ByQueue = None,
    reason: ByReason = None,
    error: ByError = None,
    group: ByGroup = None,
    hold: ByHold = None,
    tag: ByTag = None,
    caught: ByCaught = None,
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
    wanted = _wanted(
        numbers,
        limit,
        state=state,
        task=task,
        queue=queue,
        reason=reason,
        error=error,
        group=group,
        hold=hold,
        tag=tag,
        caught=caught,
    )
    loaded = load_existing(app)
    check_names(loaded, task=task, queue=queue)
    if numbers:
        these = replace(wanted, oldest_first=True)
        done = loaded.jobs.redrive(these, rate=rate, queue=to, dry_run=dry_run, actor=actor)
        say_kept(done.kept)
        say(f"{count(len(done.ids), dry_run=dry_run)} redriven")
        if names_all(wanted):
            check_known(loaded, numbers, [*done.ids, *(number for number, _ in done.kept)])
        return
    found = loaded.operations.preview(BulkAction.REDRIVE, wanted, queue=to)
    changed = _carry_out(loaded, found, rate=rate, actor=actor, dry_run=dry_run)
    say(f"{count(changed, dry_run=dry_run)} redriven")


@jobs.command()
def repolicy(
    app: Target,
    numbers: Numbers = None,
    *,
    state: ByState = None,
    task: ByTask = None,
    queue: ByQueue = None,
    reason: ByReason = None,
    error: ByError = None,
    group: ByGroup = None,
    hold: ByHold = None,
    tag: ByTag = None,
    caught: ByCaught = None,
    limit: Limit = LIMIT,
    dry_run: DryRun = False,
    actor: Actor = None,
) -> None:
    """Give unfinished jobs the present policies of their tasks, by id or by filter; due times stay as they are.

    Jobs that are held because their policies cannot be read (--hold bad_policy) are released by that.
    """
    wanted = _wanted(
        numbers,
        limit,
        state=state,
        task=task,
        queue=queue,
        reason=reason,
        error=error,
        group=group,
        hold=hold,
        tag=tag,
        caught=caught,
    )
    loaded = load_existing(app)
    check_names(loaded, task=task, queue=queue)
    loaded.check()
    if numbers:
        done = loaded.jobs.repolicy(wanted, dry_run=dry_run, actor=actor)
        say_kept(done.kept)
        changed = len(done.ids)
    else:
        found = loaded.operations.preview(BulkAction.REPOLICY, wanted)
        changed = _carry_out(loaded, found, actor=actor, dry_run=dry_run)
    say(f"{count(changed, dry_run=dry_run)} given the present policy")


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
    lines = load_existing(app).database.audit(before_id=before, limit=limit)
    if json:
        for line in lines:
            plain = {"id": line.id, "at": line.at, "actor": line.actor, "action": line.action}
            print_document(plain | {"details": document(line.details)})
        return
    for line in lines:
        say(f"  {line.actor}  {line.action}  {line.details}", head=utc(line.at))


def _wanted(numbers: list[int] | None, limit: int, **conditions: Any) -> Filter:  # noqa: ANN401 - of each type
    """Return the filter of ids and options; refuse one without a condition, which would act on all jobs by accident."""
    if not numbers and all(given is None for given in conditions.values()):
        raise typer.BadParameter(f"give ids, or at least one of --{', --'.join(conditions)}")
    return Filter(ids=tuple(numbers) if numbers else None, limit=len(numbers) if numbers else limit, **conditions)


def names_all(wanted: Filter) -> bool:
    """Return True if the jobs are given by their ids alone."""
    return wanted.conditions.keys() == {"ids"}


def say_kept(kept: Iterable[tuple[int, str]]) -> None:
    """Write the jobs that stay as they are, with the reasons, to standard error."""
    for number, why in kept:
        say(f"job {number} {why}", err=True)


def count(found: int, *, dry_run: bool = False) -> str:
    """Return the number of jobs, with the verb of the sentence that follows."""
    what, are = ("1 job", "is") if found == 1 else (f"{found} jobs", "are")
    return f"{what} {'would be' if dry_run else are}"


def check_known(app: App, numbers: list[int] | None, found: list[int]) -> None:
    """Raise `JobNotFound` if a given job was not found."""
    missing = sorted(set(numbers or ()) - set(found))
    if missing:
        raise JobNotFound(f"there is no job {', '.join(map(str, missing))} in {redacted(app.url)}")
