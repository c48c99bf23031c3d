"""A plan as JSON for programs, with durations in seconds. PURE."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.plan.rows import Band, PolicyPlan, Row
from redrive.policy import Policy


def as_json(plan: PolicyPlan, policy: Policy) -> str:
    """Return the plan as one line of JSON, together with its policy."""
    worst = policy.explain()
    catch = plan.catch
    return msgspec.json.encode(
        {
            "title": plan.title,
            "sentence": plan.sentence,
            "executions": worst.executions,
            "waiting": _seconds(worst.waiting),
            "time": _seconds(worst.time),
            "deadline": _seconds(plan.deadline),
            "sections": [
                {
                    "name": section.name,
                    "detail": section.detail,
                    "retries": [_row(row) for row in section.rows],
                    "rest": section.rest,
                    "ends": None if section.ends is None else _band(section.ends),
                }
                for section in plan.sections
            ],
            "catch": None if catch is None else {"task": catch.task, "every": _seconds(catch.every)},
            "notes": plan.notes,
            "policy": policy.to_dict(),
        }
    ).decode()


def _row(row: Row) -> dict[str, object]:
    return {"retry": row.retry, "wait": _band(row.wait), "at": _band(row.at), "in_time": row.in_time}


def _band(band: Band) -> dict[str, float | None]:
    return {"low": _seconds(band.low), "nominal": _seconds(band.nominal), "high": _seconds(band.high)}


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()
