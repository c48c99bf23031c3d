"""The first page: what needs a person, and how much work there is in each queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.queue import QueueSettings
from redrive.engine.records import Count, Severity
from redrive.operate import errors, history
from redrive.operate.errors import GroupLine
from redrive.operate.exchange import Id, Page, Request, Site
from redrive.operate.history import History, Pace
from redrive.operate.needs import Need, needs
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
        standing: active, paused, or no worker; idle for a queue without jobs that no worker serves.
        oldest_seconds: the time since which the first due job is due; None if no job is due.
        slots: the attempts that live workers which serve it may run at once, also of other queues.
        workers: the live workers that serve it.
        paused_at: since when it is paused.
        paused_by: who has paused it; None if the code did.
        limits: in words; empty without any.
        pace: what ended within the span of the charts; None if nothing did, and for all queues together.
        grown: how many more jobs are due than at the beginning of that span; None if it is not known.
    """

    name: str
    standing: str
    due: Count
    later: Count
    running: Count
    waiting: Count
    dead: Count
    oldest_seconds: float | None
    workers: int
    slots: int
    paused_at: datetime | None
    paused_by: str | None
    limits: tuple[str, ...]
    pace: Pace | None = None
    grown: int | None = None

    @property
    def grows(self) -> bool:
        """True if at least ten jobs more are due than at the beginning of the span, and a quarter as many again."""
        return self.grown is not None and self.grown >= max(10, self.due.value / 5)


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


class Start(msgspec.Struct, frozen=True, gc=False):
    """The next start of a cron.

    Attributes:
        job: that it created last; None if there is none.
        state: of that job; None if it was deleted.
    """

    name: str
    at: datetime
    job: Id | None
    state: str | None


class Overview(msgspec.Struct, frozen=True, gc=False):
    """The state of everything.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when it was read; all viewers share it for 10 seconds. Fewer than 1,000 jobs of a queue in a state are
            counted every two seconds while a page is open.
        needs: what needs a person, the worst first; one for each kind.
        fine: the number of checks that found nothing.
        total: of all queues.
        groups: the error groups with dead jobs that failed last.
        operations: those that have not ended.
        starts: the crons that start next.
    """

    at: datetime
    read_at: datetime
    needs: tuple[Need, ...]
    fine: int
    total: QueueLoad
    queues: tuple[QueueLoad, ...]
    workers: int
    busy: int
    history: History
    groups: tuple[GroupLine, ...]
    operations: tuple[OperationProgress, ...]
    starts: tuple[Start, ...]

    @property
    def problems(self) -> int:
        """The number of kinds that need a person."""
        return sum(each.severity is Severity.PROBLEM for each in self.needs)


def overview(site: Site, request: Request) -> Procedure[Page]:
    """Show what needs a person, and the queues."""
    found = yield from vitals(site)
    past, paces, _ = yield from history.read(site, request, found.now)
    groups = yield from site.shared.read("groups", _groups(found))
    diagnoses = doctor.diagnose(found, site.app.served(), __version__, app=site.reference)
    data = Overview(
        at=found.now + site.shared.age(VITALS),
        read_at=found.now,
        needs=needs(found, diagnoses, groups[:GROUPS], site.app.served(), more=len(groups) > GROUPS),
        fine=sum(each.severity is Severity.OK for each in diagnoses),
        total=load_of(found, None),
        queues=loads(found, past, paces),
        workers=len(found.alive),
        busy=sum(found.busy.values()),
        history=past,
        groups=groups[:GROUPS],
        operations=tuple(
            OperationProgress(str(each.id), each.action, each.read, each.matched, each.rate)
            for each in found.operations
        ),
        starts=tuple(
            Start(each.name, each.at, None if each.job_id is None else str(each.job_id), each.state)
            for each in found.starts
        ),
    )
    dead = data.total.dead
    return Page(f"({dead} dead)" if dead.value else "Overview", data)


def _groups(found: Vitals) -> Procedure[tuple[GroupLine, ...]]:
    rows = yield counters.groups(dead=True, unmuted=True, limit=GROUPS + 1, now=found.now)
    return tuple(errors.line(each, found) for each in rows)


def loads(
    found: Vitals, past: History, paces: Mapping[str, Pace], declared: Collection[str] = ()
) -> tuple[QueueLoad, ...]:
    """Return the load of each queue that has or had jobs, has settings, or is declared, by name."""
    names = {each.queue for each in found.depths} | {each.name for each in found.settings} | paces.keys()
    names |= set(declared) | {name for worker in found.alive for name in worker.queues or ()}
    return tuple(load_of(found, name, paces.get(name), past.due_before) for name in sorted(names))


def load_of(
    found: Vitals, name: str | None, pace: Pace | None = None, before: Mapping[str, int] | None = None
) -> QueueLoad:
    """Return the load of one queue, or of all together; ``before`` has the due jobs of queues some time ago."""
    counts = counted(found.depths, name)
    oldest = [
        found.now - each.oldest_at for each in found.depths if name in {None, each.queue} and each.oldest_at is not None
    ]
    settings = next((each for each in found.settings if each.name == name), QueueSettings(name or ""))
    serving = [worker for worker in found.alive if name is None or worker.serves(name)]
    return QueueLoad(
        name=name or "",
        standing=_standing(settings, counts, has_worker=bool(serving)),
        due=counts[DepthState.DUE],
        later=counts[DepthState.LATER],
        running=counts[DepthState.RUNNING],
        waiting=counts[DepthState.WAITING],
        dead=counts[DepthState.DEAD],
        oldest_seconds=max(oldest).total_seconds() if oldest else None,
        workers=len(serving),
        slots=sum(worker.concurrency for worker in serving),
        paused_at=settings.paused_at,
        paused_by=settings.paused_by,
        limits=tuple(_limits(settings)),
        pace=pace,
        grown=_grown(counts[DepthState.DUE], before, name),
    )


def _grown(due: Count, before: Mapping[str, int] | None, name: str | None) -> int | None:
    if before is None or name is None:
        return None
    more = due.value - before.get(name, 0)
    # Counts end at a limit: of two that have reached it nothing is known.
    return None if due.capped and more <= 0 else more


def _standing(settings: QueueSettings, counts: Mapping[DepthState, Count], *, has_worker: bool) -> str:
    if settings.paused_at is not None:
        return "paused"
    if has_worker:
        return "active"
    waits = (counts[each].value for each in (DepthState.DUE, DepthState.LATER, DepthState.WAITING))
    return "no worker" if any(waits) else "idle"


def _limits(settings: QueueSettings) -> Iterator[str]:
    if settings.concurrency is not None:
        yield f"{settings.concurrency} at once"
    if settings.per_partition is not None:
        yield f"{settings.per_partition} at once of each partition"
    if settings.rate is not None:
        yield f"rate {settings.rate}"
    if settings.rate_per_partition is not None:
        yield f"rate {settings.rate_per_partition} of each partition"
    if settings.ordered:
        yield "each partition in strict order"
    if settings.aging_for is not None:
        yield f"one priority higher each {format_duration(settings.aging_for)}"
