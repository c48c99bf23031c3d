"""What the demo asks its database: where the events of this run are, and in the end what became of each.

A run owns the deliveries that it enqueues and those that an earlier, interrupted run left unfinished. Deliveries that
had ended before are in the same tables and are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from redrive.cli.demo.audit import Case
from redrive.cli.demo.program import Program
from redrive.cli.demo.progress import Counts
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import JobRecord
from redrive.engine.select import Filter

__all__ = ["Database"]

_ALL = 2**62  # no limit


class Database:
    """The demo's view of the database.

    Args:
        program: whose App to ask.

    Attributes:
        left_over: the deliveries that an earlier run left unfinished.
        enqueued: the deliveries of this run.
    """

    def __init__(self, program: Program) -> None:
        self._app = program.app
        self._deliver = program.deliver
        self._catch = program.catch
        self.left_over = tuple(sorted(job.id for job in self._unfinished()))
        self.enqueued: list[int] = []
        before = self._app.jobs.stats(task=self._deliver.name)
        self._delivered_before = before.succeeded
        self._caught_before = before.caught

    def enqueue(self, events: Sequence[Any]) -> None:
        """Enqueue a delivery for each event, all in one transaction."""
        self.enqueued += [job.id for job in self._deliver.enqueue_many(events)]

    @property
    def total(self) -> int:
        """Deliveries that this run owns."""
        return len(self.left_over) + len(self.enqueued)

    def counts(self) -> Counts:
        """Where they are."""
        stats = self._app.jobs.stats(task=self._deliver.name)
        return Counts(
            queued=stats.due + stats.scheduled,
            running=stats.running,
            retrying=stats.retrying,
            delivered=stats.succeeded - self._delivered_before,
            caught=stats.caught - self._caught_before,
        )

    def idle(self) -> bool:
        """Has everything come to an end, catches included?"""
        tasks = (self._deliver.name, self._catch.name)
        return not any(self._app.jobs.stats(task=name).unfinished for name in tasks)

    def held_by(self, pid: int) -> frozenset[int]:
        """The deliveries that the worker process is running now."""
        workers = {worker.id for worker in self._app.workers.select() if worker.name.rpartition(":")[2] == str(pid)}
        running = self._app.jobs.select(Filter(state=State.RUNNING, task=self._deliver.name, limit=_ALL))
        return frozenset(job.id for job in running if job.worker_id in workers)

    def cases(self) -> tuple[Case, ...]:
        """Everything about the deliveries that this run owns, for the audit."""
        owned = {*self.left_over, *self.enqueued}
        after = min(owned, default=1) - 1
        catches: dict[int | None, list[JobRecord]] = defaultdict(list)
        for job in self._app.jobs.select(Filter(task=self._catch.name, after_id=after, limit=_ALL)):
            catches[job.parent_id].append(job)
        deliveries = self._app.jobs.select(Filter(task=self._deliver.name, after_id=after, limit=_ALL))
        return tuple(self._case(job, catches[job.id]) for job in deliveries if job.id in owned)

    def close(self) -> None:
        """Ask no more."""
        self._app.close()

    def _case(self, job: JobRecord, catches: list[JobRecord]) -> Case:
        return Case(
            job,
            self._app.jobs.idempotency_key(job.id),
            frozenset(self._app.jobs.idempotency_key(catch.id) for catch in catches),
            catching=any(catch.state not in FINAL for catch in catches),
        )

    def _unfinished(self) -> Iterable[JobRecord]:
        name = self._deliver.name
        for state in (State.READY, State.RUNNING):
            yield from self._app.jobs.select(Filter(state=state, task=name, limit=_ALL))
        yield from self._app.jobs.select(Filter(state=State.DEAD, task=name, caught=False, limit=_ALL))
