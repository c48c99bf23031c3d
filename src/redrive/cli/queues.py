"""``redrive queues``: show queues, and change them while workers run."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import UNSET, UnsetType

from redrive.cli.known import check_queue
from redrive.cli.loading import AsJson, Target
from redrive.cli.local import Desk, ask, check, name_of
from redrive.cli.local import show as show_view
from redrive.cli.text import queues as text
from redrive.engine.commands import command
from redrive.errors import ConfigurationError

queues: typer.Typer = typer.Typer(help="Look at queues, and change them while workers run.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]

New = Annotated[bool, typer.Option("--new", help="Also if neither the code nor any job has this queue yet.")]

# What takes a limit away.
NONE = "none"


def _check(app: Desk, queue: str, *, new: bool = False) -> None:
    if not new:
        check(
            app,
            check_queue,
            queue,
            creates=True,
            otherwise=" (--new makes the settings of a queue before its first job)",
        )


def _say_settings(app: Desk, queue: str) -> None:
    text.settings(ask(app, "queues show", name=queue))


@queues.command("list")
def list_(app: Target, *, json: AsJson = False) -> None:
    """List the queues of the code and of the database: their jobs, the live workers that serve them, their limits."""
    show_view(app, "queues list", text.queues, json=json)


@queues.command()
def show(app: Target, queue: Name, *, json: AsJson = False) -> None:
    """Show what is set for one queue, its jobs, the live workers that serve it, and which jobs take up its places."""
    check(app, check_queue, queue)
    show_view(app, "queues show", text.queue, json=json, name=queue)


@queues.command()
def pause(app: Target, queue: Name, *, new: New = False) -> None:
    """Start nothing of a queue any more. What runs goes on; what is enqueued waits."""
    _check(app, queue, new=new)
    ask(app, "queues pause", name=queue)
    _say_settings(app, queue)


@queues.command()
def resume(app: Target, queue: Name) -> None:
    """Take a pause back."""
    check(app, check_queue, queue, creates=True)
    ask(app, "queues resume", name=queue)
    _say_settings(app, queue)


@queues.command()
def limit(
    app: Target,
    queue: Name,
    *,
    concurrency: Annotated[str | None, typer.Option(help="Attempts at once, in all workers together, or none.")] = None,
    per_partition: Annotated[str | None, typer.Option(help="Attempts at once of each partition, or none.")] = None,
    rate: Annotated[str | None, typer.Option(help="Starts within any span, such as 5/1.8s, or none.")] = None,
    rate_per_partition: Annotated[str | None, typer.Option(help="The same for each partition, or none.")] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--unordered", help="Of each partition strictly one after the other.")
    ] = None,
    aging: Annotated[
        str | None, typer.Option(help="A job that has been due for so long counts as one priority higher; or none.")
    ] = None,
    new: New = False,
) -> None:
    """Change the limits of a queue; workers obey from their next claim on. What is not given stays."""
    change: dict[str, Any] = {
        "concurrency": _number(concurrency, "--concurrency"),
        "per_partition": _number(per_partition, "--per-partition"),
        "rate": _text(rate),
        "rate_per_partition": _text(rate_per_partition),
        "ordered": UNSET if ordered is None else ordered,
        "aging": _text(aging),
    }
    _check(app, queue, new=new)
    if all(each is UNSET for each in change.values()):
        raise ConfigurationError(
            "no limit is given: write --concurrency, --per-partition, --rate, --rate-per-partition, --ordered, "
            "--unordered or --aging; "
            f"{command('queues show', name_of(app), queue)} prints the present ones"
        )
    ask(app, "queues limit", name=queue, **change)
    _say_settings(app, queue)


@queues.command()
def forget(app: Target, queue: Name) -> None:
    """Remove all settings of a queue; those in the code are applied again when a worker starts."""
    check(app, check_queue, queue, creates=True)
    ask(app, "queues forget", name=queue)
    _say_settings(app, queue)


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
