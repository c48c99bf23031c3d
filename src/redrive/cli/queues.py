"""``redrive queues``: show queues, and change them while workers run."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import UNSET, UnsetType

from redrive.app.queues import queue_change
from redrive.cli.loading import AsJson, Target, load_app
from redrive.cli.screen import Grid, print_document, say, utc
from redrive.engine.queue import QueueSettings
from redrive.policy import format_duration
from redrive.stores.operations import queues as operations

queues = typer.Typer(help="Look at queues, and change them while workers run.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]

# What takes a limit away.
NONE = "none"


@queues.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List the queues that are not like the others; every other queue runs without limits."""
    found = load_app(app).queues.select()
    if json:
        for each in found:
            print_document(_plain(each))
        return
    table = Grid("queue", "state", "limits")
    for each in found:
        table.add(each.name, _state(each), _limits(each))
    table.show()


@queues.command()
def show(app: Target, queue: Name, *, json: AsJson = False) -> None:
    """Show what is set for one queue, and which jobs take up its places."""
    loaded = load_app(app)
    settings = loaded.queue(queue).settings
    holders = loaded.store.run(operations.holders(queue))
    if json:
        print_document(_plain(settings) | {"held_by": holders})
        return
    _say(settings)
    if settings.limited:
        say(f"held: {len(holders)}" + (f", by jobs {', '.join(map(str, holders))}" if holders else ""))


@queues.command()
def pause(app: Target, queue: Name) -> None:
    """Start nothing of a queue any more. What runs goes on; what is enqueued waits."""
    _say(load_app(app).queue(queue).pause())


@queues.command()
def resume(app: Target, queue: Name) -> None:
    """Take a pause back."""
    _say(load_app(app).queue(queue).resume())


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
    _say(loaded.store.run(operations.change(queue, change, actor=loaded.actor, now=loaded.now())))


@queues.command()
def forget(app: Target, queue: Name) -> None:
    """Remove all settings of a queue; those in the code are applied again when a worker starts."""
    loaded = load_app(app)
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
    return ", ".join(each for each in parts if each) or "no limits"


def _plain(settings: QueueSettings) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(settings, name) for name in settings.__struct_fields__ if name != "turn"}
    return plain | {"rate": None if settings.rate is None else str(settings.rate)}
