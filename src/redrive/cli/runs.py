"""``redrive runs``: show runs of workflows, and act on them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from redrive.app.app import App
from redrive.app.flows.run import Run
from redrive.app.flows.run_events import RunEvent, RunEventKind, events_of
from redrive.app.flows.workflow import Workflow
from redrive.cli.jobs import say_remedy
from redrive.cli.loading import Actor, AsJson, Target, load_existing, read_instant
from redrive.cli.screen import Grid, document, print_document, say, say_lines, utc
from redrive.engine.commands import command
from redrive.engine.explain import Circumstances, obstacle, why_not_running
from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.engine.runs import RunRecord, StepKind, StepRecord
from redrive.errors import ConfigurationError, RunNotFound
from redrive.stores.operations import jobs as jobs_operations
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations import queues as queues_operations
from redrive.stores.operations.managing_runs import RunFilter, RunView, Timeline

runs = typer.Typer(help="Look at runs of workflows, and act on them.", no_args_is_help=True)

Named = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or WORKFLOW/ID.")]
ByWorkflow = Annotated[str | None, typer.Option(help="Only runs of this workflow.")]
ByState = Annotated[State | None, typer.Option(help="Only runs in this state.")]
ByHold = Annotated[Hold | None, typer.Option(help="Only runs that wait for this reason, such as parked.")]
Step = Annotated[str, typer.Argument(metavar="STEP", help="Path of the step, such as 4.0.2, or its name.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]

# Characters of a result that are shown.
RESULT_TEXT = 60

# Steps that a fork can begin with.
_FORKED = (StepKind.STEP, StepKind.CALL)


@runs.command("list")
def list_(
    app: Target,
    *,
    workflow: ByWorkflow = None,
    state: ByState = None,
    hold: ByHold = None,
    held: Annotated[bool, typer.Option("--held", help="Only runs with code that does not fit their steps.")] = False,
    before: Annotated[int | None, typer.Option(min=1, help="Only runs with jobs of a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List runs, newest first, each with the reason why it is not running."""
    loaded = load_existing(app)
    check_workflow(loaded, workflow)
    hold = Hold.HELD if held else hold
    wanted = RunFilter(workflow=workflow, state=state, hold=hold, before_id=before, limit=limit)
    found = loaded.store.run(manage.select(wanted))
    around = loaded.store.run(queues_operations.circumstances([each.job for each in found], now=loaded.now()))
    if json:
        for each in found:
            print_document(_plain(each) | {"why": why_not_running(each.job, around[each.job.id])})
        return
    table = Grid("run", "workflow", "version", "state", "job", "why", wide=("why",))
    for each in found:
        why = why_not_running(each.job, around[each.job.id])
        table.add(each.run.id, each.run.workflow, str(each.run.version), each.job.state, str(each.job.id), why)
    table.show()
    if len(found) == limit:
        say(f"... the newest {limit}; --limit shows more", err=True)


@runs.command()
def show(app: Target, run: Named, *, json: AsJson = False) -> None:
    """Show one run: why it is not running, and its steps, attempts and waits in one list."""
    loaded = load_existing(app)
    handle = find_run(loaded, run)
    found = loaded.store.run(manage.timeline(handle.workflow, handle.id))
    around = loaded.store.run(queues_operations.circumstances([found.job], now=loaded.now()))[found.job.id]
    why = why_not_running(found.job, around)
    result = loaded.store.run(jobs_operations.result(found.job.id))
    if json:
        print_document(_plain(RunView(found.run, found.job)) | _more(found) | {"why": why, "result": document(result)})
        return
    record, job = found.run, found.job
    say(f"  {record.workflow}, version {record.version}, job {job.id}", head=f"run {record.id}")
    say(why if why.startswith(job.state) else f"{job.state}: {why}")
    say_remedy(app, job, around)
    _say_again(app, found, around)
    _say_run(record, found)
    if job.error:
        say(f"last error: {job.error}")
    if job.state is State.SUCCEEDED:
        say(f"result: {'null' if result is None else result.decode(errors='replace')}")
    for each in events_of(found):
        say(_line(each))


def _say_again(app: str, found: Timeline, around: Circumstances) -> None:
    """Write the commands that start an ended run again, beside the one that clears what keeps it."""
    job, name = found.job, f"{found.run.workflow}/{found.run.id}"
    if job.state not in (State.DEAD, State.CANCELLED):
        return
    if obstacle(job, around) is None:
        say(f"to start it again: {command('jobs retry', app, str(job.id))}")
    last = next((row.path for row in reversed(found.steps) if row.kind in _FORKED), None)
    say(f"to start a new run in its place: {command('runs fork', app, name, from_step=last)}")


def _say_run(record: RunRecord, found: Timeline) -> None:
    """Write what is set and asked of a run."""
    if record.values is not None:
        say(f"values: {record.values.decode(errors='replace')}")
    if record.parent_id is not None:
        say(f"called by job {record.parent_id} at its step {record.parent_path}")
    if record.forked_from is not None:
        say(f"forked from job {record.forked_from}")
    if record.epoch:
        say(f"restarted {record.epoch} times")
    if record.paused_at is not None:
        say(f"paused since {utc(record.paused_at)}: {record.paused_why}")
    if record.cancel_at is not None:
        say(f"cancellation requested {utc(record.cancel_at)}: {record.cancel_why}")
    unread = [each for each in found.signals if each.path is None]
    if unread:
        say(f"unread signals: {', '.join(each.name for each in unread)}")
    if found.children:
        say(f"children: {', '.join(f'{each.id} (job {each.job_id})' for each in found.children)}")


def _line(event: RunEvent) -> str:
    """Return a line of the timeline."""
    place = f"{event.path:<8} " if event.kind in (RunEventKind.STEP, RunEventKind.TRY) else ""
    text = "" if event.result is None else event.result.decode(errors="replace")
    shown = text if len(text) <= RESULT_TEXT else f"{text[:RESULT_TEXT]}..."
    return f"  {utc(event.at)}  {place}{event.text}{f', {shown}' if shown else ''}"


@runs.command()
def retrying(
    app: Target,
    *,
    workflow: ByWorkflow = None,
    before: Annotated[
        datetime | None,
        typer.Option(parser=read_instant, metavar="TIME", help="Only those that are due before; with an offset."),
    ] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List the steps that wait for their next try, by the time of it."""
    loaded = load_existing(app)
    check_workflow(loaded, workflow)
    found = loaded.runs.retrying(workflow=workflow, before=before, limit=limit)
    if json:
        for each in found:
            print_document(each)
        return
    table = Grid("run", "workflow", "step", "tries", "due", "error", wide=("error",))
    for each in found:
        step = f"{each.path} {each.name}"
        table.add(each.id or "-", each.task, step, str(each.tries), utc(each.due_at), each.error.message)
    table.show()


@runs.command()
def signal(
    app: Target,
    run: Named,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal.")],
    value: Annotated[str, typer.Argument(metavar="[JSON]", help="Its value as JSON; by default null.")] = "null",
    *,
    key: Annotated[str | None, typer.Option(help="A signal with the name and the key of another is dropped.")] = None,
    actor: Actor = None,
) -> None:
    """Send a signal to a run."""
    loaded = load_existing(app)
    sent = find_run(loaded, run).signal(name, _json(value), key=key, actor=actor or loaded.actor)
    say(f"run {run} has received {name}" if sent else f"run {run} had a signal {name} with this key before")


@runs.command()
def cancel(
    app: Target,
    run: Named,
    *,
    why: Annotated[str | None, typer.Option(help="Shown on the run.")] = None,
    actor: Actor = None,
) -> None:
    """Ask a run and those that it has called to end; a second time, end them at once without clean-up."""
    loaded = load_existing(app)
    handle = find_run(loaded, run)
    changed = handle.cancel(why, actor=actor)
    state = handle.state
    if not changed:
        say(f"run {run} had ended before: {state}")
    else:
        say(f"run {run} is cancelled" if state is State.CANCELLED else f"run {run} ends at its next step")


@runs.command()
def pause(
    app: Target,
    run: Named,
    *,
    why: Annotated[str | None, typer.Option(help="Shown on the run.")] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=read_instant, metavar="TIME", help="When it goes on by itself; with an offset."),
    ] = None,
    actor: Actor = None,
) -> None:
    """Let a run take no new step, until it is resumed or until an instant."""
    find_run(load_existing(app), run).pause(why, until=until, actor=actor)
    say(f"run {run} is paused" + ("" if until is None else f" until {until.isoformat()}"))


@runs.command()
def resume(app: Target, run: Named, *, actor: Actor = None) -> None:
    """End the pause of a run."""
    resumed = find_run(load_existing(app), run).resume(actor=actor)
    say(f"run {run} goes on" if resumed else f"run {run} was not paused")


@runs.command()
def supply(
    app: Target,
    run: Named,
    step: Step,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The result of the step.")],
    *,
    actor: Actor = None,
) -> None:
    """Give a failed step a result, and let the run go on, also if it is dead."""
    find_run(load_existing(app), run).supply(step, _json(value), actor=actor)
    say(f"run {run} goes on with this result of {step}")


@runs.command()
def fork(
    app: Target,
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids of runs, or WORKFLOW/ID.")] = None,
    *,
    from_step: Annotated[
        str | None, typer.Option(help="Path or name of the first step that runs again; by default the first one.")
    ] = None,
    workflow: ByWorkflow = None,
    state: ByState = None,
    hold: ByHold = None,
    rate: Annotated[str | None, typer.Option(help="How many start within how long, for example 10/s.")] = None,
    limit: Limit = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    actor: Actor = None,
) -> None:
    """Start new runs with the arguments of these, and their recorded steps before one of them."""
    loaded = load_existing(app)
    check_workflow(loaded, workflow)
    has_filter = workflow is not None or state is not None or hold is not None
    if bool(names) == has_filter:
        raise ConfigurationError("name the runs, or give --workflow, --state or --hold, and not both")
    if names:
        found = [find_run(loaded, name) for name in names]
    else:
        selected = loaded.runs.select(workflow=workflow, state=state, hold=hold, limit=limit)
        found = [loaded.runs.get(each.workflow, each.id) for each in selected]
    if dry_run:
        for each in found:
            say(f"run {each.id} of {each.workflow}")
        return
    made = loaded.runs.fork(found, from_step=from_step, rate=rate, actor=actor)
    for old, new in zip(found, made, strict=True):
        say(f"run {old.id} is forked as {new.id}, job {new.job.id}")


@runs.command()
def export(app: Target, run: Named) -> None:
    """Write the history of a run as JSON, for redrive.testing.replay."""
    say_lines(find_run(load_existing(app), run).history().to_json())


def find_run(app: App, name: str) -> Run[Any]:
    """Return the run with an id, in any workflow of the code, or in the one that is named before a slash."""
    workflows = sorted({each for task in app.tasks.values() if isinstance(task, Workflow) for each in task.names})
    before, slash, rest = name.partition("/")
    if slash and before in workflows:
        return app.runs.get(before, rest)
    found = [run for run in (app.runs.get(each, name) for each in workflows) if _exists(app, run)]
    if len(found) > 1:
        named = ", ".join(f"{each.workflow}/{each.id}" for each in found)
        raise ConfigurationError(f"several workflows have a run {name!r}: write one of {named}")
    if not found:
        raise RunNotFound(f"no workflow of the code has a run {name!r}; workflows: {', '.join(workflows) or 'none'}")
    return found[0]


def _exists(app: App, run: Run[Any]) -> bool:
    try:
        app.store.run(manage.get(run.workflow, run.id))
    except RunNotFound:
        return False
    return True


def check_workflow(app: App, name: str | None) -> None:
    """Raise `ConfigurationError` for a workflow that neither the code nor the database has."""
    known = sorted(task.name for task in app.tasks.values() if isinstance(task, Workflow))
    if name is not None and name not in known and not app.runs.select(workflow=name, limit=1):
        raise ConfigurationError(
            f"there is no workflow {name!r} in the code, and no run of it; known: {', '.join(known) or 'none'}"
        )


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{text!r} is no JSON: {error}; a text needs quotes, as in '\"text\"'") from error


def _plain(view: RunView) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(view.run, name) for name in view.run.__struct_fields__}
    return plain | {
        "values": document(view.run.values),
        "state": view.job.state,
        "hold": view.job.hold,
        "due_at": view.job.scheduled_at,
        "error": view.job.error,
    }


def _more(found: Timeline) -> dict[str, object]:
    """Return the lists of a run for a document."""
    return {
        "steps": [_step_document(row) for row in found.steps],
        "attempts": found.attempts,
        "signals": [
            {name: getattr(each, name) for name in each.__struct_fields__} | {"payload": document(each.payload)}
            for each in found.signals
        ],
        "children": [{"id": each.id, "workflow": each.workflow, "job_id": each.job_id} for each in found.children],
    }


def _step_document(row: StepRecord) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__struct_fields__} | {"result": document(row.result)}
