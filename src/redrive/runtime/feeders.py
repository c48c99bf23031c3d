"""A background duty that polls for new events, for all feeders of a worker at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from redrive.app.app import App
from redrive.app.attempts.context import Stop
from redrive.app.topics.subscription import Subscription
from redrive.clock import Clock
from redrive.engine.outcome import Outcome
from redrive.engine.records import Claim
from redrive.runtime import rng
from redrive.runtime.executor import Executor
from redrive.runtime.feeder import NET, Feeder
from redrive.runtime.supervision import Duty
from redrive.runtime.threads import Pool
from redrive.stores.operations.topics import feed

# The shortest time in seconds between two polls: under load every commit of the database is a reason for one.
LOOK_EVERY = 0.005

# The same while no feeder would deliver a new event at once: then only pauses and moves matter.
BUSY_EVERY = 0.1


class Feeders:
    """The feeders that a worker runs, and the duty that wakes them."""

    def __init__(self, app: App, clock: Clock, pool: Pool | None, resources: Mapping[str, Any]) -> None:
        self._app = app
        self._clock = clock
        self._cut: set[int] = set()
        self.executor = Executor(app, pool, cut_off=self._cut.__contains__, resources=resources)
        self._running: dict[int, Feeder] = {}
        self._left: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._looked_at = -BUSY_EVERY
        self.duty = Duty("feeding", self._step)

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
                self.executor.stop(why, feeder.leases())

    def feeder(self, claim: Claim, subscription: Subscription, sample: Callable[[], float] = rng.sample) -> Feeder:
        """Return a feeder that is not running."""
        return Feeder(self._app, self._clock, claim, subscription, self.executor, cut=self._cut, sample=sample)

    async def run(self, claim: Claim, subscription: Subscription) -> Outcome:
        """Run a feeder to its end."""
        feeder = self.feeder(claim, subscription)
        self._running[claim.lease_id] = feeder
        self.wake()
        try:
            return await feeder.run()
        finally:
            del self._running[claim.lease_id]

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
        by_job = {each.lease.job_id: each for each in self._running.values()}
        for look in await self._app.store.arun(feed.look(list(by_job))):
            by_job[look.job_id].see(look)
        return LOOK_EVERY
