"""The first page: what needs a person, and how much work there is in each queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.queue import QueueSettings
from redrive.engine.records import Count, Diagnosis, Severity
from redrive.operate import errors, history
from redrive.operate.errors import GroupLine
from redrive.operate.exchange import Id, Page, Request, Site
from redrive.operate.history import History, Pace
from redrive.operate.vitals import VITALS, vitals
from redrive.policy import format_duration
from redrive.stores.operations import counters, doctor
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.queues import DepthState, counted
from redrive.version import __version__

#: Error groups on this page.
GROUPS: Final = 5


class QueueLoad(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a queue.

    Attributes:
        oldest_seconds: the time since which the first due job is due; None if no job is due.
        slots: the attempts that live workers which serve it may run at once, also of other queues.
        workers: the live workers that serve it.
        paused_at: since when it is paused.
        limits: in words; empty without any.
        pace: what ended within the span of the charts; None if nothing did, and for all queues together.
    """

    name: str
    due: Count
    later: Count
    running: Count
    waiting: Count
    dead: Count
    oldest_seconds: float | None
    workers: int
    slots: int
    paused_at: datetime | None
    limits: tuple[str, ...]
    pace: Pace | None = None


class OperationProgress(msgspec.Struct, frozen=True, gc=False):
    """A bulk operation that has not ended.

    Attributes:
        read: jobs that were changed or kept so far.
        matched: jobs that matched at the preview; None if they were too many to be counted.
        rate: such as ``100/s``; None for no limit.
    """

    id: Id
    action: str
    read: int
    matched: int | None
    rate: str | None


class Overview(msgspec.Struct, frozen=True, gc=False):
    """The state of everything.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when it was read; all viewers share it for 10 seconds. Fewer than 1,000 jobs of a queue in a state are
            counted every two seconds while a page is open.
        needs: what needs a person, the worst first.
        total: of all queues.
        groups: the error groups with dead jobs that failed last.
        operations: those that have not ended.
    """

    at: datetime
    read_at: datetime
    needs: tuple[Diagnosis, ...]
    total: QueueLoad
    queues: tuple[QueueLoad, ...]
    workers: int
    busy: int
    history: History
    groups: tuple[GroupLine, ...]
    operations: tuple[OperationProgress, ...]


def overview(site: Site, request: Request) -> Procedure[Page]:
    """Show what needs a person, and the queues."""
    found = yield from vitals(site)
    past, paces, _ = yield from history.read(site, request, found.now)
    groups = yield from site.shared.read("groups", _groups(found))
    needs = [
        each
        for each in doctor.diagnose(found, site.app.served(), __version__, app=site.reference)
        if each.severity is not Severity.OK
    ]
    data = Overview(
        at=found.now + site.shared.age(VITALS),
        read_at=found.now,
        needs=tuple(sorted(needs, key=lambda each: list(Severity).index(each.severity), reverse=True)),
        total=load_of(found, None),
        queues=loads(found, paces),
        workers=len(found.alive),
        busy=sum(found.busy.values()),
        history=past,
        groups=groups,
        operations=tuple(
            OperationProgress(str(each.id), each.action, each.read, each.matched, each.rate)
            for each in found.operations
        ),
    )
    dead = data.total.dead
    return Page(f"({dead} dead)" if dead.value else "Overview", data)


def _groups(found: Vitals) -> Procedure[tuple[GroupLine, ...]]:
    rows = yield counters.groups(dead=True, unmuted=True, limit=GROUPS, now=found.now)
    return tuple(errors.line(each, found) for each in rows)


def loads(found: Vitals, paces: Mapping[str, Pace], declared: Collection[str] = ()) -> tuple[QueueLoad, ...]:
    """Return the load of each queue that has or had jobs, has settings, or is declared, by name."""
    names = {each.queue for each in found.depths} | {each.name for each in found.settings} | paces.keys()
    names |= set(declared) | {name for worker in found.alive for name in worker.queues or ()}
    return tuple(load_of(found, name, paces.get(name)) for name in sorted(names))


def load_of(found: Vitals, name: str | None, pace: Pace | None = None) -> QueueLoad:
    """Return the load of one queue, or of all together."""
    counts = counted(found.depths, name)
    oldest = [
        found.now - each.oldest_at for each in found.depths if name in {None, each.queue} and each.oldest_at is not None
    ]
    settings = next((each for each in found.settings if each.name == name), QueueSettings(name or ""))
    serving = [worker for worker in found.alive if name is None or worker.serves(name)]
    return QueueLoad(
        name=name or "",
        due=counts[DepthState.DUE],
        later=counts[DepthState.LATER],
        running=counts[DepthState.RUNNING],
        waiting=counts[DepthState.WAITING],
        dead=counts[DepthState.DEAD],
        oldest_seconds=max(oldest).total_seconds() if oldest else None,
        workers=len(serving),
        slots=sum(worker.concurrency for worker in serving),
        paused_at=settings.paused_at,
        limits=tuple(_limits(settings)),
        pace=pace,
    )


def _limits(settings: QueueSettings) -> Iterator[str]:
    if settings.concurrency is not None:
        yield f"{settings.concurrency} at once"
    if settings.per_partition is not None:
        yield f"{settings.per_partition} at once of each partition"
    if settings.rate is not None:
        yield f"rate {settings.rate}"
    if settings.ordered:
        yield "each partition in strict order"
    if settings.aging_for is not None:
        yield f"one priority higher each {format_duration(settings.aging_for)}"
