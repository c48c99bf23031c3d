"""The page of `redrive dev`: enqueue by a form, run what waits, advance the clock, and let attempts fail.

It is only in the routes of that command: each of these actions would do harm in production.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from redrive.app.app import App
from redrive.app.flows.workflow import Workflow
from redrive.app.protocol import Procedure
from redrive.app.tasks.task import Task
from redrive.engine.explain import span
from redrive.engine.lifecycle import State
from redrive.engine.records import Count, Filter, Hold, JobRecord
from redrive.engine.runs import is_far
from redrive.errors import IllegalMove
from redrive.operate.exchange import Moved, Page, Refusal, Request, Role, Site, path_to, whole_number
from redrive.operate.forms import Field, arguments, fields
from redrive.operate.table import Row
from redrive.operate.tasks import has_page
from redrive.policy import parse_duration
from redrive.runtime import failpoints
from redrive.stores.operations import admin, attempts, leases, queues, redriving, schedules
from redrive.stores.operations.leases import NextDue
from redrive.stores.operations.machines import turns
from redrive.stores.operations.queues import Depths, DepthState

#: Jobs that one action makes due.
MOST: Final = 1000

#: Attempts that can be planned to fail.
FAILURES: Final = 100

#: Errors that the page offers for every task.
ERRORS: Final = ("builtins.TimeoutError", "builtins.ConnectionError", "builtins.ValueError", "redrive.errors.GiveUp")

# Runs that wait for more than a time are not made due: their waits would end without what they wait for.
_STAYING: Final = frozenset({Hold.PARKED, Hold.PAUSED, Hold.HELD})


class DevQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of the page.

    Attributes:
        task: the one with the form that is shown.
    """

    task: str | None = None


class DevTask(msgspec.Struct, frozen=True, gc=False):
    """A task.

    Attributes:
        policy: what happens after a failure, in words.
        fields: one for each argument; None for a task without a form, which has other ways to start.
        errors: names of exceptions that its policy may treat in different ways.
    """

    name: str
    queue: str
    policy: str
    is_workflow: bool
    fields: tuple[Field, ...] | None
    errors: tuple[str, ...]


class PlannedFailure(msgspec.Struct, frozen=True, gc=False):
    """The next attempts of a task or step, which fail without a call of its function."""

    name: str
    error: str
    attempts: int


class DevPage(msgspec.Struct, frozen=True, gc=False):
    """What a developer can do.

    Attributes:
        next_at: when something is due next; None if nothing is planned.
        later: jobs that wait for their time.
        tasks: the names of the tasks.
        task: the one that is shown.
    """

    at: datetime
    next_at: datetime | None
    later: Count
    tasks: tuple[str, ...]
    task: DevTask | None
    planned: tuple[PlannedFailure, ...]


def dev(site: Site, request: Request) -> Procedure[Page]:
    """Show what is due next, and the form of a task."""
    names = tuple(sorted(site.app.tasks))
    chosen = request.text("task")
    task = None if chosen is None and not names else _task(site.app, chosen or names[0])
    found: Depths = yield queues.depths(now=site.app.now())
    data = DevPage(
        at=found.at,
        next_at=(yield from _next_at(site.app)),
        later=queues.counted(found.queues)[DepthState.LATER],
        tasks=names,
        task=None if task is None else _described(task),
        planned=tuple(
            PlannedFailure(name, repr(make()), count) for name, (make, count) in sorted(failpoints.PLANNED.items())
        ),
    )
    return Page("Dev", data)


def _task(app: App, name: str) -> Task[Any, Any, Any]:
    task = app.tasks.get(name)
    if task is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no task {name!r}")
    return task


def _described(task: Task[Any, Any, Any]) -> DevTask:
    on = task.policy.on
    named = tuple(each for each in on if "." in each) if isinstance(on, tuple) else ()
    return DevTask(
        name=task.name,
        queue=task.defaults.queue,
        policy=str(task.policy.explain()),
        is_workflow=task.is_workflow,
        fields=fields(task.signature.schema) if has_page(task) else None,
        errors=tuple(dict.fromkeys((*named, *ERRORS))),
    )


def _next_at(app: App) -> Procedure[datetime | None]:
    """Return when the next job, schedule, timeout or wait of the app is due."""
    now = app.now()
    due: NextDue = yield leases.upcoming(app.served(), now=now)
    instants = [due.due_at, due.special_at]
    for each in (yield schedules.status(now=now)):
        instants += [each.due_at, each.sweep_at] if each.created or each.name in app.schedules.declared else []
    rest: timedelta | None = yield attempts.until_expiry(now=now)
    instants.append(None if rest is None else due.now + rest)
    if app.machines.declared:
        instants.append((yield turns.look(app.machines.known, now=now)).timeout_at)
    return min((each for each in instants if each is not None and not is_far(each)), default=None)


# --------------------------------------------------------------------------------------------------------- actions


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Do what the form asks for."""
    action = request.action(_ACTIONS, "redrive dev", status=HTTPStatus.BAD_REQUEST)
    return (yield from _ACTIONS[action](site, request))


def _enqueue(site: Site, request: Request) -> Procedure[Moved]:
    task = _task(site.app, request.form.get("task", ""))
    if not has_page(task):
        raise Refusal(
            HTTPStatus.CONFLICT, f"task {task.name} is not enqueued: it starts by its schedule, event or topic"
        )
    given = arguments(fields(task.signature.schema), request.form)
    if isinstance(task, Workflow):
        run = yield from task.starting(None, (), given)
        return Moved(path_to("runs", run.workflow, run.id), f"run {run.id} is started")
    delay = request.form.get("delay", "").strip()
    made = task.options(delay=delay) if delay else task
    job = yield from made.enqueuing(**given)
    return Moved(f"/jobs/{job.id}", f"job {job.id} of {task.name} is enqueued")


def _run(site: Site, request: Request) -> Procedure[Moved]:
    found: tuple[JobRecord, ...] = yield admin.select(Filter(state=State.READY, oldest_first=True, limit=MOST))
    at = (yield queues.depths(now=site.app.now())).at
    waiting = [job.id for job in found if job.scheduled_at > at and job.hold not in _STAYING]
    done = 0
    for number in waiting:
        try:
            yield redriving.retry(number, actor=request.actor, now=site.app.now())
        except IllegalMove:
            # It has ended or started since.
            continue
        done += 1
    more = f"; more than {MOST} jobs wait: repeat it" if len(found) == MOST else ""
    return Moved("/dev", f"jobs made due: {done}{more}")


def _jump(site: Site, request: Request) -> Procedure[Moved]:
    if site.dev is None or site.dev.advance is None:
        raise Refusal(HTTPStatus.CONFLICT, "the clock can be advanced with redrive dev --memory only")
    found: tuple[JobRecord, ...] = yield admin.select(Filter(state=State.RUNNING, limit=MOST))
    # A feeder runs as long as its worker, which gives it back.
    running = [job for job in found if site.app.topics.fed_by(job.task) is None]
    if running:
        raise Refusal(HTTPStatus.CONFLICT, f"job {running[0].id} runs: advance the clock when it has ended")
    text, at = request.form.get("by", "").strip(), (yield queues.depths(now=site.app.now())).at
    if text:
        by = parse_duration(text)
    else:
        next_at = yield from _next_at(site.app)
        if next_at is None:
            raise Refusal(HTTPStatus.CONFLICT, "nothing is planned")
        by = next_at - at
    if by <= timedelta(0):
        raise Refusal(HTTPStatus.CONFLICT, "something is due now already")
    yield partial(site.dev.advance, by)
    return Moved("/dev", f"the clock was advanced by {span(by)}")


def _fail(site: Site, request: Request) -> Procedure[Moved]:
    task, text = _task(site.app, request.form.get("task", "")), request.form.get("attempts", "") or "1"
    count = whole_number(text, most=FAILURES)
    name = request.form.get("step", "").strip() if task.is_workflow else task.name
    if not name:
        raise Refusal(HTTPStatus.BAD_REQUEST, "name a step: the code of a workflow itself is not made to fail")
    if count is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"attempts={text[:40]!r} is not a whole number from 0 to {FAILURES}")
    make = _error(request.form.get("error", "").strip(), request.form.get("message", ""))
    yield partial(failpoints.plan, name, make, count)
    to = f"/dev?{urlencode({'task': task.name})}"
    if not count:
        return Moved(to, f"no attempt of {name} is planned to fail any more")
    return Moved(to, f"attempts of {name} that will fail with {make()!r}: {count}")


_ACTIONS: Final = {"enqueue": _enqueue, "run": _run, "jump": _jump, "fail": _fail}


def _error(name: str, message: str) -> Callable[[], Exception]:
    """Return a function that makes an exception, of Python or of a module that the app has imported."""
    module, _, attribute = name.rpartition(".")
    # A form must not import modules: their code would run.
    kind = getattr(sys.modules.get(module) if module else builtins, attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{name[:100]!r} is no exception of Python or of an imported module")

    def make() -> Exception:
        try:
            return kind(message)
        except Exception:  # noqa: BLE001 - a class with other arguments may raise anything
            return kind.__new__(kind, message)

    return make


#: The routes that only the site of `redrive dev` has.
ROWS: Final = (
    Row((), "/dev", dev, template="dev.html", data=DevPage, query=DevQuery),
    Row((), "/dev", act, Role.OPERATE),
)
