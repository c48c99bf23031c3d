"""Topics and their subscriptions: how far each is behind, and what holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from redrive.app.protocol import Procedure
from redrive.engine.lifecycle import State
from redrive.engine.records import Count
from redrive.engine.topics import DeliveryRecord
from redrive.operate import topic_words as words
from redrive.operate.exchange import Page, Request, Site
from redrive.operate.shown import Shown
from redrive.stores.operations import jobs
from redrive.stores.operations.jobs import Documents
from redrive.stores.operations.topics import lag, retention
from redrive.stores.operations.topics.lag import EXACT, SubscriptionStatus
from redrive.stores.operations.topics.retention import TopicSize

#: Events that hold others, and dead ones, that are shown of a subscription.
SHOWN: Final = 20


class DeliveryLine(msgspec.Struct, frozen=True, gc=False):
    """A failed event.

    Attributes:
        job_id: the job of its delivery.
        line: the events that it holds: a key, or all of the subscription.
        next_at: when it is tried again.
        out_of_order: True if it was started again after later events had been delivered.
        words: its state as a sentence.
    """

    event_id: str
    job_id: str
    state: State
    line: str
    attempt: int
    next_at: datetime | None
    error: str | None
    out_of_order: bool
    words: str


class SubscriptionLine(msgspec.Struct, frozen=True, gc=False):
    """A subscription in a list.

    Attributes:
        order: ``strict``, ``key`` or ``none``.
        lag: the events that it has not finished.
        oldest_seconds: how long ago the oldest of them was published.
        failed: events that are tried again, and those that wait behind them.
        dead: events that no attempt delivers any more.
        standing: what keeps it from delivering, as a sentence; ``open`` if nothing does.
        held_by: the first event of each line that holds others, at most 20.
    """

    topic: str
    name: str
    order: str
    lag: Count
    oldest_seconds: float | None
    failed: Count
    dead: Count
    standing: str
    paused_at: datetime | None
    held_by: tuple[DeliveryLine, ...]


class TopicLine(msgspec.Struct, frozen=True, gc=False):
    """A topic.

    Attributes:
        events: that are kept.
        first_at: when the oldest of them was published.
    """

    name: str
    events: Count
    first_at: datetime | None


class TopicList(msgspec.Struct, frozen=True, gc=False):
    """All topics and subscriptions."""

    subscriptions: tuple[SubscriptionLine, ...]
    topics: tuple[TopicLine, ...]


def topic_list(site: Site, _: Request) -> Procedure[Page]:
    """List topics and subscriptions."""
    found: tuple[SubscriptionStatus, ...] = yield lag.status(dead=False, now=site.app.now())
    sizes: tuple[TopicSize, ...] = yield retention.topics()
    ids = {each.id for status in found for each in held_by(status)}
    documents: dict[int, Documents] = yield jobs.documents(dict.fromkeys(ids))
    data = TopicList(
        subscriptions=tuple(subscription_line(each, shown_of(site, held_by(each), documents)) for each in found),
        topics=tuple(TopicLine(each.topic, count(each.events), each.first_at) for each in sizes),
    )
    return Page("Topics", data)


def held_by(status: SubscriptionStatus) -> tuple[DeliveryRecord, ...]:
    """Return the deliveries that hold others and are shown."""
    return status.held_by[:SHOWN]


def shown_of(site: Site, deliveries: Sequence[DeliveryRecord], documents: Mapping[int, Documents]) -> Shown:
    """Return the values that errors of these deliveries may repeat."""
    return Shown.of(site.payloads, repeated=[text for each in deliveries for text in documents[each.id].all])


def subscription_line(status: SubscriptionStatus, shown: Shown) -> SubscriptionLine:
    """Return a subscription as a line of a list, without the values that are not shown."""
    known, lag = status.subscription, status.lag
    return SubscriptionLine(
        topic=known.topic,
        name=known.name,
        order=known.ordering.value,
        lag=count(lag.events),
        oldest_seconds=None if lag.oldest_at is None else max(0.0, (status.at - lag.oldest_at).total_seconds()),
        failed=count(lag.failed),
        dead=count(lag.dead),
        standing=shown.clear(words.state(status)) or "",
        paused_at=known.paused_at,
        held_by=tuple(delivery_line(each, shown) for each in held_by(status)),
    )


def delivery_line(each: DeliveryRecord, shown: Shown) -> DeliveryLine:
    """Return a failed event, without the values that are not shown."""
    return DeliveryLine(
        event_id=str(each.event_id),
        job_id=str(each.id),
        state=each.state,
        line=each.partition,
        attempt=each.attempt,
        next_at=each.scheduled_at if each.state is State.READY else None,
        error=shown.clear(each.error),
        out_of_order=each.out_of_order,
        words=shown.clear(words.held(each)) or "",
    )


def count(number: int) -> Count:
    """Return a number of events as a page shows it."""
    return Count.exact_to(number, EXACT)
