"""Virtual time: what happens next is whatever comes first. PURE."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

__all__ = ["Loop"]


class Loop:
    """A queue of future events; ``now`` is the present instant, in seconds from the start."""

    __slots__ = ("_numbers", "_queue", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        # What falls on one instant happens in the order in which it was asked for.
        self._numbers = count()

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        """Let something happen.

        Args:
            seconds: from now.
            happen: what.
        """
        heappush(self._queue, (self.now + seconds, next(self._numbers), happen))

    def run(self, until: float = inf) -> bool:
        """Let everything happen that happens before an instant.

        Args:
            until: in seconds from the start.

        Returns:
            Whether nothing is left that will happen later.
        """
        queue = self._queue
        while queue and queue[0][0] < until:
            self.now, _, happen = heappop(queue)
            happen()
        return not queue
