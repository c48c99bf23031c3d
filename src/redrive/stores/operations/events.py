"""Publishes events of topics, and receives the ends of their deliveries. PURE.

A publish is one statement, and touches no row of a subscription: ten subscriptions cost the publisher nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.engine.origin import OriginResult
from redrive.engine.topics import NewTopicEvent, Publish, delivered_event, slot_of
from redrive.stores.query import Query, Statements, wakes


@wakes
def publish(events: Sequence[NewTopicEvent], *, now: datetime | None = None) -> Statements[None]:
    """Insert events, all or none, in the order given; ``now`` is the instant of an injected clock."""
    yield from insert(events, now)


def insert(events: Sequence[NewTopicEvent], at: datetime | None) -> Statements[None]:
    """Insert events as a part of a larger operation; without an instant they get that of the database."""
    if events:
        yield Query("event_insert", many=[_row(each, at) for each in events])


def _row(event: NewTopicEvent, at: datetime | None) -> dict[str, object]:
    return {
        "topic": event.topic,
        "key": event.key,
        "slot": slot_of(event.key),
        "type": event.type,
        "version": event.version,
        "at": at,
        "payload": event.payload,
    }


def write_all(effects: Sequence[Publish], at: datetime) -> Statements[None]:
    """Publish the events that handlers have asked for."""
    yield from insert([each.event for each in effects], at)


# A dead event without a catch task lets the events behind it pass, unless its subscription stops there. With a catch
# task they pass when that has succeeded.
def finish_all(reports: Sequence[OriginResult], _: datetime) -> Statements[None]:
    """Let the events behind dead deliveries pass."""
    dead = [
        {"id": each.job_id, "topic": each.origin.name, "subscription": found[0]}
        for each in reports
        if each.dead and not each.has_catch and each.catches is None and (found := delivered_event(each.origin))
    ]
    if dead:
        yield Query("line_skip", many=dead)
