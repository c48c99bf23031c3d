"""Deletes jobs that ended long ago, in small batches, each a transaction of its own.

One worker does it: the one that has been there longest. If two believe that they are it, one finds nothing left to do.
Which jobs may go, and when, is the subject of `redrive.stores.operations.retention`.

A *pass* walks all jobs once, a stride at a time. Where there is nothing to delete it only reads, and rests between two
strides: a pass over ten million jobs takes a quarter of an hour and costs the database less than a hundredth of its
time. The place is kept in memory; a worker that starts anew walks anew. At the end of a pass it is known which policies
no job has any more: they are retired, and deleted a day later.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from redrive.app.app import App
from redrive.clock import Clock
from redrive.observe.logs import logger
from redrive.runtime.supervision import Duty
from redrive.stores.operations import retention, workers
from redrive.stores.operations.schedules import forget_occurrences

__all__ = ["Pruner"]

log = logger("redrive.worker")

BETWEEN_STRIDES = 1.0
"""Seconds of rest after a stride in which nothing was to be deleted."""

BETWEEN_PASSES = 60.0
"""Seconds of rest after a pass."""

LEFT_FOR = timedelta(days=1)
"""How long a worker is listed after it left; histories name workers by their ids, and nothing else refers to them."""

OCCURRENCES = 1000
"""Occurrences of crons that are deleted in one transaction; they are kept as long as jobs that have ended."""

POLICIES = 10
"""Policies that are retired or deleted after one pass: for each one, the database reads every job."""


class Pruner:
    """Deletes what was kept long enough.

    Args:
        app: whose store, and whose settings.
        clock: to rest by.
        worker_id: of this worker.
    """

    def __init__(self, app: App, clock: Clock, worker_id: Callable[[], int]) -> None:
        self._app = app
        self._clock = clock
        self._worker_id = worker_id

    @property
    def duty(self) -> Duty:
        """Walk over the jobs again and again."""
        return Duty("pruning", self._step)

    async def _step(self) -> float:
        await self._app.store.arun(retention.declare(self._app.keeps()))
        if await self._is_mine():
            await self._pass()
        return BETWEEN_PASSES

    async def _is_mine(self) -> bool:
        living = await self._app.store.arun(workers.workers())
        return bool(living) and living[0].id == self._worker_id()

    async def _pass(self) -> None:
        store, now = self._app.store, self._app.now
        known = await store.arun(retention.policies(now=now()))
        seen: set[str] = set()
        after: int | None = 0
        while after is not None:
            found = await store.arun(retention.survey(after, self._app.keep, now=now()))
            seen |= found.policies
            if found.ids:
                gone = await store.arun(retention.prune(found))
                log.info("deleted %d jobs that had ended long ago, up to job %d", gone, found.ids[-1])
            elif found.last_id is not None:
                await self._clock.asleep(BETWEEN_STRIDES)
            after = found.last_id
        await store.arun(retention.forget_workers(left_for=LEFT_FOR, now=now()))
        kept_for = self._app.keep.ended
        while kept_for and await store.arun(forget_occurrences(kept_for, limit=OCCURRENCES, now=now())) == OCCURRENCES:
            pass
        for digest in sorted(known - seen)[:POLICIES]:
            await store.arun(retention.forget_policy(digest, now=now()))
