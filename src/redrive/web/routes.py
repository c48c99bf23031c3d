"""The one table of routes. A route is a page with its role: it serves HTML and, below ``/api/v1``, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from types import UnionType
from typing import Final

import msgspec

from redrive.web.exchange import Form, Handler, Named, Newest, Note, Role
from redrive.web.pages import (
    audit,
    autoscale,
    calendar,
    dev,
    errors,
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


class Route(msgspec.Struct, frozen=True, gc=False):
    """A page or an action.

    Attributes:
        path: below the place where the dashboard is mounted, with variable parts as Starlette writes them.
        handler: the generator.
        role: that a user needs.
        template: of the page; None for an action, which is a POST.
        section: the entry of the navigation to which it belongs.
        data: the struct that it answers, or the union of those.
        query: the parameters of the URL.
        form: the fields of the form, or the members of the JSON object in the body, of an action.
        status: of the answer of the JSON API.
    """

    path: str
    handler: Handler
    role: Role = Role.READ
    template: str | None = None
    section: str = ""
    data: type[msgspec.Struct] | UnionType = Note
    query: type[msgspec.Struct] | None = None
    form: type[Form] | None = None
    status: HTTPStatus = HTTPStatus.OK

    @property
    def method(self) -> str:
        """The method: actions are posted."""
        return "POST" if self.template is None else "GET"


ROUTES: Final = (
    Route(
        "/",
        overview.overview,
        template="overview.html",
        section="Overview",
        data=overview.Overview,
        query=history.HistoryQuery,
    ),
    Route("/health", health.health, template="health.html", section="Overview", data=health.Health),
    Route("/jobs", jobs.jobs, template="jobs.html", section="Jobs", data=jobs.JobList, query=jobs.JobsQuery),
    Route("/jobs/{id}", job.job, template="job.html", section="Jobs", data=job.JobPage),
    Route("/jobs/{id}", job.act, Role.OPERATE, form=job.JobAction),
    Route(
        "/errors",
        errors.error_list,
        template="errors.html",
        section="Errors",
        data=errors.ErrorList,
        query=errors.ErrorsQuery,
    ),
    Route(
        "/errors/{group}", errors.group, template="error.html", section="Errors", data=errors.GroupPage, query=Newest
    ),
    Route("/errors/{group}", errors.act, Role.OPERATE, form=errors.GroupAction),
    Route(
        "/queues",
        queues.queue_list,
        template="queues.html",
        section="Queues",
        data=queues.QueueList,
        query=history.HistoryQuery,
    ),
    Route(
        "/queues/{name:path}",
        queues.queue,
        template="queue.html",
        section="Queues",
        data=queues.QueuePage,
        query=history.HistoryQuery,
    ),
    Route("/queues/{name:path}", queues.act, Role.OPERATE, form=queues.QueueAction),
    Route(
        "/autoscale",
        autoscale.autoscale,
        template="autoscale.html",
        section="Queues",
        data=autoscale.Autoscale,
        query=autoscale.AutoscaleQuery,
    ),
    Route("/tasks", tasks.task_list, template="tasks.html", section="Tasks", data=tasks.TaskList),
    Route("/tasks/{name:path}", tasks.task, template="task.html", section="Tasks", data=tasks.TaskPage),
    Route(
        "/tasks/{name:path}", tasks.act, Role.OPERATE, data=tasks.Enqueued, form=tasks.NewJob, status=HTTPStatus.CREATED
    ),
    Route("/workers", workers.worker_list, template="workers.html", section="Workers", data=workers.WorkerList),
    Route("/runs", runs.run_list, template="runs.html", section="Runs", data=runs.RunList, query=runs.RunsQuery),
    Route("/runs/{workflow}/{run:path}", run.run, template="run.html", section="Runs", data=run.RunPage),
    Route("/runs/{workflow}/{run:path}", run.act, Role.OPERATE, form=run.RunAction),
    Route("/machines", machines.machine_list, template="machines.html", section="Machines", data=machines.MachineList),
    Route(
        "/machines/{machine}",
        machines.machine,
        template="machine.html",
        section="Machines",
        data=machines.MachinePage,
        query=machines.InstancesQuery,
    ),
    Route(
        "/machines/{machine}/{key:path}",
        instance.instance,
        template="instance.html",
        section="Machines",
        data=instance.InstancePage,
        query=Newest,
    ),
    Route("/machines/{machine}/{key:path}", instance.act, Role.OPERATE, form=instance.InstanceAction),
    Route("/topics", topics.topic_list, template="topics.html", section="Topics", data=topics.TopicList),
    Route(
        "/topics/{topic}/{subscription}",
        subscription.subscription,
        template="subscription.html",
        section="Topics",
        data=subscription.SubscriptionPage,
    ),
    Route(
        "/topics/{topic}/{subscription}/move",
        subscription.preview_move,
        template="move.html",
        section="Topics",
        data=subscription.MovePage,
        query=subscription.MoveQuery,
    ),
    Route("/topics/{topic}/{subscription}", subscription.act, Role.OPERATE, form=subscription.SubscriptionAction),
    Route(
        "/schedules",
        schedules.schedule_list,
        template="schedules.html",
        section="Schedules",
        data=schedules.ScheduleList,
        query=Named,
    ),
    Route(
        "/schedules/{name}",
        schedules.schedule,
        template="schedule.html",
        section="Schedules",
        data=schedules.CronPage | schedules.RefreshPage,
        query=schedules.ScheduleQuery,
    ),
    Route("/schedules/{name}", schedules.act, Role.OPERATE, form=schedules.ScheduleAction),
    Route(
        "/schedules/{name}/calendar",
        calendar.week,
        template="calendar.html",
        section="Schedules",
        data=calendar.Calendar,
        query=calendar.CalendarQuery,
    ),
    Route(
        "/schedules/{name}/item",
        refreshes.item,
        template="item.html",
        section="Schedules",
        data=refreshes.ItemPage,
        query=refreshes.ItemQuery,
    ),
    Route("/schedules/{name}/item", refreshes.act, Role.OPERATE, form=refreshes.ItemAction),
    Route(
        "/playground",
        playground.playground,
        template="playground.html",
        section="Playground",
        data=playground.Playground,
        query=playground.PolicyQuery,
    ),
    Route(
        "/operations",
        operations.operation_list,
        template="operations.html",
        section="Operations",
        data=operations.OperationList,
        query=Newest,
    ),
    Route("/operations", operations.start, Role.OPERATE, form=operations.NewOperation, status=HTTPStatus.ACCEPTED),
    Route(
        "/operations/preview",
        operations.preview,
        template="operation_preview.html",
        section="Operations",
        data=operations.OperationPreview,
        query=operations.PreviewQuery,
    ),
    Route(
        "/operations/{id}",
        operations.operation,
        template="operation.html",
        section="Operations",
        data=operations.OperationPage,
        query=operations.BatchesQuery,
    ),
    Route("/operations/{id}", operations.act, Role.OPERATE, form=operations.OperationAction),
    Route("/problems/{name}", problems.problem_type, template="problem_type.html", data=problems.ProblemType),
    Route("/audit", audit.audit_list, template="audit.html", section="Audit", data=audit.AuditList, query=Newest),
)

#: The routes that only the site of `redrive dev` has.
DEV_ROUTES: Final = (
    Route("/dev", dev.dev, template="dev.html", section="Dev", data=dev.DevPage, query=dev.DevQuery),
    Route("/dev", dev.act, Role.OPERATE),
)


def sections(routes: Sequence[Route] = ROUTES) -> Iterator[tuple[str, str]]:
    """Return the name and the path of each entry of the navigation."""
    seen = set()
    for route in routes:
        if route.section and route.section not in seen:
            seen.add(route.section)
            yield route.section, route.path
