"""Deletes old events, never those that a subscription has not read, unless it is forced. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.topics import Shard, SubscriptionRecord
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.topics.lag import SubscriptionStatus
from redrive.stores.operations.topics.subscriptions import change, lock, taken
from redrive.stores.query import Query, Statements, reads, writes

# Events that one transaction deletes.
BATCH = 1000

# Events that are measured together, and the pages that one transaction measures.
PAGE = 1000
PAGES = 20

# No event has this id.
NO_ID = 2**63 - 1

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
def topics() -> Statements[tuple[TopicSize, ...]]:
    """Return the topics that have events or subscriptions."""
    return tuple((yield Query("topics_sizes", {"count": COUNTED + 1}, into=TopicSize)))


@writes
def prune(
    topic: str,
    *,
    keep_for: timedelta | None = None,
    keep_bytes: int | None = None,
    force: bool = False,
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[Pruned]:
    """Delete one batch of the oldest events of a topic: those older than a span, or beyond a number of bytes.

    ``force`` also deletes events that subscriptions have not read, and adds them to what they are behind.
    """
    at = yield from instant(now)
    large: int | None = None
    if keep_bytes is not None:
        if not (yield from _measure(topic)):
            return Pruned(0, more=True)
        large = yield from _beyond(topic, keep_bytes)
    before = None if keep_for is None else at - keep_for
    last = (yield Query("events_old", {"topic": topic, "before": before, "last_id": large, "count": BATCH}))[0][0]
    if last is None:
        return Pruned(0, more=False)
    behind = (yield from _behind(topic, last)) if force else ()
    deleted = len((yield Query("events_delete", {"topic": topic, "last_id": last, "force": force})))
    if deleted:
        yield Query("event_pages_drop", {"topic": topic, "last_id": last})
    if force and deleted:
        yield from record(at, actor, "prune", topic=topic, deleted=deleted, behind=dict(behind) or None)
    return Pruned(deleted, more=deleted > 0, held=not deleted and not force, behind=behind)


# The size of a topic is that of its full pages, which are measured once, and of the events beyond them. So a deletion
# by size reads at most two pages of events, however many the topic has.
def _measure(topic: str) -> Statements[bool]:
    """Measure the full pages of a topic that are new; return False if there may be more."""
    for _ in range(PAGES):
        if not (yield Query("event_pages_add", {"topic": topic, "count": PAGE})):
            return True
    return False


def _beyond(topic: str, keep_bytes: int) -> Statements[int | None]:
    """Return the highest id of the events that a measured topic has beyond a number of bytes; None if it has fewer."""
    pages = yield Query("event_pages_large", {"topic": topic, "bytes": -1})
    newest = pages[0][0] if pages else 0
    rows = yield Query("events_large", {"topic": topic, "after": newest, "until": NO_ID, "bytes": keep_bytes})
    last, rest = rows[0][0], keep_bytes - rows[0][1]
    if last is not None:
        return int(last)
    pages = yield Query("event_pages_large", {"topic": topic, "bytes": rest})
    if not pages:
        return None
    until, after, newer = pages[0]
    where = {"topic": topic, "after": after, "until": until, "bytes": rest - newer}
    rows = yield Query("events_large", where)
    # Without a row in the page, its own events were deleted, and those before it are beyond the size.
    return int(rows[0][0] or after) or None


def _behind(topic: str, last: int) -> Statements[tuple[tuple[str, int], ...]]:
    """Add the events up to an id, which are deleted by force, to what their subscriptions are behind."""
    found: Sequence[SubscriptionRecord] = yield Query(
        "subscription_get", {"topic": topic, "name": None}, into=SubscriptionRecord
    )
    behind = []
    for each in found:
        known = yield from lock(each.topic, each.name)
        lost = yield from _unread(known, last)
        if lost:
            yield from change(replace(known, behind=known.behind + lost))
            behind.append((known.name, lost))
    return tuple(behind)


def _unread(known: SubscriptionRecord, last: int) -> Statements[int]:
    """Return how many events up to an id a subscription has not finished."""
    shards: Sequence[Shard] = yield Query("shards_of", {"topic": known.topic, "subscription": known.name}, into=Shard)
    total = 0
    for shard in shards:
        where = {"last_id": last, "seen": shard.seen, "until": shard.until, "at_id": shard.at_id}
        where |= {"done_id": shard.done_id, "unfinished": list(shard.unfinished)}
        total += (yield Query("events_unread", {**taken(known, shard), **where}))[0][0]
    return total


def holders(statuses: Sequence[SubscriptionStatus]) -> tuple[str, ...]:
    """Return the subscriptions that have not read all events, with the reasons; the first to delete for comes first."""
    late = [each for each in statuses if each.lag.oldest_at is not None]
    late.sort(key=lambda each: each.lag.oldest_at or each.at)
    return tuple(f"{each.subscription.name} ({'paused' if each.subscription.paused_at else 'behind'})" for each in late)
