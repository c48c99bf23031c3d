"""``redrive jobs``: the commands that show jobs. Those that act on them are in `redrive.cli.acting`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, get_type_hints

import typer
from msgspec.structs import replace

from redrive.cli.known import check_names
from redrive.cli.loading import AsJson, Target
from redrive.cli.local import check
from redrive.cli.local import show as show_view
from redrive.cli.text import jobs as text
from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.errors import ConfigurationError
from redrive.operate.filters import FilterError, Search, parse, read_search, write

jobs: typer.Typer = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the job.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILTER]...",
        help="Ids of jobs, or a filter as on the page of jobs, such as 'state:dead -task:charge since:2h'.",
    ),
]
ByTask = Annotated[str | None, typer.Option(help="Only jobs of this task.")]
ByQueue = Annotated[str | None, typer.Option(help="Only jobs on this queue.")]
ByReason = Annotated[str | None, typer.Option(help="Only jobs whose last attempt failed for this reason.")]
ByError = Annotated[
    str | None, typer.Option(help="Only jobs whose last error contains this text; secrets in it are not searched.")
]
ByGroup = Annotated[str | None, typer.Option(help="Only jobs whose last error is in this error group.")]
ByTag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
ByHold = Annotated[Hold | None, typer.Option(help="Only jobs that wait for this reason.")]
ByState = Annotated[State | None, typer.Option(help="Only jobs in this state.")]
ByCaught = Annotated[
    bool | None,
    typer.Option("--caught/--not-caught", help="Only dead jobs whose catch task has succeeded, or has not."),
]
BySkipped = Annotated[
    bool | None,
    typer.Option("--skipped/--not-skipped", help="Only dead jobs that an operator has skipped, or all but those."),
]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; by default all.")]

SELECTING: Final[Mapping[str, Any]] = {
    "state": ByState,
    "task": ByTask,
    "queue": ByQueue,
    "reason": ByReason,
    "error": ByError,
    "group": ByGroup,
    "hold": ByHold,
    "tag": ByTag,
    "caught": ByCaught,
    "skipped": BySkipped,
}
"""The options of commands on jobs that are conditions of a filter."""


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a filter, as text and as options, in place of its parameter of the class `Filter` or `Search`."""

    def selected(**given: Any) -> None:  # noqa: ANN401 - the options of the command
        """Run the command with the filter of its argument and its options."""
        texts, options = given.pop("words") or (), {name: given.pop(name) for name in SELECTING}
        found = _both(read(texts, may_stand_alone=takes_words), options)
        command(**{place.name: found if takes_words else found.where}, **given)

    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command)
    app, place, *rest = (each.replace(annotation=hints[each.name]) for each in own.parameters.values())
    takes_words = place.annotation is Search
    words = inspect.Parameter("words", app.kind, default=None, annotation=Words)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in SELECTING.items()
    ]
    selected.__name__, selected.__doc__ = command.__name__, command.__doc__
    parameters = [app, words, *options, *rest]
    selected.__annotations__ = {each.name: each.annotation for each in parameters}
    selected.__signature__ = own.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return selected


def read(texts: Sequence[str], *, may_stand_alone: bool = False) -> Search:
    """Read the argument of a command: the ids of jobs, or a filter, and a value that stands alone where it may."""
    text = f"id:{','.join(texts)}" if len(texts) > 1 and all(each.isdigit() for each in texts) else " ".join(texts)
    try:
        return read_search(text, most=len(text)) if may_stand_alone else Search(parse(text, most=len(text)))
    except FilterError as error:
        raise ConfigurationError(f"{error.detail}\n{error.caret}") from error


def _both(found: Search, options: Mapping[str, Any]) -> Search:
    """Return a filter with the conditions of the options of a command, too."""
    given = {name: value for name, value in options.items() if value is not None}
    twice = given.keys() & found.where.conditions.keys()
    if twice:
        name = min(twice)
        raise ConfigurationError(f"{name} is given as --{name} and in the filter; the conditions must all hold")
    return replace(found, where=replace(found.where, **given))


@jobs.command("list")
@selecting
def list_(
    app: Target,
    found: Search,
    *,
    before: Annotated[int | None, typer.Option(min=1, help="Only jobs with a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first, or with --hold by when they are due, each with the reason why it is not running.

    Of a large database the newest 20,000 jobs are read, and older ones that an index finds; the last line has the
    option for the others.
    """
    where = found.where
    check(app, check_names, task=where.task, queue=where.queue)
    q = write(where, found.word) or None
    view = show_view(app, "jobs list", text.jobs, json=json, q=q, before=before, limit=limit)
    text.rest(view, found.word, by_due=where.hold is not None and found.word is None)


@jobs.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one job: why it is not running, its arguments, and every attempt with the rule that chose its delay."""
    show_view(app, "jobs show", text.job, json=json, id=number)
