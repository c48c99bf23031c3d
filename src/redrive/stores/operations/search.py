"""Search for a value of the business in all that is not a job: runs, instances, items and events. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from redrive.stores.query import Query, Statements, reads

#: Matches of each kind that are returned.
MOST: Final = 20

#: The newest events that are read; their keys have no index.
BUDGET: Final = 20_000


class HitKind(StrEnum):
    """The kind of what was found."""

    RUN = "run"
    """A run of a workflow, by its id."""
    INSTANCE = "instance"
    """An instance of a state machine, by its key."""
    ITEM = "item"
    """A tracked item of a refresh, by its key."""
    EVENT = "event"
    """An event of a topic, by its key."""
    MOVE = "move"
    """An event that was sent to an instance, by its own key."""


class HitRecord(msgspec.Struct, frozen=True, gc=False):
    """A match.

    Attributes:
        name: of the workflow, machine, refresh or topic.
        part: the id of the run, the key of the instance or item, or the id of the event.
        text: its state, or the type of an event.
        job_id: the job that executes it; None without one.
    """

    kind: HitKind
    name: str
    part: str
    text: str | None
    job_id: int | None
    at: datetime


class Hits(msgspec.Struct, frozen=True, gc=False):
    """The result of a search.

    Attributes:
        is_whole: False if older events were not read.
    """

    hits: tuple[HitRecord, ...]
    is_whole: bool


@reads
def find(word: str, *, budget: int) -> Statements[Hits]:
    """Return the runs, instances, items and events with an id or a key; the newest events only."""
    params = {"word": word, "budget": budget, "most": MOST}
    hits: Sequence[HitRecord] = yield Query("hits", params, into=HitRecord)
    ((unread,),) = yield Query("hits_unread", {"budget": budget})
    return Hits(tuple(hits), not unread)
