"""What is done when the clock of the database was set back. PURE.

A cron waits for the instant of its next occurrence, and a refresh for its next start. A clock that is set back by an
hour would silence both for an hour; one that was years ahead by mistake, for years. These operations find what waits
for an instant far ahead of the clock, and reckon it anew. An occurrence of a cron that was started stays started: when
the clock shows its instant again, it is not started again. What was changed is written to the audit log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive.engine.items import TrackedItem
from redrive.engine.recurring import CronDefinition
from redrive.errors import ScheduleError
from redrive.schedule import RefreshOutcome, refresh
from redrive.stores.operations.audit import record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.freshness import ItemMove, definition_of, rows, schedule_of, write
from redrive.stores.operations.schedules import lock, move
from redrive.stores.query import Query, Steps, wakes

__all__ = ["ACTOR", "SetBackPage", "cron", "things"]

ACTOR = "redrive"
"""Who stands in the audit log: no person has done it."""

ACTION = "clock_set_back"


@wakes
def cron(name: str, *, now: datetime | None = None) -> Steps[timedelta | None]:
    """Let a cron wait for its next occurrence from now on, if it waits for a later one.

    Args:
        name: of the cron.
        now: the instant, in tests.

    Returns:
        How much earlier that is; None where the cron does not wait for too late an occurrence.

    Raises:
        ScheduleNotFound: the database has no schedule of this name.
    """
    at = yield from instant(now)
    row = yield from lock(name)
    definition = row.definition
    if not isinstance(definition, CronDefinition) or row.next_at is None or row.paused_at is not None:
        return None
    late = at + refresh.TOLERANCE
    latest = definition.schedule.next(late, after=late)
    if latest is None or row.next_at <= latest:
        return None
    next_at = definition.schedule.next(at, after=at)
    assert next_at is not None  # noqa: S101 - there is one a minute later
    yield from move(replace(row, next_at=next_at))
    yield from record(at, ACTOR, ACTION, schedule=name, why=f"waited for {row.next_at}, waits for {next_at} now")
    return row.next_at - next_at


@dataclass(frozen=True, slots=True)
class SetBackPage:
    """What became of some things of a refresh.

    Attributes:
        last: key of the last one that was looked at; None where there are no more.
        moved: how many were reckoned anew.
    """

    last: str | None
    moved: int


@wakes
def things(
    name: str, samples: Iterable[float], *, after: str = "", limit: int = 1000, now: datetime | None = None
) -> Steps[SetBackPage]:
    """Reckon anew the things of a refresh that wait for an instant too far ahead.

    Args:
        name: of the refresh.
        samples: random numbers in [0, 1), for jitter.
        after: only things with larger keys.
        limit: how many are looked at.
        now: the instant, in tests.

    Returns:
        How many there were, and where to go on.
    """
    at = yield from instant(now)
    row = yield from schedule_of(name)
    definition = None if row is None else definition_of(row)
    if definition is None:
        return SetBackPage(None, 0)
    params = {"schedule": name, "after": after, "count": limit}
    found: Sequence[TrackedItem] = yield Query("refreshes_select", params, into=TrackedItem)
    sample = iter(samples)
    moved = []
    for thing in (yield from rows(name, [each.key for each in found])):
        try:
            policy = thing.policy(definition)
        except ScheduleError:
            continue
        made = refresh.set_back(policy, thing.state, now=at, sample=next(sample))
        if made.outcome is not RefreshOutcome.NOTHING:
            moved.append(ItemMove(thing, policy, made))
    yield from write(definition, moved, at)
    if moved:
        yield from record(at, ACTOR, ACTION, schedule=name, count=len(moved))
    return SetBackPage(found[-1].key if len(found) == limit else None, len(moved))
