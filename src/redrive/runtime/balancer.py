"""A background duty that gives shards of subscriptions to other live workers that have fewer of them.

A worker claims every shard that is free, so the first one has all. Each worker compares its number of shards of a
subscription with those of the other workers that serve it, and gives back what is above its share. It does not claim
these shards again for some seconds, so that another worker gets them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redrive.app.app import App
from redrive.clock import Clock
from redrive.runtime import log
from redrive.runtime.feeders import Feeders
from redrive.runtime.registration import WorkerRegistration
from redrive.runtime.supervision import Duty
from redrive.stores.operations.topics import feed

# Seconds in which a worker does not claim shards that it has given back.
LEFT_FOR = 3.0

# Seconds after which a worker gives shards again to the same workers, which did not take them before.
AGAIN_AFTER = 60.0


def surplus(mine: int, others: Collection[int]) -> int:
    """Return how many of its shards a worker gives back, from its number and those of the other live workers."""
    if not others:
        return 0
    share = -(-(mine + sum(others)) // (1 + len(others)))
    return max(mine - share, 1 if mine - min(others) > 1 else 0)


class Balancer:
    """Gives shards back that other live workers should have."""

    def __init__(self, app: App, clock: Clock, registration: WorkerRegistration, feeders: Feeders) -> None:
        self._app = app
        self._clock = clock
        self._registration = registration
        self._feeders = feeders
        self._every = app.terms.lease_for.total_seconds() / 3
        self._given: dict[str, tuple[Sequence[int], float]] = {}
        """The workers to which shards of a subscription were last given, and when."""
        self.duty = Duty("balancing", self._step, longest=self._every)

    async def _step(self) -> float:
        for task, count in self._feeders.counts().items():
            if count > 1:
                await self._balance(task)
        return self._every

    async def _balance(self, task: str) -> None:
        """Give back what this worker has above its share of the shards of a subscription."""
        subscription = self._app.topics.fed_by(task)
        assert subscription is not None  # a feeder of it runs
        found = await self._app.store.arun(feed.feeders(task, subscription.name, now=self._app.now()))
        mine = found.pop(self._registration.id, 0)
        given, now = surplus(mine, found.values()), self._clock.monotonic()
        workers, last = self._given.get(task, ((), 0.0))
        if not given or (workers == tuple(found) and now < last + AGAIN_AFTER):
            return
        self._given[task] = tuple(found), now
        log.info("%s: %d of %d shards are given back, for other workers", subscription.name, given, mine)
        self._feeders.give_back(task, given, until=now + LEFT_FOR)
