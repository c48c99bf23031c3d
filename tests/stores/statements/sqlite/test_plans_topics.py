"""Statements of topics on SQLite take as many steps with 100,000 events as with 2,000."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import pytest

from redrive.engine.topics import Dead, NewTopicEvent, Order
from redrive.stores.operations import events
from redrive.stores.operations.topics import subscriptions
from redrive.stores.operations.topics.subscriptions import SubscriptionDefinition
from redrive.stores.statements import loader
from redrive.stores.values.sqlite import encode
from tests.stores.helpers import T0, new
from tests.stores.statements.sqlite.test_plans import FLAT, Counted

FEW, MANY = 2_000, 100_000

PLACE = {"topic": "pay", "subscription": "log", "name": "log", "shard": 0, "now": T0, "job_id": 1, "lease_id": 1}

RANGE = {"types": None, "shards": 1, "seen": "0", "count": 500}

CURSOR = {
    "until": None,
    "final": None,
    "at_id": 0,
    "done_id": 0,
    "unfinished": [1, 2],
    "ahead_id": 0,
    "stuck_id": None,
    "stuck_why": None,
    "turns": 1,
}


def _asked(last: int) -> dict[str, dict[str, object]]:
    """Return the parameters of each statement on a topic with this last id."""
    window = {**RANGE, "until": str(last)}
    near = {**RANGE, "seen": str(last - 500), "until": str(last), "after": 0}
    return {
        "deliveries_first": {"count": 100}, "feeders_of": {},
        "subscriptions_lag": {"count": 501}, "topics_sizes": {"count": 501},
        "done_drop": {"ids": [1, 2]}, "done_forget": {}, "done_of": {"epoch": 0},
        "done_put": {"epoch": 0, "ids": [1, 2]},
        "event_near": {"at": T0},
        "event_insert": {"key": None, "slot": None, "type": "P", "version": 1, "at": T0, "payload": b"1"},
        "event_pages_add": {"count": 1000}, "event_pages_drop": {"last_id": 10}, "event_pages_large": {"bytes": 10**6},
        "events_delete": {"last_id": 100, "force": True}, "events_delete, held": {"last_id": 500, "force": False},
        "events_large": {"after": last // 2, "until": last // 2 + 500, "bytes": 10},
        "events_old": {"before": T0, "last_id": last, "count": 500},
        "events_unread": {**window, "at_id": 0, "done_id": 9, "unfinished": [1], "last_id": 500},
        "feed_far": {**window, "after": last // 2}, "feed_first": window, "feed_lock": {},
        "feed_look": {"job_ids": [1, 2, 3]}, "feed_near": near, "feed_near, large": {**window, "after": 0},
        "feed_put": {**CURSOR, "seen": "0"},
        "hits": {"word": "inv-1", "budget": 500, "most": 20}, "hits_unread": {"budget": 500},
        "latest": {}, "letter_withhold": {"id": 1, "said": "a", "instead": "b"}, "line_skip": {"id": 1},
        "move_effect": {"first_id": last // 2, "count": 501},
        "move_effect, end": {"first_id": None, "count": 501},
        "rebase_events": {"after": 0, "last_id": last, "count": 100},
        "shard_feeder": {}, "shard_final": {"final": None}, "shards_delete": {},
        "shard_insert": {**CURSOR, "seen": "0", "shard": 7, "job_id": 99},
        "shard_move": {**CURSOR, "seen": "0"}, "shard_rebase": {**CURSOR, "seen": "0"},
        "shards_lock": {}, "shards_of": {},
        "subscription_change": {"paused_at": None, "shards": 1, "reshard": None, "behind": 0},
        "subscription_delete": {}, "subscription_get": {}, "subscription_lock": {},
        "subscription_put": {"ordering": "strict", "dead": "hold", "dead_topic": None, "types": None, "shards": 1},
        "topic_edge": {"id": None, "at": None}, "topic_edge, id": {"id": last // 2, "at": None},
        "topic_edge, instant": {"id": last - 100, "at": T0},
        "topic_size": {"count": 501}, "topics_names": {}, "cluster": {"key": "cluster"}, "subscriptions_ready": {},
    }  # fmt: skip


HALVED = {"event_near"}
"""Statements that take one step of the same cost for each half of the events."""

WHOLE = {
    "vitals": "it reads the subscriptions, not the events",
    "erase_places": "an erasure reads all events, whose keys have no index",
    "erase_events": "an erasure has the ids of the events",
    "check_topics": "it reads the shards, not the events",
    "done_rebase": "files need no rebase",
    "rebase_first": "files need no rebase: their cursors are ids",
}
"""Statements that are left out, and why."""


@pytest.fixture(scope="module")
def topics() -> Iterator[Callable[[int], Counted]]:
    """Create databases with this many events of a topic, each once."""
    known: dict[int, Counted] = {}
    definition = SubscriptionDefinition("pay", "log", Order.STRICT, Dead.HOLD, None, 1, "beginning", new().policy)

    def make(count: int) -> Counted:
        if count not in known:
            known[count] = database = Counted()
            database.run(subscriptions.declare([definition], now=T0))
            database.run(events.publish([NewTopicEvent("pay", b"1" * 40, "P")] * count, now=T0))
            database.run(events.publish([NewTopicEvent("other", b"1", "P")] * 20, now=T0))
        return known[count]

    yield make
    for each in known.values():
        each.connection.close()


@pytest.mark.parametrize("what", _asked(MANY))
def test_a_statement_costs_the_same_with_many_events(topics: Callable[[int], Counted], what: str):
    """No statement takes more steps because a topic has fifty times as many events."""
    text = loader.statements("sqlite")[what.partition(",")[0]]
    costs = []
    for count in (FEW, MANY):
        database, given = topics(count), {**PLACE, **_asked(count)[what]}
        names = set(re.findall(r"(?<!:):(\w+)", re.sub(r"--.*", "", text)))
        missing = names - set(given)
        assert set() == missing
        database.ticks = 0
        database.connection.execute("BEGIN")
        database.connection.set_progress_handler(database._tick, 5)
        database.connection.execute(text, encode(given)).fetchall()
        database.connection.set_progress_handler(None, 5)
        database.connection.execute("ROLLBACK")
        costs.append(database.ticks)

    assert costs[1] <= FLAT * costs[0] * (math.log(MANY, FEW) if what in HALVED else 1) + 10


def test_every_statement_of_topics_is_asked():
    """Name each statement on the tables of topics here, or the reason why it is left out."""
    tables = re.compile(r"redrive_(events|shards|subscriptions|done|event_pages)\b")
    found = {name for name, text in loader.statements("sqlite").items() if tables.search(text)}

    assert set() == found - {each.partition(",")[0] for each in _asked(MANY)} - set(WHOLE)
