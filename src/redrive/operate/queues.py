"""Queues: their load, their settings, the jobs that hold their places; and pause, resume and limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from redrive.app.arguments import checked_text
from redrive.app.operators.queues import queue_change
from redrive.app.protocol import Procedure
from redrive.engine.queue import QueueChange, QueueSettings
from redrive.operate import history
from redrive.operate.exchange import Form, Moved, Page, Refusal, Request, Site, path_to
from redrive.operate.history import History, Pace
from redrive.operate.overview import QueueLoad, load_of, loads
from redrive.operate.vitals import VITALS, vitals
from redrive.policy import format_duration
from redrive.stores.operations import queues
from redrive.stores.operations.doctor import Vitals

#: Jobs that hold a place of a queue and are shown.
HOLDERS: Final = 200

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
        ordered: True to start the jobs of each partition strictly one after the other.
        aging: the time after which a due job gains one priority, such as ``5m``.
    """

    action: Literal["pause", "resume", "limit", "forget"]
    concurrency: Annotated[int, msgspec.Meta(ge=1)] | UnsetType | None = UNSET
    per_partition: Annotated[int, msgspec.Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    ordered: bool | UnsetType = UNSET
    aging: str | UnsetType | None = UNSET


class QueueList(msgspec.Struct, frozen=True, gc=False):
    """All queues.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when they were read; all viewers share it for 10 seconds.
    """

    at: datetime
    read_at: datetime
    items: tuple[QueueLoad, ...]


class QueuePage(msgspec.Struct, frozen=True, gc=False):
    """A queue.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when its load and its settings were read; all viewers share it for 10 seconds.
        held_by: the jobs that hold its places, at most 200.
        tasks: what ended of each of its tasks within the span of the charts.
        concurrency: attempts at once, in all workers together; None without a limit.
        per_partition: attempts at once of each partition.
        rate: starts within a span, such as ``100/1m``.
        aging: the time after which a due job gains one priority.
    """

    at: datetime
    read_at: datetime
    load: QueueLoad
    concurrency: int | None
    per_partition: int | None
    rate: str | None
    aging: str | None
    ordered: bool
    held_by: tuple[str, ...]
    history: History
    tasks: tuple[Pace, ...]


def queue_list(site: Site, request: Request) -> Procedure[Page]:
    """List the queues."""
    found = yield from vitals(site)
    _, paces, _ = yield from history.read(site, request, found.now)
    items = loads(found, paces, _declared(site))
    return Page(f"{len(items)} queues", QueueList(found.now + site.shared.age(VITALS), found.now, items))


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
    held = yield queues.holders(name)
    data = QueuePage(
        at=found.now + site.shared.age(VITALS),
        read_at=found.now,
        load=load_of(found, name, paces.get(name)),
        concurrency=settings.concurrency,
        per_partition=settings.per_partition,
        rate=None if settings.rate is None else str(settings.rate),
        aging=None if settings.aging_for is None else format_duration(settings.aging_for),
        ordered=settings.ordered,
        held_by=tuple(map(str, held[:HOLDERS])),
        history=past,
        tasks=tasks,
    )
    return Page(f"queue {name}", data)


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
