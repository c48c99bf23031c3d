"""Statements of topics find their rows by index, however many events a topic has."""

from __future__ import annotations

import re

import pytest

from redrive.engine.topics import Dead, NewTopicEvent, Order
from redrive.stores.opening import open_store
from redrive.stores.operations import events, jobs
from redrive.stores.operations.topics import subscriptions
from redrive.stores.operations.topics.subscriptions import SubscriptionDefinition
from redrive.stores.statements import loader
from tests import postgres
from tests.stores.helpers import T0, new
from tests.stores.statements.postgres.test_plans import Plans

MANY, PER_COMMIT = 100_000, 1_000
"""The events of the topic, and those of each transaction."""

PAGES = 400
"""The pages that a statement may touch: a thousand events are about 80, and the topic has over 2,000."""

HERE = {"topic": "'pay'", "subscription": "'log'", "name": "'log'", "shard": "0", "now": f"'{T0}'"}

RANGE = {"types": "NULL", "shards": "1"}

MARKS = {"seen": "{before}", "until": "{edge}"}
"""The marks of a window with the events of the last transaction."""

ALL = {"seen": "'1:1:'", "until": "{edge}"}
"""The marks of a window with all events."""

ONE_SHARD = {"topic": "'{pay}'", "subscription": "'{log}'", "shard": "'{0}'", "job_id": "'{1}'"}

ASKED: dict[str, dict[str, str]] = {
    "deliveries_dead": {"task": "'pay.log'", "count": "100"},
    "deliveries_first": {"count": "100"},
    "deliveries_of": {"queue": "'pay.log'", "task": "'pay.log'", "count": "10001"},
    "delivery_end": {"id": "1", "note": "'late'"},
    "done_drop": {"ids": "ARRAY[1,2,3]"},
    "done_forget": {},
    "done_of": {"epoch": "0"},
    "done_put": {"job_id": "1", "lease_id": "1", "epoch": "0", "ids": "ARRAY[1,2,3]"},
    "event_near": {"at": "{at}"},
    "event_insert": {
        "topic": "'{pay}'", "key": "'{k}'", "slot": "'{1}'", "type": "'{P}'", "version": "'{1}'", "at": "'{NULL}'",
        "payload": "ARRAY['1'::bytea]",
    },
    "event_pages_add": {"count": "1000"},
    "event_pages_drop": {"last_id": "{middle}"},
    "event_pages_large": {"bytes": "100"},
    "events_delete": {"last_id": "{first} + 30", "force": "true"},
    "events_delete, held": {"last_id": "{first} + 1000", "force": "false"},
    "events_large": {"after": "{middle}", "until": "{middle} + 1000", "bytes": "10"},
    "events_old": {"before": f"'{T0}'", "last_id": "{last}", "count": "1000"},
    "events_unread": {
        **RANGE, **ALL, "at_id": "0", "done_id": "{first} + 9", "unfinished": "ARRAY[{first}]",
        "last_id": "{first} + 1000",
    },
    "feeders_of": {},
    "feed_far": {**RANGE, **ALL, "after": "{middle}", "count": "1000"},
    "feed_far, end": {**RANGE, **MARKS, "after": "{last} - 1000", "count": "1000"},
    "feed_first": MARKS,
    "feed_healthy": {"job_id": "1", "lease_id": "1"},
    "feed_lock": {"job_id": "1", "lease_id": "1"},
    "feed_look": {"job_ids": "ARRAY[1,2,3]"},
    "feed_near": {**RANGE, **MARKS, "after": "0", "count": "2001"},
    "feed_near, idle": {**RANGE, "seen": "{edge}", "until": "{edge}", "after": "0", "count": "2001"},
    "feed_near, large": {**RANGE, **ALL, "after": "0", "count": "2001"},
    "feed_put": {
        "turns": "1", "seen": "{edge}", "until": "NULL", "at_id": "0", "done_id": "0", "unfinished": "'{{1,2}}'",
        "ahead_id": "0", "stuck_id": "NULL", "stuck_why": "NULL",
    },
    "hits": {"word": "'inv-1'", "budget": "500", "most": "20"},
    "hits_unread": {"budget": "500"},
    "latest": {},
    "letter_withhold": {"id": "1", "said": "'a'", "instead": "'b'"},
    "line_skip": {"id": "'{1}'", "topic": "'{pay}'", "subscription": "'{log}'", "now": f"ARRAY['{T0}'::timestamptz]"},
    "lines_held": {"queue": "'pay.log'", "lines": "NULL"},
    "move_effect": {"first_id": "{middle}", "count": "1001"},
    "move_effect, end": {"first_id": "NULL", "count": "1001"},
    "rebase_events": {"after": "{middle}", "last_id": "{last}", "count": "20"},
    "shard_feeder": ONE_SHARD,
    "shard_final": {"final": "NULL"},
    "shard_insert": {**ONE_SHARD, "shard": "'{7}'", "job_id": "'{99}'", "seen": "'{1:1:}'", "until": "'{NULL}'",
        "at_id": "'{0}'"},
    "shard_move": {**ALL, "at_id": "0"},
    "shard_rebase": {**ALL, "final": "NULL", "at_id": "0"},
    "shards_delete": {},
    "shards_lock": {},
    "shards_of": {},
    "skip": {"id": "1"},
    "subscriptions_lag": {"count": "1001"},
    "subscription_change": {"paused_at": "NULL", "shards": "1", "reshard": "NULL", "behind": "0"},
    "subscription_delete": {},
    "subscription_get": {},
    "subscription_lock": {},
    "subscription_put": {
        "ordering": "'strict'",
        "dead": "'hold'",
        "dead_topic": "NULL",
        "types": "NULL",
        "shards": "1",
    },
    "topic_edge": {"id": "NULL", "at": "NULL"},
    "topic_edge, id": {"id": "{middle}", "at": "NULL"},
    "topic_edge, instant": {"id": "{last} - 100", "at": "{at}"},
    "topic_size": {"count": "1001"},
    "topics_names": {},
    "topics_sizes": {"count": "1001"},
    "cluster": {"key": "'cluster'"},
    "subscriptions_ready": {},
}  # fmt: skip
"""The statements, with the values of each."""

SHOWN = {
    "cluster", "deliveries_dead", "deliveries_first", "feeders_of", "hits", "hits_unread", "latest",
    "move_effect", "subscriptions_lag",
    "topic_size", "topics_names", "topics_sizes",
}  # fmt: skip
"""Statements of read-only transactions of operators. Before the first ANALYZE they may read the index of a topic."""

WHOLE = {
    "vitals": "it reads the subscriptions, not the events",
    "erase_places": "an erasure reads all events, whose keys have no index",
    "erase_events": "an erasure has the ids of the events",
    "check_topics": "it reads the shards, not the events",
    "done_rebase": "a restored database has few of these rows, and no worker runs",
    "rebase_first": "a restored topic is read once, while no worker runs",
}
"""Statements that are left out, and why."""


@pytest.fixture(scope="module", params=["without statistics", "analyzed"])
def topic(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Return a schema with a topic of 100,000 events and 20,000 other jobs, and the marks of the topic."""
    url = postgres.url()
    schema = url.partition("schema=")[2]
    store = open_store(url)
    definition = SubscriptionDefinition("pay", "log", Order.STRICT, Dead.HOLD, None, 1, "beginning", new().policy)
    store.run(subscriptions.declare([definition], now=T0))
    store.run(events.publish([NewTopicEvent("other", b"1", "P")] * 20, now=T0))
    store.run(events.publish([NewTopicEvent("pay", b"1", "P")], now=T0))
    store.run(jobs.enqueue([new(payload=None)] * 20_000, now=T0))
    store.close()
    with postgres.connect() as connection:
        connection.execute(f"SET search_path TO {schema}")
        for _ in range(MANY // PER_COMMIT):
            before = connection.execute("SELECT pg_current_snapshot()::text").fetchone()[0]
            connection.execute(
                "INSERT INTO redrive_events (id, topic, xid, type, version, at, payload)"
                " SELECT nextval('redrive_event_ids'), topic, pg_current_xact_id(), type, version, at,"
                " repeat('x', 40)::bytea FROM redrive_events CROSS JOIN generate_series(1, %s)"
                " WHERE topic = 'pay' AND id = (SELECT min(id) FROM redrive_events WHERE topic = 'pay')",
                [PER_COMMIT],
            )
        connection.execute(
            "INSERT INTO redrive_event_pages SELECT 'pay', id, 40000 FROM redrive_events"
            " WHERE topic = 'pay' AND id % 1000 = 0"
        )
        if request.param == "analyzed":
            connection.execute("ANALYZE")
        edge, first, last, at = connection.execute(
            "SELECT pg_current_snapshot()::text, min(id), max(id), max(at) FROM redrive_events WHERE topic = 'pay'"
        ).fetchone()
    marks = {
        "analyzed": "yes" if request.param == "analyzed" else "",
        "before": f"'{before}'",
        "edge": f"'{edge}'",
        "first": str(first),
        "last": str(last),
    }
    return schema, {**marks, "middle": str((first + last) // 2), "at": f"'{at}'"}


@pytest.mark.parametrize("what", ASKED)
def test_a_statement_costs_the_same_with_many_events(topic: tuple[str, dict[str, str]], what: str):
    """No statement reads a topic of 100,000 events from end to end, or more of it than it returns."""
    schema, marks = topic
    name = what.partition(",")[0]
    if name in SHOWN and not marks["analyzed"]:
        pytest.skip("the planner assumes a small table")
    values = {key: _filled(value, marks) for key, value in {**HERE, **ASKED[what]}.items()}
    with postgres.connect() as connection:
        nodes = Plans(connection, schema).explain(name, writes=name not in SHOWN | {"feed_look"}, **values)

    assert [] == [
        each
        for each in nodes
        if each["Node Type"] == "Seq Scan" and re.match("redrive_(events|jobs)", each["Relation Name"])
    ]
    assert PAGES > nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


def _filled(value: str, marks: dict[str, str]) -> str:
    for name, mark in marks.items():
        value = value.replace(f"{{{name}}}", mark)
    return value


def test_every_statement_of_topics_is_asked():
    """Name each statement on the tables of topics here, or the reason why it is left out."""
    tables = re.compile(r"redrive_(events|shards|subscriptions|done|event_pages|event_ids)\b")
    found = {name for name, text in loader.statements("postgres").items() if tables.search(text)}

    assert set() == found - {each.partition(",")[0] for each in ASKED} - set(WHOLE)
