"""Due refreshes beside plain jobs: ``python -m benchmarks.refreshes --store sqlite|postgres [--keys N] [--json]``.

All keys are due at the same instant, as after a night in which no worker was there. A worker starts each, which makes a
job of it, runs that, and settles both. For as many plain jobs the same work is their bulk enqueue and their draining,
which `benchmarks.queue` measures; here both are measured in turns, in one run. The ratio is that of the two times:

* *started and settled*: a refresh's time against that of enqueue and drain together (goal: at most 1.5);
* *against the drain alone*: the same, as if plain jobs had come from nowhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.measure import Drained, Sizes, drain
from benchmarks.queue import home, server_for
from benchmarks.subjects import Subject
from benchmarks.subjects.redrive import RedriveOnPostgres, RedriveOnSQLite
from benchmarks.subjects.refreshes import RefreshesOnPostgres, RefreshesOnSQLite

__all__ = ["Round", "main", "run"]

PAIRS: dict[str, tuple[type[Subject], type[Subject]]] = {
    "postgres": (RedriveOnPostgres, RefreshesOnPostgres),
    "sqlite": (RedriveOnSQLite, RefreshesOnSQLite),
}

WANTED = 1.5


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one round, per second.

    Attributes:
        enqueued: plain jobs, in bulk.
        drained: plain jobs.
        tracked: items, in bulk.
        refreshed: items, started and settled.
        plain_cpu: processor time of the worker per plain job, microseconds.
        refresh_cpu: the same per item.
        ratio: of the times, against enqueue and drain together.
        against_drain: of the times, against the drain alone.
    """

    enqueued: float
    drained: float
    tracked: float
    refreshed: float
    plain_cpu: float
    refresh_cpu: float
    ratio: float
    against_drain: float


def run(store: str, keys: int, rounds: int) -> list[Round]:
    """Measure both in turns.

    Args:
        store: a key of `PAIRS`.
        keys: how many of each.
        rounds: how often.

    Returns:
        What each round showed.
    """
    measured = []
    with home() as place, server_for(store, place) as server:
        for number in range(1, rounds + 1):
            print(f"round {number}", file=sys.stderr, flush=True)
            plain, refreshed = (drain(kind(), Sizes(jobs=keys), place, server) for kind in PAIRS[store])
            measured.append(_round(plain, refreshed))
    return measured


def _round(plain: Drained, refreshed: Drained) -> Round:
    alone = 1 / plain.settled
    both = 1 / plain.bulk + alone
    took = 1 / refreshed.settled
    return Round(
        plain.bulk,
        plain.settled,
        refreshed.bulk,
        refreshed.settled,
        plain.cpu,
        refreshed.cpu,
        took / both,
        took / alone,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line.

    Args:
        arguments: those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="benchmarks.refreshes", description="Due refreshes beside plain jobs.")
    parser.add_argument("--store", choices=sorted(PAIRS), default="sqlite")
    parser.add_argument("--json", action="store_true", help="print the rounds as JSON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=100_000)
    chosen = parser.parse_args(arguments)
    measured = run(chosen.store, chosen.keys, chosen.rounds)
    if chosen.json:
        print(json.dumps([asdict(each) for each in measured]))
        return
    for name in asdict(measured[0]):
        values = sorted(getattr(each, name) for each in measured)
        print(f"{name:>14}: {statistics.median(values):>10,.4g}  (rounds: {values[0]:,.4g} to {values[-1]:,.4g})")
    middle = statistics.median(each.ratio for each in measured)
    verdict = "reached" if middle <= WANTED else "not reached"
    print(f"{chosen.store}: started and settled in {middle:.2f} x the time of plain jobs, at most {WANTED}: {verdict}")


if __name__ == "__main__":
    main()
