"""Runs of workflows as text."""

from __future__ import annotations

from redrive.app.flows.run_events import RunEventKind
from redrive.cli.screen import Grid, say, utc
from redrive.cli.text.jobs import as_json, remedy
from redrive.engine.commands import command
from redrive.engine.lifecycle import State
from redrive.operate.run import RunEventLine, RunPage
from redrive.operate.runs import RunList

# Characters of a result that are shown.
RESULT_TEXT = 60


def runs(view: RunList) -> None:
    """Print a list of runs."""
    table = Grid("run", "workflow", "version", "state", "job", "why", wide=("why",))
    for each in view.items:
        table.add(each.id, each.workflow, str(each.version), each.state, each.job_id, each.why)
    table.show()
    if view.searched is not None:
        say(f"... older runs were not read; --before {view.before} reads on", err=True)


def run(view: RunPage, app: str) -> None:
    """Print one run: why it is not running, and its steps, attempts and waits in one list."""
    run = view.run
    say(f"  {run.workflow}, version {run.version}, job {run.job_id}", head=f"run {run.id}")
    say(run.why if run.why.startswith(run.state) else f"{run.state}: {run.why}")
    remedy(view.remedy, view.reason)
    _again(view, app)
    _facts(view)
    if view.error:
        say(f"last error: {view.error}")
    if run.state is State.SUCCEEDED:
        say(f"result: {as_json(view.result)}")
    for each in view.events:
        say(_line(each))


def _again(view: RunPage, app: str) -> None:
    """Print the commands that start an ended run again, beside the one that clears what keeps it."""
    if view.run.state not in (State.DEAD, State.CANCELLED):
        return
    if view.startable:
        say(f"to start it again: {command('jobs retry', app, view.run.job_id)}")
    last = view.steps[-1][0] if view.steps else None
    name = f"{view.run.workflow}/{view.run.id}"
    say(f"to start a new run in its place: {command('runs fork', app, name, from_step=last)}")


def _facts(view: RunPage) -> None:
    """Print what is set and asked of a run."""
    if view.values is not None:
        say(f"values: {as_json(view.values)}")
    if view.parent is not None:
        say(f"called by job {view.parent} at its step {view.parent_path}")
    if view.forked_from is not None:
        say(f"forked from job {view.forked_from}")
    if view.restarts:
        say(f"restarted {view.restarts} times")
    if view.paused_at is not None:
        say(f"paused since {utc(view.paused_at)}: {view.paused_why}")
    if view.cancel_at is not None:
        say(f"cancellation requested {utc(view.cancel_at)}: {view.cancel_why}")
    if view.unread:
        say(f"unread signals: {', '.join(view.unread)}")
    if view.children:
        say(f"children: {', '.join(f'{each.id} (job {each.job_id})' for each in view.children)}")


def _line(event: RunEventLine) -> str:
    """Return a line of the timeline."""
    place = f"{event.path:<8} " if event.kind in (RunEventKind.STEP, RunEventKind.TRY) else ""
    text = as_json(event.result) if event.has_result else ""
    shown = text if len(text) <= RESULT_TEXT else f"{text[:RESULT_TEXT]}..."
    return f"  {utc(event.at)}  {place}{event.text}{f', {shown}' if shown else ''}"
