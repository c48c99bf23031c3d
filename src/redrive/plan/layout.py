"""The parts that the drawings of a plan share: the time axis, the figures beside each bar, and the legend. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from redrive.plan.rows import Band, InTime, PolicyPlan, Section
from redrive.plan.words import shown

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
    """Time from zero to an end, which is above zero."""

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


def columns(section: Section) -> list[list[str]]:
    """Return the columns of a section, each with its heading first.

    Whether a retry is in time is shown only if one may not be.
    """
    rows = section.rows
    found = [
        ["retry", *(str(row.retry) for row in rows)],
        ["wait", *(figure(row.wait) for row in rows)],
        ["at", *(figure(row.at) for row in rows)],
    ]
    if any(row.in_time is not InTime.YES for row in rows):
        found.append(["in time", *(row.in_time for row in rows)])
    return found


def figure(band: Band) -> str:
    """Return a wait as text: ``4s``, or ``2s-4s`` if it depends on jitter."""
    return shown(band.low) if band.low == band.high else f"{shown(band.low)}-{shown(band.high)}"


def titled(section: Section) -> str:
    """Return the heading of a section."""
    return f"{section.name}: {section.detail}" if section.detail else section.name


def catching(plan: PolicyPlan) -> str:
    """Return the sentence about the catch task; empty if there is none."""
    if plan.catch is None:
        return ""
    every = shown(plan.catch.every)
    return f"catch {plan.catch.task}: after the last failure, then every {every} until it succeeds"


def legend(plan: PolicyPlan) -> Iterator[tuple[str, str]]:
    """Yield the marks that a drawing of this plan contains, as names and meanings."""
    sections = [section for section in plan.sections if section.rows]
    rows = [row for section in sections for row in section.rows]
    if not rows:
        return
    drawn = any(not row.wait.certain for row in rows)
    yield "wait", "wait before jitter" if drawn else "wait"
    if drawn:
        yield "band", "the retry may come here"
        yield "both", "both"
    if any(row.struck for row in rows):
        yield "struck", "does not fit the deadline"
    if plan.deadline is not None and any(axis_of(each, plan.deadline).shows(plan.deadline) for each in sections):
        yield "deadline", "deadline"
    if plan.catch is not None and any(section.ends for section in sections):
        yield "catch", "catch"
    if plan.hinted:
        yield "hint", "longer if a hint (Retry-After) asks for it"
