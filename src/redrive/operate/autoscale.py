"""How many slots queues need, for programs that start and stop workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from itertools import pairwise
from math import ceil
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.counters import BUCKETS
from redrive.engine.queue import QueueSettings
from redrive.engine.records import WorkerRecord
from redrive.operate.exchange import Page, Refusal, Request, Site
from redrive.policy import parse_duration
from redrive.stores.operations import counters, queues, workers
from redrive.stores.operations.counters import Throughput
from redrive.stores.operations.queues import Depths, DepthState, counted

#: The past in which the time of an attempt is measured, by minutes.
PAST: Final = timedelta(minutes=15)
WIDTH: Final = timedelta(minutes=1)


class AutoscaleQuery(msgspec.Struct, frozen=True, gc=False):
    """The question.

    Attributes:
        queue: only this queue.
        target: the time in which the due jobs are to be started, such as ``30s``, which is the default.
    """

    queue: str | None = None
    target: str | None = None


class Autoscale(msgspec.Struct, frozen=True, gc=False):
    """The slots that are needed, so that the due jobs are started within the target.

    Each member is always there, also for a queue without jobs, so that a scaler can go to zero. Paused queues need
    slots for their running jobs only, and no queue needs more than its limit.

    Attributes:
        queue: None for all queues together.
        due: jobs that wait for a slot, of each queue, task and priority counted up to 10,000.
        running: jobs that occupy one.
        capped: True if there may be more due or running jobs: then the wanted slots are the least that are needed.
        mean_seconds: the mean time of the attempts of the last 15 minutes, as counted by workers, estimated from a
            histogram; None without any.
        slots: of the live workers, which may serve other queues too.
        slots_wanted: one for due jobs without a known time.
    """

    at: datetime
    queue: str | None
    target_seconds: float
    due: int
    running: int
    capped: bool
    mean_seconds: float | None
    slots: int
    slots_wanted: int


def autoscale(site: Site, request: Request) -> Procedure[Page]:
    """Compute the slots that the due jobs need."""
    name, target = request.text("queue"), parse_duration(request.text("target") or "30s")
    if not target:
        raise Refusal(HTTPStatus.BAD_REQUEST, "target is the time in which jobs are to be started: above zero")
    found: Depths = yield queues.depths(now=site.app.now())
    past: Throughput = yield counters.throughput(PAST, WIDTH, queue=name, now=site.app.now())
    settings: dict[str, QueueSettings] = {each.name: each for each in (yield queues.queues())}
    alive: list[WorkerRecord] = [each for each in (yield workers.workers()) if each.expires_at > found.at]
    names = {each.queue for each in found.queues if name in {None, each.queue}}
    counts = {each: counted(found.queues, each) for each in names}
    total = counted(found.queues, name)
    wanted = sum(
        slots_wanted(
            counts[each][DepthState.DUE].value,
            counts[each][DepthState.RUNNING].value,
            mean_of(past, each),
            target,
            settings.get(each) or QueueSettings(each),
        )
        for each in names
    )
    data = Autoscale(
        at=found.at,
        queue=name,
        target_seconds=target.total_seconds(),
        due=total[DepthState.DUE].value,
        running=total[DepthState.RUNNING].value,
        capped=total[DepthState.DUE].capped or total[DepthState.RUNNING].capped,
        mean_seconds=mean_of(past, name),
        slots=sum(each.concurrency for each in alive if name is None or each.serves(name)),
        slots_wanted=wanted,
    )
    return Page(f"{wanted} slots", data)


def mean_of(past: Throughput, queue: str | None) -> float | None:
    """Return the mean time of the attempts of a queue, or of all; None without any."""
    rows = [row for (of, _), row in past.took.items() if queue in (None, of)]
    counts: list[int] = [sum(column) for column in zip(*rows, strict=True)]
    if not sum(counts):
        return None
    bounds = (0.0, *BUCKETS, BUCKETS[-1])
    middles = ((low + high) / 2 for low, high in pairwise(bounds))
    return sum(count * middle for count, middle in zip(counts, middles, strict=True)) / sum(counts)


def slots_wanted(due: int, running: int, mean: float | None, target: timedelta, settings: QueueSettings) -> int:
    """Return the slots that a queue needs, at least those of its running jobs."""
    if settings.paused_at is not None or not due:
        return running
    needed = 1 if mean is None else ceil(due * mean / target.total_seconds())
    return max(running, needed if settings.concurrency is None else min(needed, settings.concurrency))
