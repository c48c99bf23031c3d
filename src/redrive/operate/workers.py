"""Workers: what they serve, how busy they are, and when each was last heard from."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.records import WorkerRecord
from redrive.operate import history
from redrive.operate.exchange import Page, Request, Site
from redrive.operate.history import History
from redrive.operate.queues import RunningJob, running
from redrive.operate.vitals import VITALS, vitals
from redrive.stores.operations import queues
from redrive.stores.operations.queues import PresentJob


class WorkerLine(msgspec.Struct, frozen=True, gc=False):
    """A worker.

    Attributes:
        alive: True if its lease has not ended.
        busy: attempts that it runs.
        slots: attempts that it may run at once.
        queues: that it serves; None for all.
        tasks: the number of tasks that it has; None for all.
        lease_until: until when it need not be heard from.
    """

    id: str
    name: str
    alive: bool
    trouble: str | None
    busy: int
    slots: int
    queues: tuple[str, ...] | None
    excluded: tuple[str, ...]
    tasks: int | None
    started_at: datetime
    heard_at: datetime
    lease_until: datetime
    version: str | None


class WorkerList(msgspec.Struct, frozen=True, gc=False):
    """The workers that have not shut down.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when they were read; all viewers share it for 10 seconds.
        mixed: True if live workers have different versions, as during a deploy.
        running: the attempts that run, the longest first, at most 200.
        history: the recent past of all queues.
    """

    at: datetime
    read_at: datetime
    items: tuple[WorkerLine, ...]
    mixed: bool
    running: tuple[RunningJob, ...]
    history: History

    @property
    def alive(self) -> list[WorkerLine]:
        """The workers with a lease that has not ended."""
        return [each for each in self.items if each.alive]

    @property
    def versions(self) -> dict[str, int]:
        """The number of live workers of each version."""
        return dict(Counter(each.version or "unknown" for each in self.alive).most_common())


def worker_list(site: Site, request: Request) -> Procedure[Page]:
    """List the workers."""
    found = yield from vitals(site)
    past, _, tasks = yield from history.read(site, request, found.now)
    present: tuple[PresentJob, ...] = yield queues.present(None, now=found.now)
    at = found.now + site.shared.age(VITALS)
    items = tuple(_line(each, at) for each in found.workers)
    alive = [each for each in items if each.alive]
    mixed = len({each.version for each in alive}) > 1
    data = WorkerList(at, found.now, items, mixed, running(present, tasks, at), past)
    return Page(f"{len(alive)} workers", data)


def _line(worker: WorkerRecord, at: datetime) -> WorkerLine:
    return WorkerLine(
        id=str(worker.id),
        name=worker.name,
        alive=worker.expires_at > at,
        trouble=worker.trouble,
        busy=worker.running,
        slots=worker.concurrency,
        queues=worker.queues,
        excluded=worker.excluded or (),
        tasks=None if worker.tasks is None else len(worker.tasks),
        started_at=worker.started_at,
        heard_at=worker.heartbeat_at,
        lease_until=worker.expires_at,
        version=worker.version,
    )
