"""A topic and its feeder for tests of stores, driven by hand."""

from __future__ import annotations

import msgspec

from redrive.app.topics.subscription import pack
from redrive.engine.origin import of_topic
from redrive.engine.records import Claim
from redrive.engine.topics import Dead, NewTopicEvent, Order, TopicEvent, line_of
from redrive.stores.operations import events
from redrive.stores.operations.topics import feed, lag, subscriptions
from redrive.stores.operations.topics.feed import Diverted, FeedProgress, Lease, Reading, Turned
from redrive.stores.operations.topics.lag import SubscriptionStatus
from redrive.stores.operations.topics.subscriptions import SubscriptionDefinition
from tests.stores.helpers import Harness, new

POLICY = new().policy


class Reader:
    """A subscription ``log`` of a topic with one worker, driven by hand."""

    def __init__(
        self,
        store: Harness,
        order: Order = Order.STRICT,
        *,
        topic: str = "pay",
        worker: int | None = None,
        **changes: object,
    ) -> None:
        fields = {"dead": Dead.CONTINUE, "types": None, "shards": 1, "start": "beginning", "policy": POLICY}
        self.store, self.topic = store, topic
        self.definition = SubscriptionDefinition(topic, "log", order, **{**fields, **changes})
        store.do(subscriptions.declare([self.definition], now=store.now))
        self.claims = store.claimed(10, tasks=[f"{topic}.log.feeder"], worker=worker).claims
        self.attach(self.claims[0])

    def attach(self, claim: Claim) -> None:
        """Read the shard of a feeder."""
        self.lease = Lease(claim.id, claim.lease_id, claim.worker_id)
        attached = self.store.do(feed.attach(self.lease))
        self.shard, self.record, self.held = attached.shard, attached.subscription, attached.held
        self.done = attached.done

    def turn(self, at_id: int | None = None, *, reading: Reading | None = None, **changes: object) -> Turned:
        """Write progress and read."""
        at = self.shard.at_id if at_id is None else at_id
        progress = FeedProgress(self.shard.epoch, at, self.shard.turns + 1, **changes)
        turned = self.store.do(feed.turn(self.lease, self.record, progress, reading, now=self.store.now))
        self.shard = turned.shard
        return turned

    def read(self, after: int = 0) -> tuple[TopicEvent, ...]:
        """Open a window, or read further, and return its events."""
        return self.turn(reading=Reading(after=after)).events

    def job(self, event: TopicEvent, outcome: object = None) -> Diverted:
        """Return an event that becomes a job."""
        job = new(f"{self.topic}.log", queue=f"{self.topic}.log", payload=pack((event,)))
        partition, origin = line_of(self.record.ordering, event), of_topic(self.topic, "log", event.id)
        return Diverted(msgspec.structs.replace(job, partition=partition, origin=origin), outcome)

    @property
    def status(self) -> SubscriptionStatus:
        """Return the status."""
        return self.store.do(lag.status(self.topic, "log", now=self.store.now))[0]


def publish(store: Harness, *payloads: int, key: str | None = None, type_: str = "P") -> None:
    """Publish events."""
    store.do(events.publish([NewTopicEvent("pay", b"%d" % each, type_, 1, key) for each in payloads], now=store.now))


def payloads(found: tuple[TopicEvent, ...]) -> list[bytes | None]:
    """Return the payloads of events."""
    return [each.payload for each in found]
