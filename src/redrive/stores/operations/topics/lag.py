"""How far subscriptions are: their cursors, their lag and their failed deliveries. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.engine.origin import of_topic
from redrive.engine.records import JobRecord
from redrive.engine.topics import DeliveryRecord, Order, Shard, SubscriptionRecord, task_name
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Statements, reads

# The events that a lag counts; beyond it, it is "at least".
EXACT = 10_000

# Deliveries that a status lists.
LISTED = 100


class Lag(msgspec.Struct, frozen=True, gc=False):
    """The events that a subscription has not finished.

    Attributes:
        events: their number, exact up to `EXACT`; failed ones that have jobs are not among them.
        oldest_at: when the oldest of them was published.
        failed: events that have failed and are not final, and those that wait behind them; exact up to `EXACT`.
        dead: dead events that were neither caught nor skipped by an operator, whether they hold others or not; exact
            up to `EXACT`.
    """

    events: int
    oldest_at: datetime | None
    failed: int = 0
    dead: int = 0


class SubscriptionStatus(msgspec.Struct, frozen=True, gc=False):
    """A subscription with its cursors, its lag, and the deliveries that hold it.

    Attributes:
        deliveries: failed events and those that wait behind them, oldest first; at most `LISTED`.
        dead: dead events, the latest first; at most `LISTED`.
        at: the instant at which it was read.
    """

    subscription: SubscriptionRecord
    shards: tuple[Shard, ...]
    lag: Lag
    deliveries: tuple[DeliveryRecord, ...]
    dead: tuple[DeliveryRecord, ...]
    feeders: tuple[JobRecord, ...]
    at: datetime

    @property
    def held_by(self) -> tuple[DeliveryRecord, ...]:
        """The deliveries that hold others: the first one of each line."""
        first: dict[str, DeliveryRecord] = {}
        for each in self.deliveries:
            first.setdefault(each.partition, each)
        return () if self.subscription.ordering is Order.NONE else tuple(first.values())


class _LagOf(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``subscriptions_lag``."""

    topic: str
    name: str
    events: int
    near_at: datetime | None  # when the oldest event of each part of the shards was published
    far_at: datetime | None
    failed: int
    dead: int

    @property
    def lag(self) -> Lag:
        """The numbers, each exact up to `EXACT`."""
        oldest = min((at for at in (self.near_at, self.far_at) if at is not None), default=None)
        return Lag(min(self.events, EXACT + 1), oldest, self.failed, self.dead)


def _lags(topic: str | None = None, name: str | None = None) -> Statements[Sequence[_LagOf]]:
    params = {"topic": topic, "name": name, "count": EXACT + 1}
    found: Sequence[_LagOf] = yield Query("subscriptions_lag", params, into=_LagOf)
    return found


def read_lags() -> Statements[dict[str, Lag]]:
    """Return the lag of each subscription by the task of its deliveries, as a part of a larger operation."""
    return {task_name(each.topic, each.name): each.lag for each in (yield from _lags())}


@reads
def status(
    topic: str | None = None, name: str | None = None, *, dead: bool = True, now: datetime | None = None
) -> Statements[tuple[SubscriptionStatus, ...]]:
    """Return subscriptions with their cursors, lag and held deliveries, and with their dead ones if `dead`.

    The number of statements does not depend on that of subscriptions, but for those of dead deliveries.
    """
    at = now or (yield from instant(None))
    these = {"topic": topic, "name": name}
    found: Sequence[SubscriptionRecord] = yield Query("subscription_get", these, into=SubscriptionRecord)
    if not found:
        return ()
    all_shards: Sequence[Shard] = yield Query("shards_of", {"topic": topic, "subscription": name}, into=Shard)
    jobs_of: Sequence[JobRecord] = yield Query("feeders_of", these, into=JobRecord)
    lags = yield from _lags(topic, name)
    deliveries: Sequence[DeliveryRecord] = yield Query(
        "deliveries_first", {**these, "count": LISTED}, into=DeliveryRecord
    )
    feeders, lag_of = {job.id: job for job in jobs_of}, {(each.topic, each.name): each.lag for each in lags}
    by_origin: dict[str, list[DeliveryRecord]] = defaultdict(list)
    for job in deliveries:
        by_origin[job.origin.rpartition("#")[0]].append(job)
    answer = []
    for each in found:
        lag = lag_of[each.topic, each.name]
        latest: Sequence[DeliveryRecord] = ()
        if dead and lag.dead:
            latest = yield Query("deliveries_dead", {"task": each.task, "count": LISTED}, into=DeliveryRecord)
        shards = tuple(shard for shard in all_shards if (shard.topic, shard.subscription) == (each.topic, each.name))
        held = by_origin[of_topic(each.topic, each.name, 0).rpartition("#")[0]]
        running = tuple(feeders[shard.job_id] for shard in shards if shard.job_id in feeders)
        answer.append(SubscriptionStatus(each, shards, lag, tuple(held), tuple(latest), running, at))
    return tuple(answer)
