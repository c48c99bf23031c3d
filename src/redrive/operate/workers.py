"""Workers: what they serve, how busy they are, whether they are stuck, which code they run, and the jobs of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.commands import command
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, WorkerRecord
from redrive.operate import history, jobs
from redrive.operate.exchange import Page, Refusal, Request, Site
from redrive.operate.history import History
from redrive.operate.jobs import JobLine
from redrive.operate.queues import RunningJob, running
from redrive.operate.vitals import VITALS, vitals
from redrive.stores.operations import clock, doctor, queues, workers
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
        build: of its code; None if unknown.
        is_old: True if the live worker that started last runs another build.
        loop_lag_seconds: for how long its event loop had not run at its last heartbeat; None if it is not known yet.
        oldest_job: the job of its oldest attempt, without the feeders of topics.
        oldest_seconds: how long that runs.
        unstopped: handlers that go on although their attempts have ended.
        stuck: what keeps it from its work, as sentences.
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
    build: str | None
    is_old: bool
    loop_lag_seconds: float | None
    oldest_job: str | None
    oldest_seconds: float | None
    unstopped: int
    stuck: tuple[str, ...]


class BuildLine(msgspec.Struct, frozen=True, gc=False):
    """A build that live workers run.

    Attributes:
        name: None for workers of which it is not known.
        workers: that run it.
        present: True for that of the worker that started last.
    """

    name: str | None
    workers: int
    present: bool


class WorkerList(msgspec.Struct, frozen=True, gc=False):
    """The workers that have not shut down.

    Attributes:
        at: the present instant, by the clock of the database.
        read_at: when they were read; all viewers share it for 10 seconds.
        mixed: True if live workers have different versions, as during a deploy.
        builds: of the live workers, the present one first.
        running: the attempts that run, the longest first, at most 200.
        history: the recent past of all queues.
    """

    at: datetime
    read_at: datetime
    items: tuple[WorkerLine, ...]
    mixed: bool
    builds: tuple[BuildLine, ...]
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


class WorkerPage(msgspec.Struct, frozen=True, gc=False):
    """A worker with its jobs.

    Attributes:
        tasks: that it has; None for all.
        running: the jobs that it runs or has claimed ahead, newest first.
        before: the parameter ``before`` of the next page of these; None on the last page.
        unstopped: the jobs of the handlers that go on although their attempts have ended.
        q: the filter of all jobs of which it has had an attempt.
    """

    at: datetime
    worker: WorkerLine
    tasks: tuple[str, ...] | None
    running: tuple[JobLine, ...]
    before: str | None
    unstopped: tuple[str, ...]
    q: str


def worker_list(site: Site, request: Request) -> Procedure[Page]:
    """List the workers."""
    found = yield from vitals(site)
    past, _, tasks = yield from history.read(site, request, found.now)
    present: tuple[PresentJob, ...] = yield queues.present(None, now=found.now)
    at = found.now + site.shared.age(VITALS)
    living = found.alive
    build = doctor.present_build(living)
    items = tuple(_line(each, found.now, build) for each in found.workers)
    mixed = len({each.version for each in living}) > 1
    data = WorkerList(at, found.now, items, mixed, _builds(living, build), running(present, tasks, at), past)
    return Page(f"{len(living)} workers", data)


def _builds(living: Sequence[WorkerRecord], present: str | None) -> tuple[BuildLine, ...]:
    counts = Counter(each.build for each in living)
    lines = [BuildLine(name, number, name is not None and name == present) for name, number in counts.items()]
    return tuple(sorted(lines, key=lambda each: (not each.present, -each.workers, each.name or "")))


def worker(site: Site, request: Request) -> Procedure[Page]:
    """Show one worker and its jobs."""
    number = request.id
    found: tuple[WorkerRecord, ...] = yield workers.workers()
    at: datetime = yield clock.present(site.app.now())
    record = next((each for each in found if each.id == number), None)
    if record is None:
        listed, had = (command(verb, site.reference) for verb in ("workers list", "jobs list"))
        detail = f"there is no worker {number}, or it has shut down: {listed}; the jobs that it had: {had}"
        raise Refusal(HTTPStatus.NOT_FOUND, f"{detail} worker:{number}")
    unstopped: tuple[int, ...] = yield workers.unstopped(number)
    mine = yield from jobs.read(site, request, Filter(state=State.RUNNING, worker=str(number)))
    present = doctor.present_build([each for each in found if each.expires_at > at])
    data = WorkerPage(
        at=at,
        worker=_line(record, at, present),
        tasks=None if record.tasks is None else tuple(sorted(record.tasks)),
        running=mine.items,
        before=mine.before or mine.searched_to,
        unstopped=tuple(map(str, unstopped)),
        q=f"worker:{number}",
    )
    return Page(f"worker {record.name}", data, next={"before": data.before})


def _line(worker: WorkerRecord, at: datetime, present: str | None) -> WorkerLine:
    alive = worker.expires_at > at
    return WorkerLine(
        id=str(worker.id),
        name=worker.name,
        alive=alive,
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
        build=worker.build,
        is_old=alive and worker.build is not None and worker.build != present,
        loop_lag_seconds=None if worker.loop_lag_for is None else worker.loop_lag_for.total_seconds(),
        oldest_job=None if worker.oldest_id is None else str(worker.oldest_id),
        oldest_seconds=None if worker.oldest_at is None else max(0.0, (at - worker.oldest_at).total_seconds()),
        unstopped=worker.unstopped,
        stuck=tuple(each.text for each in doctor.stuck(worker, "APP")) if alive else (),
    )
