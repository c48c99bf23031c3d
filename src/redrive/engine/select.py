"""Which jobs a person means. PURE."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr

from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.errors import ConfigurationError

__all__ = ["Filter"]

E = TypeVar("E", bound=StrEnum)


class Filter(msgspec.Struct, frozen=True, gc=False):
    """A choice of jobs; every condition that is given must hold.

    Attributes:
        ids: one of these.
        state: in this state.
        task: of this task.
        queue: on this queue.
        hold: that wait for this reason; unless ``oldest_first``, in the order in which they become due.
        reason: whose last attempt failed for this reason.
        error: whose last error contains this text.
        caught: taken by its catch task, or not.
        after_id: enqueued after this one.
        oldest_first: in the order of enqueueing; otherwise newest first.
        limit: at most so many.

    Raises:
        ConfigurationError: there is no such state or hold; a text that is the value of one is converted.
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

    def __post_init__(self) -> None:
        force_setattr(self, "state", _member(State, "state", self.state))
        force_setattr(self, "hold", _member(Hold, "hold", self.hold))


def _member(kind: type[E], field: str, value: str | None) -> E | None:
    try:
        return None if value is None else kind(value)
    except ValueError as error:
        message = f"{field} is {', '.join(repr(each.value) for each in kind)}, not {value!r}"
        raise ConfigurationError(message) from error
