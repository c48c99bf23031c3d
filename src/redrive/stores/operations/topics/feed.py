"""Operations of a feeder: look for new events, read a window, write the position, and hand failed events to jobs. PURE.

Lock order: the job of the feeder, shared, then its shard. The jobs of failed events are inserted under both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.engine.origin import Effect
from redrive.engine.outcome import Outcome, Settlement
from redrive.engine.records import Claim, NewJob
from redrive.engine.settle import decide
from redrive.engine.topics import FEEDER_LINE, Order, Shard, SubscriptionRecord, TopicEvent
from redrive.errors import LeaseLost
from redrive.stores.operations import jobs, origins
from redrive.stores.operations.clock import instant
from redrive.stores.query import DRAWN, Compound, Query, Statements, reads, writes

# The events of a small window, which is read at once by the index on transaction ids.
SMALL = 2000

# The events of one page of a large window.
PAGE = 1000

Ends: TypeAlias = tuple[tuple[Claim, Settlement], ...]
"""Claims of first attempts, and how they ended."""


class FeederLook(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``feed_look``.

    Attributes:
        ending: True if the subscription gets another number of shards.
        news: True if there are events that are not done.
    """

    job_id: int
    epoch: int
    paused: bool
    ending: bool
    news: bool


class _Locked(Shard, frozen=True, gc=False):
    """A row of the query ``feed_lock``: a shard, and the mark of all events that are committed now."""

    edge: str


class Diverted(msgspec.Struct, frozen=True, gc=False):
    """An event that becomes a job.

    Attributes:
        outcome: how its first attempt ended; None if it has not been delivered, because its line is held.
        trace: the context of the trace in which it was delivered.
    """

    job: NewJob
    outcome: Outcome | None = None
    sample: float = 0.0
    trace: str | None = None

    @property
    def event_id(self) -> int:
        """The id of the event."""
        assert self.job.origin is not None  # that of a delivery
        return int(self.job.origin.rpartition("#")[2])


class DeliveryLost(Exception):
    """A standby has taken over that lacks the transaction in which a handler had ended its delivery."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right of a feeder to its shard."""

    job_id: int
    lease_id: int
    worker_id: int


class FeedProgress(msgspec.Struct, frozen=True, gc=False):
    """What a feeder writes.

    Attributes:
        epoch: that of the shard when the feeder read it; nothing is written under another one, but the effects.
        turn: the number of this write. A write that the shard counts already was committed, and its reply was lost. If
            the shard does not count the write before it, a standby has taken over that lacks that commit.
        at_id: every event of the window up to this id is done, or is among `diverted`.
        done_id: the same for this id, except for the events of `unfinished`.
        closes: every event of the window is done.
        done: events with rows in ``redrive_done`` that are done by these fields.
        stuck: the event that this code cannot read, and why.
        healthy: True if the crashes of earlier leases are to be forgotten.
        resting: True if no event beyond the position is being delivered.
    """

    epoch: int
    at_id: int
    turn: int
    done_id: int = 0
    unfinished: tuple[int, ...] = ()
    closes: bool = False
    diverted: tuple[Diverted, ...] = ()
    effects: tuple[Effect, ...] = ()
    done: tuple[int, ...] = ()
    stuck: tuple[int, str] | None = None
    healthy: bool = False
    resting: bool = False


class Reading(msgspec.Struct, frozen=True, gc=False):
    """The events that a feeder reads.

    Attributes:
        after: read the events of the window beyond this id.
        large: True if the window is known to be large.
    """

    after: int = 0
    large: bool = False


class Turned(msgspec.Struct, frozen=True, gc=False):
    """The result of a turn.

    Attributes:
        moved: True if the feeder must read the shard again. An operator has moved the cursor since, and nothing was
            written but the effects; or the database has lost an earlier turn, and nothing was written at all.
        complete: True if the window has no events beyond those that were read.
        settled: the ends of the first attempts of diverted events.
    """

    shard: Shard
    moved: bool = False
    events: tuple[TopicEvent, ...] = ()
    complete: bool = False
    large: bool = False
    settled: Ends = ()


class Attached(msgspec.Struct, frozen=True, gc=False):
    """What a feeder reads when it starts."""

    shard: Shard
    subscription: SubscriptionRecord
    held: tuple[str, ...]
    done: frozenset[int]


@reads
def look(job_ids: Sequence[int]) -> Statements[tuple[FeederLook, ...]]:
    """Return what these feeders have to do; a feeder without a shard is left out."""
    return tuple((yield Query("feed_look", {"job_ids": list(job_ids)}, into=FeederLook)))


@reads
def feeders(task: str, queue: str, *, now: datetime | None = None) -> Statements[dict[int, int]]:
    """Return the number of feeders of a subscription that each live worker runs which serves them, by worker."""
    return dict((yield Query("feeders", {"task": task, "queue": queue, "now": now})))


@writes
def attach(lease: Lease) -> Statements[Attached | None]:
    """Return the shard of a feeder, its subscription, and its held lines; None if the feeder has no shard any more."""
    rows: Sequence[_Locked] = yield Query("feed_lock", _where(lease), into=_Locked)
    if not rows:
        return None
    shard = _shard(rows[0])
    where = {"topic": shard.topic, "name": shard.subscription}
    found: Sequence[SubscriptionRecord] = yield Query("subscription_get", where, into=SubscriptionRecord)
    held: tuple[str, ...] = ()
    if found[0].ordering is not Order.NONE:
        lines = yield Query("lines_held", {"queue": found[0].task, "lines": None})
        # The feeder itself is a job of this queue, too, and holds nothing up.
        held = tuple(row[0] for row in lines if not row[0].startswith(FEEDER_LINE))
    done = yield Query("done_of", {**_owner(shard), "epoch": shard.epoch})
    return Attached(shard, found[0], held, frozenset(row[0] for row in done))


@writes
def turn(
    lease: Lease,
    subscription: SubscriptionRecord,
    progress: FeedProgress,
    reading: Reading | None = None,
    *,
    now: datetime | None = None,
) -> Statements[Turned]:
    """Write the progress of a feeder, open the next window if this one is done, and read the next events.

    Raise `LeaseLost` if another worker may have the shard; `DeliveryLost` if an event that counts as done has no row
    any more: then nothing is written, and the feeder must read the shard again.
    """
    rows: Sequence[_Locked] = yield Query("feed_lock", _where(lease), into=_Locked)
    if not rows:
        raise LeaseLost(f"the feeder {lease.job_id} of {subscription.task} has lost its lease")
    before = _shard(rows[0])
    if _lacks_turn(before, progress):
        # What the turns between have written is lost, such as the job of a failed event. So this progress is void, and
        # the events are delivered again, with their effects.
        return Turned(before, moved=True)
    is_repeated = before.turns >= progress.turn
    if before.epoch != progress.epoch:
        if progress.done:
            # Deliveries that ended after the move: what the cursor covers is delivered again.
            yield Query("done_drop", {**_owner(before), "ids": list(progress.done)})
        if progress.effects and not is_repeated:
            before = replace(before, turns=progress.turn)
            yield Query("feed_put", _columns(before))
            yield from origins.write_effects(progress.effects, (yield from instant(now)))
        return Turned(before, moved=True)
    shard = before if is_repeated else _progressed(before, progress)
    read = Turned(shard)
    if reading is not None:
        read = yield from _read(shard, subscription, reading, rows[0].edge)
    shard = replace(_noted(read.shard, read.events, progress), turns=max(before.turns, progress.turn))
    yield Query("feed_put", _columns(shard))
    settled: Ends = ()
    if not is_repeated:
        settled = yield from _write_rest(lease, shard, progress, now)
    return replace(read, shard=shard, settled=settled)


def _lacks_turn(shard: Shard, progress: FeedProgress) -> bool:
    return shard.turns < progress.turn - 1


def _progressed(shard: Shard, progress: FeedProgress) -> Shard:
    if shard.until is None:
        return shard
    if progress.closes:
        return shard.closed()
    return replace(shard, at_id=progress.at_id, done_id=progress.done_id, unfinished=list(progress.unfinished))


_WRITTEN = (
    "topic", "subscription", "shard", "turns", "seen", "until", "at_id", "done_id", "unfinished", "ahead_id",
    "stuck_id", "stuck_why",
)  # fmt: skip


def _columns(shard: Shard) -> dict[str, object]:
    return {name: getattr(shard, name) for name in _WRITTEN}


def _owner(shard: Shard) -> dict[str, object]:
    return {"topic": shard.topic, "subscription": shard.subscription}


def _where(lease: Lease) -> dict[str, object]:
    return {"job_id": lease.job_id, "lease_id": lease.lease_id}


def _shard(row: _Locked) -> Shard:
    return Shard(**{name: getattr(row, name) for name in Shard.__struct_fields__})


def _noted(shard: Shard, events: Sequence[TopicEvent], progress: FeedProgress) -> Shard:
    """Return the shard with the last event that may be handed out from now on, and the event that cannot be read."""
    ahead = events[-1].id if events else shard.at_id if progress.resting else shard.ahead_id
    stuck_id, stuck_why = progress.stuck or (None, None)
    return replace(shard, ahead_id=ahead, stuck_id=stuck_id, stuck_why=stuck_why)


def _read(shard: Shard, subscription: SubscriptionRecord, reading: Reading, edge: str) -> Statements[Turned]:
    """Read the next events of the window; open one if none is open and there are new events."""
    opens = shard.until is None
    window, after = (shard.opened(edge), 0) if opens else (shard, reading.after)
    params = {
        "topic": shard.topic,
        "seen": window.seen,
        "until": window.until,
        "types": None if subscription.types is None else list(subscription.types),
        "shards": subscription.shards,
        "shard": shard.shard,
    }
    if opens or not reading.large:
        query = Query("feed_near", {**params, "after": after, "count": SMALL + 1}, into=TopicEvent)
        events: Sequence[TopicEvent] = yield query
        if not events and opens:
            # The window is not stored, except at the end of the shard.
            return Turned(window.closed() if window.final else shard, complete=True)
        if len(events) <= SMALL:
            return Turned(window, events=tuple(events), complete=True)
    if after == 0:
        first = yield Query("feed_first", {name: params[name] for name in ("topic", "seen", "until")})
        after = first[0][0] - 1
    events = yield Query("feed_far", {**params, "after": after, "count": PAGE}, into=TopicEvent)
    return Turned(window, events=tuple(events), complete=len(events) < PAGE, large=True)


def _write_rest(lease: Lease, shard: Shard, progress: FeedProgress, now: datetime | None) -> Statements[Ends]:
    """Write what belongs to the progress besides the cursor."""
    if progress.healthy:
        yield Query("feed_healthy", _where(lease))
    if progress.done:
        dropped = yield Query("done_drop", {**_owner(shard), "ids": list(progress.done)})
        if len(dropped) < len(progress.done):
            # The exception takes the turn back.
            raise DeliveryLost(f"the database has lost a delivery of {shard.topic}/{shard.subscription}")
    if not progress.diverted and not progress.effects:
        return ()
    at = yield from instant(now)
    diverted = yield from _unended(lease, shard, progress.diverted)
    settled = yield from _divert(lease, diverted, at)
    if progress.effects:
        yield from origins.write_effects(progress.effects, at)
    return settled


# A first attempt fails although the transaction of its handler is committed if the reply of the commit is lost, or if
# the commit comes together with the time limit.
def _unended(lease: Lease, shard: Shard, diverted: Sequence[Diverted]) -> Statements[list[Diverted]]:
    """End the deliveries of failed events; return the diverted events but those that a transaction has ended before."""
    tried = [each.event_id for each in diverted if each.outcome is not None]
    if not tried:
        return list(diverted)
    ended = yield from _end(lease, shard, tried)
    return [each for each in diverted if each.outcome is None or each.event_id in ended]


def _end(lease: Lease, shard: Shard, ids: Sequence[int]) -> Statements[set[int]]:
    """Write that deliveries have ended; return those that had not, none of them if the lease is not current."""
    where = {**_owner(shard), **_where(lease), "epoch": shard.epoch, "ids": list(ids)}
    return {row[0] for row in (yield Query("done_put", where))}


# The first attempt of a failed event took place in the feeder. Its job is inserted, claimed and settled here, so that
# the policy decides about it as about every attempt, and the job has its history from the start.
def _divert(lease: Lease, diverted: Sequence[Diverted], at: datetime) -> Statements[Ends]:
    """Insert the jobs of events that have failed or are in held lines; settle the first attempts of the former."""
    if not diverted:
        return ()
    ids = yield from jobs.take("job", len(diverted))
    yield from jobs.put(ids, [each.job for each in diverted], at)
    tried = {number: each for number, each in zip(ids, diverted, strict=True) if each.outcome is not None}
    if not tried:
        return ()
    params = {"now": at, "worker_id": lease.worker_id, "count": len(tried), "salt": DRAWN}
    take = Query("take", {"name": "lease", "count": len(tried)})
    claims: Sequence[Claim] = yield Compound((take, Query("claim_chosen", {**params, "ids": list(tried)}, into=Claim)))
    pairs = []
    for claim in claims:
        each = tried[claim.id]
        assert each.outcome is not None  # chosen above
        pairs.append((claim, decide(claim, each.outcome, at, each.sample)))
    done = yield from origins.write_all(pairs, at)
    traces = [(number, each.trace) for number, each in tried.items() if each.trace is not None]
    yield from jobs.put_traces(traces)
    return tuple((claim, done[claim.lease_id]) for claim, _ in pairs)


@reads
def free(subscription: SubscriptionRecord, lines: Sequence[str]) -> Statements[tuple[str, ...]]:
    """Return the lines that are not held any more."""
    held = {row[0] for row in (yield Query("lines_held", {"queue": subscription.task, "lines": list(lines)}))}
    return tuple(line for line in lines if line not in held)


@writes
def commit(
    lease: Lease, shard: Shard, ids: Sequence[int], effects: Sequence[Effect] = (), *, now: datetime | None = None
) -> Statements[bool]:
    """Write in the transaction of a handler that its events are done.

    Return False if the lease is not current, or if one of the events has ended before.
    """
    rows = yield from _end(lease, shard, ids)
    if not rows or len(rows) < len(ids):
        return False
    if effects:
        yield from origins.write_effects(effects, (yield from instant(now)))
    return True
