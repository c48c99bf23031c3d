"""``redrive jobs``: look at jobs, and act on them.

The commands read the database through the App, because the App knows where it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redrive.app.app import App
from redrive.cli.loading import load_app
from redrive.engine.explain import span, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import Attempt, Job
from redrive.engine.select import Filter
from redrive.errors import JobNotFound
from redrive.stores.operations import jobs as operations

__all__ = ["jobs"]

jobs = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, for example payments.jobs:app.")]
Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the job.")]
Numbers = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Ids of jobs.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object in a line instead of a table.")]
ByTask = Annotated[str | None, typer.Option(help="Only jobs of this task.")]
ByQueue = Annotated[str | None, typer.Option(help="Only jobs on this queue.")]
ByReason = Annotated[str | None, typer.Option(help="Only jobs whose last attempt failed for this reason.")]
ByError = Annotated[str | None, typer.Option(help="Only jobs whose last error contains this text.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]


@jobs.command("list")
def list_(
    app: Target,
    *,
    state: Annotated[State | None, typer.Option(help="Only jobs in this state.")] = None,
    task: ByTask = None,
    queue: ByQueue = None,
    reason: ByReason = None,
    error: ByError = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first, each with the reason why it is not running."""
    loaded = load_app(app)
    found = loaded.jobs(Filter(state=state, task=task, queue=queue, reason=reason, error=error, limit=limit))
    now = datetime.now(UTC)  # noqa: TID251 - for display only
    if json:
        for job in found:
            typer.echo(msgspec.json.encode(_plain(job, now)).decode())
        return
    table = Table("id", "task", "queue", "state", "attempts", "why", box=None, pad_edge=False)
    for job in found:
        why = escape(why_not_running(job, now))
        table.add_row(str(job.id), escape(job.task), escape(job.queue), job.state, str(job.attempt), why)
    Console().print(table)
    if len(found) == limit:
        typer.echo(f"... the newest {limit}; --limit shows more", err=True)


@jobs.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one job: why it is not running, its arguments, and every attempt with the rule that chose its delay."""
    loaded = load_app(app)
    material = loaded.store.run(operations.material(number))
    now = datetime.now(UTC)  # noqa: TID251 - for display only
    if json:
        plain = _plain(material.job, now) | {"payload": msgspec.Raw(material.payload or b"null")}
        typer.echo(msgspec.json.encode(plain | {"history": material.attempts}).decode())
        return
    job = material.job
    console = Console()
    where = f"{escape(job.task)} on {escape(job.queue)}, priority {job.priority}"
    console.print(f"[bold]job {job.id}[/bold]  {where}", highlight=False)
    console.print(f"{job.state}: {why_not_running(job, now)}", highlight=False, markup=False)
    console.print(f"enqueued {_at(job.enqueued_at)}, due {_at(job.scheduled_at)}", highlight=False)
    if job.parent_id is not None:
        console.print(f"catches job {job.parent_id}", highlight=False)
    console.print(f"policy: {job.policy.explain()}", highlight=False, markup=False)
    console.print(f"payload: {(material.payload or b'-').decode()}", highlight=False, markup=False)
    console.print(_history(material.attempts))


def _history(attempts: tuple[Attempt, ...]) -> Table:
    table = Table("attempt", "started", "took", "ended", "why", "then", box=None, pad_edge=False)
    for each in attempts:
        why = f"{each.reason}: {each.error}" if each.reason else ""
        took = span(each.finished_at - each.started_at)
        texts = escape(why), escape(each.verdict or "")
        table.add_row(str(each.number), _at(each.started_at), took, each.outcome, *texts)
    return table


@jobs.command()
def retry(app: Target, number: Number) -> None:
    """Run a job once more, now: a waiting one is due at once, a dead or cancelled one starts again."""
    load_app(app).job(number).retry()
    typer.echo(f"job {number} is due now")


@jobs.command()
def cancel(
    app: Target, number: Number, *, why: Annotated[str | None, typer.Option(help="Shown on the job.")] = None
) -> None:
    """End a job that has not ended; a running one loses its lease and its handler is stopped."""
    job = load_app(app).job(number)
    if job.cancel(why):
        typer.echo(f"job {number} is cancelled")
    else:
        typer.echo(f"job {number} had ended before: {job.refresh().state}")


@jobs.command()
def redrive(
    app: Target,
    numbers: Numbers = None,
    *,
    task: ByTask = None,
    queue: ByQueue = None,
    reason: ByReason = None,
    error: ByError = None,
    limit: Limit = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
) -> None:
    """Start dead jobs again, by id or by filter, oldest first, with all their failures forgiven."""
    if not (numbers or task or queue or reason or error):
        message = "say which: ids, or at least one of --task, --queue, --reason, --error"
        raise typer.BadParameter(message)
    loaded = load_app(app)
    wanted = Filter(
        ids=tuple(numbers) if numbers else None,
        state=None if numbers else State.DEAD,
        task=task,
        queue=queue,
        reason=reason,
        error=error,
        caught=None if numbers else False,
        oldest_first=True,
        limit=limit,
    )
    done = loaded.redrive(wanted, dry_run=dry_run)
    for number, why in done.kept:
        typer.echo(f"job {number} {why}", err=True)
    typer.echo(_redriven(len(done.ids), dry_run=dry_run))
    _check_known(loaded, numbers, [*done.ids, *(number for number, _ in done.kept)])


def _redriven(count: int, *, dry_run: bool) -> str:
    what, are = ("1 job", "is") if count == 1 else (f"{count} jobs", "are")
    return f"{what} {'would be' if dry_run else are} redriven"


def _check_known(app: App, numbers: list[int] | None, found: list[int]) -> None:
    missing = sorted(set(numbers or ()) - set(found))
    if missing:
        message = f"there is no job {', '.join(map(str, missing))} in {app.url}"
        raise JobNotFound(message)


def _plain(job: Job, now: datetime) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(job, name) for name in job.__slots__}
    return plain | {"policy": job.policy.to_dict(), "why": why_not_running(job, now)}


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
