"""Reads the declaration of a refresh, and computes times again after the declaration or the clock has changed. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.engine.items import TrackedItem
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord
from redrive.errors import ScheduleError
from redrive.schedule import RefreshOutcome, refresh
from redrive.stores.operations.audit import CLOCK_SET_BACK, SYSTEM, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.refresh.write import ItemMove, lock, write
from redrive.stores.query import Query, Steps, wakes, writes


@dataclass(frozen=True, slots=True)
class SetBackPage:
    """The result of `set_back` for one page of items."""

    # The key of the last item that was read; None when there are no more.
    last: str | None
    # The number of items with a new time.
    moved: int


def schedule(name: str) -> Steps[ScheduleRecord | None]:
    """Return the row of a schedule, or None if it does not exist."""
    rows: Sequence[ScheduleRecord] = yield Query("schedules_select", {"names": [name]}, into=ScheduleRecord)
    return rows[0] if rows else None


def definition_of(row: ScheduleRecord | None) -> RefreshDefinition | None:
    """Return the definition in a row; None if it is missing, unreadable to this version, or no refresh."""
    definition = None if row is None else row.definition
    return definition if isinstance(definition, RefreshDefinition) else None


def declared(name: str) -> Steps[RefreshDefinition | None]:
    """Return the definition of a refresh that is stored, if this version can read it."""
    return definition_of((yield from schedule(name)))


@writes
def replan(name: str, budget: int, samples: Iterable[float], *, now: datetime | None = None) -> Steps[int]:
    """Compute the times of items again that an older policy of their refresh has set; return the number of items.

    There may be more if it equals the budget.
    """
    at = yield from instant(now)
    definition = yield from declared(name)
    if definition is None:
        return 0
    params = {"schedule": name, "timing": definition.timing, "count": budget}
    found: Sequence[TrackedItem] = yield Query("refresh_outdated", params, into=TrackedItem)
    moves = [
        ItemMove(each, definition.policy, refresh.replan(definition.policy, each.state, now=at, sample=sample))
        for each, sample in zip(found, samples, strict=False)
    ]
    yield from write(definition, moves, at)
    return len(found)


@wakes
def set_back(
    name: str, samples: Iterable[float], *, after: str = "", limit: int = 1000, now: datetime | None = None
) -> Steps[SetBackPage]:
    """Compute the times of items again that lie too far ahead because the clock of the database was set back.

    Items with larger keys than `after` are read, at most `limit`.
    """
    at = yield from instant(now)
    definition = yield from declared(name)
    if definition is None:
        return SetBackPage(None, 0)
    params = {"schedule": name, "after": after, "count": limit}
    found: Sequence[TrackedItem] = yield Query("refreshes_select", params, into=TrackedItem)
    rolls = iter(samples)
    moves = []
    for item in (yield from lock(name, [each.key for each in found])):
        try:
            policy = item.policy(definition)
        except ScheduleError:
            continue
        move = refresh.set_back(policy, item.state, now=at, sample=next(rolls))
        if move.outcome is not RefreshOutcome.NOTHING:
            moves.append(ItemMove(item, policy, move))
    yield from write(definition, moves, at)
    if moves:
        yield from record(at, SYSTEM, CLOCK_SET_BACK, schedule=name, count=len(moves))
    return SetBackPage(found[-1].key if len(found) == limit else None, len(moves))
