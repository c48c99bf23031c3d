"""The instant of a transaction, and the time of a database that goes by the clock of its machine. PURE."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from redrive.engine import anchor as anchors
from redrive.stores.operations.audit import record
from redrive.stores.query import Query, Rows, Steps, reads, wakes

__all__ = ["ClockState", "Instant", "MachineClock", "difference", "instant", "keep"]

KEY = "clock"
"""Under which the anchor is stored; see `redrive.engine.anchor`."""

ACTOR = "redrive"
"""The actor in the audit log: no person has done it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NONE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Instant:
    """A row of the query ``clock``.

    Attributes:
        now: the instant, aware, in UTC.
    """

    now: datetime


def instant(now: datetime | None, *, free: bool = False) -> Generator[Query, Rows, datetime]:
    """Ask for the instant of this transaction (law 8: the database's clock rules).

    Args:
        now: the injected instant, in tests; None in production.
        free: may the question be asked before the transaction?

    Returns:
        The instant that every statement of this transaction uses.
    """
    rows = yield Query("clock", {"now": now}, into=Instant, free=free)
    answer: Instant = rows[0]
    return answer.now


@dataclass(frozen=True, slots=True)
class MachineClock:
    """A row of the query ``wall``.

    Attributes:
        now: what the clock of the machine shows.
        anchor: what is stored under `KEY`.
        boot: the present boot of the machine; None where the database does not go by the clock of a machine.
        ticks: microseconds since then.
    """

    now: datetime
    anchor: str | None
    boot: str | None
    ticks: int | None


@dataclass(frozen=True, slots=True)
class ClockState:
    """What `keep` answers.

    Attributes:
        difference: by how much the clock of the machine differs from the time of the database.
        followed: by how much the time of the database has changed just now.
    """

    difference: timedelta
    followed: timedelta


def _wall() -> Generator[Query, Rows, MachineClock]:
    rows = yield Query("wall", {"key": KEY, "boot": None, "ticks": None}, into=MachineClock)
    row: MachineClock = rows[0]
    return row


@reads
def difference() -> Steps[timedelta]:
    """Compare the clock of the machine with the time of the database.

    Returns:
        By how much the clock of the machine is ahead; zero where it was not set.
    """
    row = yield from _wall()
    return timedelta(microseconds=anchors.difference(anchors.read(row.anchor), _boot(row), _micros(row.now)))


@wakes
def keep() -> Steps[ClockState]:
    """Look whether the clock of the machine was set, and follow it when that has lasted.

    When it is followed, what waits for the end of a span moves along: leases, timeouts, retries and other delays. So
    nothing ends early because of it, and nothing waits for longer. What waits for an instant does not move: a cron
    catches up by its rules, or is planned anew (`redrive.stores.operations.set_back`).

    Returns:
        What was seen, and done.
    """
    row = yield from _wall()
    boot = _boot(row)
    if boot is None:
        return ClockState(_NONE, _NONE)
    before = anchors.read(row.anchor)
    anchor, moved = anchors.advance(before, boot, _micros(row.now))
    followed = timedelta(microseconds=moved)
    if followed:
        yield Query("clock_move_workers", {"step": followed})
        yield Query("clock_move_jobs", {"step": followed, "now": row.now})
        yield Query("clock_move_starts", {"step": followed})
        yield Query("clock_move_refreshes", {"step": followed})
        yield from record(row.now, ACTOR, "clock_followed", seconds=followed.total_seconds())
    if anchor != before:
        yield Query("meta_put", many=[{"key": KEY, "value": msgspec.json.encode(anchor).decode()}])
    return ClockState(timedelta(microseconds=anchors.difference(anchor, boot, _micros(row.now))), followed)


def _boot(row: MachineClock) -> tuple[str, int] | None:
    return None if row.boot is None or row.ticks is None else (row.boot, row.ticks)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta.resolution
