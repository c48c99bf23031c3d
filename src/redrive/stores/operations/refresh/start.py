"""Starts tracked items that are due, and computes times again after a declaration or the clock has changed. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from redrive.engine.items import NEW, TrackedItem, unreadable
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord
from redrive.errors import ScheduleError
from redrive.schedule import RefreshOutcome, refresh
from redrive.stores.operations.audit import CLOCK_SET_BACK, SYSTEM, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.refresh import items
from redrive.stores.query import Query, Statements, wakes, writes


# A start takes rows that no other transaction has locked and creates their jobs in the same transaction: a fleet starts
# each item once, and a crash starts none of them or all. An index holds only the items that are due, so a million items
# cost no more than a thousand.
@wakes
def start_due(
    name: str, budget: int, samples: Iterable[float], *, now: datetime | None = None
) -> Statements[tuple[items.MoveResult, ...]]:
    """Start items of a refresh that are due, the earliest first; return the items that moved.

    There may be more if these are as many as the budget.
    """
    at = yield from instant(now)
    row = yield from items.schedule(name)
    definition = items.definition_of(row)
    if row is None or row.paused_at is not None or definition is None:
        return ()
    due: Sequence[TrackedItem] = yield Query(
        "refresh_due", {"schedule": name, "now": at, "count": budget}, into=TrackedItem
    )
    if not due:
        return ()
    known: dict[object, items.ItemMove] = {}
    moves = []
    for item, sample in zip(due, samples, strict=False):
        # Most items are in the same state: they share one move.
        alike = (item.own, item.state)
        like = known.get(alike)
        if like is None:
            like = _started(definition, row, item, at, sample)
            if not like.policy.jitter:
                known[alike] = like
        moves.append(items.ItemMove(item, like.policy, like.move, like.error))
    moves = yield from items.numbered(moves)
    yield from items.begin(definition, moves, at)
    return tuple(map(items.result_of, moves))


def _started(
    definition: RefreshDefinition, row: ScheduleRecord, item: TrackedItem, at: datetime, sample: float
) -> items.ItemMove:
    try:
        policy = item.policy(definition)
    except ScheduleError as error:
        return items.ItemMove(item, definition.policy, unreadable(item.state, error), str(error))
    state = item.state
    if row.resumed_at is not None and item.refresh_at is not None and item.refresh_at < row.resumed_at:
        resumed = refresh.resume(policy, replace(state, paused=True), now=at, sample=sample)
        if not refresh.is_due(resumed.state, at):
            return items.ItemMove(item, policy, resumed)
        state = resumed.state
    return items.ItemMove(item, policy, refresh.start(policy, state, now=at, uid=NEW, sample=sample))


class SetBackPage(msgspec.Struct, frozen=True, gc=False):
    """The result of `set_back` for one page of items."""

    last: str | None  # the key of the last item that was read; None when there are no more
    moved: int  # the number of items with a new time


@writes
def replan(name: str, budget: int, samples: Iterable[float], *, now: datetime | None = None) -> Statements[int]:
    """Compute the times of items again that an older policy of their refresh has set; return the number of items.

    There may be more if it equals the budget.
    """
    at = yield from instant(now)
    definition = yield from items.declared(name)
    if definition is None:
        return 0
    params = {"schedule": name, "timing": definition.timing, "count": budget}
    found: Sequence[TrackedItem] = yield Query("refresh_outdated", params, into=TrackedItem)
    moves = [
        items.ItemMove(each, definition.policy, refresh.replan(definition.policy, each.state, now=at, sample=sample))
        for each, sample in zip(found, samples, strict=False)
    ]
    yield from items.write(definition, moves, at)
    return len(found)


@wakes
def set_back(
    name: str, samples: Iterable[float], *, after: str = "", limit: int = 1000, now: datetime | None = None
) -> Statements[SetBackPage]:
    """Compute the times of items again that lie too far ahead because the clock of the database was set back.

    Items with larger keys than `after` are read, at most `limit`.
    """
    at = yield from instant(now)
    definition = yield from items.declared(name)
    if definition is None:
        return SetBackPage(None, 0)
    params = {"schedule": name, "after": after, "count": limit}
    found: Sequence[TrackedItem] = yield Query("refreshes_select", params, into=TrackedItem)
    rolls = iter(samples)
    moves = []
    for item in (yield from items.lock(name, [each.key for each in found])):
        try:
            policy = item.policy(definition)
        except ScheduleError:
            continue
        move = refresh.set_back(policy, item.state, now=at, sample=next(rolls))
        if move.outcome is not RefreshOutcome.NOTHING:
            moves.append(items.ItemMove(item, policy, move))
    yield from items.write(definition, moves, at)
    if moves:
        yield from record(at, SYSTEM, CLOCK_SET_BACK, schedule=name, count=len(moves))
    return SetBackPage(found[-1].key if len(found) == limit else None, len(moves))
