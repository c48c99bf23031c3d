"""``redrive enqueue module:app task``: make a job by the name of its task."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from redrive.app.app import App
from redrive.app.tasks.task import Task
from redrive.cli.loading import AsJson, Target, read_instant
from redrive.cli.local import ask, check
from redrive.cli.screen import print_document, say
from redrive.errors import ConfigurationError
from redrive.operate.tasks import Enqueued

Arguments = Annotated[str, typer.Option("--args", metavar="JSON", help="The arguments as a JSON list.")]
Named = Annotated[str, typer.Option("--kwargs", metavar="JSON", help="Arguments by name, as a JSON object.")]


def enqueue(
    app: Target,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.")],
    stray: Annotated[list[str] | None, typer.Argument(hidden=True, metavar="[--args JSON]")] = None,
    *,
    args: Arguments = "[]",
    kwargs: Named = "{}",
    delay: Annotated[str | None, typer.Option(help="How long to wait, for example 5m.")] = None,
    at: Annotated[
        datetime | None,
        typer.Option(parser=read_instant, metavar="TIME", help="When it is due, for example 2026-03-01T06:00+02:00."),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue than that of the task.")] = None,
    priority: Annotated[int | None, typer.Option(help="Smaller runs first.")] = None,
    expires: Annotated[str | None, typer.Option(help="Cancel it if it has not started in this time.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A text to find it by; may be repeated.")] = None,
    key: Annotated[str | None, typer.Option(help="Unique among the unfinished jobs of the task.")] = None,
    json: AsJson = False,
) -> None:
    """Make a job of a task, with the checks of the arguments that the task itself makes."""
    if stray:
        listed = f"--args '{msgspec.json.encode(stray).decode()}'"
        raise ConfigurationError(f"{stray[0]!r} is one argument too many: those of the task are a JSON list, {listed}")
    given = read_json(args, "--args", list), read_json(kwargs, "--kwargs", dict)
    if at is not None and at.tzinfo is None:
        raise typer.BadParameter(
            f"{at:%Y-%m-%dT%H:%M} has no time zone: write an offset, for example {at:%Y-%m-%dT%H:%M}+00:00",
            param_hint="--at",
        )
    check(app, _check, app, task, creates=True)
    made: Enqueued = ask(
        app,
        "enqueue",
        name=task,
        args=given[0],
        kwargs=given[1],
        delay=delay,
        at=None if at is None else at.isoformat(),
        queue=queue,
        priority=priority,
        expires=expires,
        tags=tag,
        key=key,
    )
    if json:
        print_document(made)
    else:
        say(made.note)


def _check(loaded: App, app: str, task: str) -> None:
    """Raise `ConfigurationError` if no worker would get the job."""
    find_task(loaded, app, task)
    if loaded.url == "memory://":
        raise ConfigurationError(
            f"{app} has the database memory://, which ends with this command, so that no worker would get the job: "
            "give the App another one, for example sqlite:///jobs.db"
        )


def find_task(loaded: App, app: str, task: str) -> Task[Any, Any, Any]:
    """Return a task by its name, or raise `ConfigurationError` with the names of the tasks."""
    found = loaded.find(task)
    if found is None:
        known = ", ".join(sorted(loaded.tasks)) or "none"
        raise ConfigurationError(f"{app} has no task {task!r}; known tasks: {known}")
    return found


def read_json(text: str, option: str, kind: type[Any]) -> Any:  # noqa: ANN401 - JSON
    """Read the value of an option that is a JSON list or object."""
    what = 'list, such as [7, "text"]' if kind is list else 'object, such as {"cents": 7}'
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{option} is a JSON {what}; {text!r} cannot be read: {error}") from error
    if not isinstance(found, kind):
        raise ConfigurationError(f"{option} is a JSON {what}, not {text}")
    return found
