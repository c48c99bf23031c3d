"""Five-step runs per second, and the latency of a step: redrive beside its peers and the raw limit.

Each subject runs in an interpreter of its own, see `benchmarks.queue`; `benchmarks.flows.single` defines the figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.flows.part import Measure, Part
from benchmarks.flows.runs import STEPS, SUBJECTS
from benchmarks.goals import Goal
from benchmarks.place import Server
from benchmarks.processes import answer
from benchmarks.queue import python

__all__ = ["PARTS"]

HEADINGS = {
    "runs": "runs/s",
    "cpu": "CPU\nµs/run",
    "wal": "WAL\nB/step",
    "commits": "commits\n/step",
    "idle_commits": "commits\n/step, idle",
    "p50": "step p50\nms, idle",
    "p99": "step p99\nms, idle",
}

_IDLE = (Goal("p50", at_most=5.0),)
GOALS = {
    "sqlite": (Goal("runs", "dbos", at_least=20.0), *_IDLE),
    "postgres": (
        Goal("runs", "dbos", at_least=20.0),
        Goal("runs", "pgqrs", at_least=10.0),
        Goal("commits", at_most=1.0),
        *_IDLE,
    ),
}


def _measure(store: str) -> Measure:
    def measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
        command = [str(python(name).absolute()), "-m", "benchmarks.flows.single", store, name, "--home", str(home)]
        if server is not None:
            command += ["--server", json.dumps(asdict(server))]
        figures: dict[str, float] = json.loads(answer(command))
        return figures

    return measure


PARTS = tuple(
    Part(
        f"runs-{store}",
        store,
        tuple(SUBJECTS[store]),
        _measure(store),
        HEADINGS,
        GOALS[store],
        f"runs on {store}: {STEPS} steps that do nothing, one worker process, synced commits",
    )
    for store in ("sqlite", "postgres")
)
