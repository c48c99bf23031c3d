"""Starts tracked items that are due. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.items import NEW, TrackedItem, unreadable
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord
from redrive.errors import ScheduleError
from redrive.schedule import refresh
from redrive.stores.operations.clock import instant
from redrive.stores.operations.refresh.declare import definition_of, schedule
from redrive.stores.operations.refresh.write import ItemMove, MoveResult, begin, numbered, result_of
from redrive.stores.query import Query, Steps, wakes


# A start takes rows that no other transaction has locked and creates their jobs in the same transaction: a fleet starts
# each item once, and a crash starts none of them or all. An index holds only the items that are due, so a million items
# cost no more than a thousand.
@wakes
def start_due(
    name: str, budget: int, samples: Iterable[float], *, now: datetime | None = None
) -> Steps[tuple[MoveResult, ...]]:
    """Start items of a refresh that are due, the earliest first; return the items that moved.

    There may be more if these are as many as the budget.
    """
    at = yield from instant(now)
    row = yield from schedule(name)
    definition = definition_of(row)
    if row is None or row.paused_at is not None or definition is None:
        return ()
    due: Sequence[TrackedItem] = yield Query(
        "refresh_due", {"schedule": name, "now": at, "count": budget}, into=TrackedItem
    )
    if not due:
        return ()
    known: dict[object, ItemMove] = {}
    moves = []
    for item, sample in zip(due, samples, strict=False):
        # Most items are in the same state: they share one move.
        alike = (item.own, item.state)
        like = known.get(alike)
        if like is None:
            like = _started(definition, row, item, at, sample)
            if not like.policy.jitter:
                known[alike] = like
        moves.append(ItemMove(item, like.policy, like.move, like.error))
    moves = yield from numbered(moves)
    yield from begin(definition, moves, at)
    return tuple(map(result_of, moves))


def _started(
    definition: RefreshDefinition, row: ScheduleRecord, item: TrackedItem, at: datetime, sample: float
) -> ItemMove:
    try:
        policy = item.policy(definition)
    except ScheduleError as error:
        return ItemMove(item, definition.policy, unreadable(item.state, error), str(error))
    state = item.state
    if row.resumed_at is not None and item.refresh_at is not None and item.refresh_at < row.resumed_at:
        resumed = refresh.resume(policy, replace(state, paused=True), now=at, sample=sample)
        if not refresh.is_due(resumed.state, at):
            return ItemMove(item, policy, resumed)
        state = resumed.state
    return ItemMove(item, policy, refresh.start(policy, state, now=at, uid=NEW, sample=sample))
