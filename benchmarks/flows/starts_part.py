"""Runs of five steps per second, starts and results included: redrive beside Temporal's development server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.flows.part import Part
from benchmarks.flows.starts import STEPS
from benchmarks.goals import Goal
from benchmarks.place import Server
from benchmarks.processes import answer
from benchmarks.queue import python

__all__ = ["PARTS"]


def _measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:  # noqa: ARG001 - a file suffices
    with tempfile.TemporaryDirectory(dir=home) as folder:
        figures: dict[str, float] = json.loads(
            answer([str(python(name).absolute()), "-m", f"benchmarks.flows.starts.{name}", folder])
        )
    return figures


PARTS = (
    Part(
        "temporal",
        "sqlite",
        ("redrive", "temporal"),
        _measure,
        {"runs": "runs/s"},
        (Goal("runs", "temporal", at_least=10.0),),
        f"{STEPS}-step runs, starts included, 50 at once, on a file",
    ),
)
