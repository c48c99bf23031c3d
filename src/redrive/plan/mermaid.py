"""A plan as a Mermaid gantt diagram, which many forges and wikis render. PURE.

Mermaid has no time of zero, so the plan starts at an arbitrary midnight, and the axis shows the time since. A jittered
retry is two bars: its wait before jitter, and the range in which it may come (tagged ``active``, drawn lighter).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from redrive.drawing import gantt, gantt_name, gantt_task
from redrive.plan.layout import axis_of, titled
from redrive.plan.rows import Band, PolicyPlan, Section
from redrive.plan.words import shown
from redrive.policy.duration import LONGEST, ZERO

_START = datetime(2000, 1, 1)  # noqa: DTZ001 - Mermaid has no zones
_AXES = (
    (timedelta(seconds=10), "%S.%Ls"),
    (timedelta(hours=1), "%M:%S"),
    (timedelta(days=1), "%H:%M"),
    (timedelta(days=300), "day %j, %H:%M"),
)


def as_mermaid(plan: PolicyPlan) -> str:
    """Return the plan as a gantt diagram, with a line break at its end."""
    tasks: list[str] = []
    remarks = [plan.sentence, *plan.notes]
    for section in plan.sections:
        bars = list(_tasks(plan, section))
        if bars:
            tasks += [f"section {gantt_name(section.name)}", *bars]
        if section.detail:
            remarks.append(titled(section))
    end = max((row.at.high for section in plan.sections for row in section.rows), default=ZERO)
    axis = next((form for limit, form in _AXES if end <= limit), "%Y-%m-%d")
    head = ("dateFormat YYYY-MM-DD HH:mm:ss.SSS", f"axisFormat {axis}", "todayMarker off")
    return gantt(plan.title, head, tasks, remarks)


def _tasks(plan: PolicyPlan, section: Section) -> Iterator[str]:
    previous = Band(ZERO, ZERO, ZERO)
    for row in section.rows:
        late = " does not fit the deadline" if row.struck else ""
        name = f"retry {row.retry} after {shown(row.wait.nominal)}{late}"
        yield _task(name, "crit" if row.struck else "", previous.nominal, row.at.nominal)
        if not row.at.certain and not row.struck:
            where = f"retry {row.retry} from {shown(row.at.low)} to {shown(row.at.high)}"
            yield _task(where, "active", row.at.low, row.at.high)
        previous = row.at
    if section.rest:
        yield _task(section.rest, "", previous.nominal, previous.nominal)
    if plan.deadline is not None and section.rows and axis_of(section, plan.deadline).shows(plan.deadline):
        yield _task(f"deadline {shown(plan.deadline)}", "crit", plan.deadline, plan.deadline)
    if plan.catch is not None and (section.rows or section.ends):
        at = (section.ends or previous).nominal
        name = f"catch {plan.catch.task}, then every {shown(plan.catch.every)} until it succeeds"
        yield _task(name, "", at, at)


def _task(name: str, tag: str, start: timedelta, end: timedelta) -> str:
    return gantt_task(name, _instant(start), _instant(end), tag)


def _instant(after: timedelta) -> str:
    return (_START + min(after, LONGEST)).isoformat(" ", "milliseconds")
