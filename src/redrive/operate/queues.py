"""Queues: their load, their settings, the jobs that hold their places; and pause, resume and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from redrive.app.arguments import checked_text
from redrive.app.operators.queues import queue_change
from redrive.app.protocol import Procedure
from redrive.engine.queue import QueueChange, QueueSettings
from redrive.operate import audit, history
from redrive.operate.audit import AuditLine
from redrive.operate.charts.axes import took
from redrive.operate.exchange import Form, Id, Moved, Page, Refusal, Request, Site, path_to
from redrive.operate.history import History, Pace
from redrive.operate.overview import QueueLoad, load_of, loads
from redrive.operate.vitals import VITALS, vitals
from redrive.policy import format_duration
from redrive.stores.operations import queues
from redrive.stores.operations.doctor import LATE, Vitals
from redrive.stores.operations.queues import PresentJob, QueueLimits

#: The age at which the shared figures are read again for a queue that they do not have: its first job may be new.
LEAST: Final = timedelta(seconds=1)


class QueueAction(Form, frozen=True, gc=False):
    """An action on a queue.

    Attributes:
        action: forget removes all settings; those in the code are applied again when a worker starts.
        concurrency: of a limit: the attempts at once, in all workers together. Null takes a limit away; a limit that
            is not given stays.
        per_partition: the attempts at once of each partition.
        rate: the starts within a span, such as ``100/1m``.
        rate_per_partition: the same for each partition.
        ordered: True to start the jobs of each partition strictly one after the other.
        aging: the time after which a due job gains one priority, such as ``5m``.
    """

    action: Literal["pause", "resume", "limit", "forget"]
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | UnsetType | None = UNSET
    per_partition: Annotated[int, msgspec.Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    rate_per_partition: str | UnsetType | None = UNSET
    ordered: bool | UnsetType = UNSET
    aging: str | UnsetType | None = UNSET


class Only(StrEnum):
    """A reason for which queues need a person."""

    UNSERVED = "unserved"
    PAUSED = "paused"


class QueuesQuery(msgspec.Struct, frozen=True, gc=False):
    """The parameters of the list of queues.

    Attributes:
        only: ``unserved`` for those with due jobs that no live worker serves, ``paused`` for paused ones with jobs.
        span: of the charts; by default ``1h``.
    """

    only: Only | None = None
    span: history.Span | None = None


class QueueList(msgspec.Struct, frozen=True, gc=False):
    """All queues, or those that need a person for a reason.

    Attributes:
        only: the reason; None for all queues.
        at: the present instant, by the clock of the database.
        read_at: when they were read; all viewers share it for 10 seconds.
    """

    at: datetime
    read_at: datetime
    items: tuple[QueueLoad, ...]
    only: Only | None = None


class Standing(msgspec.Struct, frozen=True, gc=False):
    """The answer to why the jobs of a queue wait, or whether they do.

    Attributes:
        state: the state whose colour it has: dead, paused, retrying, running or succeeded.
        title: what is true.
        text: its scale.
    """

    state: str
    title: str
    text: str


class RunningJob(msgspec.Struct, frozen=True, gc=False):
    """An attempt that runs.

    Attributes:
        seconds: since when.
        late: True if it runs for longer than 95 of 100 attempts of its task did.
        worker: the id of its worker.
        worker_name: None if the worker is gone.
    """

    id: Id
    queue: str
    task: str
    attempt: int
    seconds: float
    late: bool
    worker: Id | None
    worker_name: str | None


class NextJob(msgspec.Struct, frozen=True, gc=False):
    """A due job that is claimed next.

    Attributes:
        attempt: the number that its attempt will have.
    """

    id: Id
    task: str
    attempt: int
    due_at: datetime


class QueuePage(msgspec.Struct, frozen=True, gc=False):
    """A queue.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when its load and its settings were read; all viewers share it for 10 seconds.
        standing: why its jobs wait, or that they do not.
        held_by: the jobs that hold its places, at most 200.
        running: the jobs that it runs, the longest first, at most 200.
        next: the jobs that are claimed next, at most ten.
        tasks: what ended of each of its tasks within the span of the charts.
        acts: what operators last did to it.
        concurrency: attempts at once, in all workers together; None without a limit.
        per_partition: attempts at once of each partition.
        rate: starts within a span, such as ``100/1m``.
        rate_per_partition: the same for each partition.
        aging: the time after which a due job gains one priority.
    """

    at: datetime
    read_at: datetime
    load: QueueLoad
    concurrency: int | None
    per_partition: int | None
    rate: str | None
    rate_per_partition: str | None
    aging: str | None
    ordered: bool
    standing: Standing
    held_by: tuple[str, ...]
    running: tuple[RunningJob, ...]
    next: tuple[NextJob, ...]
    history: History
    tasks: tuple[Pace, ...]
    acts: tuple[AuditLine, ...]


def queue_list(site: Site, request: Request) -> Procedure[Page]:
    """List the queues."""
    found = yield from vitals(site)
    past, paces, _ = yield from history.read(site, request, found.now)
    items, only = loads(found, past, paces, _declared(site)), request.choice("only", Only)
    if only is not None:
        names = found.unserved if only is Only.UNSERVED else found.stopped
        items = tuple(each for each in items if each.name in names)
    return Page(f"{len(items)} queues", QueueList(found.now + site.shared.age(VITALS), found.now, items, only))


def queue(site: Site, request: Request) -> Procedure[Page]:
    """Show one queue."""
    name = request.places["name"]
    found = yield from vitals(site)
    if name not in _stored(found) and site.shared.age(VITALS) > LEAST:
        site.shared.forget()
        found = yield from vitals(site)
    past, paces, tasks = yield from history.read_queue(request, name, found.now)
    if name not in _stored(found) | paces.keys() | _declared(site):
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no queue {name!r}: no job is in it, and nothing is set for it")
    settings = next((each for each in found.settings if each.name == name), QueueSettings(name))
    present: tuple[PresentJob, ...] = yield queues.present(name, now=found.now)
    load, at = load_of(found, name, paces.get(name), past.due_before), found.now + site.shared.age(VITALS)
    data = QueuePage(
        at=at,
        read_at=found.now,
        load=load,
        concurrency=settings.concurrency,
        per_partition=settings.per_partition,
        rate=None if settings.rate is None else str(settings.rate),
        rate_per_partition=None if settings.rate_per_partition is None else str(settings.rate_per_partition),
        aging=None if settings.aging_for is None else format_duration(settings.aging_for),
        ordered=settings.ordered,
        standing=_standing(load, settings, found),
        held_by=tuple(str(each.id) for each in present if each.kind == "holder"),
        running=running(present, tasks, at),
        next=tuple(
            NextJob(str(each.id), each.task, each.attempt + 1, each.at)
            for each in present
            if each.kind == "next" and each.at is not None
        ),
        history=past,
        tasks=tasks,
        acts=(yield from audit.latest(f"queue:{name}")),
    )
    return Page(f"queue {name}", data)


def running(present: Iterable[PresentJob], tasks: Iterable[Pace], at: datetime) -> tuple[RunningJob, ...]:
    """Return the jobs that run, with those that are late by the pace of their tasks."""
    usual = {(each.queue, each.task): each.p95_seconds for each in tasks}
    found = []
    for each in present:
        if each.kind == "running" and each.at is not None:
            seconds, longest = max(0.0, (at - each.at).total_seconds()), usual.get((each.queue, each.task))
            late = longest is not None and seconds > max(longest, LEAST.total_seconds())
            worker = None if each.worker_id is None else str(each.worker_id)
            one = RunningJob(str(each.id), each.queue, each.task, each.attempt, seconds, late, worker, each.worker)
            found.append(one)
    return tuple(found)


def _standing(load: QueueLoad, settings: QueueLimits | QueueSettings, found: Vitals) -> Standing:
    """Return why the jobs of a queue wait: it is paused, not served, at its rate, full, or slow."""
    oldest = "" if load.oldest_seconds is None else f", the oldest for {took(load.oldest_seconds)}"
    waits = f"{load.due} due{oldest}; {load.later} later"
    if load.standing == "paused" and load.paused_at is not None:
        since = took((found.now - load.paused_at).total_seconds())
        return Standing("paused", "It is paused", f"For {since}; {waits}. Nothing starts until it is resumed.")
    if load.standing == "no worker":
        return Standing("dead", "No live worker serves it", f"{waits}. They start when a worker of this queue does.")
    if not load.due.value:
        title = f"It runs {load.running}, and nothing waits" if load.running.value else "Nothing is due"
        text = f"{load.later} later" if load.later.value else "New jobs start at once"
        return Standing("running" if load.running.value else "succeeded", title, f"{text}.")
    if isinstance(settings, QueueLimits) and settings.next_at is not None and settings.next_at > found.now:
        return Standing("retrying", f"It has reached its rate of {settings.rate}", f"{waits}.")
    if settings.concurrency is not None and load.running.value >= settings.concurrency:
        return Standing("retrying", f"It is full: {settings.concurrency} run at once, its limit", f"{waits}.")
    serving = [each for each in found.alive if each.serves(load.name)]
    if sum(each.running for each in serving) >= load.slots:
        return Standing("retrying", "All slots of its workers are busy", f"{waits}. {load.slots} slots serve it.")
    if (load.oldest_seconds or 0.0) > LATE.total_seconds():
        return Standing("retrying", "Its jobs wait too long", f"{waits}, although slots are free.")
    return Standing("running", f"It runs {load.running}", f"{waits}.")


def _stored(found: Vitals) -> set[str]:
    return {each.queue for each in found.depths} | {each.name for each in found.settings}


def _declared(site: Site) -> set[str]:
    return {task.defaults.queue for task in site.app.tasks.values()} | set(site.app.queues.declared)


def act(site: Site, request: Request) -> Procedure[Moved]:
    """Pause or resume a queue, set its limits, or forget its settings: those in the code apply again."""
    name = request.places["name"]
    action = request.action(("pause", "resume", "limit", "forget"), f"queue {name}", status=HTTPStatus.BAD_REQUEST)
    form, here = request.form, path_to("queues", checked_text(name, "the name of a queue"))
    if action == "forget":
        yield queues.forget(name, actor=request.actor, now=site.app.now())
        return Moved(here, f"the settings of queue {name} are removed")
    if action == "limit":
        change = queue_change(
            concurrency=_number("concurrency", request),
            per_partition=_number("per_partition", request),
            rate=_text("rate", form),
            rate_per_partition=_text("rate_per_partition", form),
            ordered=form["ordered"] == "true" if "ordered" in form else UNSET,
            aging=_text("aging", form),
        )
        did = f"the limits of queue {name} are changed"
    else:
        change, did = QueueChange(paused=action == "pause"), f"queue {name} is {action}d"
    yield queues.change(name, change, actor=request.actor, now=site.app.now())
    return Moved(here, did)


def _text(field: str, form: Mapping[str, str]) -> str | UnsetType | None:
    """Return a limit of a form; an empty field takes the limit away, and without a field it stays."""
    return form[field].strip() or None if field in form else UNSET


def _number(field: str, request: Request) -> int | UnsetType | None:
    """Return a limit of a form, as `_text` does."""
    return request.member(field, "a whole number, or empty for no limit") if field in request.form else UNSET
