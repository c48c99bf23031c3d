"""A sliding window with two counters."""

from __future__ import annotations

from collections import deque
from math import floor

__all__ = ["Window"]

_SLICES = 10


class Window:
    """Two counters over a sliding window of ten slices. Counts are whole numbers, so that no rounding errors add up.

    Args:
        seconds: the length of the window.

    Attributes:
        first: the first counter.
        second: the second counter.
    """

    __slots__ = ("_size", "_slices", "first", "second")

    def __init__(self, seconds: float) -> None:
        self.first = self.second = 0
        self._size = seconds / _SLICES
        self._slices: deque[list[int]] = deque()  # number of the slice, first, second

    def add(self, now: float, *, first: int = 0, second: int = 0) -> None:
        """Add to the counters. An instant before the latest slice counts in the latest slice."""
        self.forget(now)
        number = floor(now / self._size)
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append([number, 0, 0])
        here = self._slices[-1]
        here[1] += first
        here[2] += second
        self.first += first
        self.second += second

    def forget(self, now: float) -> None:
        """Remove the slices that are older than the window."""
        oldest = floor(now / self._size) - _SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, first, second = self._slices.popleft()
            self.first -= first
            self.second -= second
