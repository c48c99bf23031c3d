"""Invariants of topics and runs, also across a failover: no hole, nothing doubled, nothing skipped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation.faults import AT_MOST_ONCE

__all__ = ["FlowObserver", "Owed"]

_STEPS = "SELECT run_id, CAST(path AS INTEGER), kind, name, outcome FROM redrive_steps ORDER BY 1, 2"
_SHARDS = "SELECT topic || '/' || subscription || '@' || shard, turns FROM redrive_shards"
_EVENTS = "SELECT id, CAST(CAST(payload AS TEXT) AS INTEGER) FROM redrive_events"
_DEAD = "SELECT origin FROM redrive_jobs WHERE origin LIKE 'topic:%' AND state = 'dead'"
_SUCCESSES = "SELECT id, success_lease_id, task, origin FROM redrive_jobs WHERE success_lease_id IS NOT NULL"
_RUNS = "SELECT job_id, id FROM redrive_runs"
_FAILED = "SELECT origin, coalesce(error, note) FROM redrive_jobs WHERE origin LIKE 'run:%' AND state <> 'succeeded'"
_WRITES = "SELECT place, unit FROM writes"


def _number(run: str) -> int:
    """Return the number of the plan in the id of a run or of a child of it."""
    found = re.search(r"run-(\d+)", run)
    assert found is not None
    return int(found[1])


class Owed(NamedTuple):
    """An event that a subscription has not had."""

    subscription: str
    event: int
    number: int


class FlowObserver:
    """Compares the topic and the runs of the database before and after each commit, and at the end.

    Args:
        simulation: that it belongs to.
        read: runs a statement on a connection of the observer, and returns the rows.

    Attributes:
        acknowledged: the kinds of the steps that have created an event or a run, by its number in the plan.
    """

    def __init__(self, simulation: Any, read: Callable[[str], list[Any]]) -> None:
        self._simulation = simulation
        self._read = read
        self.acknowledged: dict[int, str] = {}
        self._turns: dict[str, int] = {}
        self.told: set[int] = set()
        """The numbers of events with which the handler of ``told`` has succeeded, in the view of its worker."""

    def _violated(self, name: str, text: str) -> None:
        self._simulation.observer.violated(name, text)

    def committed(self) -> None:
        """Check the changes of a transaction."""
        turns = dict(self._read(_SHARDS))
        for shard, count in turns.items():
            if count > self._turns.get(shard, 0) + 1:
                self._violated("turn_hole", f"turn {count} of {shard} follows {self._turns.get(shard, 0)}")
        self._turns = turns
        run, before, waits = 0, 0, False
        for run_id, path, _, name, outcome in self._read(_STEPS):
            if not path:
                continue  # an undo
            if run_id != run:
                run, before, waits = run_id, 0, False
            if path != before + 1 or waits:
                how = ", which waits" if waits else ""
                self._violated("step_hole", f"run {run_id}: step {path} ({name}) is recorded behind {before}{how}")
            before, waits = path, outcome in ("waiting", "running")

    def replaced(self) -> None:
        """Begin again from what the database has, because another server has taken over."""
        self._turns = dict(self._read(_SHARDS))
        lost = self.acknowledged.keys() - self._stored()
        for number in lost:
            del self.acknowledged[number]
        self._simulation.observer.ledger.lost += len(lost)

    def _stored(self) -> set[int]:
        """Return the numbers of events and runs that are in the database."""
        return {number for _, number in self._read(_EVENTS)} | {_number(name) for _, name in self._read(_RUNS)}

    def undelivered(self) -> list[Owed]:
        """Return the events that subscriptions have not had, but for those that are dead."""
        writes = set(self._read(_WRITES))
        dead = {origin for (origin,) in self._read(_DEAD)}
        return [
            Owed(name, event, number)
            for event, number in self._read(_EVENTS)
            for name in ("told", "filed")
            if not self._had(name, number, writes) and f"topic:news/{name}#{event}" not in dead
        ]

    def _had(self, name: str, number: int, writes: set[tuple[str, str]]) -> bool:
        """Return True if the handler of a subscription has succeeded with an event, and its writes are there."""
        if name == "told" and not self._is_written:
            return number in self.told
        return (name, str(number)) in writes

    @property
    def _is_written(self) -> bool:
        """True if what handlers have written must be there if their success is."""
        return "write_lost" in self._simulation.profile.strict

    def finished(self) -> None:
        """Check what is in the database in the end."""
        lost = self.acknowledged.keys() - self._stored()
        for number in lost:
            self._violated("acknowledged_job_lost", f"{self.acknowledged[number]} #{number} is not there")
        self._simulation.observer.ledger.kept += len(self.acknowledged)
        for run, why in self._read(_FAILED):
            self._violated("run_failed", f"{run}: {why}")
        self._written(Counter(self._read(_WRITES)))

    def _written(self, writes: Counter[tuple[str, str]]) -> None:
        dead = {origin for (origin,) in self._read(_DEAD)}
        for event, number in self._read(_EVENTS):
            wanted = int(f"topic:news/filed#{event}" not in dead)
            if writes["filed", str(number)] != wanted:
                self._violated("write_doubled", f"event {event} is filed {writes['filed', str(number)]} times")
        for name, number, step in self._steps():
            count = writes[step, str(number)]
            if step == "pay" and count != 1:
                self._violated("write_doubled", f"step {step} of {name} has written {count} rows")
            if not count and self._is_written:
                self._violated("write_lost", f"step {step} of {name} is recorded")
        for job, lease, task, origin in self._read(_SUCCESSES):
            # An attempt that must not run twice goes on, whatever of its writes is lost.
            writes_first = origin is None and task not in (AT_MOST_ONCE, "recover")
            if writes_first and self._is_written and not writes["job", f"{job}.{lease}"]:
                self._violated("write_lost", f"job {job} ({task}) has succeeded under lease {lease}")

    def _steps(self) -> list[tuple[str, int, str]]:
        """Return the recorded calls of steps, each with its run and the number in the plan."""
        runs = {job: (name, _number(name)) for job, name in self._read(_RUNS)}
        return [
            (*runs[run_id], step)
            for run_id, _, kind, step, outcome in self._read(_STEPS)
            if kind == "step" and outcome == "ok"
        ]
