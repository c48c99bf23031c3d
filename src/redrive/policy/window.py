"""Two counts of what happened lately, forgotten a tenth of the time at a time."""

from __future__ import annotations

from collections import deque
from math import floor

__all__ = ["Window"]

_SLICES = 10


class Window:
    """Counts two things for a while: whole numbers per slice of time, so that no rounding adds up.

    Args:
        seconds: how long each counts.

    Attributes:
        first: how many there were of the one.
        second: how many of the other.
    """

    __slots__ = ("_size", "_slices", "first", "second")

    def __init__(self, seconds: float) -> None:
        self.first = self.second = 0
        self._size = seconds / _SLICES
        self._slices: deque[list[int]] = deque()  # number of the slice, first, second

    def add(self, now: float, *, first: int = 0, second: int = 0) -> None:
        """Count; a reading that was taken just before another one counts with that."""
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
        """Leave out what is too old."""
        oldest = floor(now / self._size) - _SLICES
        while self._slices and self._slices[0][0] <= oldest:
            _, first, second = self._slices.popleft()
            self.first -= first
            self.second -= second
