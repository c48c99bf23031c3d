"""Workers: what they serve, how busy they are, and when each was last heard from."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.records import WorkerRecord
from redrive.operate.exchange import Page, Request, Site
from redrive.stores.operations import clock, workers


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
        mixed: True if live workers have different versions, as during a deploy.
    """

    at: datetime
    items: tuple[WorkerLine, ...]
    mixed: bool


def worker_list(site: Site, _: Request) -> Procedure[Page]:
    """List the workers."""
    found: tuple[WorkerRecord, ...] = yield workers.workers()
    at: datetime = yield clock.present(site.app.now())
    items = tuple(_line(each, at) for each in found)
    alive = [each for each in items if each.alive]
    return Page(f"{len(alive)} workers", WorkerList(at, items, len({each.version for each in alive}) > 1))


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
