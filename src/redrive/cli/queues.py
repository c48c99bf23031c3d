"""``redrive queues``: show queues, and change them while workers run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from msgspec import UNSET, UnsetType

from redrive.app.app import App
from redrive.app.operators.queues import queue_change
from redrive.cli.known import check_queue, queues_of
from redrive.cli.loading import AsJson, Target, load_app, load_existing
from redrive.cli.screen import Grid, print_document, say, utc
from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.engine.queue import QueueChange, QueueSettings
from redrive.engine.records import Count
from redrive.errors import ConfigurationError
from redrive.policy import format_duration
from redrive.stores.operations import queues as operations
from redrive.stores.operations.queues import DepthState

queues = typer.Typer(help="Look at queues, and change them while workers run.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]

New = Annotated[bool, typer.Option("--new", help="Also if neither the code nor any job has this queue yet.")]

# What takes a limit away.
NONE = "none"
NO_LIMITS = "no limits"


class QueueLoad(msgspec.Struct, frozen=True):
    """The jobs of a queue, and the live workers that serve it."""

    jobs: Mapping[DepthState, Count]
    oldest_for: timedelta | None = None  # the time since which its first due job is due
    workers: int = 0

    def plain(self) -> dict[str, object]:
        """Return it as a part of a document."""
        jobs = {state.value: count.value for state, count in self.jobs.items()}
        capped = [state.value for state, count in self.jobs.items() if count.capped]
        oldest = None if self.oldest_for is None else self.oldest_for.total_seconds()
        return {"jobs": jobs, "capped": capped, "oldest_due_seconds": oldest, "workers": self.workers}


def _loads(app: App) -> dict[str, QueueLoad]:
    """Return the load of each queue that the code or the database has."""
    found = app.store.run(operations.depths(now=app.now()))
    alive = [worker for worker in app.workers.select() if worker.expires_at > found.at]
    oldest = {each.queue: found.at - each.oldest_at for each in found.queues if each.oldest_at is not None}
    return {
        name: QueueLoad(
            operations.counted(found.queues, name), oldest.get(name), sum(worker.serves(name) for worker in alive)
        )
        for name in {*queues_of(app), *(each.queue for each in found.queues)}
    }


def _say_load(load: QueueLoad) -> None:
    jobs = ", ".join(f"{count} {state}" for state, count in load.jobs.items())
    oldest = "" if load.oldest_for is None else f", the oldest due since {span(load.oldest_for)}"
    workers = "1 live worker serves" if load.workers == 1 else f"{load.workers} live workers serve"
    say(f"jobs: {jobs}{oldest}; {workers} it")


def _check(app: App, queue: str, *, new: bool) -> None:
    if not new:
        check_queue(app, queue, otherwise=" (--new makes the settings of a queue before its first job)")


@queues.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List the queues of the code and of the database: their jobs, the live workers that serve them, their limits."""
    loaded = load_existing(app)
    settings = {each.name: each for each in loaded.queues.select()}
    loads = _loads(loaded)
    rows = [(settings.get(name) or QueueSettings(name), loads[name]) for name in sorted(loads)]
    if json:
        for each, load in rows:
            print_document(_plain(each) | load.plain())
        return
    table = Grid("queue", "due", "oldest", "later", "running", "dead", "workers", "state", wide=("state",))
    for each, load in rows:
        oldest = "-" if load.oldest_for is None else span(load.oldest_for)
        limits = _limits(each)
        numbers = (str(load.jobs[each]) for each in (DepthState.LATER, DepthState.RUNNING, DepthState.DEAD))
        state = _state(each) if limits == NO_LIMITS else f"{_state(each)}; {limits}"
        table.add(each.name, str(load.jobs[DepthState.DUE]), oldest, *numbers, str(load.workers), state)
    table.show()


@queues.command()
def show(app: Target, queue: Name, *, json: AsJson = False) -> None:
    """Show what is set for one queue, its jobs, the live workers that serve it, and which jobs take up its places."""
    loaded = load_existing(app)
    check_queue(loaded, queue)
    settings = loaded.queue(queue).settings
    holders = loaded.store.run(operations.holders(queue))
    load = _loads(loaded).get(queue) or QueueLoad(operations.counted(()))
    if json:
        print_document(_plain(settings) | load.plain() | {"held_by": holders})
        return
    _say(settings)
    _say_load(load)
    if settings.limited:
        say(f"held: {len(holders)}" + (f", by jobs {', '.join(map(str, holders))}" if holders else ""))


@queues.command()
def pause(app: Target, queue: Name, *, new: New = False) -> None:
    """Start nothing of a queue any more. What runs goes on; what is enqueued waits."""
    loaded = load_app(app)
    _check(loaded, queue, new=new)
    _say(loaded.queue(queue).pause())


@queues.command()
def resume(app: Target, queue: Name) -> None:
    """Take a pause back."""
    loaded = load_app(app)
    check_queue(loaded, queue)
    _say(loaded.queue(queue).resume())


@queues.command()
def limit(
    app: Target,
    queue: Name,
    *,
    concurrency: Annotated[str | None, typer.Option(help="Attempts at once, in all workers together, or none.")] = None,
    per_partition: Annotated[str | None, typer.Option(help="Attempts at once of each partition, or none.")] = None,
    rate: Annotated[str | None, typer.Option(help="Starts within any span, such as 5/1.8s, or none.")] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--unordered", help="Of each partition strictly one after the other.")
    ] = None,
    aging: Annotated[
        str | None, typer.Option(help="A job that has been due for so long counts as one priority higher; or none.")
    ] = None,
    new: New = False,
) -> None:
    """Change the limits of a queue; workers obey from their next claim on. What is not given stays."""
    change = queue_change(
        concurrency=_number(concurrency, "--concurrency"),
        per_partition=_number(per_partition, "--per-partition"),
        rate=_text(rate),
        ordered=UNSET if ordered is None else ordered,
        aging=_text(aging),
    )
    loaded = load_app(app)
    _check(loaded, queue, new=new)
    if change == QueueChange():
        raise ConfigurationError(
            "no limit is given: write --concurrency, --per-partition, --rate, --ordered, --unordered or --aging; "
            f"{command('queues show', app, queue)} prints the present ones"
        )
    _say(loaded.store.run(operations.change(queue, change, actor=loaded.actor, now=loaded.now())))


@queues.command()
def forget(app: Target, queue: Name) -> None:
    """Remove all settings of a queue; those in the code are applied again when a worker starts."""
    loaded = load_app(app)
    check_queue(loaded, queue)
    loaded.queue(queue).forget()
    _say(loaded.queue(queue).settings)


def _number(text: str | None, option: str) -> int | UnsetType | None:
    read = _text(text)
    if not isinstance(read, str):
        return read
    try:
        return int(read)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a whole number; {NONE} removes the limit", param_hint=option
        ) from error


def _text(text: str | None) -> str | UnsetType | None:
    return UNSET if text is None else None if text == NONE else text


def _say(settings: QueueSettings) -> None:
    say(f"queue {settings.name}: {_state(settings)}; {_limits(settings)}")


def _state(settings: QueueSettings) -> str:
    return f"paused since {utc(settings.paused_at)}" if settings.paused_at else "open"


def _limits(settings: QueueSettings) -> str:
    parts = [
        settings.concurrency is not None and f"{settings.concurrency} at once",
        settings.per_partition is not None and f"{settings.per_partition} at once of each partition",
        settings.rate is not None and f"rate {settings.rate}",
        settings.ordered and "each partition in strict order",
        settings.aging_for is not None and f"one priority higher each {format_duration(settings.aging_for)}",
    ]
    return ", ".join(each for each in parts if each) or NO_LIMITS


def _plain(settings: QueueSettings) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(settings, name) for name in settings.__struct_fields__ if name != "turn"}
    return plain | {"rate": None if settings.rate is None else str(settings.rate)}
