"""``redrive schedules``: show crons and refreshes, and act on them.

The commands read the schedules of the database and those of the code: one that no worker has declared yet is listed,
and so is one that only another version of the code has, which can be acted on.

A refresh has tracked items, each with a key. A command with a key acts on that item, otherwise on the whole schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.app.protocol import run
from redrive.cli.enqueue import find_task, read_json
from redrive.cli.loading import Actor, Target, load_existing, read_instant
from redrive.cli.local import Desk, ask, check, most
from redrive.cli.local import show as show_view
from redrive.cli.operations import finish
from redrive.cli.screen import print_document, say
from redrive.cli.text import schedules as text
from redrive.operate.exchange import Note
from redrive.operate.schedule_view import view
from redrive.stores.operations.refresh.items import Counts

schedules: typer.Typer = typer.Typer(help="Look at crons and refreshes, and act on them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cron or refresh.")]
Item = Annotated[str, typer.Argument(metavar="KEY", help="Key of an item of the refresh.")]
Key = Annotated[str | None, typer.Argument(metavar="[KEY]", help="Key of an item, if it is a refresh.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object in a line instead of a text.")]
Since = Annotated[
    datetime,
    typer.Option(
        parser=read_instant,
        metavar="TIME",
        help="The first instant, such as 2026-03-01T06:00Z; without an offset it is UTC.",
    ),
]
Until = Annotated[
    datetime | None, typer.Option(parser=read_instant, metavar="TIME", help="The last instant; by default now.")
]


@schedules.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List crons and refreshes: when they occur, what is next, and how it went last."""
    show_view(app, "schedules list", lambda view: text.schedules(view, _counts(app)), json=json, limit=most(app))


@schedules.command()
def show(app: Target, name: Name, key: Key = None, *, json: AsJson = False) -> None:
    """Show one schedule in full: its declaration, its next and latest occurrences; or one item of a refresh."""
    if key is not None:
        show_view(app, "schedules show", text.item, json=json, name=name, key=key)
        return
    show_view(app, "schedules show", lambda view: text.schedule(view, _counts(app)), json=json, name=name)


def _counts(app: Desk) -> Mapping[str, Counts]:
    """Return the counts of the items of each refresh, by name; a server does not count them all."""
    return {each.schedule: each for each in load_existing(app).refreshes.counts()} if isinstance(app, str) else {}


def _check_known(app: App, name: str) -> None:
    """Raise `ScheduleNotFound`, with the known names, if neither an App nor its database has a schedule."""
    run(app.store, view(app, name))


@schedules.command()
def create(
    app: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new cron.")],
    when: Annotated[str, typer.Argument(metavar="WHEN", help='Its pattern: "30 3 * * *", "every 90 minutes".')],
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task of its jobs.")],
    *,
    arguments: Annotated[
        str, typer.Option(metavar="JSON", help="The arguments of each job by name, as a JSON object.")
    ] = "{}",
    tz: Annotated[str, typer.Option(help="Time zone of the pattern, for example Europe/Kyiv.")] = "UTC",
    retry: Annotated[str | None, typer.Option(help='A directive, for example "3 10m"; by default of the task.')] = None,
    overlap: Annotated[str, typer.Option(help="While a job of it runs: skip, queue, cancel or allow.")] = "skip",
    catch_up: Annotated[str, typer.Option(help="Of missed occurrences, start one, all or none.")] = "one",
    window: Annotated[str, typer.Option(help="How far back all missed ones are started.")] = "1d",
    jitter: Annotated[str, typer.Option(help="Start each job later by up to that.")] = "0s",
    queue: Annotated[str | None, typer.Option(help="Another queue than that of the task.")] = None,
    priority: Annotated[int | None, typer.Option(help="Smaller runs first.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Change an existing cron of this name.")] = False,
    actor: Actor = None,
    json: AsJson = False,
) -> None:
    """Create a cron that is not in the code. All workers start it, within 5 seconds also those that run already."""
    given = read_json(arguments, "--arguments", dict)
    check(app, find_task, app, task, creates=True)
    ask(
        app,
        "schedules create",
        actor=actor,
        name=name,
        when=when,
        task=task,
        arguments=given,
        tz=tz,
        retry=retry,
        overlap=overlap,
        catch_up=catch_up,
        window=window,
        jitter=jitter,
        queue=queue,
        priority=priority,
        replace=replace,
    )
    show_view(app, "schedules show", text.created, json=json, name=name)


@schedules.command()
def delete(app: Target, name: Name, *, actor: Actor = None, json: AsJson = False) -> None:
    """Delete a cron that was created at run time: it does not occur again. Its jobs stay."""
    _print(_act(app, "schedules delete", name, None, actor), json=json)


@schedules.command()
def trigger(app: Target, name: Name, key: Key = None, *, actor: Actor = None, json: AsJson = False) -> None:
    """Start a cron, or an item of a refresh, now: due or not, paused or not.

    A running attempt of the item is superseded.
    """
    done = _act(app, "schedules trigger", name, key, actor)
    if json or key is None:
        _print(done, json=json)
    else:
        _say_changed(app, name, key)


@schedules.command()
def update(app: Target, name: Name, key: Item, *, actor: Actor = None, json: AsJson = False) -> None:
    """Restart an item of a refresh: it is enabled again if it gave up, and its failures are forgotten."""
    _change(app, "schedules update", name, key, actor, json=json)


@schedules.command()
def pause(app: Target, name: Name, key: Key = None, *, actor: Actor = None, json: AsJson = False) -> None:
    """Start nothing of a schedule, or of one item of a refresh, until resume; jobs that a cron has made go on."""
    _change(app, "schedules pause", name, key, actor, json=json)


@schedules.command()
def resume(app: Target, name: Name, key: Key = None, *, actor: Actor = None, json: AsJson = False) -> None:
    """Go on. What was planned for the time of the pause is left out; a retry that became due is made."""
    _change(app, "schedules resume", name, key, actor, json=json)


@schedules.command()
def stop(
    app: Target,
    name: Name,
    *,
    why: Annotated[str | None, typer.Option(help="Shown on the jobs.")] = None,
    confirm: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="With --url, for more than 1,000 jobs: their number.")
    ] = None,
    actor: Actor = None,
    json: AsJson = False,
) -> None:
    """Pause a schedule, and cancel its jobs that have not ended; redrive operations undo starts these again."""
    done = _act(app, "schedules stop", name, None, actor, why=why, confirm=None if confirm is None else str(confirm))
    operation = getattr(done, "operation", None)
    if isinstance(app, str) and operation is not None:
        finish(app, operation)
    _print(done, json=json)


def _act(app: Desk, words: str, name: str, key: str | None, actor: str | None, **given: str | None) -> Note:
    check(app, _check_known, name, creates=True)
    found: Note = ask(app, words, actor=actor, name=name, key=key, **given)
    return found


def _change(app: Desk, words: str, name: str, key: str | None, actor: str | None, *, json: bool) -> None:
    done = _act(app, words, name, key, actor)
    if json:
        print_document(done)
    else:
        _say_changed(app, name, key)


def _say_changed(app: Desk, name: str, key: str | None) -> None:
    headline = text.headline if key is None else text.item_headline
    headline(ask(app, "schedules show", name=name, key=key))


@schedules.command()
def backfill(
    app: Target, name: Name, *, since: Since, until: Until = None, actor: Actor = None, json: AsJson = False
) -> None:
    """Start all occurrences of a cron in a span that were not started. Doing it twice is doing it once."""
    span = {"since": _aware(since).isoformat(), "until": None if until is None else _aware(until).isoformat()}
    _print(_act(app, "schedules backfill", name, None, actor, **span), json=json)


def _aware(found: datetime) -> datetime:
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _print(done: Note, *, json: bool) -> None:
    if json:
        print_document(done)
    else:
        say(done.note)
