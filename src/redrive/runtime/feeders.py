"""The feeders of a worker: the duty that polls for new events for all of them, and the one that shares shards out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from redrive.app.app import App
from redrive.app.attempts.context import Stop
from redrive.app.topics.subscription import Subscription
from redrive.clock import Clock
from redrive.engine.outcome import Outcome
from redrive.engine.records import Claim
from redrive.runtime import log, rng
from redrive.runtime.executor import Executor
from redrive.runtime.feeder import NET, Feeder
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty, Outage
from redrive.runtime.threads import Pool
from redrive.stores.operations.topics import feed

# The shortest time in seconds between two polls: under load every commit of the database is a reason for one.
LOOK_EVERY = 0.005

# The same while no feeder would deliver a new event at once: then only pauses and moves matter.
BUSY_EVERY = 0.1


# Seconds in which a worker does not claim shards that it has given back.
LEFT_FOR = 3.0

# Seconds after which a worker gives shards again to the same workers, which did not take them before.
AGAIN_AFTER = 60.0


class Feeders:
    """The feeders that a worker runs, and the duty that wakes them."""

    def __init__(
        self, app: App, clock: Clock, pool: Pool | None, resources: Mapping[str, Any], outage: Outage | None = None
    ) -> None:
        self._app = app
        self._outage = outage or Outage(clock)
        self._clock = clock
        self._cut: set[int] = set()
        #: Returns the era in which the worker has registered (`redrive.stores.store.Store.era`).
        self.era: Callable[[], int | None] = lambda: None
        cut_off = self._cut.__contains__
        self.executor: Executor = Executor(app, pool, cut_off=cut_off, resources=resources, era=self._present)
        self._running: dict[int, Feeder] = {}
        self._left: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._looked_at = -BUSY_EVERY
        self.duty: Duty = Duty("feeding", self._step)

    def _present(self) -> int | None:
        return self.era()

    @property
    def count(self) -> int:
        """The number of feeders that run."""
        return len(self._running)

    @property
    def resting(self) -> int:
        """The number of feeders that have nothing to deliver."""
        return sum(each.idle for each in self._running.values())

    def counts(self) -> Counter[str]:
        """Return the number of feeders that run, by task."""
        return Counter(each.claim.task for each in self._running.values())

    def give_back(self, task: str, count: int, *, until: float) -> None:
        """Have some feeders of a task end, and claim none of them until an instant of the monotonic clock."""
        self._left[task] = until
        found = [each for each in self._running.values() if each.claim.task == task]
        for feeder in found[-count:]:
            feeder.stop("another worker has fewer shards of its subscription")

    def claimable(self, tasks: frozenset[str]) -> frozenset[str]:
        """Return the tasks without those of which feeders were given back just now."""
        if not self._left:
            return tasks
        now = self._clock.monotonic()
        self._left = {task: until for task, until in self._left.items() if now < until}
        return tasks - self._left.keys()

    def wake(self) -> None:
        """Poll soon, because the database has changed."""
        if self._running:
            self._changed.set()

    def ask(self) -> None:
        """Have feeders ask whether held lines are free, because jobs have ended."""
        for feeder in self._running.values():
            feeder.ask()

    def stop(self, why: Stop, lease_ids: Iterable[int] | None = None) -> None:
        """Ask feeders to stop; see `redrive.runtime.executor.FeederRunner`."""
        found = list(self._running) if lease_ids is None else [each for each in lease_ids if each in self._running]
        for lease_id in found:
            feeder = self._running.get(lease_id)
            if feeder is not None:
                # A feeder that has lost its lease is cancelled by the worker.
                feeder.stop()
                self.executor.stop(why, list(feeder.calls.leases.values()))

    async def run(self, claim: Claim, subscription: Subscription) -> Outcome:
        """Run a feeder to its end."""
        feeder = self.add(claim, subscription)
        self.wake()
        try:
            return await feeder.run()
        finally:
            self.drop(feeder)

    def add(self, claim: Claim, subscription: Subscription, sample: Callable[[], float] = rng.sample) -> Feeder:
        """Return a feeder for which `look` polls."""
        feeder = Feeder(
            self._app,
            self._clock,
            claim,
            subscription,
            self.executor,
            cut=self._cut,
            outage=self._outage,
            sample=sample,
            era=self.era,
        )
        self._running[claim.lease_id] = feeder
        return feeder

    def drop(self, feeder: Feeder) -> None:
        """Poll for a feeder no more."""
        del self._running[feeder.claim.lease_id]

    async def look(self) -> None:
        """Poll once for all feeders."""
        by_job = {each.lease.job_id: each for each in self._running.values()}
        if by_job:
            for look in await self._app.store.arun(feed.look(list(by_job))):
                by_job[look.job_id].see(look)

    async def _step(self) -> float:
        """Poll once for all feeders, after a change of the database or after `NET`."""
        try:
            async with asyncio.timeout(NET):
                await self._changed.wait()
        except TimeoutError:
            pass
        now = self._clock.monotonic()
        if now < self._looked_at + BUSY_EVERY and not any(each.free for each in self._running.values()):
            return LOOK_EVERY
        self._changed.clear()
        if not self._running:
            return 0.0
        self._looked_at = now
        await self.look()
        return LOOK_EVERY


# A worker claims every shard that is free, so the first one has all. Each worker compares its number of shards of a
# subscription with those of the other workers that serve it, and gives back what is above its share. It does not claim
# these shards again for some seconds, so that another worker gets them.
def surplus(mine: int, others: Collection[int]) -> int:
    """Return how many of its shards a worker gives back, from its number and those of the other live workers."""
    if not others:
        return 0
    share = -(-(mine + sum(others)) // (1 + len(others)))
    return max(mine - share, 1 if mine - min(others) > 1 else 0)


class Balancer:
    """The background duty that gives shards back that other live workers should have."""

    def __init__(self, app: App, clock: Clock, registration: WorkerRegistration, feeders: Feeders) -> None:
        self._app = app
        self._clock = clock
        self._registration = registration
        self._feeders = feeders
        self._every = app.terms.lease_for.total_seconds() / 3
        self._given: dict[str, tuple[Sequence[int], float]] = {}
        """The workers to which shards of a subscription were last given, and when."""
        self.duty: Duty = Duty("balancing", self._step, longest=self._every)

    async def _step(self) -> float:
        for task, count in self._feeders.counts().items():
            if count > 1:
                await self._balance(task)
        return self._every

    async def _balance(self, task: str) -> None:
        """Give back what this worker has above its share of the shards of a subscription."""
        subscription = self._app.topics.fed_by(task)
        assert subscription is not None
        found = await self._app.store.arun(feed.feeders(task, subscription.name, now=self._app.now()))
        mine = found.pop(self._registration.id, 0)
        given, now = surplus(mine, found.values()), self._clock.monotonic()
        workers, last = self._given.get(task, ((), 0.0))
        if not given or (workers == tuple(found) and now < last + AGAIN_AFTER):
            return
        self._given[task] = tuple(found), now
        log.info("%s: %d of %d shards are given back, for other workers", subscription.name, given, mine)
        self._feeders.give_back(task, given, until=now + LEFT_FOR)
