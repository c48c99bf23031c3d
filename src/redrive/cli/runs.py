"""``redrive runs``: show runs of workflows, and act on them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from redrive.app.app import App
from redrive.app.flows.run import Run
from redrive.app.flows.workflow import Workflow
from redrive.cli.loading import Actor, AsJson, Target, load_existing, read_instant
from redrive.cli.local import Desk, ask, check, name_of
from redrive.cli.local import show as show_view
from redrive.cli.screen import Grid, print_document, say, say_lines, utc
from redrive.cli.text import runs as text
from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.errors import ConfigurationError, RunNotFound
from redrive.operate.runs import RunList
from redrive.stores.operations import managing_runs as manage

runs: typer.Typer = typer.Typer(help="Look at runs of workflows, and act on them.", no_args_is_help=True)

Named = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or WORKFLOW/ID.")]
ByWorkflow = Annotated[str | None, typer.Option(help="Only runs of this workflow.")]
ByState = Annotated[State | None, typer.Option(help="Only runs in this state.")]
ByHold = Annotated[Hold | None, typer.Option(help="Only runs that wait for this reason, such as parked.")]
Step = Annotated[str, typer.Argument(metavar="STEP", help="Path of the step, such as 4.0.2, or its name.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]


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
    check(app, check_workflow, workflow)
    view: RunList = show_view(
        app,
        "runs list",
        text.runs,
        json=json,
        workflow=workflow,
        state=state,
        hold=Hold.HELD if held else hold,
        before=before,
        limit=limit,
    )
    if not json and len(view.items) == limit:
        say(f"... the newest {limit}; --limit shows more", err=True)


@runs.command()
def show(app: Target, run: Named, *, json: AsJson = False) -> None:
    """Show one run: why it is not running, and its steps, attempts and waits in one list."""
    show_view(app, "runs show", lambda view: text.run(view, name_of(app)), json=json, **_place(app, run))


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
    _act(app, run, "runs signal", actor, name=name, value=msgspec.Raw(_json(value)), key=key)


@runs.command()
def cancel(
    app: Target,
    run: Named,
    *,
    why: Annotated[str | None, typer.Option(help="Shown on the run.")] = None,
    actor: Actor = None,
) -> None:
    """Ask a run and those that it has called to end; a second time, end them at once without clean-up."""
    _act(app, run, "runs cancel", actor, why=why)


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
    _act(app, run, "runs pause", actor, why=why, until=None if until is None else until.isoformat())


@runs.command()
def resume(app: Target, run: Named, *, actor: Actor = None) -> None:
    """End the pause of a run."""
    _act(app, run, "runs resume", actor)


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
    find_run(load_existing(app), run).supply(step, msgspec.json.decode(_json(value)), actor=actor)
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


def _place(app: Desk, name: str) -> dict[str, str]:
    """Return the place of a run in the table."""
    if isinstance(app, str):
        found = find_run(load_existing(app), name)
        return {"workflow": found.workflow, "run": found.id}
    workflow, slash, run = name.partition("/")
    if not slash:
        raise ConfigurationError(f"through --url a run is named WORKFLOW/ID, not {name!r}")
    return {"workflow": workflow, "run": run}


def _act(app: Desk, run: str, words: str, actor: str | None, /, **given: object) -> None:
    place = _place(app, run)
    note = ask(app, words, actor=actor, **place, **given).note
    say(note.replace(f"run {place['run']} ", f"run {run} ", 1))


def _json(text: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{text!r} is no JSON: {error}; a text needs quotes, as in '\"text\"'") from error
