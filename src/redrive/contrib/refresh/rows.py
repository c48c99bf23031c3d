"""What the moves need of a table, and what they give back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from redrive.schedule import Effect, RefreshOutcome, RefreshState, RefreshTransition

__all__ = ["Moved", "Rows"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Moved(Generic[R]):
    """A row that has moved.

    Attributes:
        row: as it is now.
        move: what became of it.
    """

    row: R
    move: RefreshTransition

    @property
    def outcome(self) -> RefreshOutcome:
        """What the move came to."""
        return self.move.outcome

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What is to be done beside, in the same transaction."""
        return self.move.effects

    @property
    def state(self) -> RefreshState:
        """Where it stands now."""
        return self.move.state


class Rows(Protocol[R]):
    """A table, in a transaction that the caller ends."""

    def due(self, now: datetime, limit: int) -> list[R]:
        """Rows to be started, the earliest first: see `redrive.schedule.refresh.is_due`."""
        ...

    def overdue(self, now: datetime, limit: int) -> list[R]:
        """Rows whose ``sweep_at`` is no later than now, the earliest first."""
        ...

    def find(self, key: Any) -> R | None:  # noqa: ANN401 - whatever the table is keyed by
        """One row, read anew; None if it is gone."""
        ...

    def state(self, row: R) -> RefreshState:
        """Where it stood when it was read."""
        ...

    def swap(self, row: R, before: RefreshState, after: RefreshState, sweep_at: datetime | None) -> bool:
        """Write a state if the row is still in the one that was read; answer whether it was, and change the object."""
        ...
