"""A background duty that deletes jobs that ended long ago, in small batches, each a transaction of its own.

The oldest living worker does it. If two workers do it at once, one finds nothing left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.app.app import App
from redrive.app.operators import archive
from redrive.app.operators.archive import Archive
from redrive.app.protocol import Procedure, arun
from redrive.app.topics.topic import Retention
from redrive.clock import Clock
from redrive.engine.records import Filter
from redrive.runtime import log
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.stores.operations import deleting, retention, workers
from redrive.stores.operations.machines import manage
from redrive.stores.operations.runs import waits
from redrive.stores.operations.schedules import forget_occurrences
from redrive.stores.operations.topics import lag
from redrive.stores.operations.topics import retention as topic_retention
from redrive.stores.operations.topics.retention import Pruned

# A *pass* walks the jobs from the oldest on, a stride at a time. A stride with nothing to delete only reads, and a rest
# follows it: a pass over ten million jobs takes a quarter of an hour and costs the database a fiftieth of its time. The
# position is kept in memory. At the end of a pass over all jobs, policies that no job has any more are retired; they
# are deleted a day later.
#
# To read hundreds of millions of jobs takes hours, in which nothing else is deleted, and moves all of them through the
# memory of the database. So a pass ends at the first stride of jobs that are too young, if more than so many are left.
LONG = 1_000_000

# Now and then a pass reads all jobs, for what is not in order: seconds until the first one, and between two of them,
# which is at least this multiple of the time that it took.
FIRST_WHOLE, BETWEEN_WHOLE, WHOLE_REST = 3600.0, 86_400.0, 10.0

# Seconds of rest after a stride that deleted nothing.
BETWEEN_STRIDES = 1.0

# The rest after a batch of deletions, as a multiple of the time that the batch took: without it, jobs are picked up
# several times as late while the database writes the log of ten million deletions.
REST = 2.0

# Seconds of rest after a pass.
BETWEEN_PASSES = 60.0

# The time for which a worker is listed after it left. Only histories refer to it, by its id.
LEFT_FOR = timedelta(days=1)

# Occurrences of crons that are deleted in one transaction; they are kept as long as ended jobs.
OCCURRENCES = 1000

# Seconds between two roll-ups of sums. They are for charts, and rows that are rolled up late are only more rows.
ROLL_UP = 3600.0

# Policies that are retired or deleted after one pass; for each one, the database reads every job.
POLICIES = 10


class Pruner:
    """The background duty that deletes old jobs."""

    def __init__(self, app: App, clock: Clock, registration: WorkerRegistration) -> None:
        self._app = app
        self._clock = clock
        self._registration = registration
        self._rolled_up = float("-inf")
        self._whole_at = clock.monotonic() + FIRST_WHOLE
        self.duty: Duty = Duty("pruning", self._step)

    async def _step(self) -> float:
        await self._app.store.arun(retention.declare(self._app.keeps()))
        if await self._is_mine():
            await self._pass()
        return BETWEEN_PASSES

    async def _delete(self, found: retention.Survey) -> None:
        """Delete the jobs of a survey, a batch in each transaction."""
        gone = 0
        for start in range(0, len(found.ids), retention.BATCH):
            batch = replace(found, ids=found.ids[start : start + retention.BATCH])
            if (to := self._app.archive) is not None:
                batch = await self._archive(batch, to)
            began = self._clock.monotonic()
            gone += await self._app.store.arun(retention.prune(batch))
            await self._clock.asleep(REST * (self._clock.monotonic() - began))
        log.info("deleted %d jobs that had ended long ago, up to job %d", gone, found.ids[-1])

    async def _archive(self, found: retention.Survey, to: Archive) -> retention.Survey:
        """Write the jobs of a survey to the archive, and return the survey with those that were written."""
        wanted = Filter(ids=found.ids, limit=len(found.ids))
        page = await self._app.store.arun(deleting.entries(wanted, now=self._app.now()))
        if page.entries:
            await asyncio.to_thread(archive.write, to, page.entries)
        return replace(found, ids=tuple(entry.job.id for entry in page.entries))

    async def _is_mine(self) -> bool:
        living = await self._app.store.arun(workers.workers())
        return bool(living) and living[0].id == self._registration.id

    async def _pass(self) -> None:
        store, now = self._app.store, self._app.now
        known = await store.arun(retention.policies(now=now()))
        seen = await self._walk()
        for prune in PRUNED:
            await arun(store, prune(self._app))
        for digest in sorted(known - seen)[:POLICIES] if seen is not None else ():
            await store.arun(retention.forget_policy(digest, now=now()))
        if self._clock.monotonic() >= self._rolled_up + ROLL_UP:
            self._rolled_up = self._clock.monotonic()
            await arun(store, _roll_up(self._app))

    async def _walk(self) -> frozenset[str] | None:
        """Delete jobs from the oldest on. Return the policies of all jobs; None if it has not read all."""
        began, store = self._clock.monotonic(), self._app.store
        seen: set[str] = set()
        after: int | None = 0
        while after is not None:
            found = await store.arun(retention.survey(after, self._app.keep, now=self._app.now()))
            seen |= found.policies
            may_end = found.left > LONG and began < self._whole_at
            if found.ids:
                await self._delete(found)
            elif may_end and await store.arun(retention.is_young(found, self._app.keep)):
                return None
            elif found.last_id is not None:
                await self._clock.asleep(BETWEEN_STRIDES)
            after = found.last_id
        ended = self._clock.monotonic()
        if began >= self._whole_at:
            self._whole_at = ended + max(BETWEEN_WHOLE, WHOLE_REST * (ended - began))
        return frozenset(seen)


def _workers(app: App) -> Procedure[None]:
    """Forget workers that left long ago."""
    yield retention.forget_workers(left_for=LEFT_FOR, now=app.now())


def _occurrences(app: App) -> Procedure[None]:
    """Forget old occurrences of crons."""
    kept_for = app.keep.ended
    while kept_for and (yield forget_occurrences(kept_for, limit=OCCURRENCES, now=app.now())) == OCCURRENCES:
        pass


def _topics(app: App) -> Procedure[None]:
    """Delete old events of the topics in the code; name the subscriptions that have not read them."""
    for topic in app.topics.declared.values():
        keep = topic.keep
        if keep == Retention():
            continue
        while True:
            done: Pruned = yield topic_retention.prune(
                topic.name, keep_for=keep.keep_for, keep_bytes=keep.keep_bytes, now=app.now()
            )
            if not done.more:
                break
        if done.held and (late := topic_retention.holders((yield lag.status(topic.name, now=app.now())))):
            log.info("topic %s keeps old events, because these have not read them: %s", topic.name, late[0])


def _machines(app: App) -> Procedure[None]:
    """Delete completed instances of the machines in the code."""
    for machine in app.machines.declared.values():
        more = machine.keep_completed_for is not None
        while more:
            done: manage.Pruned = yield manage.prune_completed(machine.name, machine.keep_completed_for, now=app.now())
            more = done.more
            if done.number:
                log.info("machine %s: deleted %d instances that were completed long ago", machine.name, done.number)


def _emits(app: App) -> Procedure[None]:
    """Forget old events that runs could wait for."""
    while (yield waits.forget_emits(now=app.now())) == waits.BUDGET:
        pass


#: What is deleted after each pass over the jobs, a batch in each transaction.
PRUNED: tuple[Callable[[App], Procedure[None]], ...] = (_workers, _occurrences, _topics, _machines, _emits)


def _roll_up(app: App) -> Procedure[None]:
    """Roll up old sums of ended attempts, a span in each transaction, and delete the oldest."""
    # A worker does not wait for these modules before its first job.
    from redrive.engine.counters import EPOCH, TIERS
    from redrive.stores.operations import counters

    for tier in range(len(TIERS)):
        after: datetime | None = EPOCH
        while after is not None:
            after = yield counters.roll_up(tier, after, now=app.now())
    yield counters.forget_counters(now=app.now())
