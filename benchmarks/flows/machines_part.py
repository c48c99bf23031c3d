"""Transitions per second beside plain jobs.

*Sent one by one* counts enqueued jobs, or events to new instances, per second, while no worker runs; *drained* is as in
`benchmarks.measure`, with one transition per instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.flows.machines.redrive import TransitionsOnPostgres, TransitionsOnSQLite
from benchmarks.flows.part import Measure, Part
from benchmarks.goals import Goal
from benchmarks.measure import NOTHING, Sizes, drain, singles
from benchmarks.place import Server
from benchmarks.subjects import Subject
from benchmarks.subjects.redrive import RedriveOnPostgres, RedriveOnSQLite

__all__ = ["PARTS"]

SIZES = Sizes(jobs=20_000, singles=1_000)

HEADINGS = {
    "single": "sent one\nby one/s",
    "settled": "drained/s",
    "cpu": "CPU\nµs/job",
    "wal": "WAL\nB/job",
}

SUBJECTS: dict[str, dict[str, Callable[[], Subject]]] = {
    "sqlite": {"redrive, jobs": RedriveOnSQLite, "redrive, transitions": TransitionsOnSQLite},
    "postgres": {"redrive, jobs": RedriveOnPostgres, "redrive, transitions": TransitionsOnPostgres},
}

GOALS = (Goal("settled", "redrive, jobs", at_least=0.5, of="redrive, transitions"),)


def _measure(store: str) -> Measure:
    def measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
        subject = SUBJECTS[store][name]()
        single = singles(subject, SIZES, home, server)
        drained = drain(subject, SIZES, home, server)
        wal = NOTHING
        if drained.before is not None and drained.after is not None:
            wal = (drained.after.wal - drained.before.wal) / SIZES.jobs
        return {"single": single, "settled": drained.settled, "cpu": drained.cpu, "wal": wal}

    return measure


PARTS = tuple(
    Part(
        f"machines-{store}",
        store,
        tuple(SUBJECTS[store]),
        _measure(store),
        HEADINGS,
        GOALS,
        f"transitions on {store}, one worker process, synced commits",
    )
    for store in SUBJECTS
)
