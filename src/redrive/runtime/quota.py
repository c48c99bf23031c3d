"""The conditions under which a worker ends by itself: no job is due, or it has run as many as it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Quota:
    """The work of one worker until it ends by itself.

    Attributes:
        until_empty: True if the worker ends when no job is due.
        left: the number of attempts that it may still start; None for no bound.
        scheduled: returns True once the due crons and refreshes have started their jobs.
        ended: called with the reason when the worker shall end.
    """

    until_empty: bool = False
    left: int | None = None
    scheduled: Callable[[], bool] = lambda: True
    ended: Callable[[str], None] = lambda _: None

    def room(self, free: int) -> int:
        """Return how many of the free slots may be used."""
        return free if self.left is None else min(free, self.left)

    @property
    def used(self) -> bool:
        """True if no further attempt may start."""
        return self.left == 0
