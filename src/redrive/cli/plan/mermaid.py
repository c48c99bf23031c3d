"""A plan as a Mermaid gantt diagram, which many forges and wikis draw by themselves. PURE.

Mermaid knows no time of zero, so the plan starts at an arbitrary midnight, and the axis shows the time since. A name
must not contain ``#``, ``:`` or ``;``, which end it. A jittered retry is two bars: its wait before jitter, and (tagged
``active``, which is drawn lighter) where it may come.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from redrive.cli.plan.axis import axis_of
from redrive.cli.plan.rows import Band, Plan, Section
from redrive.cli.plan.table import titled
from redrive.cli.plan.words import shown
from redrive.policy.duration import LONGEST, ZERO
from redrive.visible import visible

__all__ = ["as_mermaid"]

_START = datetime(2000, 1, 1)  # noqa: DTZ001 - shown in the reader's own zone, whichever that is
_FORBIDDEN = str.maketrans("#:;", "   ")
_AXES = (
    (timedelta(seconds=10), "%S.%Ls"),
    (timedelta(hours=1), "%M:%S"),
    (timedelta(days=1), "%H:%M"),
    (timedelta(days=300), "day %j, %H:%M"),
)


def as_mermaid(plan: Plan) -> str:
    """The plan as the text of a gantt diagram, with a line break at its end."""
    lines = ["gantt", *(f"    {line}" for line in _head(plan))]
    remarks = [plan.sentence, *plan.notes]
    for section in plan.sections:
        tasks = list(_tasks(plan, section))
        if tasks:
            lines += [f"    section {_name(section.name)}", *(f"    {task}" for task in tasks)]
        if section.detail:
            remarks.append(titled(section))
    return "\n".join([*(f"%% {visible(remark)}" for remark in remarks), *lines, ""])


def _head(plan: Plan) -> Iterator[str]:
    ends = [row.at.high for section in plan.sections for row in section.rows]
    end = max(ends, default=ZERO)
    yield f"title {_name(plan.title)}"
    yield "dateFormat YYYY-MM-DD HH:mm:ss.SSS"
    yield f"axisFormat {next((form for limit, form in _AXES if end <= limit), '%Y-%m-%d')}"
    yield "todayMarker off"


def _tasks(plan: Plan, section: Section) -> Iterator[str]:
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
    """One bar; a milestone where it has no length."""
    tags = [each for each in (tag, "milestone" if start == end else "") if each]
    return f"{_name(name)} :{', '.join([*tags, _instant(start), _instant(end)])}"


def _name(text: str) -> str:
    return " ".join(visible(text).translate(_FORBIDDEN).split())


def _instant(after: timedelta) -> str:
    return (_START + min(after, LONGEST)).isoformat(" ", "milliseconds")
