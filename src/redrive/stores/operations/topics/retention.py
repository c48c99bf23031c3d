"""Deletes old events, never those that a subscription has not read, unless it is forced. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.topics import Shard, SubscriptionRecord
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.topics.subscriptions import SubscriptionStatus, change, lag_of, lock
from redrive.stores.query import Query, Steps, reads, writes

# Events that one transaction deletes.
BATCH = 1000

# The events that are counted of a topic.
COUNTED = 10_000


class TopicSize(msgspec.Struct, frozen=True, gc=False):
    """The events of a topic.

    Attributes:
        events: their number, exact up to `COUNTED`.
        first_at: when the first one was published.
    """

    topic: str
    events: int
    first_id: int | None
    last_id: int | None
    first_at: datetime | None


class _Size(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``topic_size``."""

    events: int
    first_id: int | None
    last_id: int | None
    first_at: datetime | None


class Pruned(msgspec.Struct, frozen=True, gc=False):
    """The result of one batch.

    Attributes:
        deleted: the number of deleted events.
        more: True if another batch may delete more.
        held: True if a subscription that has not read them keeps events that are old enough.
        behind: the events that each subscription had not read, if the deletion was forced.
    """

    deleted: int
    more: bool
    held: bool = False
    behind: tuple[tuple[str, int], ...] = ()


@reads
def topics() -> Steps[tuple[TopicSize, ...]]:
    """Return the topics that have events or subscriptions."""
    found = []
    for row in (yield Query("topics_names")):
        sizes: Sequence[_Size] = yield Query("topic_size", {"topic": row[0], "count": COUNTED + 1}, into=_Size)
        size = sizes[0]
        found.append(TopicSize(row[0], size.events, size.first_id, size.last_id, size.first_at))
    return tuple(found)


@writes
def prune(  # noqa: PLR0913 - options of one operation, by keyword
    topic: str,
    *,
    keep_for: timedelta | None = None,
    keep_bytes: int | None = None,
    force: bool = False,
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Steps[Pruned]:
    """Delete one batch of the oldest events of a topic: those older than a span, or beyond a number of bytes.

    ``force`` also deletes events that subscriptions have not read, and adds them to what they are behind.
    """
    at = yield from instant(now)
    last = yield from _last(topic, keep_for, keep_bytes, at)
    if last is None:
        return Pruned(0, more=False)
    before = (yield from _unread(topic)) if force else ()
    params = {"topic": topic, "last_id": last, "force": force, "count": BATCH}
    deleted = len((yield Query("events_delete", params)))
    behind = yield from _behind(before)
    if force and deleted:
        yield from record(at, actor, "prune", topic=topic, deleted=deleted, behind=dict(behind) or None)
    return Pruned(deleted, more=deleted == BATCH, held=not deleted and not force, behind=behind)


def _last(topic: str, keep_for: timedelta | None, keep_bytes: int | None, at: datetime) -> Steps[int | None]:
    """Return the id up to which events may be deleted."""
    found: list[int] = []
    if keep_for is not None:
        rows = yield Query("events_old", {"topic": topic, "before": at - keep_for, "count": BATCH})
        found += [row[1] for row in rows if row[1] is not None]
    if keep_bytes is not None:
        rows = yield Query("events_large", {"topic": topic, "bytes": keep_bytes})
        found += [row[0] for row in rows if row[0] is not None]
    return max(found, default=None)


def _unread(topic: str) -> Steps[tuple[tuple[SubscriptionRecord, int], ...]]:
    found: Sequence[SubscriptionRecord] = yield Query(
        "subscription_get", {"topic": topic, "name": None}, into=SubscriptionRecord
    )
    counts = []
    for each in found:
        known = yield from lock(each.topic, each.name)
        counts.append((known, (yield from _count(known))))
    return tuple(counts)


def _count(known: SubscriptionRecord) -> Steps[int]:
    shards: Sequence[Shard] = yield Query("shards_of", {"topic": known.topic, "subscription": known.name}, into=Shard)
    total = 0
    for shard in shards:
        total += (yield from lag_of(known, shard, exact=None)).events
    return total


def _behind(before: Sequence[tuple[SubscriptionRecord, int]]) -> Steps[tuple[tuple[str, int], ...]]:
    """Add what was deleted of the unread events of each subscription to what it is behind."""
    behind = []
    for known, unread in before:
        lost = unread - (yield from _count(known))
        if lost:
            yield from change(replace(known, behind=known.behind + lost))
            behind.append((known.name, lost))
    return tuple(behind)


def holders(statuses: Sequence[SubscriptionStatus]) -> tuple[str, ...]:
    """Return the subscriptions that have not read all events, with the reasons; the first to delete for comes first."""
    late = [each for each in statuses if each.lag.oldest_at is not None]
    late.sort(key=lambda each: each.lag.oldest_at or each.at)
    return tuple(f"{each.subscription.name} ({'paused' if each.subscription.paused_at else 'behind'})" for each in late)
