"""A small reference model of a store: the expected results, written without SQL and without the engine.

It knows four policies by heart (`KINDS`) and keeps jobs as plain objects. Nothing of it comes from the code under test,
except the names of states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

__all__ = ["KINDS", "Ending", "HeldLease", "Model", "ModelJob", "PolicyKind"]


@dataclass(frozen=True)
class PolicyKind:
    """A policy of the model: its directive and its effects, in seconds."""

    directive: str
    delays: tuple[int, ...]
    catch_delay: int = 0
    catch: str | None = None
    idempotent: bool = True


KINDS = {
    "plain": PolicyKind("2 1s", (1, 2)),
    "caught": PolicyKind("1 2s catch mend", (2,), 4, "mend"),
    "at once": PolicyKind("0 catch mend", (), 1, "mend"),
    "once": PolicyKind("2 1s catch mend", (1, 2), 4, "mend", idempotent=False),
}

POISON = 3
STUCK = 5
FINAL = ("succeeded", "dead", "cancelled")
CLOSINGS = {
    "success": "succeeded",
    "failure": "failed",
    "fatal": "failed",
    "timeout": "failed",
    "snooze": "snoozed",
    "cancel": "cancelled",
}
"""The line that each ending leaves in the history; the others leave none."""


@dataclass
class ModelJob:
    """A job."""

    id: int
    kind: PolicyKind
    queue: str
    priority: int
    due: datetime
    hold: str | None = None
    parent: int | None = None
    state: str = "ready"
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    snoozes: int = 0
    redrives: int = 0
    lease: int | None = None
    worker: int | None = None
    caught: datetime | None = None
    expired: bool = False
    forgiven: int = 0
    key: str | None = None
    until: str | None = None
    latest: datetime | None = None
    begun: bool = False
    payload: bytes = b"{}"
    finished: datetime | None = None
    returning: bool = False
    closed: dict[int, str] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)

    @property
    def row(self) -> tuple[object, ...]:
        """Return the expected row of the job."""
        return (
            self.state, self.hold, self.due, self.attempt, self.failures, self.crashes, self.snoozes, self.redrives,
            self.lease, self.worker, self.parent, self.caught, self.finished,
        )  # fmt: skip

    @property
    def holds(self) -> bool:
        """Return True if it holds its key."""
        if self.key is None or self.returning:
            return False
        return self.state == "ready" if self.until == "start" else self.state not in FINAL


@dataclass(frozen=True)
class HeldLease:
    """A claim: a job under a lease."""

    job: int
    lease: int


@dataclass(frozen=True)
class Ending:
    """The end of an attempt, with the requested delay in seconds."""

    held: HeldLease
    how: str
    delay: int = 0


class Model:
    """The expected behaviour of a store."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.jobs: dict[int, ModelJob] = {}
        self.workers: dict[int, datetime] = {}
        self.numbers = 0
        self.requests: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        self.unstopped: dict[int, tuple[str, int]] = {}
        """Queue and worker of cancelled attempts with handlers that have not stopped, by lease."""
        self.paused: set[str] = set()

    # ------------------------------------------------------------------------------------------------- arriving

    def enqueue(self, kind: PolicyKind, queue: str, priority: int, delay: int, parent: int | None = None) -> int:
        """Insert a job."""
        self.numbers += 1
        number = self.numbers
        hold = "delay" if delay else None
        self.jobs[number] = ModelJob(number, kind, queue, priority, self.after(delay), hold, parent)
        return number

    def holder(self, key: str | None, but: int = 0) -> int | None:
        """Return the job that holds a key, other than one job."""
        held = (job.id for job in self.jobs.values() if job.holds and job.key == key and job.id != but)
        return next(held, None)

    def enqueue_keyed(self, kind: PolicyKind, queue: str, key: str, until: str, request: str | None) -> int | None:
        """Insert a job with a key and perhaps an idempotency key; return it, the existing one, or None if refused."""
        self.numbers += 1
        if request in self.requests:
            return self.requests[request]
        if self.holder(key) is not None:
            # A refused enqueue is rolled back, with its id if the sequence belongs to the transaction.
            return None
        number = self.numbers
        self.jobs[number] = ModelJob(number, kind, queue, 0, self.now, key=key, until=until)
        if request is not None:
            self.requests[request] = number
        return number

    def debounce(self, kind: PolicyKind, queue: str, key: str, payload: bytes) -> int | None:
        """Postpone a debounced job, or insert one: quiet for 2 seconds, at most 5; return None if refused."""
        self.numbers += 1
        number = self.numbers
        holder = self.holder(key)
        if holder is not None:
            other = self.jobs[holder]
            if other.latest is not None and other.state == "ready" and not other.begun:
                if other.hold == "debounce":
                    other.due = min(self.after(2), other.latest)
                other.payload = payload
                return holder
            if other.latest is None or other.state != "ready":
                return None
            self._finish(other, "cancelled")
        job = ModelJob(number, kind, queue, 0, self.after(2), "debounce", key=key, until="start", payload=payload)
        job.latest = self.after(5)
        self.jobs[number] = job
        return number

    def after(self, delay: int) -> datetime:
        """Return the instant this many seconds from now."""
        return self.now + timedelta(seconds=delay)

    def claim(self, worker: int, count: int, queues: Iterable[str]) -> tuple[list[int], bool]:
        """Return the jobs that a claim should take, in order, and whether the worker is registered."""
        ready = [job for job in self.jobs.values() if job.state == "ready" and job.queue in queues]
        due = sorted((job for job in ready if job.due <= self.now), key=lambda job: (job.priority, job.due, job.id))
        due = self._with_places(due)
        if due and worker not in self.workers:
            return [], False
        if due:
            self.beat(worker, 15)
        return [job.id for job in due[:count]], True

    def running(self, queue: str) -> int:
        """Return the number of running jobs of a queue, and of cancelled handlers that still run."""
        unstopped = sum(held == queue and worker in self.workers for held, worker in self.unstopped.values())
        return sum(job.state == "running" and job.queue == queue for job in self.jobs.values()) + unstopped

    def _with_places(self, due: list[ModelJob]) -> list[ModelJob]:
        """Return the jobs with a free slot in their queue."""
        places = {queue: limit - self.running(queue) for queue, limit in self.limits.items()}
        admitted = []
        for job in due:
            if job.queue not in self.paused and places.get(job.queue, 1) > 0:
                admitted.append(job)
                if job.queue in places:
                    places[job.queue] -= 1
        return admitted

    def hold(self, number: int, lease: int, worker: int) -> None:
        """Note that a job was claimed."""
        job = self.jobs[number]
        job.state, job.hold, job.lease, job.worker = "running", None, lease, worker
        job.attempt += 1
        job.begun = True

    # -------------------------------------------------------------------------------------------------- leaving

    def settle(self, endings: Sequence[Ending]) -> tuple[set[int], set[int]]:
        """Write endings; the leases that count as settled, and those that are lost."""
        settled: set[int] = set()
        missed: list[Ending] = []
        plain = [each for each in endings if each.how == "success" and self.jobs[each.held.job].parent is None]
        for ending in [*(each for each in endings if each not in plain), *plain]:
            if ending in plain:
                self._return()
            job = self.jobs[ending.held.job]
            waits = job.state == "waiting"
            if job.lease == ending.held.lease and (not waits or ending.how == "suspend"):
                if not waits:
                    self._end(job, ending.how, ending.delay)
                settled.add(ending.held.lease)
            else:
                missed.append(ending)
        for ending in missed:
            self.unstopped.pop(ending.held.lease, None)
            line = self.jobs[ending.held.job].closed.get(ending.held.lease)
            if line is not None and line == CLOSINGS.get(ending.how):
                settled.add(ending.held.lease)
            if ending.how == "suspend" and line in ("succeeded", "failed"):
                settled.add(ending.held.lease)
        self._return()
        return settled, {ending.held.lease for ending in endings} - settled

    def _end(self, job: ModelJob, how: str, delay: int) -> None:  # noqa: C901 - a case for each ending
        lease = job.lease
        assert lease is not None
        if how in CLOSINGS:
            job.closed[lease] = CLOSINGS[how]
            job.outcomes[lease] = how
        if how not in ("release", "expired"):
            job.crashes = 0
        match how:
            case "success":
                self._finish(job, "succeeded")
                if job.parent is not None:
                    self.jobs[job.parent].caught = self.now
            case "failure" | "fatal":
                self._fail(job, final=how == "fatal")
            case "timeout":
                self._fail(job, final=not job.kind.idempotent)
            case "suspend":
                job.state, job.hold, job.due = "waiting", None, self.after(delay)
            case "snooze":
                job.attempt -= 1
                job.snoozes += 1
                self._ready(job, delay, "snooze")
            case "release":
                job.attempt -= 1
                self._ready(job, delay, "release")
            case "cancel":
                self._finish(job, "cancelled")
            case "expired":
                job.attempt -= 1
                job.expired = True
                self._die(job)

    def _fail(self, job: ModelJob, *, final: bool) -> None:
        job.failures += 1
        if job.parent is not None:
            more = job.failures - STUCK
            self._ready(job, min(job.kind.catch_delay * 2 ** max(more, 0), 3600), "retry")
        elif final or job.failures > len(job.kind.delays):
            self._die(job)
        else:
            self._ready(job, job.kind.delays[job.failures - 1], "retry")

    def _die(self, job: ModelJob) -> None:
        self._finish(job, "dead")
        if job.parent is None and job.kind.catch is not None:
            self.enqueue(job.kind, job.queue, job.priority, 0, parent=job.id)

    def _finish(self, job: ModelJob, state: str) -> None:
        job.state, job.hold, job.lease, job.worker, job.finished = state, None, None, None, self.now

    def _ready(self, job: ModelJob, delay: int, hold: str | None) -> None:
        job.state, job.hold, job.due, job.lease, job.worker = "ready", hold, self.after(delay), None, None
        job.finished, job.returning = None, job.until == "start"

    def _return(self) -> None:
        """Make jobs ready again: they take their keys, the oldest first, or are superseded."""
        for job in sorted(self.jobs.values(), key=lambda job: job.id):
            if job.returning:
                job.returning = False
                if self.holder(job.key, but=job.id) is not None:
                    self._finish(job, "cancelled")

    # -------------------------------------------------------------------------------------------------- workers

    def beat(self, worker: int, life: int) -> tuple[bool, set[int]]:
        """Send a worker's heartbeat; return whether it is registered, and its leases."""
        alive = worker in self.workers
        if alive:
            self.workers[worker] = max(self.workers[worker], self.after(life))
        return alive, {job.lease for job in self._held_by(worker) if job.lease is not None}

    def leave(self, worker: int) -> set[int]:
        """Remove a worker."""
        held = self._held_by(worker)
        for job in held:
            job.attempt -= 1
            self._ready(job, 0, "release")
        self._return()
        self.workers.pop(worker, None)
        return {job.id for job in held}

    def sweep(self, budget: int) -> set[int]:
        """Release the jobs of dead workers."""
        self.workers = {worker: until for worker, until in self.workers.items() if until > self.now}
        lost = [job for job in self.jobs.values() if job.state == "running" and job.worker not in self.workers]
        swept = sorted(lost, key=lambda job: (job.worker, job.id))[:budget]
        for job in swept:
            assert job.lease is not None
            job.closed[job.lease] = "lost"
            job.crashes += 1
            if job.parent is not None:
                job.failures += 1
                more = job.crashes - POISON
                self._ready(job, 0 if more < 0 else min(job.kind.catch_delay * 2**more, 3600), "lost")
            elif job.crashes >= POISON or not job.kind.idempotent:
                job.failures += 1
                self._die(job)
            else:
                self._ready(job, 0, "lost")
        self._return()
        return {job.id for job in swept}

    def _held_by(self, worker: int) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.worker == worker and job.state == "running"]

    # ------------------------------------------------------------------------------------------- from outside

    def answer(self, held: HeldLease, how: str) -> bool | None:
        """Answer an attempt; return whether this ended it, or None if the answer is refused."""
        job = self.jobs[held.job]
        if job.lease != held.lease:
            return False if job.outcomes.get(held.lease) == how else None
        if job.state == "waiting" and job.due <= self.now:
            return None
        self._end(job, how, 0)
        self._return()
        return True

    def overdue(self) -> set[int]:
        """Return the jobs with an expired wait for an answer."""
        return {job.id for job in self.jobs.values() if job.state == "waiting" and job.due <= self.now}

    def lapse(self, numbers: Iterable[int]) -> None:
        """End these waits."""
        for number in numbers:
            self._end(self.jobs[number], "timeout", 0)
        self._return()

    # ------------------------------------------------------------------------------------------------ operators

    def cancel(self, number: int) -> bool:
        """End a job that is not final."""
        job = self.jobs[number]
        if job.state in FINAL:
            return False
        if job.lease is not None:
            job.closed[job.lease] = "cancelled"
            if job.state == "running" and job.worker is not None:
                self.unstopped[job.lease] = (job.queue, job.worker)
        self._finish(job, "cancelled")
        return True

    def may_start(self, number: int) -> bool:
        """Return True if an ended job may be started again; one death is caught once."""
        job = self.jobs[number]
        if job.state not in ("dead", "cancelled") or job.caught is not None:
            return False
        family = job.parent or job.id
        if any(each.parent == family and each.state not in FINAL for each in self.jobs.values()):
            return False
        if job.key is not None and self.holder(job.key) is not None:
            return False
        parent = self.jobs[family]
        return job.parent is None or (parent.state == "dead" and parent.caught is None)

    def retry(self, number: int) -> bool:
        """Grant one more attempt; return whether that is possible."""
        job = self.jobs[number]
        if job.state == "ready":
            if job.due > self.now:
                self._ready(job, 0, None)
                self._return()
            return True
        if not self.may_start(number):
            return False
        self._start(job, 0 if job.state == "cancelled" or job.expired else 1)
        return True

    def redrive(self, numbers: Iterable[int]) -> list[int]:
        """Start ended jobs again, oldest first, one of each family."""
        started = []
        for number in sorted(numbers):
            if self.may_start(number):
                self._start(self.jobs[number], self.jobs[number].failures)
                started.append(number)
        return started

    def _start(self, job: ModelJob, forgive: int) -> None:
        job.forgiven += forgive
        job.failures -= forgive
        job.crashes, job.expired, job.begun = 0, False, False
        job.redrives += 1
        self._ready(job, 0, "redrive")
        self._return()

    # ------------------------------------------------------------------------------------------------ retention

    def prune(self, keep: int) -> int:
        """Delete, in one pass, the jobs that ended this many seconds ago and have no catch jobs left."""
        until = self.now - timedelta(seconds=keep)
        parents = {job.parent for job in self.jobs.values()}
        old = [
            job
            for job in self.jobs.values()
            if job.finished is not None
            and (job.state != "dead" or job.caught is not None)
            and (job.caught or job.finished) <= until
            and job.id not in parents
        ]
        for job in old:
            del self.jobs[job.id]
        self.requests = {name: number for name, number in self.requests.items() if number in self.jobs}
        return len(old)
