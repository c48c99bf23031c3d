"""The result of a scenario as JSON for programs; an endless duration is null. PURE."""

from __future__ import annotations

import msgspec

from redrive.simulate import ScenarioResult

__all__ = ["as_json"]


def as_json(finding: ScenarioResult) -> str:
    """Return the result as one line of JSON."""
    names = [measure.name for measure in finding.scenario.measures]
    return msgspec.json.encode(
        {
            "scenario": finding.scenario.name,
            "clients": finding.clients,
            "seeds": finding.seeds,
            "units": {measure.name: measure.unit for measure in finding.scenario.measures},
            "contenders": [
                {"name": row.contender, "figures": dict(zip(names, row.figures, strict=True))} for row in finding.rows
            ],
        }
    ).decode()
