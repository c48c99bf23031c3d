"""Publishes events of topics, and receives the ends of their deliveries. PURE.

A dead delivery whose subscription has a topic for dead events publishes its event there in the transaction in which it
dies: only the statement that first lets the events behind it pass returns it, so it is published once for each death.

A publish is one statement, and touches no row of a subscription: ten subscriptions cost the publisher nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from redrive.engine.origin import OriginResult, read_origin
from redrive.engine.records import ENCODED
from redrive.engine.topics import DeadLetter, Envelope, NewTopicEvent, Publish, delivered_event, slot_of
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


class _Letter(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``letters``."""

    id: int
    origin: str
    payload: bytes
    attempt: int
    reason: str | None
    error: str | None
    error_type: str | None

    def event(self, topic: str) -> NewTopicEvent:
        """Return the event that is published to a topic."""
        origin = read_origin(self.origin)
        assert origin is not None  # that of a delivery
        (given,) = _ENVELOPES.decode(self.payload)
        letter = DeadLetter(
            topic=origin.name,
            subscription=origin.part.rpartition("#")[0],
            id=given.id,
            key=given.key,
            type=given.type,
            version=given.version,
            at=given.at,
            event=given.event,
            job_id=self.id,
            attempts=self.attempt,
            reason=self.reason,
            error_type=self.error_type,
            error=self.error,
        )
        return NewTopicEvent(topic, msgspec.json.encode(letter), DeadLetter.__name__, key=given.key)


_ENVELOPES: Final = msgspec.json.Decoder(list[Envelope])


# A dead event without a catch task lets the events behind it pass, unless its subscription stops there. With a catch
# task they pass when that has succeeded.
def finish_all(reports: Sequence[OriginResult], at: datetime) -> Statements[None]:
    """Let the events behind dead deliveries pass, and publish those for which their subscriptions have a topic."""
    dead = [
        {"id": each.job_id, "topic": each.origin.name, "subscription": found[0]}
        for each in reports
        if each.dead and not each.has_catch and each.catches is None and (found := delivered_event(each.origin))
    ]
    if not dead:
        return
    rows: Sequence[tuple[int, str | None]] = yield Query("line_skip", many=dead)
    yield from publish_dead({number: topic for number, topic in rows if topic is not None}, at)


def publish_dead(topics: Mapping[int, str], at: datetime) -> Statements[None]:
    """Publish the events of dead deliveries, with their errors, to a topic for each.

    The notes of the jobs end with it. A process without the key of the app's codec cannot read a delivery that is
    encoded: the note says so, and after a death the events behind it wait until it is redriven where the key is.
    """
    if not topics:
        return
    rows: Sequence[_Letter] = yield Query("letters", {"ids": sorted(topics)}, into=_Letter)
    withheld = [each for each in rows if each.payload.startswith(ENCODED)]
    yield from insert([each.event(topics[each.id]) for each in rows if each not in withheld], at)
    for each in withheld:
        said = f"published to the topic {topics[each.id]}"
        instead = f"not {said}: this process cannot decode the event"
        yield Query("letter_withhold", {"id": each.id, "said": said, "instead": instead})
