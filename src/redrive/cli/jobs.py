"""``redrive jobs``: look at jobs. The commands that act on them are in `redrive.cli.acting`.

The commands read the database through the App, because the App knows where it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redrive.cli.loading import load_app
from redrive.engine.explain import Circumstances, span, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import Attempt, Hold, Job
from redrive.engine.select import Filter
from redrive.stores.operations import jobs as operations
from redrive.stores.operations import queues

__all__ = ["jobs"]

jobs = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, for example payments.jobs:app.")]
Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the job.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object in a line instead of a table.")]
ByTask = Annotated[str | None, typer.Option(help="Only jobs of this task.")]
ByQueue = Annotated[str | None, typer.Option(help="Only jobs on this queue.")]
ByReason = Annotated[str | None, typer.Option(help="Only jobs whose last attempt failed for this reason.")]
ByError = Annotated[str | None, typer.Option(help="Only jobs whose last error contains this text.")]
ByHold = Annotated[Hold | None, typer.Option(help="Only jobs that wait for this reason.")]
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
    hold: ByHold = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first, or with --hold by when they are due, each with the reason why it is not running."""
    loaded = load_app(app)
    found = loaded.jobs(Filter(state=state, task=task, queue=queue, reason=reason, error=error, hold=hold, limit=limit))
    around = loaded.store.run(queues.circumstances(found, now=loaded.now()))
    if json:
        for job in found:
            typer.echo(msgspec.json.encode(_plain(job, around[job.id])).decode())
        return
    table = Table("id", "task", "queue", "state", "attempts", "why", box=None, pad_edge=False)
    for job in found:
        why = escape(why_not_running(job, around[job.id]))
        table.add_row(str(job.id), escape(job.task), escape(job.queue), job.state, str(job.attempt), why)
    Console().print(table)
    if len(found) == limit:
        which = "newest" if hold is None else "first"
        typer.echo(f"... the {which} {limit}; --limit shows more", err=True)


@jobs.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one job: why it is not running, its arguments, and every attempt with the rule that chose its delay."""
    loaded = load_app(app)
    material = loaded.store.run(operations.material(number))
    around = loaded.store.run(queues.circumstances([material.job], now=loaded.now()))[number]
    said = loaded.job(number).progress
    if json:
        plain = _plain(material.job, around) | {"payload": msgspec.Raw(material.payload or b"null")}
        progress = None if said is None else {"at": said.at, "details": msgspec.Raw(said.details.encode())}
        typer.echo(msgspec.json.encode(plain | {"progress": progress, "history": material.attempts}).decode())
        return
    job = material.job
    console = Console()
    where = f"{escape(job.task)} on {escape(job.queue)}, priority {job.priority}"
    console.print(f"[bold]job {job.id}[/bold]  {where}", highlight=False)
    console.print(f"{job.state}: {why_not_running(job, around)}", highlight=False, markup=False)
    console.print(f"enqueued {_at(job.enqueued_at)}, due {_at(job.scheduled_at)}", highlight=False)
    if job.parent_id is not None:
        console.print(f"catches job {job.parent_id}", highlight=False)
    console.print(f"policy: {job.policy.explain()}", highlight=False, markup=False)
    console.print(f"payload: {(material.payload or b'-').decode()}", highlight=False, markup=False)
    if job.state is State.WAITING:
        console.print(f"token: {job.id}.{job.lease_id}", highlight=False)
    if said is not None:
        console.print(f"progress, {span(around.now - said.at)} ago: {said.details}", highlight=False, markup=False)
    console.print(_history(material.attempts))


def _history(attempts: tuple[Attempt, ...]) -> Table:
    table = Table("attempt", "started", "took", "ended", "why", "then", box=None, pad_edge=False)
    for each in attempts:
        why = f"{each.reason}: {each.error}" if each.reason else ""
        took = span(each.finished_at - each.started_at)
        texts = escape(why), escape(each.verdict or "")
        table.add_row(str(each.number), _at(each.started_at), took, each.outcome, *texts)
    return table


def _plain(job: Job, around: Circumstances) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(job, name) for name in job.__slots__}
    return plain | {"policy": job.policy.to_dict(), "why": why_not_running(job, around)}


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
