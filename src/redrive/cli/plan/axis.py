"""The time axis of a drawing: its length and its ticks. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from redrive.cli.plan.rows import InTime, Section

__all__ = ["Axis", "axis_of"]

# Past the deadline a quarter of it is shown: enough to see that a bar crosses it.
_MARGIN = 1.25
# Times the last retry: a deadline beyond that would leave most of the picture empty.
_FAR = 2
_SHORTEST = timedelta(milliseconds=1)
_STEPS = [timedelta(seconds=number) for number in (1, 2, 5, 10, 15, 30)]
_STEPS += [timedelta(minutes=number) for number in (1, 2, 5, 10, 15, 30)]
_STEPS += [timedelta(hours=number) for number in (1, 2, 3, 6, 12)]


@dataclass(frozen=True, slots=True)
class Axis:
    """Time from zero to an end.

    Attributes:
        end: the right end, above zero.
    """

    end: timedelta

    def place(self, at: timedelta, width: float) -> float:
        """Return the position of an instant on a line of this width; the right end if it lies beyond."""
        return min(1.0, at / self.end) * width

    def shows(self, at: timedelta) -> bool:
        """Return True if an instant lies inside the drawing."""
        return at <= self.end

    def ticks(self, most: int) -> list[timedelta]:
        """Round instants from zero to the end, as far apart as needed for there to be at most so many (2 or more)."""
        step = next(step for step in _steps() if self.end // step < most)
        return [step * number for number in range(self.end // step + 1)]


def axis_of(section: Section, deadline: timedelta | None) -> Axis:
    """Return the axis of a section: to its last retry, or to the deadline if that is near."""
    end = max([_SHORTEST, *(row.at.high for row in section.rows)])
    if deadline is None or deadline > end * _FAR:
        return Axis(end)
    cut = any(row.in_time in {InTime.NO, InTime.MAYBE} for row in section.rows)
    return Axis(max(deadline, min(end, deadline * _MARGIN) if cut else end))


def _steps() -> Iterator[timedelta]:
    """Yield round steps, from a microsecond up, without end."""
    for power in range(6):
        yield from (timedelta(microseconds=number * 10**power) for number in (1, 2, 5))
    yield from _STEPS
    power = 0
    while True:
        yield from (timedelta(days=number * 10**power) for number in (1, 2, 5))
        power += 1
