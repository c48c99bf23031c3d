"""``redrive schedules``: show crons and refreshes, and act on them.

The commands read the schedules of the database and those of the code: one that no worker has declared yet is listed,
and so is one that only another version of the code has, which can be acted on.

A refresh has tracked items, each with a key. A command with a key acts on that item, otherwise on the whole schedule.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from redrive.app.app import App
from redrive.app.protocol import run
from redrive.app.schedule_view import ScheduleView, demand_triggered, view, views
from redrive.cli.enqueue import find_task, read_json
from redrive.cli.loading import Actor, Target, load_app, load_existing, read_instant
from redrive.cli.schedules import pages
from redrive.cli.screen import Grid, print_document, say
from redrive.engine.items import TrackedItem
from redrive.engine.occurrence import Occurrence
from redrive.engine.origin import Kind

schedules = typer.Typer(help="Look at crons and refreshes, and act on them.", no_args_is_help=True)

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

# Occurrences to come that are shown.
AHEAD = 5

# Past occurrences that are shown.
BACK = 10

# Items in trouble that are shown.
TROUBLED = 20


@schedules.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List crons and refreshes: when they occur, what is next, and how it went last."""
    loaded = load_existing(app)
    counts = {each.schedule: each for each in loaded.refreshes.counts()}
    table = Grid("name", "kind", "when", "next", "state", "last")
    for each in run(loaded.store, views(loaded)):
        last = _occurrences(loaded, each, 1)
        if json:
            print_document(pages.schedule_document(each) | pages.went_document(last, counts.get(each.name)))
        else:
            went = pages.went(last, counts.get(each.name))
            table.add(each.name, each.kind, each.when, pages.due(each), pages.state(each), went)
    if not json:
        table.show()


@schedules.command()
def show(app: Target, name: Name, key: Key = None, *, json: AsJson = False) -> None:
    """Show one schedule in full: its declaration, its next and latest occurrences; or one item of a refresh."""
    loaded = load_existing(app)
    if key is not None:
        _say_item(loaded, name, key, json=json, full=True)
        return
    found = run(loaded.store, view(loaded, name))
    ahead = [*itertools.islice(found.ahead(_now(loaded)), AHEAD)]
    past = _occurrences(loaded, found, BACK)
    counted = loaded.refreshes.counts() if found.kind is Kind.REFRESH else ()
    counts = next((each for each in counted if each.schedule == name), None)
    troubled = loaded.refreshes.select(name, limit=TROUBLED, troubled=True)
    if json:
        more = {"next": ahead, "occurrences": past, "troubled": [pages.item_document(each) for each in troubled]}
        print_document(pages.schedule_document(found) | pages.went_document((), counts) | more)
        return
    for line in pages.schedule(found, ahead):
        say(line)
    remedy = found.remedy(app)
    if remedy is not None:
        say(f"to clear it: {remedy}")
    if found.kind is Kind.CRON:
        pages.history(past).show()
    else:
        say(f"items: {pages.went((), counts) or 'none'}")
        pages.items(troubled).show()


def _load(app: str, name: str) -> App:
    """Load an App, or raise `ScheduleNotFound`, with the known names, if neither it nor the database has a schedule."""
    loaded = load_app(app)
    run(loaded.store, view(loaded, name))
    return loaded


def _occurrences(app: App, found: ScheduleView, limit: int) -> tuple[Occurrence, ...]:
    return app.schedules.occurrences(found.name, limit=limit) if found.kind is Kind.CRON else ()


@schedules.command()
def create(
    app: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new cron.")],
    when: Annotated[str, typer.Argument(metavar="WHEN", help='Its pattern, for example "30 3 * * *".')],
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
    queue: Annotated[str | None, typer.Option(help="Another queue than that of the task.")] = None,
    priority: Annotated[int | None, typer.Option(help="Smaller runs first.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Change an existing cron of this name.")] = False,
    actor: Actor = None,
    json: AsJson = False,
) -> None:
    """Create a cron that is not in the code. All workers start it, within 5 seconds also those that run already."""
    given = read_json(arguments, "--arguments", dict)
    loaded = load_app(app)
    loaded.check()
    find_task(loaded, app, task)
    loaded.schedules.create(
        name,
        when,
        task,
        arguments=given,
        tz=tz,
        retry=retry,
        overlap=overlap,  # type: ignore[arg-type]  # checked by it
        catch_up=catch_up,  # type: ignore[arg-type]  # likewise
        window=window,
        queue=queue,
        priority=priority,
        replace=replace,
        actor=actor,
    )
    found = run(loaded.store, view(loaded, name))
    _print(pages.schedule_document(found), [f"{pages.headline(found)}, next {pages.due(found)}"], json=json)


@schedules.command()
def delete(app: Target, name: Name, *, actor: Actor = None, json: AsJson = False) -> None:
    """Delete a cron that was created at run time: it does not occur again. Its jobs stay."""
    _load(app, name).schedules.delete(name, actor=actor)
    _print({"deleted": name}, [f"cron {name} is deleted"], json=json)


@schedules.command()
def trigger(app: Target, name: Name, key: Key = None, *, actor: Actor = None, json: AsJson = False) -> None:
    """Start a cron, or an item of a refresh, now: due or not, paused or not.

    A running attempt of the item is superseded.
    """
    loaded = _load(app, name)
    if key is None:
        made = loaded.schedules.trigger(name, actor=actor)
        _print(made, [f"cron {name} was started as job {made.job_id}"], json=json)
        return
    turned = loaded.refreshes.trigger(name, key, actor=actor)
    demand_triggered(loaded.refreshes.get(name, key), turned)
    _say_item(loaded, name, key, json=json)


@schedules.command()
def update(app: Target, name: Name, key: Item, *, actor: Actor = None, json: AsJson = False) -> None:
    """Restart an item of a refresh: it is enabled again if it gave up, and its failures are forgotten."""
    loaded = _load(app, name)
    loaded.refreshes.update(name, key, actor=actor or loaded.actor)
    _say_item(loaded, name, key, json=json)


@schedules.command()
def pause(app: Target, name: Name, key: Key = None, *, actor: Actor = None, json: AsJson = False) -> None:
    """Start nothing of a schedule, or of one item of a refresh, until resume; running attempts go on."""
    loaded = _load(app, name)
    if key is None:
        loaded.schedules.pause(name, actor=actor)
    else:
        loaded.refreshes.pause(name, key, actor=actor)
    _say_changed(loaded, name, key, json=json)


@schedules.command()
def resume(app: Target, name: Name, key: Key = None, *, actor: Actor = None, json: AsJson = False) -> None:
    """Go on. What was planned for the time of the pause is left out; a retry that became due is made."""
    loaded = _load(app, name)
    if key is None:
        loaded.schedules.resume(name, actor=actor)
    else:
        loaded.refreshes.resume(name, key, actor=actor)
    _say_changed(loaded, name, key, json=json)


@schedules.command()
def backfill(
    app: Target, name: Name, *, since: Since, until: Until = None, actor: Actor = None, json: AsJson = False
) -> None:
    """Start all occurrences of a cron in a span that were not started. Doing it twice is doing it once."""
    loaded = _load(app, name)
    begin = _aware(since)
    end = _now(loaded) if until is None else _aware(until)
    made = loaded.schedules.backfill(name, begin, end, actor=actor)
    _print({"started": made}, [f"cron {name}: {len(made)} occurrences were started"], json=json)


def _now(app: App) -> datetime:
    return app.now() or datetime.now(UTC)  # noqa: TID251 - a default, and for display


def _aware(found: datetime) -> datetime:
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _say_changed(app: App, name: str, key: str | None, *, json: bool) -> None:
    if key is not None:
        _say_item(app, name, key, json=json)
        return
    found = run(app.store, view(app, name))
    _print(pages.schedule_document(found), [pages.headline(found)], json=json)


def _say_item(app: App, name: str, key: str, *, json: bool, full: bool = False) -> None:
    item: TrackedItem = app.refreshes.get(name, key)
    policy = run(app.store, view(app, name)).policy(item)
    page = pages.item(item, policy) if full else [pages.item_headline(item)]
    _print(pages.item_document(item) | {"policy": None if policy is None else str(policy)}, page, json=json)


def _print(value: Mapping[str, object] | Occurrence, page: Iterable[str], *, json: bool) -> None:
    if json:
        print_document(value)
        return
    for line in page:
        say(line)
