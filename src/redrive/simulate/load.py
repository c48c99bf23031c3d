"""What a target has to bear, counted. PURE."""

from __future__ import annotations

from collections import Counter


class Load:
    """Attempts by the slice of time, in seconds, in which they arrive."""

    def __init__(self, slice: float = 1.0) -> None:  # noqa: A002 - it is one
        self.total = 0
        self._slice = slice
        self._counts: Counter[int] = Counter()

    def arrive(self, now: float) -> None:
        """Count the arrival of an attempt."""
        self.total += 1
        self._counts[int(now / self._slice)] += 1

    def counts(self, start: float, end: float) -> list[int]:
        """Attempts in each slice from one instant to another, in seconds."""
        return [self._counts[number] for number in range(round(start / self._slice), round(end / self._slice))]

    def peak(self) -> float:
        """Attempts per second in the worst slice."""
        return max(self._counts.values(), default=0) / self._slice


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
