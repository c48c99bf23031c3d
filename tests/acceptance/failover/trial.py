"""Failovers under load, and the audit after them.

Three records do not depend on each other: the answers that producers have got, the executions of handlers, in a file
that no server knows of, and the tables of the server that is the primary in the end.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg

from redrive.stores.operations import checks
from tests.acceptance.processes import Deployment, WorkerProcess

HERE = Path(__file__).parent
WORK = (HERE / "work.py").read_text()
"""The app."""

WORKERS = 3
STREAMED = 1.0
"""Seconds in which an asynchronous standby has received a commit, on a busy machine."""

MANY = 1_000_000
"""Numbers of the calls of a producer."""

SETTLED = 60
"""Seconds after the last failover in which everything has ended; what is left then is held for ever."""

EFFECTS = {"tx": ("tx", "child"), "atx": ("atx",), "event": ("strict",)}
"""The rows that the handlers of a call write."""

RUNS = {"plain": ("plain",), "once": ("once",), "flow": ("end",), "event": ("batch", "flaky")}
"""The functions that run because of a call, besides those that write rows."""


class Cluster(Protocol):
    """What fails over.

    Attributes:
        name: its kind and its fault, for the table.
        loses: whether what was acknowledged in the last moment may be lost.
    """

    name: str
    loses: bool

    def url(self, site: int) -> str:
        """Return the URL of the database for the processes of one of two sites."""

    def connect(self) -> psycopg.Connection:
        """Open a connection to the primary."""

    def fail_over(self, meanwhile: Callable[[], None]) -> tuple[float, float, float]:
        """Let a fault happen, and another server take over.

        Return from when on that server lacks writes, when the fault happened, and when it served all processes. Where
        it serves the second site before the first one, `meanwhile` returns when that site has gone on.
        """

    def fence(self) -> None:
        """End the old primary, or let it continue as one that is none any more."""

    def rejoin(self) -> None:
        """Make the old primary the standby."""


# Feeders of subscriptions never end, and each second has a job of the cron.
HELD = """SELECT id, task, state, hold, reason FROM redrive.redrive_jobs
WHERE state = 'dead' OR state <> 'succeeded' AND task = ANY (%s)"""

BLAMED = """SELECT job_id, number, outcome, reason, error_type, error FROM redrive.redrive_attempts
WHERE outcome = 'lost' OR outcome = 'failed' AND error_type NOT LIKE '%%Wrong'"""


@dataclass
class Ledger:
    """The lines of the processes.

    Attributes:
        answers: the calls, as kind and number, by the answer, and when it came.
        runs: the executions by name and number: instant and process.
        acknowledged: for each producer, when its calls returned.
        worked: for each worker process, when its handlers began.
    """

    answers: dict[str, dict[tuple[str, int], float]] = field(default_factory=lambda: defaultdict(dict))
    runs: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    worked: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Read the file."""
        made = cls()
        path = folder / "executions.log"
        for line in path.read_text().splitlines() if path.exists() else ():
            kind, name, number, at, pid = line.split()
            if kind == "ran":
                made.runs[name, number].append(float(at))
                made.worked[int(pid)].append(float(at))
                continue
            made.answers[kind][name, int(number)] = float(at)
            if kind == "ack":
                made.acknowledged[int(pid)].append(float(at))
        return made

    def ran(self, name: str, number: int) -> bool:
        """Return True if a function has run for a call."""
        return (name, str(number)) in self.runs

    def is_done(self, rows: Counter[tuple], kind: str, number: int) -> bool:
        """Return True if everything has happened that follows from a call."""
        has_rows = all((each, number) in rows for each in EFFECTS.get(kind, ()))
        return has_rows and all(self.ran(each, number) for each in RUNS.get(kind, ()))

    def has_run(self, kind: str, number: int) -> bool:
        """Return True if something has happened that follows from a call."""
        return any(self.ran(each, number) for each in (*EFFECTS.get(kind, ()), *RUNS.get(kind, ())))

    def go_on(self, since: float) -> tuple[float, float, float]:
        """Return how many seconds after an instant all producers, the first worker and all workers have gone on."""
        workers = [_next(each, since) for each in self.worked.values()]
        return max(_next(each, since) for each in self.acknowledged.values()), min(workers), max(workers)


def _next(instants: Iterable[float], since: float) -> float:
    return min((each - since for each in instants if each > since), default=float("inf"))


def was_kept(instant: float, rounds: Iterable[tuple[float, float, float]]) -> bool:
    """Return True if what was written then has been on each later primary."""
    return not any(since - STREAMED <= instant <= served_at for since, _, served_at in rounds)


HEAD = (
    f"{'servers, fault':25}{'rounds':>7}{'acknowledged':>13}{'lost':>5}{'doubled':>8}{'skipped':>8}{'held':>5}"
    f"{'false deaths':>13}{'crons missed':>13}{'ran twice':>10}{'takeover':>9}{'callers':>8}{'worker':>7}{'workers':>8}"
)
"""The last columns are the longest seconds from a fault until another server serves, and from then on until all
callers, the first worker and all workers have gone on."""


@dataclass
class Report:
    """What the audit has found.

    Attributes:
        name: the cluster and the fault.
        loses: whether what was acknowledged in the last moment may be lost.
        rounds: the number of failovers.
        seconds: the longest ones, of the last columns.
        acknowledged: the calls that have returned.
        lost: those of them that have not run, or whose rows the primary lacks.
        doubled: the rows of handlers of which the primary has several.
        skipped: events that the primary has and that a subscription has not got.
        held: runs and other jobs of the primary that have not ended well.
        deaths: workers that others took for dead. No worker dies.
        missed: occurrences of a cron that never ran.
        refused: calls of which the error says that nothing was written, and that ran.
        blamed: attempts that are stored as failed or lost.
        twice: jobs of tasks with ``idempotent=False`` that ran twice.
        older: what was lost or ran twice although it was written before the last moment.
        findings: what ``redrive check`` finds.
    """

    name: str
    loses: bool
    rounds: int
    seconds: list[float]
    acknowledged: int
    lost: list[tuple[str, int]]
    doubled: list[tuple]
    skipped: list[int]
    held: list[tuple]
    deaths: list[str]
    missed: list[int]
    refused: list[tuple[str, int]]
    blamed: list[tuple]
    twice: list[int]
    older: list[object]
    findings: tuple[object, ...]

    def __str__(self) -> str:
        """Return a line of the table."""
        takeover, callers, worker, workers = self.seconds
        return (
            f"{self.name:25}{self.rounds:7}{self.acknowledged:13}{len(self.lost):5}{len(self.doubled):8}{len(self.skipped):8}"
            f"{len(self.held):5}{len(self.deaths):13}{len(self.missed):13}{len(self.twice):10}"
            f"{takeover:9.1f}{callers:8.1f}{worker:7.1f}{workers:8.1f}"
        )

    def broken(self) -> dict[str, str]:
        """Return the promises that are broken, with the first of what shows it."""
        rules: dict[str, Sequence[object]] = {
            "doubled": self.doubled,
            "skipped": self.skipped,
            "held": self.held,
            "false deaths": self.deaths,
            "crons missed": self.missed,
            "refused, but ran": self.refused,
            "attempts failed": self.blamed,
            "redrive check": self.findings,
            "older than the last moment": self.older,
        }
        if not self.loses:
            rules |= {"lost": self.lost, "ran twice": self.twice}
        return {name: str(found[:5]) for name, found in rules.items() if found}


class Trial:
    """Processes under load on a cluster that fails over."""

    def __init__(self, stage: Deployment, cluster: Cluster) -> None:
        self._stage = stage
        self._cluster = cluster
        self._rounds: list[tuple[float, float, float]] = []
        self._workers: list[WorkerProcess] = []
        self._producers: list[WorkerProcess] = []

    def run(self, rounds: int) -> Report:
        """Let the servers fail over some times, and return what the audit finds."""
        self._start()
        for _ in range(rounds):
            self._busy()
            self._rounds.append(self._cluster.fail_over(self._second_goes_on))
            self._gone_on()
            self._cluster.fence()
            self._cluster.rejoin()
        self._busy()
        (self._stage.folder / "enough").touch()
        assert {0} == {each.ended() for each in self._producers}
        self._settle()
        for each in self._workers:
            each.send(signal.SIGTERM)
        assert {0} == {each.ended() for each in self._workers}
        return self._audit()

    def _start(self) -> None:
        stage, cluster = self._stage, self._cluster
        stage.app.open()
        stage.app.topics.declare()
        with cluster.connect() as connection:
            connection.execute("CREATE TABLE public.effects (name text, number bigint)")
        for key in range(5):
            stage.module.fresh.track(f"k{key}")
        (stage.folder / "producer.py").write_text((HERE / "producer.py").read_text())
        command = ["-m", "redrive", "worker", "work:app", "--concurrency", "10"]
        self._workers = [self._process(min(number, 1), *command) for number in range(WORKERS)]
        for each in self._workers:
            stage.until(lambda each=each: each.logged("serves all queues"))
        self._producers = [
            self._process(number, "producer.py", str((number + 1) * MANY), colour)
            for number, colour in enumerate(("sync", "async"))
        ]

    def _process(self, site: int, *command: str) -> WorkerProcess:
        return self._stage.run("env", f"FAILOVER_URL={self._cluster.url(site)}", sys.executable, *command)

    def _ledger(self) -> Ledger:
        return Ledger.read(self._stage.folder)

    def _busy(self) -> None:
        """Wait until every process has done something anew, and the producers much."""
        began = time.time()

        def is_busy() -> bool:
            time.sleep(0.1)
            found = self._ledger()
            calls = [sum(each > began for each in instants) for instants in found.acknowledged.values()]
            return len(calls) == 2 and min(calls) > 20 and self._all_go_on(found, began)

        self._stage.until(is_busy)

    def _second_goes_on(self) -> None:
        """Wait until the producer and a worker of the second site have gone on."""
        began, (producer, worker) = time.time(), (self._producers[-1].popen.pid, self._workers[-1].popen.pid)

        def is_working() -> bool:
            found = self._ledger()
            return max(_next(found.acknowledged[producer], began), _next(found.worked[worker], began)) < float("inf")

        self._stage.until(is_working)

    def _all_go_on(self, found: Ledger, since: float) -> bool:
        return len(found.worked) == WORKERS and max(found.go_on(since)) < float("inf")

    def _gone_on(self) -> None:
        """Wait until every process has gone on after the failover."""
        self._stage.until(lambda: self._all_go_on(self._ledger(), self._rounds[-1][-1]))

    def _settle(self) -> None:
        """Wait until nothing is left to do, or until what is left is held for ever."""
        deadline = time.monotonic() + SETTLED
        while time.monotonic() < deadline and (self._held() or self._skipped(self._ledger()) or not self._is_fresh()):
            time.sleep(0.2)
        assert self._is_fresh()

    def _is_fresh(self) -> bool:
        since = self._rounds[-1][-1]
        return all(max(instants) > since for (name, _), instants in self._ledger().runs.items() if name == "fresh")

    def _held(self) -> list[tuple]:
        return self._ask(HELD, ["plain", "once", "child", "tx", "atx", "flow"])

    def _ask(self, statement: str, *parameters: object) -> list[tuple]:
        with self._cluster.connect() as connection:
            return connection.execute(statement, parameters).fetchall()

    def _skipped(self, ledger: Ledger) -> list[int]:
        events = self._ask("SELECT convert_from(payload, 'UTF8')::bigint FROM redrive.redrive_events")
        written = {number for (number,) in self._ask("SELECT number FROM public.effects WHERE name = 'strict'")}
        return [
            each
            for (each,) in events
            if each not in written or not all(ledger.ran(name, each) for name in RUNS["event"])
        ]

    def _audit(self) -> Report:
        ask, ledger = self._ask, self._ledger()
        effects = Counter(ask("SELECT name, number FROM public.effects"))
        ticks = [int(number) for name, number in ledger.runs if name == "tick"]
        done = {call for calls in ledger.answers.values() for call in calls if ledger.is_done(effects, *call)}
        lost = {call: at for call, at in ledger.answers["ack"].items() if call not in done}
        twice = {int(number): each[0] for (name, number), each in ledger.runs.items() if name == "once" and each[1:]}
        seconds = [(served_at - at, *ledger.go_on(served_at)) for _, at, served_at in self._rounds]
        return Report(
            name=self._cluster.name,
            loses=self._cluster.loses,
            rounds=len(self._rounds),
            seconds=[max(each) for each in zip(*seconds, strict=True)],
            acknowledged=len(ledger.answers["ack"]),
            lost=sorted(lost),
            doubled=[each for each, count in effects.items() if count > 1],
            skipped=self._skipped(ledger),
            held=self._held(),
            deaths=[
                line for each in self._workers for line in each.log.read_text().splitlines() if " is dead: " in line
            ],
            missed=sorted(set(range(min(ticks), max(ticks))) - set(ticks)),
            refused=[each for each in ledger.answers["refused"] if ledger.has_run(*each)],
            blamed=ask(BLAMED),
            twice=sorted(twice),
            older=[each for each, at in (*lost.items(), *twice.items()) if was_kept(at, self._rounds)],
            findings=self._stage.app.store.run(checks.check()).findings,
        )
