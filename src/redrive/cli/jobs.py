"""``redrive jobs``: the commands that show jobs. Those that act on them are in `redrive.cli.acting`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from redrive.app.app import App
from redrive.cli.known import check_names
from redrive.cli.loading import AsJson, Target, load_existing
from redrive.cli.screen import Grid, document, print_document, say, say_lines, say_unread, utc
from redrive.engine.explain import Circumstances, obstacle, span, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import NEWEST, AttemptRecord, Filter, Hold, JobRecord
from redrive.engine.runs import is_far
from redrive.stores.operations import admin, queues
from redrive.stores.operations import jobs as operations

# Characters of an error in a list.
ERROR_TEXT = 200

# Attempts of a job that are shown.
SHOWN = 20

jobs = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the job.")]
Numbers = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Ids of jobs.")]
ByTask = Annotated[str | None, typer.Option(help="Only jobs of this task.")]
ByQueue = Annotated[str | None, typer.Option(help="Only jobs on this queue.")]
ByReason = Annotated[str | None, typer.Option(help="Only jobs whose last attempt failed for this reason.")]
ByError = Annotated[
    str | None, typer.Option(help="Only jobs whose last error contains this text; secrets in it are not searched.")
]
ByGroup = Annotated[str | None, typer.Option(help="Only jobs whose last error is in this error group.")]
ByTag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
ByHold = Annotated[Hold | None, typer.Option(help="Only jobs that wait for this reason.")]
ByState = Annotated[State | None, typer.Option(help="Only jobs in this state.")]
ByCaught = Annotated[
    bool | None,
    typer.Option("--caught/--not-caught", help="Only dead jobs whose catch task has succeeded, or has not."),
]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]


@jobs.command("list")
def list_(
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
    before: Annotated[int | None, typer.Option(min=1, help="Only jobs with a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first, or with --hold by when they are due, each with the reason why it is not running.

    Of a large database the newest 20,000 jobs are read; the last line has the option for older ones.
    """
    loaded = load_existing(app)
    check_names(loaded, task=task, queue=queue)
    wanted = Filter(
        ids=tuple(numbers) if numbers else None,
        state=state,
        task=task,
        queue=queue,
        reason=reason,
        error=error,
        group=group,
        caught=caught,
        hold=hold,
        tag=tag,
        before_id=NEWEST if before is None else before,
        limit=limit + 1,
    )
    page = _page(loaded, wanted)
    found = page.jobs[:limit]
    around = loaded.store.run(queues.circumstances(found, now=loaded.now()))
    if json:
        tags = loaded.store.run(operations.tags([job.id for job in found]))
        for job in found:
            print_document(_plain(job, around[job.id]) | {"tags": tags.get(job.id, ())})
        _say_rest(page, limit, hold)
        return
    table = Grid("id", "task", "queue", "state", "attempts", "why", wide=("why",))
    for job in found:
        table.add(str(job.id), job.task, job.queue, job.state, str(job.attempt), _why(job, around[job.id]))
    table.show()
    _say_rest(page, limit, hold)


def _page(app: App, wanted: Filter) -> admin.JobPage:
    # The index of jobs that wait for a reason has the order of the list, so that its first rows are the answer.
    if wanted.hold is not None:
        return admin.JobPage(app.jobs.select(wanted))
    return app.store.run(admin.page(wanted, budget=admin.BUDGET))


def _say_rest(page: admin.JobPage, limit: int, hold: Hold | None) -> None:
    """Write to standard error how the list goes on, if it does."""
    if page.searched_to is not None:
        say_unread(page.searched_to)
    elif len(page.jobs) > limit and hold is not None:
        say("... more follow; --limit shows more", err=True)
    elif len(page.jobs) > limit:
        say(f"... --before {page.jobs[limit - 1].id} shows older jobs, --limit more at once", err=True)


@jobs.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one job: why it is not running, its arguments, and every attempt with the rule that chose its delay."""
    loaded = load_existing(app)
    material = loaded.store.run(operations.material(number))
    result = document(loaded.store.run(operations.result(number)))
    around = loaded.store.run(queues.circumstances([material.job], now=loaded.now()))[number]
    progress_of, tags = loaded.job(number).progress, loaded.job(number).tags
    if json:
        plain = _plain(material.job, around) | {"tags": tags, "payload": document(material.payload), "result": result}
        progress = None if progress_of is None else {"at": progress_of.at, "details": document(progress_of.details)}
        print_document(plain | {"progress": progress, "history": material.attempts})
        return
    job, why = material.job, why_not_running(material.job, around)
    say(f"  {job.task} on {job.queue}, priority {job.priority}", head=f"job {job.id}")
    say(why if why.startswith(job.state) else f"{job.state}: {why}")
    say_remedy(app, job, around)
    last = next((each for each in reversed(material.attempts) if each.reason), None)
    if last is not None and job.state is not State.SUCCEEDED:
        say(f"last error: {_error(last)}")
    expires = f", expires {utc(job.expires_at)}" if job.expires_at is not None else ""
    due = "" if is_far(job.scheduled_at) else f", due {utc(job.scheduled_at)}"
    say(f"enqueued {utc(job.enqueued_at)}{due}{expires}")
    if tags:
        say(f"tags: {', '.join(tags)}")
    if job.parent_id is not None:
        say(f"catches job {job.parent_id}")
    say(f"policy: {job.policy.explain()}")
    say(f"payload: {(material.payload or b'-').decode(errors='replace')}")
    if job.state is State.SUCCEEDED:
        say(f"result: {msgspec.json.encode(result).decode()}")
    if job.state is State.WAITING:
        say(f"token: {job.id}.{job.lease_id}")
    if progress_of is not None:
        say(f"progress, {span(around.now - progress_of.at)} ago: {progress_of.details}")
    _say_attempts(material.attempts)


# What has to be done before a job is executed again, by the reason of its end.
_BEFORE = {
    "LOST_IN_FLIGHT": ", after you have found that it had no effect",
    "PROGRAMMING_ERROR": ", after the code is corrected",
}


def say_remedy(app: str, job: JobRecord, around: Circumstances) -> None:
    """Write the command that clears what keeps a job from running; a job in doubt may have taken effect."""
    held_up = obstacle(job, around)
    if held_up is None or held_up.command is None:
        return
    say(f"to clear it{_BEFORE.get(job.reason or '', '')}: {held_up.advice(app)}")


def _say_attempts(attempts: tuple[AttemptRecord, ...]) -> None:
    """Write the latest attempts, and the traceback of the last one that has any; --json has all of them."""
    if len(attempts) > SHOWN:
        say(f"... the latest {SHOWN} of {len(attempts)} attempts; --json has all")
    for each in attempts[-SHOWN:]:
        _say_attempt(each)
    last = next((each for each in reversed(attempts) if each.traceback), None)
    if last is not None:
        say(f"traceback of attempt {last.number}:")
        say_lines("\n".join(f"  {line}" for line in (last.traceback or "").rstrip("\n").split("\n")))


def _say_attempt(each: AttemptRecord) -> None:
    """Write an attempt: when it ran, its error, and what was decided."""
    took = span(each.finished_at - each.started_at)
    say(f"  {each.outcome} after {took}, started {utc(each.started_at)}", head=f"attempt {each.number}")
    if each.reason:
        stage = f", {each.stage}" if each.stage else ""
        say(f"  {each.reason}{stage}: {_error(each)}")
    if each.verdict:
        say(f"  then: {each.verdict}")


def _error(each: AttemptRecord) -> str:
    """Return the class and the text of an error."""
    kind = (each.error_type or "").removeprefix("builtins.")
    return ": ".join(part for part in (kind, each.error) if part) or "-"


def _why(job: JobRecord, around: Circumstances) -> str:
    """Return why a job is not running, with its last error if that is not part of it."""
    why = why_not_running(job, around)
    if not job.error or job.error in why or job.state is State.DEAD:
        return why
    error = job.error if len(job.error) <= ERROR_TEXT else f"{job.error[:ERROR_TEXT]}..."
    return f"{why}; last error: {error}"


def _plain(job: JobRecord, around: Circumstances) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(job, name) for name in job.__struct_fields__}
    return plain | {"policy": job.policy.to_dict(), "why": why_not_running(job, around)}
