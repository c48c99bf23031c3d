"""The table of what operators see and do. A row is one view or one action, with every face that it has.

The way from a command or a page to its answer::

    redrive queues show APP mail      the words find the row, the arguments its places          redrive.cli
    redrive --url URL queues show mail                      likewise, sent as a request         redrive.cli.remote
    GET /queues/mail, /api/v1/queues/mail                   the path finds it                   redrive.web.asgi
                    |
        _view("queues show", "/queues/{name:path}", queues.queue, "queue.html", queues.QueuePage)
                    |
        queues.queue(site, request)   a procedure: it yields store operations, which the face runs
                    |
        QueuePage                     one struct: JSON as it is, HTML by the template of the row,
                                      lines for readers by redrive.cli.text

A new command or page is a row, its procedure with its struct, and a renderer for each face: a template, and a function
in `redrive.cli.text`. The JSON API, its OpenAPI document and ``--url`` follow from the row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from types import UnionType
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from redrive.errors import ConfigurationError
from redrive.operate import (
    audit,
    autoscale,
    builds,
    calendar,
    erasure,
    errors,
    find,
    health,
    history,
    instance,
    job,
    jobs,
    machines,
    operations,
    overview,
    playground,
    problems,
    queues,
    refreshes,
    run,
    runs,
    schedules,
    subscription,
    tasks,
    topics,
    workers,
)
from redrive.operate.exchange import Form, Handler, Named, Newest, Note, Role


class Row(msgspec.Struct, frozen=True, gc=False):
    """A view or an action.

    Attributes:
        words: the commands that show it or carry it out; the last word of one that acts is the action.
        path: below the place where the dashboard is mounted, with variable parts as Starlette writes them.
        procedure: that reads the view, or carries out the action.
        role: that a user needs.
        template: of the page; None for an action, which is a POST.
        data: the struct that it answers, or the union of those.
        query: the parameters of the URL.
        form: the fields of the form, or the members of the JSON object in the body, of an action.
        status: of the answer of the JSON API.
        items: the member of the struct that is a list, of which ``--json`` prints an item in each line.
    """

    words: tuple[str, ...]
    path: str
    procedure: Handler
    role: Role = Role.READ
    template: str | None = None
    data: type[msgspec.Struct] | UnionType = Note
    query: type[msgspec.Struct] | None = None
    form: type[Form] | None = None
    status: HTTPStatus = HTTPStatus.OK
    items: str = ""

    @property
    def method(self) -> str:
        """The method: actions are posted."""
        return "POST" if self.template is None else "GET"

    @property
    def section(self) -> str:
        """The entry of the navigation to which it belongs; empty for an action and for a kind of problems."""
        first = self.path.split("/")[1]
        return "" if self.template is None else _SECTIONS.get(first, first.capitalize())

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the variable parts of the path."""
        return tuple(re.findall(r"{(\w+)", self.path))

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the parameters, or of the members of the body."""
        given = self.query if self.form is None else self.form
        return () if given is None else given.__struct_fields__


# The sections of pages that are not named like them.
_SECTIONS: Final = {
    "": "Overview",
    "find": "Jobs",
    "health": "Checks",
    "autoscale": "Queues",
    "builds": "Workers",
    "problems": "",
}


def _view(  # noqa: PLR0917 - the columns of a row
    words: str,
    path: str,
    procedure: Handler,
    template: str,
    data: type[msgspec.Struct] | UnionType,
    query: type[msgspec.Struct] | None = None,
    *,
    items: str = "",
) -> Row:
    return Row(_words(words), path, procedure, Role.READ, template, data, query, items=items)


def _action(
    words: str,
    path: str,
    procedure: Handler,
    form: type[Form] | None = None,
    *,
    data: type[msgspec.Struct] = Note,
    status: HTTPStatus = HTTPStatus.OK,
) -> Row:
    return Row(_words(words), path, procedure, Role.OPERATE, None, data, form=form, status=status)


def _words(words: str) -> tuple[str, ...]:
    return tuple(words.split(", ")) if words else ()


# The rows of a path stand together: they are one route, and its header Allow has their methods.
ROWS: Final = (
    _view("", "/", overview.overview, "overview.html", overview.Overview, history.HistoryQuery),
    _view("doctor", "/health", health.health, "health.html", health.Health, items="findings"),
    _view("jobs list", "/jobs", jobs.jobs, "jobs.html", jobs.JobList, jobs.JobsQuery, items="items"),
    _view("find", "/find", find.find, "find.html", find.Found, find.FindQuery),
    _action("erase", "/erase", erasure.erase, erasure.Erasure, data=erasure.ErasureReport),
    _view("jobs show", "/jobs/{id}", job.job, "job.html", job.JobPage),
    _action("jobs retry, jobs skip, jobs cancel", "/jobs/{id}", job.act, job.JobAction),
    _view(
        "errors list", "/errors", errors.error_list, "errors.html", errors.ErrorList, errors.ErrorsQuery, items="items"
    ),
    _view("errors show", "/errors/{group}", errors.group, "error.html", errors.GroupPage, Newest),
    _action("errors mute, errors unmute", "/errors/{group}", errors.act, errors.GroupAction),
    _view(
        "queues list",
        "/queues",
        queues.queue_list,
        "queues.html",
        queues.QueueList,
        queues.QueuesQuery,
        items="items",
    ),
    _view("queues show", "/queues/{name:path}", queues.queue, "queue.html", queues.QueuePage, history.HistoryQuery),
    _action(
        "queues pause, queues resume, queues limit, queues forget",
        "/queues/{name:path}",
        queues.act,
        queues.QueueAction,
    ),
    _view("", "/autoscale", autoscale.autoscale, "autoscale.html", autoscale.Autoscale, autoscale.AutoscaleQuery),
    _view("", "/tasks", tasks.task_list, "tasks.html", tasks.TaskList, history.HistoryQuery),
    _view("", "/tasks/{name:path}", tasks.task, "task.html", tasks.TaskPage, history.HistoryQuery),
    _action("enqueue", "/tasks/{name:path}", tasks.act, tasks.NewJob, data=tasks.Enqueued, status=HTTPStatus.CREATED),
    _view(
        "workers list",
        "/workers",
        workers.worker_list,
        "workers.html",
        workers.WorkerList,
        history.HistoryQuery,
        items="items",
    ),
    _view("workers builds", "/builds", builds.builds, "builds.html", builds.BuildsPage),
    _view("workers show", "/workers/{id}", workers.worker, "worker.html", workers.WorkerPage, Newest),
    _view("runs list", "/runs", runs.run_list, "runs.html", runs.RunList, runs.RunsQuery, items="items"),
    _view("runs show", "/runs/{workflow}/{run:path}", run.run, "run.html", run.RunPage),
    _action("runs signal, runs pause, runs resume, runs cancel", "/runs/{workflow}/{run:path}", run.act, run.RunAction),
    _view("machines list", "/machines", machines.machine_list, "machines.html", machines.MachineList, items="items"),
    _view(
        "machines list, machines show",
        "/machines/{machine}",
        machines.machine,
        "machine.html",
        machines.MachinePage,
        machines.InstancesQuery,
        items="instances",
    ),
    _view(
        "machines show",
        "/machines/{machine}/{key:path}",
        instance.instance,
        "instance.html",
        instance.InstancePage,
        Newest,
    ),
    _action(
        "machines retry, machines skip, machines reset",
        "/machines/{machine}/{key:path}",
        instance.act,
        instance.InstanceAction,
    ),
    _view("topics list", "/topics", topics.topic_list, "topics.html", topics.TopicList, items="subscriptions"),
    _view(
        "topics show",
        "/topics/{topic}/{subscription}",
        subscription.subscription,
        "subscription.html",
        subscription.SubscriptionPage,
        history.HistoryQuery,
    ),
    _action(
        "topics pause, topics resume, topics move, topics skip, topics redrive",
        "/topics/{topic}/{subscription}",
        subscription.act,
        subscription.SubscriptionAction,
    ),
    _view(
        "topics move --dry-run",
        "/topics/{topic}/{subscription}/move",
        subscription.preview_move,
        "move.html",
        subscription.MovePage,
        subscription.MoveQuery,
    ),
    _view(
        "schedules list",
        "/schedules",
        schedules.schedule_list,
        "schedules.html",
        schedules.ScheduleList,
        Named,
        items="items",
    ),
    _action("schedules create", "/schedules", schedules.create, schedules.NewCron, status=HTTPStatus.CREATED),
    _view(
        "schedules show",
        "/schedules/{name}",
        schedules.schedule,
        "schedule.html",
        schedules.CronPage | schedules.RefreshPage,
        schedules.ScheduleQuery,
    ),
    _action(
        "schedules trigger, schedules pause, schedules resume, schedules stop, schedules backfill, schedules delete",
        "/schedules/{name}",
        schedules.act,
        schedules.ScheduleAction,
        data=schedules.ScheduleNote,
    ),
    _view("", "/schedules/{name}/calendar", calendar.week, "calendar.html", calendar.Calendar, calendar.CalendarQuery),
    _view(
        "schedules show", "/schedules/{name}/item", refreshes.item, "item.html", refreshes.ItemPage, refreshes.ItemQuery
    ),
    _action(
        "schedules trigger, schedules update, schedules pause, schedules resume",
        "/schedules/{name}/item",
        refreshes.act,
        refreshes.ItemAction,
    ),
    _view("", "/playground", playground.playground, "playground.html", playground.Playground, playground.PolicyQuery),
    _view(
        "operations list",
        "/operations",
        operations.operation_list,
        "operations.html",
        operations.OperationList,
        Newest,
        items="items",
    ),
    _action(
        "jobs cancel, jobs redrive, jobs repolicy",
        "/operations",
        operations.start,
        operations.NewOperation,
        data=operations.Begun,
        status=HTTPStatus.ACCEPTED,
    ),
    _view(
        "",
        "/operations/preview",
        operations.preview,
        "operation_preview.html",
        operations.OperationPreview,
        operations.PreviewQuery,
    ),
    _view(
        "operations show",
        "/operations/{id}",
        operations.operation,
        "operation.html",
        operations.OperationPage,
        operations.BatchesQuery,
    ),
    _action(
        "operations stop, operations undo",
        "/operations/{id}",
        operations.act,
        operations.OperationAction,
        data=operations.Begun,
    ),
    _view("", "/problems/{name}", problems.problem_type, "problem_type.html", problems.ProblemType),
    _view("jobs audit", "/audit", audit.audit_list, "audit.html", audit.AuditList, audit.AuditQuery, items="items"),
)


def _nullable(row: Row) -> set[str]:
    """Return the members of a body for which null differs from one that is not given."""
    given = () if row.form is None else msgspec.structs.fields(row.form)
    return {each.name for each in given if each.default is UNSET}


class Call(msgspec.Struct, frozen=True, gc=False):
    """A row with the values of a command.

    Attributes:
        places: the variable parts of the path.
        values: the parameters of the URL, or the members of the body.
        is_document: True if the command shows one thing, also where its view has a list.
    """

    row: Row
    places: Mapping[str, str]
    values: Mapping[str, Any]
    is_document: bool

    @property
    def path(self) -> str:
        """The path below the place where the dashboard is mounted."""
        return re.sub(r"{(\w+)[^}]*}", lambda found: quote(self.places[found[1]], safe=""), self.row.path)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of a URL; True is 1, and what is False is left out."""
        given = {name: value for name, value in self.values.items() if value is not False}
        return {name: "1" if value is True else str(value) for name, value in given.items()}


def call(words: str, given: Mapping[str, Any]) -> Call:
    """Return the row of a command that has a place for all that is given; None and ``UNSET`` are not given.

    Raises:
        ConfigurationError: no row has.
    """
    named = {name: value for name, value in given.items() if value is not UNSET}
    rows = [row for row in ROWS if words in row.words]
    for row in rows:
        values = {name: value for name, value in named.items() if name not in row.places}
        values = {name: value for name, value in values.items() if value is not None or name in _nullable(row)}
        if named.keys() >= set(row.places) and values.keys() <= set(row.fields):
            action = {"action": words.rpartition(" ")[2]} if "action" in row.fields and row.form is not None else {}
            is_document = words.endswith(" show")
            return Call(row, {name: str(named[name]) for name in row.places}, values | action, is_document)
    unknown = [name for name in named if not any(name in (*row.places, *row.fields) for row in rows)]
    raise ConfigurationError(f"--{unknown[0].replace('_', '-')} of redrive {words} does not work through --url")
