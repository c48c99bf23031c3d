"""The parts: the default concurrency beside chosen ones, one worker beside several, and idle workers.

* *Default*: how fast one worker drains no-op jobs with its default concurrency and with several chosen ones. The goal
  compares the default with the best of each round.
* *Many*: the same by one, two and eight worker processes; *busy* handlers compute for a millisecond.
* On PostgreSQL all workers are idle before the first job can start.
* *Early*: the same by a worker that was started in an empty database before the jobs were enqueued, as most workers
  are. Its sessions keep the plans of their statements from that time.
* *Failing*: jobs that succeed beside jobs that fail, each with its log and its stored traceback.
* *Idle*: transactions per second that idle workers begin altogether, after they have come to rest, and the latency of
  single jobs that are enqueued in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.flows.part import Measure, Part
from benchmarks.goals import Goal
from benchmarks.measure import Sizes, drain
from benchmarks.place import Server
from benchmarks.workers.idle import IDLE, idle
from benchmarks.workers.subjects import early, fleet

__all__ = ["PARTS"]

CHOSEN = (100, 200, 400, 800)
"""Concurrencies that are compared with the default."""

JOBS = {"async": 20_000, "def": 10_000, "busy": 3_000, "failing": 10_000}
"""Jobs that one worker drains, by the kind of their handlers."""

TOGETHER = 4
"""So many times as many are drained by several workers: twenty thousand last eight of them half a second, in which each
still plans its statements."""

DRAINS = {"settled": "drained/s,\nsettled", "cpu": "CPU of the\nworkers µs/job"}


def _figures(store: str, kind: str, jobs: int, concurrency: int | None, workers: int) -> Measure:
    def measure(_: str, home: Path, server: Server | None) -> Mapping[str, float]:
        drained = drain(fleet(store, kind, concurrency), Sizes(jobs=jobs), home, server, workers=workers)
        return {"settled": drained.settled, "cpu": drained.cpu}

    return measure


def _default(store: str, kind: str) -> Part:
    subjects = {"redrive, default": None, **{f"redrive, {each}": each for each in CHOSEN}}

    def measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
        return _figures(store, kind, JOBS[kind], subjects[name], 1)(name, home, server)

    goals = tuple(Goal("settled", f"redrive, {each}", at_least=0.85, of="redrive, default") for each in CHOSEN)
    title = f"{kind} handlers that do nothing on {store}, one worker, by concurrency, {JOBS[kind]:,} jobs"
    return Part(f"default-{store}-{kind}", store, tuple(subjects), measure, DRAINS, goals, title)


def _many(store: str, kind: str, goals: tuple[Goal, ...]) -> Part:
    subjects = {"redrive, 1 worker": 1, "redrive, 2 workers": 2, "redrive, 8 workers": 8}
    jobs = TOGETHER * JOBS[kind]

    def measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
        return _figures(store, kind, jobs, None, subjects[name])(name, home, server)

    title = f"{kind} handlers on {store}, by the number of worker processes, {jobs:,} jobs"
    return Part(f"many-{store}-{kind}", store, tuple(subjects), measure, DRAINS, goals, title)


def _early(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
    subject = early() if name == EARLY else fleet("postgres", "async")
    drained = drain(subject, Sizes(jobs=TOGETHER * JOBS["async"]), home, server)
    return {"settled": drained.settled, "cpu": drained.cpu}


EARLY, LATE = "redrive, worker first", "redrive, jobs first"


def _failing(store: str) -> Part:
    kinds = {"redrive, successes": "async", "redrive, failures": "failing"}

    def measure(name: str, home: Path, server: Server | None) -> Mapping[str, float]:
        return _figures(store, kinds[name], JOBS["failing"], None, 1)(name, home, server)

    title = f"Jobs on {store} that succeed or fail, {JOBS['failing']:,} jobs"
    return Part(f"failing-{store}", store, tuple(kinds), measure, DRAINS, (), title)


EIGHT = Goal("settled", "redrive, 2 workers", at_least=0.8, of="redrive, 8 workers")
TWO = ("settled", "redrive, 1 worker")

PARTS = (
    *(_default(store, kind) for store in ("postgres", "sqlite") for kind in ("async", "def")),
    _many("postgres", "busy", (Goal(*TWO, at_least=1.3, of="redrive, 2 workers"), EIGHT)),
    _many("postgres", "async", (Goal(*TWO, at_least=1.0, of="redrive, 2 workers"), EIGHT)),
    Part(
        "early",
        "postgres",
        (LATE, EARLY),
        _early,
        DRAINS,
        (Goal("settled", LATE, at_least=0.9, of=EARLY),),
        f"Jobs enqueued before and after the start of one worker, {TOGETHER * JOBS['async']:,} jobs",
    ),
    *(_failing(store) for store in ("postgres", "sqlite")),
    Part(
        "idle",
        "postgres",
        (IDLE,),
        idle,
        {"statements": "statements/s", "p50": "latency\np50 ms", "p99": "latency\np99 ms"},
        (Goal("statements", at_most=100.0, of=IDLE), Goal("p99", at_most=20.0, of=IDLE)),
        "32 idle worker processes",
    ),
)
