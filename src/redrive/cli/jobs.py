"""``redrive jobs``: the commands that show jobs. Those that act on them are in `redrive.cli.acting`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, get_type_hints

import typer

from redrive.cli.known import check_names
from redrive.cli.loading import AsJson, Target
from redrive.cli.local import check
from redrive.cli.local import show as show_view
from redrive.cli.text import jobs as text
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.operate.filters import write

jobs = typer.Typer(help="Look at jobs, and act on them.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the job.")]
Numbers = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Ids of jobs.")]
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
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]

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
}
"""The options of commands on jobs that are conditions of a filter."""


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the ids and the conditions of a filter as parameters, in place of its parameter ``where``."""

    def selected(**given: Any) -> None:  # noqa: ANN401 - the options of the command
        """Run the command with the filter of its options."""
        numbers, conditions = given.pop("numbers"), {name: given.pop(name) for name in SELECTING}
        command(where=Filter(ids=tuple(numbers) if numbers else None, **conditions), **given)

    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command)
    app, _, *rest = (each.replace(annotation=hints[each.name]) for each in own.parameters.values())
    numbers = inspect.Parameter("numbers", app.kind, default=None, annotation=Numbers)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in SELECTING.items()
    ]
    selected.__name__, selected.__doc__ = command.__name__, command.__doc__
    parameters = [app, numbers, *options, *rest]
    selected.__annotations__ = {each.name: each.annotation for each in parameters}
    selected.__signature__ = own.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return selected


@jobs.command("list")
@selecting
def list_(
    app: Target,
    where: Filter,
    *,
    before: Annotated[int | None, typer.Option(min=1, help="Only jobs with a smaller id.")] = None,
    limit: Limit = 50,
    json: AsJson = False,
) -> None:
    """List jobs, newest first, or with --hold by when they are due, each with the reason why it is not running.

    Of a large database the newest 20,000 jobs are read; the last line has the option for older ones.
    """
    check(app, check_names, task=where.task, queue=where.queue)
    view = show_view(app, "jobs list", text.jobs, json=json, q=write(where) or None, before=before, limit=limit)
    text.rest(view, by_due=where.hold is not None)


@jobs.command()
def show(app: Target, number: Number, *, json: AsJson = False) -> None:
    """Show one job: why it is not running, its arguments, and every attempt with the rule that chose its delay."""
    show_view(app, "jobs show", text.job, json=json, id=number)
