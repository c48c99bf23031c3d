"""Which jobs a person means. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.engine.lifecycle import State
from redrive.engine.records import Hold

__all__ = ["Filter"]


@dataclass(frozen=True, slots=True)
class Filter:
    """A choice of jobs; every condition that is given must hold.

    Attributes:
        ids: one of these.
        state: in this state.
        task: of this task.
        queue: on this queue.
        hold: that wait for this reason.
        reason: whose last attempt failed for this reason.
        error: whose last error contains this text.
        caught: taken by its catch task, or not.
        after_id: enqueued after this one.
        oldest_first: in the order of enqueueing; otherwise newest first.
        limit: at most so many.
    """

    ids: tuple[int, ...] | None = None
    state: State | None = None
    task: str | None = None
    queue: str | None = None
    hold: Hold | None = None
    reason: str | None = None
    error: str | None = None
    caught: bool | None = None
    after_id: int = 0
    oldest_first: bool = False
    limit: int = 100
