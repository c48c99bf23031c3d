"""The parts that text and SVG share: the figures beside each bar, and the legend. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.cli.plan.axis import axis_of
from redrive.cli.plan.rows import Band, InTime, PolicyPlan, Section
from redrive.cli.plan.words import shown

__all__ = ["catching", "columns", "figure", "legend", "titled"]


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
