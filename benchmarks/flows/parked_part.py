"""Five-step runs per second while 50,000 runs of the same workflow wait for a signal, and without these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.flows.part import Measure, Part
from benchmarks.flows.runs.parked import PARKED, AmongParkedOnPostgres, AmongParkedOnSQLite
from benchmarks.goals import Goal
from benchmarks.measure import NOTHING, Sizes, drain
from benchmarks.place import Server
from benchmarks.subjects import Subject

__all__ = ["PARTS"]

RUNS = 3_000

HEADINGS = {"runs": "runs/s", "cpu": "CPU\nµs/run", "commits": "commits\n/run"}

ALONE, AMONG = "redrive, none parked", f"redrive, {PARKED:,} parked"

KINDS: dict[str, type[AmongParkedOnSQLite | AmongParkedOnPostgres]] = {
    "sqlite": AmongParkedOnSQLite,
    "postgres": AmongParkedOnPostgres,
}


def _measure(store: str) -> Measure:
    def measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
        subject: Subject = KINDS[store](PARKED if name == AMONG else 0)
        drained = drain(subject, Sizes(jobs=RUNS), home, server)
        commits = NOTHING
        if drained.before is not None and drained.after is not None:
            commits = (drained.after.commits - drained.before.commits) / RUNS
        return {"runs": drained.settled, "cpu": drained.cpu, "commits": commits}

    return measure


PARTS = tuple(
    Part(
        f"parked-{store}",
        store,
        (ALONE, AMONG),
        _measure(store),
        HEADINGS,
        (Goal("runs", ALONE, at_least=1 / 1.2, of=AMONG), Goal("cpu", ALONE, at_most=1.2, of=AMONG)),
        f"runs on {store} beside parked ones of the same workflow",
    )
    for store in KINDS
)
