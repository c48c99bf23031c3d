"""Databases that were restored from a dump of another server, and topics there. PURE.

On PostgreSQL the cursors hold transaction ids, which begin again on another server. A restored cursor would skip new
events, or deliver none, without an error. So the identity of the server is stored, and a worker with subscriptions does
not start under another identity before ``redrive topics rebase`` has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.engine.topics import Shard
from redrive.errors import TopicsRestored
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Statements, wakes

# The key of the identity in the metadata of the database.
KEY = "cluster"

# Events that one statement changes.
PAGE = 10_000


class Cluster(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``cluster``.

    Attributes:
        identity: of the server; None if cursors do not depend on it.
        next_xid: a transaction id that no transaction of the server has yet.
        last_xid: the highest one of an event; None without events.
        known: the identity that is stored.
    """

    identity: str | None
    next_xid: int
    last_xid: int | None
    known: str | None = None


def _read() -> Statements[Cluster]:
    rows: Sequence[Cluster] = yield Query("cluster", {"key": KEY}, into=Cluster)
    return rows[0]


def check() -> Statements[None]:
    """Store the identity of the server at first; raise `TopicsRestored` if it is another one now."""
    here = yield from _read()
    if here.identity is None:
        return
    ahead = here.last_xid is not None and here.last_xid >= here.next_xid
    if ahead or (here.known is not None and here.known != here.identity):
        shards: Sequence[Shard] = yield Query("shards_of", {"topic": None, "subscription": None}, into=Shard)
        if shards or ahead:
            raise TopicsRestored
    if here.known != here.identity:
        yield Query("meta_put", many=[{"key": KEY, "value": here.identity}])


@wakes
def rebase(*, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[tuple[tuple[Shard, int | None], ...]]:
    """Give the events and cursors of a restored database transaction ids of this server.

    Each cursor is put before the lowest event that it has not seen. Events above it that were delivered before the dump
    are delivered again; none is skipped. Return the shards, each with this event; None if it has seen all.
    """
    at = yield from instant(now)
    here = yield from _read()
    if here.identity is None:
        return ()
    shards: Sequence[Shard] = yield Query("shards_of", {"topic": None, "subscription": None}, into=Shard)
    first = []
    for each in shards:
        yield Query("shards_lock", {"topic": each.topic, "subscription": each.subscription}, into=Shard)
        where = {"topic": each.topic, "seen": each.seen, "until": each.until, "at_id": each.at_id}
        rows = yield Query("rebase_first", where)
        first.append((each, rows[0][0]))
    for row in (yield Query("topics_names")):
        yield from _rebase_events(row[0])
    edges: dict[str, str] = {}
    for each, lowest in first:
        if each.topic not in edges:
            edges[each.topic] = (yield Query("topic_edge", {"topic": each.topic, "id": None, "at": None}))[0][0]
        edge = edges[each.topic]
        yield Query(
            "shard_rebase",
            {
                "topic": each.topic,
                "subscription": each.subscription,
                "shard": each.shard,
                "seen": edge if lowest is None else "1:1:",
                "until": None if lowest is None else edge,
                "final": None if each.final is None else edge,
                "at_id": 0 if lowest is None else lowest - 1,
            },
        )
    yield Query("done_rebase")
    yield Query("meta_put", many=[{"key": KEY, "value": here.identity}])
    yield from record(at, actor, "rebase", shards=len(first))
    return tuple(first)


def _rebase_events(topic: str) -> Statements[None]:
    after = 0
    last = (yield Query("topic_size", {"topic": topic, "count": 1}))[0][2]
    while last is not None and after < last:
        rows = yield Query("rebase_events", {"topic": topic, "after": after, "last_id": last, "count": PAGE})
        after = max((row[0] for row in rows), default=last)
