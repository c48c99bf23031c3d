"""Virtual time: what happens next is whatever comes first. PURE."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf


class Loop:
    """A queue of future events; ``now`` is the present instant, in seconds from the start."""

    __slots__ = ("_numbers", "_queue", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        # What falls on one instant happens in the order in which it was asked for.
        self._numbers = count()

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        """Schedule a call after a number of seconds."""
        heappush(self._queue, (self.now + seconds, next(self._numbers), happen))

    def run(self, until: float = inf) -> bool:
        """Run all calls that are due before an instant, in seconds from the start; return True if none is left."""
        queue = self._queue
        while queue and queue[0][0] < until:
            self.now, _, happen = heappop(queue)
            happen()
        return not queue
