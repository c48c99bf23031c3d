"""``redrive jobs``: the commands that show jobs. Those that act on them are in `redrive.cli.acting`."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.loading import AsJson, Target, load_app
from redrive.cli.screen import Grid, document, print_document, say, utc
from redrive.engine.explain import Circumstances, span, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptRecord, Filter, Hold, JobRecord
from redrive.stores.operations import jobs as operations
from redrive.stores.operations import queues

jobs = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the job.")]
ByTask = Annotated[str | None, typer.Option(help="Only jobs of this task.")]
ByQueue = Annotated[str | None, typer.Option(help="Only jobs on this queue.")]
ByReason = Annotated[str | None, typer.Option(help="Only jobs whose last attempt failed for this reason.")]
ByError = Annotated[str | None, typer.Option(help="Only jobs whose last error contains this text.")]
ByTag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
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
    tag: ByTag = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first, or with --hold by when they are due, each with the reason why it is not running."""
    loaded = load_app(app)
    wanted = Filter(state=state, task=task, queue=queue, reason=reason, error=error, hold=hold, tag=tag, limit=limit)
    found = loaded.jobs.select(wanted)
    around = loaded.store.run(queues.circumstances(found, now=loaded.now()))
    if json:
        tags = loaded.store.run(operations.tags([job.id for job in found]))
        for job in found:
            print_document(_plain(job, around[job.id]) | {"tags": tags.get(job.id, ())})
        return
    table = Grid("id", "task", "queue", "state", "attempts", "why")
    for job in found:
        why = why_not_running(job, around[job.id])
        table.add(str(job.id), job.task, job.queue, job.state, str(job.attempt), why)
    table.show()
    if len(found) == limit:
        which = "newest" if hold is None else "first"
        say(f"... the {which} {limit}; --limit shows more", err=True)


@jobs.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one job: why it is not running, its arguments, and every attempt with the rule that chose its delay."""
    loaded = load_app(app)
    material = loaded.store.run(operations.material(number))
    around = loaded.store.run(queues.circumstances([material.job], now=loaded.now()))[number]
    progress_of, tags = loaded.job(number).progress, loaded.job(number).tags
    if json:
        plain = _plain(material.job, around) | {"tags": tags, "payload": document(material.payload)}
        progress = None if progress_of is None else {"at": progress_of.at, "details": document(progress_of.details)}
        print_document(plain | {"progress": progress, "history": material.attempts})
        return
    job = material.job
    say(f"  {job.task} on {job.queue}, priority {job.priority}", head=f"job {job.id}")
    say(f"{job.state}: {why_not_running(job, around)}")
    expires = f", expires {utc(job.expires_at)}" if job.expires_at is not None else ""
    say(f"enqueued {utc(job.enqueued_at)}, due {utc(job.scheduled_at)}{expires}")
    if tags:
        say(f"tags: {', '.join(tags)}")
    if job.parent_id is not None:
        say(f"catches job {job.parent_id}")
    say(f"policy: {job.policy.explain()}")
    say(f"payload: {(material.payload or b'-').decode(errors='replace')}")
    if job.state is State.WAITING:
        say(f"token: {job.id}.{job.lease_id}")
    if progress_of is not None:
        say(f"progress, {span(around.now - progress_of.at)} ago: {progress_of.details}")
    _history(material.attempts).show()


def _history(attempts: tuple[AttemptRecord, ...]) -> Grid:
    table = Grid("attempt", "started", "took", "ended", "why", "then")
    for each in attempts:
        why = f"{each.reason}: {each.error}" if each.reason else ""
        took = span(each.finished_at - each.started_at)
        table.add(str(each.number), utc(each.started_at), took, each.outcome, why, each.verdict or "")
    return table


def _plain(job: JobRecord, around: Circumstances) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(job, name) for name in job.__struct_fields__}
    return plain | {"policy": job.policy.to_dict(), "why": why_not_running(job, around)}
