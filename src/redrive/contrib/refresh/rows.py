"""The interface of a table with refreshes, and the result of a move."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from redrive.schedule import Effect, RefreshOutcome, RefreshState, RefreshTransition

__all__ = ["MovedRow", "Rows"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MovedRow(Generic[R]):
    """A row that has moved."""

    row: R
    move: RefreshTransition

    @property
    def outcome(self) -> RefreshOutcome:
        """The outcome of the move."""
        return self.move.outcome

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that the caller carries out in the same transaction."""
        return self.move.effects

    @property
    def state(self) -> RefreshState:
        """The state after the move."""
        return self.move.state


class Rows(Protocol[R]):
    """A table, in a transaction that the caller ends."""

    def due(self, now: datetime, limit: int) -> list[R]:
        """Return due rows, the earliest first: see `redrive.schedule.refresh.is_due`."""
        ...

    def overdue(self, now: datetime, limit: int) -> list[R]:
        """Return rows with a ``sweep_at`` no later than now, the earliest first."""
        ...

    def find(self, key: Any) -> R | None:  # noqa: ANN401 - whatever the table is keyed by
        """Read a row again; return None if it is gone."""
        ...

    def state(self, row: R) -> RefreshState:
        """Return the state of a row as it was read."""
        ...

    def swap(self, row: R, before: RefreshState, after: RefreshState, sweep_at: datetime | None) -> bool:
        """Write a state if the row is unchanged since it was read; return True if so, and change the object."""
        ...
