"""The first page: what needs a person, and how much work there is in each queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from redrive import __version__
from redrive.app.protocol import Procedure
from redrive.engine.records import Count, Diagnosis, Severity
from redrive.stores.operations import counters, doctor
from redrive.stores.operations.doctor import Vitals
from redrive.stores.operations.queues import DepthState, counted
from redrive.web.exchange import Id, Page, Request, Site
from redrive.web.pages import errors, history
from redrive.web.pages.errors import GroupLine
from redrive.web.pages.history import History, Pace
from redrive.web.pages.vitals import VITALS, vitals

#: Error groups on this page.
GROUPS: Final = 5


class QueueLoad(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a queue.

    Attributes:
        oldest_seconds: the time since which the first due job is due; None if no job is due.
        slots: the attempts that live workers which serve it may run at once, also of other queues.
        workers: the live workers that serve it.
        paused_at: since when it is paused.
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


def loads(found: Vitals, paces: Mapping[str, Pace]) -> tuple[QueueLoad, ...]:
    """Return the load of each queue that has or had jobs, or has settings, by name."""
    names = {each.queue for each in found.depths} | {each.name for each in found.settings} | paces.keys()
    return tuple(load_of(found, name, paces.get(name)) for name in sorted(names))


def load_of(found: Vitals, name: str | None, pace: Pace | None = None) -> QueueLoad:
    """Return the load of one queue, or of all together."""
    counts = counted(found.depths, name)
    oldest = [
        found.now - each.oldest_at for each in found.depths if name in {None, each.queue} and each.oldest_at is not None
    ]
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
        paused_at=next((each.paused_at for each in found.settings if each.name == name), None),
        pace=pace,
    )
