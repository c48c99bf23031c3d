"""The tasks of the code: their policies, the JSON Schema of their arguments, and a new job of one by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from redrive.app.flows.workflow import Workflow
from redrive.app.protocol import Procedure
from redrive.app.tasks.enqueue import Enqueuer
from redrive.app.tasks.task import Task
from redrive.errors import ConfigurationError
from redrive.operate import history
from redrive.operate.exchange import Form, Moved, Page, Refusal, Request, Site, path_to, read_instant
from redrive.operate.vitals import vitals

_JSON: Final[Mapping[type, str]] = {list: "list", dict: "object"}

_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")

Kind = TypeVar("Kind", list[Any], dict[str, Any])


class NewJob(Form, frozen=True, gc=False):
    """A job to be made, or a run to be started.

    Attributes:
        args: the arguments by position.
        kwargs: arguments by name.
        key: unique among the unfinished jobs of the task; of a workflow the id of the run.
        queue: another queue than that of the task.
        priority: a smaller one runs first.
        delay: how long to wait, such as ``5m``.
        at: when it is due, with an offset.
        expires: the time after which it is cancelled if it has not started.
        tags: texts by which it is found.
    """

    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    key: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay: str | None = None
    at: str | None = None
    expires: str | None = None
    tags: list[str] | None = None


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """A new job.

    Attributes:
        job: its id.
        run: the id of the run of a workflow.
        created: False if an unfinished job had the key, or a run the id.
    """

    job: str
    run: str | None
    created: bool
    note: str


class TaskLine(msgspec.Struct, frozen=True, gc=False):
    """A task of the code.

    Attributes:
        policy: what happens after a failure, in words.
        workflow: True if its jobs are runs.
        pace: its attempts within the span, on all queues; None if none ended.
    """

    name: str
    queue: str
    priority: int
    policy: str
    workflow: bool
    pace: history.Pace | None


class TaskList(msgspec.Struct, frozen=True, gc=False):
    """The tasks that can be enqueued by name; crons and refreshes are among the schedules."""

    span: history.Span
    items: tuple[TaskLine, ...]


class TaskPage(msgspec.Struct, frozen=True, gc=False):
    """A task.

    Attributes:
        arguments: the JSON Schema of its arguments: an object with a member for each.
        at: when it was read.
        span: of its pace.
    """

    at: datetime
    span: history.Span
    task: TaskLine
    arguments: dict[str, Any]


def task_list(site: Site, request: Request) -> Procedure[Page]:
    """List the tasks of the code."""
    span, _, paces = yield from _past(site, request)
    items = tuple(_line(task, paces) for _, task in sorted(site.app.tasks.items()) if has_page(task))
    return Page(f"{len(items)} tasks", TaskList(span, items))


def task(site: Site, request: Request) -> Procedure[Page]:
    """Show one task, with the JSON Schema of its arguments."""
    found = _find(site, request)
    span, at, paces = yield from _past(site, request)
    return Page(f"task {found.name}", TaskPage(at, span, _line(found, paces), found.signature.schema))


def _past(site: Site, request: Request) -> Procedure[tuple[history.Span, datetime, tuple[history.Pace, ...]]]:
    """Return the span of the charts, when the figures that all viewers share were read, and the pace of each task."""
    state = yield from vitals(site)
    past, _, paces = yield from history.read(site, request, state.now)
    return past.span, state.now, paces


def has_page(task: Task[Any, Any, Any]) -> bool:
    """Return True for a task that is started by its name; others start by a schedule, an event or a topic."""
    return type(task) is Task or task.is_workflow


def _find(site: Site, request: Request) -> Task[Any, Any, Any]:
    name = request.places["name"]
    found = site.app.find(name)
    # The command line enqueues jobs of crons too.
    if found is None or not (has_page(found) or not request.via):
        raise Refusal(HTTPStatus.NOT_FOUND, f"the code has no task {name!r} that can be enqueued by its name")
    return found


def _line(task: Task[Any, Any, Any], paces: Iterable[history.Pace]) -> TaskLine:
    options = task.defaults
    pace = history.of_task(paces, task.name, options.queue)
    return TaskLine(task.name, options.queue, options.priority, str(task.policy.explain()), task.is_workflow, pace)


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Enqueue a job of a task, with the checks of the arguments that the task itself makes."""
    found = _find(site, request)
    args, kwargs = read_json(request, "args", list), read_json(request, "kwargs", dict)
    found.signature.write(tuple(args), kwargs)
    if isinstance(found, Workflow):
        _demand_no_options(request)
        run = yield from found.starting(request.form.get("key"), tuple(args), kwargs)
        note = f"run {run.id} of {found.name} is started" if run.created else f"run {run.id} was started before"
        made = Enqueued(str(run.job.id), run.id, run.created, note)
        return Moved(path_to("runs", found.name, run.id), note, HTTPStatus.CREATED, made)
    job = yield from _options(found, request).enqueuing(*args, **kwargs)
    note = f"job {job.id} of {found.name} is enqueued" if job.created else f"job {job.id} has the key already"
    return Moved(f"/jobs/{job.id}", note, HTTPStatus.CREATED, Enqueued(str(job.id), None, job.created, note))


def _options(task: Task[Any, Any, Any], request: Request) -> Enqueuer[..., Any]:
    text = {name: request.form.get(name) for name in ("key", "queue", "delay", "expires", "at")}
    return task.options(
        key=text["key"],
        queue=text["queue"],
        delay=text["delay"],
        expires=text["expires"],
        at=None if text["at"] is None else read_instant("at", text["at"]),
        priority=read_priority(request),
        tags=read_json(request, "tags", list) or None,
    )


def read_json(request: Request, name: str, kind: type[Kind]) -> Kind:
    """Return a list or an object of the form; an empty one without it."""
    try:
        found: Kind = msgspec.json.decode(request.form.get(name) or msgspec.json.encode(kind()), type=kind)
        return found
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{name} is a JSON {_JSON[kind]}, and cannot be read: {error}") from error


def read_priority(request: Request) -> int | None:
    """Return the priority of the form; None without it."""
    text = request.form.get("priority", "")
    if text and not _NUMBER.fullmatch(text):
        raise ConfigurationError(f"priority={text[:40]!r} is no whole number")
    return int(text) if text else None


def _demand_no_options(request: Request) -> None:
    """Refuse the options of a job for a run, which has none of them."""
    given = [name for name in ("queue", "priority", "delay", "at", "expires", "tags") if request.form.get(name)]
    if given:
        raise ConfigurationError(f"a run has no {', '.join(given)}: give args, kwargs and key")
