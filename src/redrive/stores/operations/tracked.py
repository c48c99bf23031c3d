"""Looking at things that are kept fresh. PURE."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from redrive.engine.items import TrackedItem
from redrive.errors import NotTracked
from redrive.stores.query import Query, Rows, Steps, reads

__all__ = ["Counts", "counts", "found", "get", "select", "untracked"]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many things a refresh has, told apart as people do.

    Attributes:
        schedule: name of the refresh.
        tracked: all of them.
        running: an attempt runs.
        failing: the last attempt has failed, or a retry runs.
        disabled: given up until the next update.
        paused: nothing is started.
        completed: their schedules have come to their ends.
    """

    schedule: str
    tracked: int
    running: int
    failing: int
    disabled: int
    paused: int
    completed: int


def found(name: str, key: str) -> Generator[Query, Rows, TrackedItem]:
    """Read where a thing stands, as a part of a larger operation.

    Args:
        name: of the refresh.
        key: which thing.

    Returns:
        It, with its arguments.

    Raises:
        NotTracked: there is no such thing.
    """
    things: Sequence[TrackedItem] = yield Query("refresh_get", {"schedule": name, "key": key}, into=TrackedItem)
    if not things:
        raise untracked(name, key)
    return things[0]


def untracked(name: str, key: str) -> NotTracked:
    """The error of somebody who asks for what is not there.

    Args:
        name: of the refresh.
        key: which thing.
    """
    return NotTracked(f"{name} keeps nothing fresh that is called {key!r}")


@reads
def get(name: str, key: str) -> Steps[TrackedItem]:
    """Read where a thing stands.

    Args:
        name: of the refresh.
        key: which thing.

    Returns:
        It, with its arguments.

    Raises:
        NotTracked: there is no such thing.
    """
    return (yield from found(name, key))


@reads
def select(name: str, *, after: str = "", limit: int = 100, troubled: bool = False) -> Steps[tuple[TrackedItem, ...]]:
    """Read where things stand, by their keys.

    Args:
        name: of the refresh.
        after: only those with larger keys.
        limit: at most so many.
        troubled: only those whose last attempt has failed, and those that were given up.

    Returns:
        The things, without their arguments.
    """
    params = {"schedule": name, "after": after, "count": limit}
    if troubled:
        return tuple((yield Query("refreshes_troubled", params, into=TrackedItem)))
    return tuple((yield Query("refreshes_select", params, into=TrackedItem)))


@reads
def counts() -> Steps[tuple[Counts, ...]]:
    """Count the things of each refresh.

    Returns:
        The counts, by name.
    """
    return tuple((yield Query("refresh_counts", into=Counts)))
