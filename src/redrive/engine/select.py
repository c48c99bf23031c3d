"""Filters for jobs. PURE."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr

from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.errors import ConfigurationError

E = TypeVar("E", bound=StrEnum)


class Filter(msgspec.Struct, frozen=True, gc=False):
    """A selection of jobs; all given conditions must hold.

    Attributes:
        hold: jobs that wait for this reason; unless ``oldest_first``, in the order in which they become due.
        reason: jobs that last failed for this reason.
        error: jobs with this text in their last error.
        caught: jobs whose catch task has succeeded (True) or not (False).
        after_id: jobs enqueued after this one.
        oldest_first: in the order of enqueueing; otherwise newest first.
        limit: maximum number of jobs.

    Raises:
        ConfigurationError: unknown state or hold; their values as text are converted.
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
        raise ConfigurationError(f"{field} is {', '.join(repr(each.value) for each in kind)}, not {value!r}") from error
