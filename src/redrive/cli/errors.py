"""``redrive errors``: which errors occur, how often, and since when; and which of them are muted."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.app.app import App
from redrive.cli.jobs import ByTask, Limit
from redrive.cli.known import check_names
from redrive.cli.loading import AsJson, Target, load_existing
from redrive.cli.screen import Grid, print_document, say, utc
from redrive.engine.commands import command
from redrive.errors import RedriveError
from redrive.policy import parse_duration
from redrive.stores.operations import counters
from redrive.stores.operations.counters import ErrorGroup
from redrive.stores.operations.queues import MOST
from redrive.stores.urls import redacted

errors = typer.Typer(help="Look at groups of equal errors.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Its fingerprint.")]


@errors.command("list")
def list_(
    app: Target,
    *,
    task: ByTask = None,
    dead: Annotated[bool, typer.Option("--dead", help="Only groups with dead jobs.")] = False,
    before: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Only groups behind this place, which the list before named.")
    ] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List error groups, the latest failure first, with their dead jobs and their failures of the last 24 hours.

    Workers count failures and write the numbers every 10 seconds.
    """
    place = None if before is None else counters.read_place(before)
    if before is not None and place is None:
        raise typer.BadParameter(f"--before {before!r} is no place that a list before this one named")
    loaded = load_existing(app)
    check_names(loaded, task=task, queue=None)
    groups = loaded.store.run(counters.groups(task=task, dead=dead, before=place, limit=limit + 1, now=loaded.now()))
    found = groups[:limit]
    if len(groups) > limit:
        say(f"... --before {found[-1].place} shows earlier groups, --limit more at once", err=True)
    if json:
        for each in found:
            print_document(each)
        return
    table = Grid("group", "task", "error", "dead", "in 24 h", "last (UTC)", wide=("error",))
    for each in found:
        table.add(
            each.fingerprint,
            each.task,
            " at ".join(part for part in (each.name, each.frame) if part),
            _dead(each),
            f"{each.failures:,}",
            f"{each.last_at:%m-%d %H:%M}",
        )
    table.show()


@errors.command()
def show(
    app: Target,
    group: Group,
    *,
    json: AsJson = False,
) -> None:
    """Show one error group, and how its dead jobs are listed and started again."""
    loaded = load_existing(app)
    found = loaded.store.run(counters.groups(fingerprint=group, now=loaded.now()))
    if not found:
        raise _unknown(loaded, app, group)
    (each,) = found
    if json:
        print_document(each)
        return
    say(f"  {each.name}", head=f"group {each.fingerprint}")
    if each.task:
        say(f"task {each.task}, reason {each.reason}{f', at {each.frame}' if each.frame else ''}")
    say(f"first {utc(each.first_at)}, last {utc(each.last_at)} (job {each.last_job_id})")
    say(f"last 24 hours: {each.failures:,} failures, after {each.deaths:,} of which a job gave up")
    say(f"by hour: {' '.join(map(str, each.hours))}")
    if each.muted_at is not None:
        end = "until it fails again" if each.muted_until is None else f"until {utc(each.muted_until)}"
        say(f"muted {utc(each.muted_at)}, {end}")
    say(f"dead now: {_dead(each)}")
    if each.dead:
        say(command("jobs list", app, state="dead", group=each.fingerprint, not_caught=True))
        say(command("jobs redrive", app, group=each.fingerprint, rate="100/s"))


@errors.command()
def mute(
    app: Target,
    group: Group,
    *,
    span: Annotated[
        str | None, typer.Option("--for", help="Such as 24h; without it until the group fails again.")
    ] = None,
) -> None:
    """Leave a group out on the overview of the dashboard. Its failures still count."""
    loaded = load_existing(app)
    for_ = None if span is None else parse_duration(span)
    if not loaded.store.run(counters.mute(group, span=for_, actor=loaded.actor, now=loaded.now())):
        raise _unknown(loaded, app, group)
    say(f"group {group} is muted {'until it fails again' if span is None else f'for {span}'}")


@errors.command()
def unmute(app: Target, group: Group) -> None:
    """Show a muted group on the overview of the dashboard again."""
    loaded = load_existing(app)
    if not loaded.store.run(counters.unmute(group, actor=loaded.actor, now=loaded.now())):
        raise _unknown(loaded, app, group)
    say(f"group {group} is not muted any more")


def _unknown(app: App, name: str, group: str) -> RedriveError:
    return RedriveError(f"there is no error group {group!r} in {redacted(app.url)}: {command('errors list', name)}")


def _dead(each: ErrorGroup) -> str:
    return f"{each.dead:,}{'+' if each.dead >= MOST else ''}"
