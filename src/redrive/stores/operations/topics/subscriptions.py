"""Subscriptions: what the code declares, and what operators change. PURE.

Lock order: the subscription, then the jobs of feeders, then shards, then the jobs of deliveries. A feeder locks its own
job and its shard; it never locks the subscription, except to end a reshard, when it has no shard locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine import topics
from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import of_feeder
from redrive.engine.records import JobRecord, NewJob
from redrive.errors import IllegalMove, SubscriptionNotFound, TaskDefinitionError
from redrive.stores.operations import events, jobs, settlements
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.topics import cluster
from redrive.stores.operations.topics.lag import EXACT, LISTED
from redrive.stores.query import Query, Statements, reads, wakes, writes

# The instants of two events may be in another order than their ids, by far less than this.
DISORDER = timedelta(minutes=1)

# Deliveries that one move ends.
MOVED = 1_000_000


class SubscriptionDefinition(msgspec.Struct, frozen=True, gc=False):
    """A subscription as the code declares it; ``start`` applies when it is created, as ``shards`` does."""

    topic: str
    name: str
    ordering: topics.Order
    dead: topics.Dead
    types: tuple[str, ...] | None
    shards: int
    start: topics.Position
    policy: FrozenPolicy  # of the feeders
    dead_topic: str | None = None


class TopicEdge(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``topic_edge``.

    Attributes:
        edge: the mark of all events that are committed now.
        zero: the mark before the first event.
        first_id: the first event from the given instant or id on; None if there is none.
    """

    edge: str
    zero: str
    first_id: int | None


class MovePreview(msgspec.Struct, frozen=True, gc=False):
    """The effect that a move of a subscription would have now; numbers are exact up to `EXACT`.

    Attributes:
        skipped: events that it has not read, and would not read.
        repeated: events that it has read, and would read again.
        cancelled: deliveries that would be cancelled: of failed events, and of those that wait behind them.
        epoch: of the cursor: each move changes it.
    """

    skipped: int
    repeated: int
    cancelled: int
    epoch: int


# ------------------------------------------------------------------------------------------------------- declarations


@wakes
def declare(
    definitions: Sequence[SubscriptionDefinition], *, now: datetime | None = None
) -> Statements[tuple[topics.SubscriptionRecord, ...]]:
    """Write the subscriptions of the code, create the shards of new ones, and replace feeders that have ended.

    Return them as they are stored. Raise `TopicsRestored` if the database was restored from a dump of another server,
    or `TaskDefinitionError` if dead events would go in a circle.
    """
    yield from cluster.check()
    ordered = sorted(definitions, key=lambda each: (each.topic, each.name))
    rows: Sequence[topics.SubscriptionRecord] = yield Query("subscriptions_ready", into=topics.SubscriptionRecord)
    ready = {(row.topic, row.name): row for row in rows}
    present = [ready[each.topic, each.name] for each in ordered if (each.topic, each.name) in ready]
    # Most starts of a worker change nothing.
    if [_declared(each) for each in present] == [_declared(each) for each in ordered]:
        return tuple(present)
    at = yield from instant(now)
    found = []
    for each in ordered:
        yield Query("subscription_put", {**_columns(each), "now": at})
        known = yield from lock(each.topic, each.name)
        shards: Sequence[topics.Shard] = yield Query("shards_lock", _key(known), into=topics.Shard)
        if shards:
            yield from _revive(shards, each.policy, at)
        else:
            place = yield from _place(each.topic, each.start)
            yield from _insert(known, place, range(each.shards), each.policy, at)
        found.append(known)
    yield from _check_circles()
    return tuple(found)


def _check_circles() -> Statements[None]:
    """Raise `TaskDefinitionError` if dead events would come back, also through subscriptions of other code."""
    rows: Sequence[topics.SubscriptionRecord] = yield Query(
        "subscription_get", {"topic": None, "name": None}, into=topics.SubscriptionRecord
    )
    found = topics.circle((row.topic, row.dead_topic) for row in rows if row.dead_topic is not None)
    if found:
        raise in_circle(found)


def in_circle(found: Sequence[str]) -> TaskDefinitionError:
    """Return the error about topics of which the dead events would come back."""
    return TaskDefinitionError(
        f"dead events would go in a circle, from the topic {' to '.join(map(repr, found))}: give the last subscription "
        "of them dead='continue' or 'hold'"
    )


def _declared(each: SubscriptionDefinition | topics.SubscriptionRecord) -> tuple[object, ...]:
    """Return what a declaration of a subscription that exists can change, and its name."""
    return (each.topic, each.name, each.ordering, each.dead, each.dead_topic, each.types)


def _columns(each: SubscriptionDefinition) -> dict[str, object]:
    return {
        "topic": each.topic,
        "name": each.name,
        "ordering": each.ordering,
        "dead": each.dead,
        "dead_topic": each.dead_topic,
        "types": None if each.types is None else list(each.types),
        "shards": each.shards,
    }


def _key(known: topics.SubscriptionRecord) -> dict[str, object]:
    return {"topic": known.topic, "subscription": known.name}


def lock(topic: str, name: str) -> Statements[topics.SubscriptionRecord]:
    """Lock a subscription and return it; raise `SubscriptionNotFound`."""
    rows: Sequence[topics.SubscriptionRecord] = yield Query(
        "subscription_lock", {"topic": topic, "name": name}, into=topics.SubscriptionRecord
    )
    if not rows:
        raise unknown(topic, name)
    return rows[0]


def unknown(topic: str, name: str) -> SubscriptionNotFound:
    """Return the error about a subscription that the database does not have."""
    return SubscriptionNotFound(
        f"the topic {topic!r} has no subscription {name!r}; a worker creates it when it starts with code that "
        "declares it"
    )


def _insert(
    known: topics.SubscriptionRecord, place: _Place, numbers: Iterable[int], policy: FrozenPolicy, at: datetime
) -> Statements[None]:
    """Insert shards at a position, each with the job of its feeder."""
    shards = list(numbers)
    feeders = yield from _feeders(known.topic, known.name, shards, policy, at)
    rows = [
        {
            **_key(known),
            "shard": number,
            "job_id": job_id,
            "seen": place.seen,
            "until": place.until,
            "at_id": place.at_id,
        }
        for number, job_id in zip(shards, feeders, strict=True)
    ]
    yield Query("shard_insert", many=rows)


def _feeders(topic: str, name: str, shards: Sequence[int], policy: FrozenPolicy, at: datetime) -> Statements[list[int]]:
    new = [
        NewJob(
            task=topics.feeder_name(topic, name),
            queue=f"{topic}.{name}",
            priority=-1,
            payload=b"{}",
            policy=policy,
            partition=f"{topics.FEEDER_LINE}:{shard}",
            origin=of_feeder(topic, name, shard),
        )
        for shard in shards
    ]
    ids = yield from jobs.take("job", len(new))
    yield from jobs.put(ids, new, at)
    return ids


def _revive(shards: Sequence[topics.Shard], policy: FrozenPolicy, at: datetime) -> Statements[None]:
    """Give shards new feeders if theirs have ended: an operator may have cancelled them."""
    found = yield from _jobs(shards)
    alive = {job.id for job in found if job.state not in FINAL}
    dead = [each for each in shards if each.job_id not in alive]
    if not dead:
        return
    ids = yield from _feeders(dead[0].topic, dead[0].subscription, [each.shard for each in dead], policy, at)
    rows = [
        {"topic": each.topic, "subscription": each.subscription, "shard": each.shard, "job_id": job_id}
        for each, job_id in zip(dead, ids, strict=True)
    ]
    yield Query("shard_feeder", many=rows)


# ----------------------------------------------------------------------------------------------------------- positions


class _Place(msgspec.Struct, frozen=True, gc=False):
    """A position of a cursor."""

    seen: str
    until: str | None
    at_id: int


def _place(topic: str, position: topics.Position) -> Statements[_Place]:
    """Return the cursor that begins at a position."""
    first = position if isinstance(position, int) else None
    at = position if isinstance(position, datetime) else None
    if at is not None:
        first = (yield Query("event_near", {"topic": topic, "at": at - DISORDER}))[0][0]
    rows: Sequence[TopicEdge] = yield Query("topic_edge", {"topic": topic, "id": first, "at": at}, into=TopicEdge)
    found = rows[0]
    # The end is the mark of now. An event of a transaction that is open now is delivered: it commits later.
    if position in ("latest", "end") or found.first_id is None:
        return _Place(found.edge, None, 0)
    return _Place(found.zero, found.edge, found.first_id - 1)


@wakes
def move(
    topic: str, name: str, to: topics.Position, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[int]:
    """Put the cursors of a subscription at a position; return how many pending deliveries were cancelled.

    The cursor decides from then on which events are delivered. Failed events that wait for their next attempt, and
    those behind them, are therefore cancelled; dead ones stay. Raise `SubscriptionNotFound`.
    """
    at = yield from instant(now)
    known = yield from lock(topic, name)
    if known.reshard is not None:
        raise IllegalMove(f"{known.task} is getting {known.reshard} shards: move it when that has ended")
    pending = yield from _deliveries(known, MOVED)
    yield Query("shards_lock", _key(known), into=topics.Shard)
    place = yield from _place(topic, to)
    where = {**_key(known), "seen": place.seen, "until": place.until, "at_id": place.at_id}
    yield Query("shard_move", where)
    yield Query("done_forget", _key(known))
    if known.behind:
        yield from change(replace(known, behind=0))
    ended = 0
    for each in pending:
        if each.state not in FINAL:
            job = yield from jobs.lock(each.id)
            ended += yield from settlements.end(job, at, f"the subscription was moved to {to}")
    yield from record(at, actor, "move", topic=topic, subscription=name, to=str(to), cancelled=ended)
    return ended


@reads
def preview(topic: str, name: str, to: topics.Position) -> Statements[MovePreview]:
    """Return the effect of a move to a position. Raise `SubscriptionNotFound`."""
    found: Sequence[topics.SubscriptionRecord] = yield Query(
        "subscription_get", {"topic": topic, "name": name}, into=topics.SubscriptionRecord
    )
    if not found:
        raise unknown(topic, name)
    place = yield from _place(topic, to)
    first = None if place.until is None else place.at_id + 1
    where = {"topic": topic, "name": name, "first_id": first, "count": EXACT + 1}
    row: MovePreview = (yield Query("move_effect", where, into=MovePreview))[0]
    return replace(row, skipped=min(row.skipped, EXACT + 1), repeated=min(row.repeated, EXACT + 1))


def change(known: topics.SubscriptionRecord) -> Statements[None]:
    """Write the fields of a locked subscription that operators change."""
    names = ("topic", "name", "paused_at", "shards", "reshard", "behind")
    yield Query("subscription_change", {name: getattr(known, name) for name in names})


def _jobs(shards: Sequence[topics.Shard]) -> Statements[tuple[JobRecord, ...]]:
    found: list[JobRecord] = []
    for each in shards:
        found += yield Query("job_get", {"id": each.job_id}, into=JobRecord)
    return tuple(found)


def _deliveries(known: topics.SubscriptionRecord, count: int) -> Statements[tuple[topics.DeliveryRecord, ...]]:
    where = {"queue": known.task, "task": known.task, "count": count}
    return tuple((yield Query("deliveries_of", where, into=topics.DeliveryRecord)))


def taken(known: topics.SubscriptionRecord, shard: topics.Shard) -> dict[str, object]:
    """Return the parameters that choose the events of a topic that a shard takes."""
    return {
        "topic": shard.topic,
        "types": None if known.types is None else list(known.types),
        "shards": known.shards,
        "shard": shard.shard,
    }


# ----------------------------------------------------------------------------------------------------------- operators


@writes
def pause(
    topic: str, name: str, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[topics.SubscriptionRecord]:
    """Deliver no further event of a subscription; return it. Raise `SubscriptionNotFound`."""
    at = yield from instant(now)
    known = yield from lock(topic, name)
    if known.paused_at is None:
        known = replace(known, paused_at=at)
        yield from change(known)
        yield from record(at, actor, "pause", topic=topic, subscription=name)
    return known


@wakes
def resume(
    topic: str, name: str, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[topics.SubscriptionRecord]:
    """End a pause of a subscription; return it. Raise `SubscriptionNotFound`."""
    at = yield from instant(now)
    known = yield from lock(topic, name)
    if known.paused_at is not None:
        known = replace(known, paused_at=None)
        yield from change(known)
        yield from record(at, actor, "resume", topic=topic, subscription=name)
    return known


@wakes
def skip(
    topic: str, name: str, event_id: int | None = None, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[topics.DeliveryRecord]:
    """End the delivery that holds others: it is dead with its last error, and the events behind it are delivered.

    Without an id it is the only delivery that holds others. Raise `SubscriptionNotFound`, or `IllegalMove` if no
    delivery, or several without an id, hold others.
    """
    at = yield from instant(now)
    known = yield from lock(topic, name)
    pending = yield from _deliveries(known, EXACT)
    lines = {each.partition: each for each in reversed(pending)}
    found = [each for each in lines.values() if event_id in (None, each.event_id)]
    if len(found) != 1:
        raise IllegalMove(_cannot_skip(known, event_id, lines.values()))
    (held,) = found
    job = yield from jobs.lock(held.id)
    if job.state is State.DEAD:
        yield Query("skip", {"id": job.id, "now": at})
    else:
        topic_note = "" if known.dead_topic is None else f", published to the topic {known.dead_topic}"
        yield from _end(job, at, f"skipped by {actor}{topic_note}")
        yield from events.publish_dead({} if known.dead_topic is None else {job.id: known.dead_topic}, at)
    yield from record(at, actor, "skip", topic=topic, subscription=name, event=held.event_id, ids=[held.id])
    return held


def _cannot_skip(known: topics.SubscriptionRecord, event_id: int | None, held: Iterable[topics.DeliveryRecord]) -> str:
    """Return why no event can be skipped, with those that hold others."""
    ids = sorted(each.event_id for each in held)
    if not ids:
        return f"no event holds {known.task}"
    names = ", ".join(map(str, ids[:LISTED]))
    if event_id is None:
        return f"several events hold {known.task}: give one of {names}"
    return f"event {event_id} does not hold {known.task}; these do: {names}"


def _end(job: JobRecord, at: datetime, why: str) -> Statements[None]:
    """End a delivery that has not ended as dead; its last error stays."""
    if job.state is State.RUNNING:
        yield from settlements.put_unstopped([job])
    if job.lease_id is not None:
        yield from settlements.put_cancelled(job, at, why)
    yield Query("delivery_end", {"id": job.id, "now": at, "note": why})


@writes
def forget(topic: str, name: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[None]:
    """Delete a subscription and its cursors, and end its feeders; its jobs stay. Raise `SubscriptionNotFound`."""
    at = yield from instant(now)
    known = yield from lock(topic, name)
    shards: Sequence[topics.Shard] = yield Query("shards_of", _key(known), into=topics.Shard)
    # A feeder locks its job and then its shard: so the jobs come first here, too.
    for each in shards:
        feeder: Sequence[JobRecord] = yield Query("job_lock", {"id": each.job_id}, into=JobRecord)
        for job in feeder:
            yield from settlements.end(job, at, "the subscription was deleted")
    yield Query("shards_lock", _key(known), into=topics.Shard)
    yield Query("subscription_delete", {"topic": topic, "name": name})
    yield from record(at, actor, "forget", topic=topic, subscription=name)


# ------------------------------------------------------------------------------------------------------------- reshard


# All shards read up to one common mark. The shards that follow begin there, so none of the events of a key is delivered
# by a new shard while an old one has earlier events of it.
@wakes
def reshard(
    topic: str, name: str, shards: int, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[topics.SubscriptionRecord]:
    """Give a subscription another number of shards, as soon as the present ones have reached the events of now.

    Raise `SubscriptionNotFound`, or `IllegalMove` if it is getting other shards already, or its order is strict.
    """
    at = yield from instant(now)
    known = yield from lock(topic, name)
    if known.ordering is topics.Order.STRICT:
        raise IllegalMove(f"{known.task} has strict order, and so one shard: give it order='key' or order='none'")
    if known.reshard is not None:
        raise IllegalMove(f"{known.task} is getting {known.reshard} shards already")
    if known.shards == shards:
        return known
    yield Query("shards_lock", _key(known), into=topics.Shard)
    # A statement of its own, after the locks: every open window ends before this mark.
    edge: Sequence[TopicEdge] = yield Query("topic_edge", {"topic": topic, "id": None, "at": None}, into=TopicEdge)
    yield Query("shard_final", {**_key(known), "final": edge[0].edge})
    known = replace(known, reshard=shards)
    yield from change(known)
    yield from record(at, actor, "reshard", topic=topic, subscription=name, shards=shards)
    return known


@wakes
def end_reshard(topic: str, name: str, policy: FrozenPolicy, *, now: datetime | None = None) -> Statements[bool]:
    """Replace the shards of a subscription if all have reached their end; return True if this call has."""
    at = yield from instant(now)
    known = yield from lock(topic, name)
    shards: Sequence[topics.Shard] = yield Query("shards_lock", _key(known), into=topics.Shard)
    if known.reshard is None or not all(each.ended for each in shards):
        return False
    place = _Place(shards[0].seen, None, 0)
    yield Query("shards_delete", _key(known))
    known = replace(known, shards=known.reshard, reshard=None)
    yield from change(known)
    yield from _insert(known, place, range(known.shards), policy, at)
    return True
