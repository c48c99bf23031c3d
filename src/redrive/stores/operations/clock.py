"""The instant of a transaction, and the time of a database that uses the clock of its machine. PURE."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from redrive.engine import anchor as anchors
from redrive.stores.operations.audit import SYSTEM, record
from redrive.stores.query import Query, Statements, reads, wakes

# The key of the stored anchor; see `redrive.engine.anchor`.
KEY = "clock"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NONE = timedelta(0)


class Instant(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``clock``; the instant is aware, in UTC."""

    now: datetime


def instant(now: datetime | None) -> Statements[datetime]:
    """Return the instant for all statements of this transaction; `now` replaces it in tests."""
    rows = yield Query("clock", {"now": now}, into=Instant)
    answer: Instant = rows[0]
    return answer.now


@reads
def present(now: datetime | None = None) -> Statements[datetime]:
    """Return the instant that the clock of the database shows; `now` replaces it in tests."""
    return (yield from instant(now))


class MachineClock(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``wall``."""

    now: datetime  # the time that the clock of the machine shows
    anchor: str | None  # the value stored under `KEY`
    boot: str | None  # the present boot of the machine; None if the database does not use the clock of a machine
    ticks: int | None  # microseconds since then


class ClockState(msgspec.Struct, frozen=True, gc=False):
    """The result of `keep`."""

    difference: timedelta  # the clock of the machine minus the time of the database
    followed: timedelta  # the change of the time of the database in this call


def _machine_clock() -> Statements[MachineClock]:
    rows = yield Query("wall", {"key": KEY, "boot": None, "ticks": None}, into=MachineClock)
    row: MachineClock = rows[0]
    return row


@reads
def difference() -> Statements[timedelta]:
    """Return the clock of the machine minus the time of the database; zero if the clock was not set."""
    row = yield from _machine_clock()
    return timedelta(microseconds=anchors.difference(anchors.read(row.anchor), _boot(row), _micros(row.now)))


# Leases, timeouts, retries and other delays move with the clock, so that none ends early or late. Instants stay: a cron
# catches up by its rules, or is planned again (`redrive.stores.operations.crons.set_back`).
@wakes
def keep() -> Statements[ClockState]:
    """Detect that the clock of the machine was set, and follow it if the difference lasts."""
    row = yield from _machine_clock()
    boot = _boot(row)
    if boot is None:
        return ClockState(_NONE, _NONE)
    before = anchors.read(row.anchor)
    anchor, moved = anchors.advance(before, boot, _micros(row.now))
    followed = timedelta(microseconds=moved)
    if followed:
        yield Query("clock_move_workers", {"step": followed})
        yield Query("clock_move_jobs", {"step": followed, "now": row.now})
        yield Query("clock_move_steps", {"step": followed})
        yield Query("clock_move_starts", {"step": followed})
        yield Query("clock_move_refreshes", {"step": followed})
        yield from record(row.now, SYSTEM, "clock_followed", seconds=followed.total_seconds())
    if anchor != before:
        yield Query("meta_put", many=[{"key": KEY, "value": msgspec.json.encode(anchor).decode()}])
    return ClockState(timedelta(microseconds=anchors.difference(anchor, boot, _micros(row.now))), followed)


def _boot(row: MachineClock) -> tuple[str, int] | None:
    return None if row.boot is None or row.ticks is None else (row.boot, row.ticks)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta.resolution
