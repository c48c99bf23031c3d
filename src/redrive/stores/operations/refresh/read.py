"""Reads tracked items. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.engine.items import TrackedItem
from redrive.errors import NotTracked
from redrive.stores.query import Query, Steps, reads


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of items of a refresh.

    Attributes:
        running: items with a running attempt.
        failing: items with a failed last attempt, or that are being retried.
        disabled: items that were given up until the next update.
        paused: items that are not started.
        completed: items with schedules that have ended.
    """

    schedule: str
    tracked: int
    running: int
    failing: int
    disabled: int
    paused: int
    completed: int


def found(name: str, key: str) -> Steps[TrackedItem]:
    """Return an item with its arguments."""
    items: Sequence[TrackedItem] = yield Query("refresh_get", {"schedule": name, "key": key}, into=TrackedItem)
    if not items:
        raise untracked(name, key)
    return items[0]


def untracked(name: str, key: str) -> NotTracked:
    """Return the error for an item that does not exist."""
    return NotTracked(f"{name} does not track an item with the key {key!r}")


@reads
def get(name: str, key: str) -> Steps[TrackedItem]:
    """Return an item with its arguments, or raise `NotTracked`."""
    return (yield from found(name, key))


@reads
def select(name: str, *, after: str = "", limit: int = 100, troubled: bool = False) -> Steps[tuple[TrackedItem, ...]]:
    """Return the items of a refresh with keys larger than `after`, by key and without their arguments.

    With `troubled`, only items with a failed last attempt and items that were given up.
    """
    params = {"schedule": name, "after": after, "count": limit}
    if troubled:
        return tuple((yield Query("refreshes_troubled", params, into=TrackedItem)))
    return tuple((yield Query("refreshes_select", params, into=TrackedItem)))


@reads
def counts() -> Steps[tuple[Counts, ...]]:
    """Count the items of each refresh, by name."""
    return tuple((yield Query("refresh_counts", into=Counts)))
