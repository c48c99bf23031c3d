"""Invariants that hold after each transaction and after each start of a handler, whatever the faults.

The observer keeps two independent records: the rows of the database before and after each commit, and a ledger of
acknowledgements to clients and of executions of handlers. Each invariant has a name; `NAMES` gives its meaning."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import Kind
from redrive.stores.query import Query
from redrive.stores.values.sqlite import to_micros
from tests.simulation.faults import AT_MOST_ONCE
from tests.simulation.product import LIMIT, LIMITED
from tests.simulation.scheduler import Process

__all__ = ["NAMES", "Observations", "Observer", "Violation", "reader"]

NAMES = {
    "acknowledged_job_lost": "a job that a client was acknowledged stays in the database",
    "two_leases": "a lease is granted once, and only to a job that has no other lease",
    "stale_write": "a write under a lease that is not current changes nothing",
    "lease_taken_early": "a lease ends before its time only where its worker has died",
    "attempt_gap": "attempts are numbered from 1 without a gap",
    "ended_twice": "a job ends once; after that, only an operator starts it again",
    "unique_key": "of the unfinished jobs of a task, one has a key",
    "limit_exceeded": "of a limited queue, no more handlers run than its limit, cancelled ones included",
    "started_twice": "a task with idempotent=False starts once",
    "cron_fired_twice": "an occurrence of a cron makes one job",
    "cron_silent": "a cron fires while a worker is there",
    "effect_doubled": "writes in ctx.transaction() exist once if the job succeeded, and not otherwise",
    "success_without_run": "a job succeeds only under a lease with a handler that returned",
    "not_drained": "when the faults stop, all jobs end",
    "worker_died": "a worker ends only when it is stopped or killed",
    "free_loop": "no job runs again and again without spending attempts",
    "inconsistent": "App.database.verify() finds nothing",
    "worker_unknown": "a worker that runs is in the database under an id of its own",
    "step_hole": "a step of a run is recorded behind the steps before it",
    "turn_hole": "a turn of a feeder is written behind the turn before it",
    "event_skipped": "each event is delivered to each subscription",
    "write_doubled": "writes in a transaction with a delivery or a step exist once if that is recorded, or not at all",
    "run_failed": "a run does not fail because of the database",
    # Where no fault can break them:
    "false_loss": "an attempt is declared lost only where its worker was killed or frozen",
    "write_lost": "what a handler has written before its success is there if its success is",
    "overlap": "two handlers of one job do not run side by side in healthy processes",
    "stop_hangs": "a worker that is stopped ends",
    "early_cron": "an occurrence is not fired before its time",
    "slow_transaction": "a short ctx.transaction() ends soon, however many handlers want one",
}

MOST_STARTS = 40
"""Starts of one job's handler after which it is not making progress; a correct one has less than ten."""

SLACK = 2.0
"""Seconds for which a handler may run on after another worker has started the job: the cancellation is on its way."""

_JOBS = """
    SELECT id, state, lease_id, worker_id, attempt, task, key, queue, origin, reason FROM redrive_jobs
"""
_LEASES = """
    SELECT lease_id FROM redrive_jobs UNION SELECT success_lease_id FROM redrive_jobs
    UNION SELECT lease_id FROM redrive_attempts
"""
_PROGRESS = "SELECT job_id, lease_id, details, at FROM redrive_progress"
_WORKERS = "SELECT id, pid, expires_at, stopped_at FROM redrive_workers"

_ENDS_LEASES = frozenset({
    "sweep", "cancel", "cancel_all", "leave", "forsake", "renew", "fire", "trigger", "lapse", "answer",
})  # fmt: skip
"""Operations that end leases which they do not name."""
_GIVES_BACK = frozenset({"settle", "leave", "forsake", "renew", "claim"})
_STARTS_AGAIN = frozenset({"redrive", "retry"})


class Row(NamedTuple):
    """A job with the columns that the invariants need."""

    id: int
    state: str
    lease: int | None
    worker: int | None
    attempt: int
    task: str
    key: str | None
    queue: str
    origin: str | None
    reason: str | None

    @property
    def has_flow(self) -> bool:
        """True for a run, a feeder and a delivery, whose handlers `flows` has."""
        return self.origin is not None and self.origin.startswith((Kind.RUN, Kind.TOPIC))


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold.

    Attributes:
        name: a key of `NAMES`.
        text: which job, and what was seen.
        at: seconds of virtual time.
    """

    name: str
    text: str
    at: float

    def __str__(self) -> str:
        """Write it as one line."""
        return f"{self.name} at {self.at:.3f} s: {self.text} ({NAMES[self.name]})"


@dataclass
class Start:
    """One start of a handler."""

    job: int
    lease: int
    process: Process
    at: float
    ended: float | None = None
    returned: bool = False


@dataclass
class Observations:
    """The facts that are visible outside of the database.

    Attributes:
        acknowledged: ids of jobs, by their number in the plan.
        starts: starts of handlers, by job.
        lost: jobs, events and runs that failovers have lost although their clients had an answer.
        kept: those that are in the database in the end."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    starts: dict[int, list[Start]] = field(default_factory=lambda: defaultdict(list))
    lost: int = 0
    kept: int = 0


class Observer:
    """Compares the database before and after each commit.

    Args:
        simulation: that it belongs to.
        read: runs a statement on a connection of the observer, and returns the rows.
    """

    def __init__(self, simulation: Any, read: Callable[[str], list[Any]]) -> None:
        self._simulation = simulation
        self._read = read
        self._strict = simulation.profile.strict
        self.ledger = Observations()
        self.jobs: dict[int, Row] = {}
        self._raw: dict[int, tuple[Any, ...]] = {}
        self._workers: dict[int, tuple[Any, ...]] = {}
        self._granted: dict[int, int] = {}
        self._cancelled: dict[int, int | None] = {}
        self._origins: set[str] = set()
        self._progress: dict[int, tuple[Any, ...]] = {}

    def violated(self, name: str, text: str) -> None:
        """Note that an invariant does not hold; the first one ends the simulation."""
        self._simulation.violated(Violation(name, text, self._simulation.scheduler.now))

    # ---------------------------------------------------------------- after each commit

    def committed(self, process: Process, queries: Sequence[tuple[str, Query]]) -> None:
        """Check the changes of a transaction of this process."""
        operations = frozenset(name for name, _ in queries)
        named = _leases(query for name, query in queries if name not in _ENDS_LEASES)
        stale = self._stale_reports(query for _, query in queries)
        rows = self._read(_JOBS)
        if len(rows) < len(self._raw):
            self.violated("acknowledged_job_lost", f"{len(self._raw) - len(rows)} rows were deleted")
        changed = [Row._make(row) for row in rows if self._raw.get(row[0]) != row]
        for new in changed:
            old = self.jobs.get(new.id)
            if old is None:
                self._appeared(new, operations)
            else:
                self._moved(old, new, operations, named, process)
            self.jobs[new.id] = new
            self._raw[new.id] = tuple(new)
        if changed:
            self._count()
        if any(query.name == "progress_put" for _, query in queries):
            self._reported(stale)
        self._workers = {row[0]: row for row in self._read(_WORKERS)}

    def replaced(self) -> None:
        """Begin again from what the database has, because another server has taken over.

        Its sequences have gone back too: what was known of a job or lease that it does not have is of no meaning.
        """
        rows = [Row._make(row) for row in self._read(_JOBS)]
        self.jobs = {row.id: row for row in rows}
        self._raw = {row.id: tuple(row) for row in rows}
        self._workers = {row[0]: row for row in self._read(_WORKERS)}
        self._origins = {row.origin for row in rows if row.origin is not None}
        self._progress = {row[0]: row for row in self._read(_PROGRESS)}
        leases = {lease for (lease,) in self._read(_LEASES)}
        self._granted = {lease: job for lease, job in self._granted.items() if lease in leases}
        for starts in self.ledger.starts.values():
            starts[:] = [start for start in starts if start.lease in leases]
        lost = [number for number, job in self.ledger.acknowledged.items() if job not in self.jobs]
        for number in lost:
            del self.ledger.acknowledged[number]
        self.ledger.lost += len(lost)

    def registered(self) -> dict[int, int]:
        """Return the process of each worker that has not left, by its id."""
        return {number: pid for number, pid, _, stopped_at in self._workers.values() if stopped_at is None}

    def _appeared(self, new: Row, operations: frozenset[str]) -> None:
        if new.lease is not None and new.attempt == 1 and "claim" in operations:  # one commit for both
            self._granted[new.lease] = new.id
        elif (new.attempt or new.state != State.READY) and not new.has_flow:
            self.violated("attempt_gap", f"job {new.id} appeared {new.state} with attempt {new.attempt}")
        if new.origin is None or not new.origin.startswith(Kind.CRON):
            return
        if new.origin in self._origins:
            self.violated("cron_fired_twice", f"job {new.id} is for {new.origin}, which has a job")
        self._origins.add(new.origin)
        if "early_cron" in self._strict:
            instant = new.origin.rpartition("/")[2]
            now = self._simulation.scheduler.time(self._simulation.truth).isoformat()
            if instant.rstrip("Z") > now:
                self.violated("early_cron", f"{new.origin} was fired at {now}")

    def _moved(self, old: Row, new: Row, operations: frozenset[str], named: frozenset[int], process: Process) -> None:
        if old.state in FINAL and new.state != old.state and not operations & _STARTS_AGAIN:
            self.violated("ended_twice", f"job {old.id} was {old.state} and became {new.state} by {_named(operations)}")
        if old.state == State.RUNNING and new.state == State.CANCELLED and old.lease not in named:
            self._cancelled[old.lease or 0] = old.worker
        if old.lease is not None and new.lease != old.lease and old.lease not in named:
            if not operations & _ENDS_LEASES:
                text = f"job {old.id}: lease {old.lease} was ended by {_named(operations)} under {sorted(named)}"
                self.violated("stale_write", text)
            elif "sweep" in operations:
                self._swept(old, new, process)
        ended = old.state == State.READY and new.state in (State.SUCCEEDED, State.DEAD)
        if ended and "claim" not in operations:
            self.violated("stale_write", f"job {old.id} became {new.state} without a lease by {_named(operations)}")
        if new.lease is not None and new.lease != old.lease:
            self._claimed(old, new, operations, named)
        elif new.attempt not in (old.attempt, old.attempt - (old.lease is not None)):
            self.violated("attempt_gap", f"job {old.id}: attempt {old.attempt} became {new.attempt}")

    def _claimed(self, old: Row, new: Row, operations: frozenset[str], named: frozenset[int]) -> None:
        assert new.lease is not None
        if new.lease in self._granted:
            self.violated(
                "two_leases", f"lease {new.lease} was granted to jobs {self._granted[new.lease]} and {new.id}"
            )
        self._granted[new.lease] = new.id
        if old.lease is not None and old.lease not in named and not operations & _ENDS_LEASES:
            self.violated("two_leases", f"job {new.id} got lease {new.lease} while it had {old.lease}")
        given_back = old.lease is not None and operations & _GIVES_BACK
        if new.attempt != old.attempt + 1 and not (given_back and new.attempt == old.attempt):
            self.violated("attempt_gap", f"job {new.id}: a claim made attempt {new.attempt} of {old.attempt}")

    def _swept(self, old: Row, new: Row, process: Process) -> None:
        """Check that the worker of a swept lease was silent for long enough, or dead."""
        _, pid, expires_at, stopped_at = self._workers.get(old.worker or 0, (0, None, 0, 0))
        holder = self._simulation.by_pid(pid)
        now = to_micros(self._simulation.database_time(process))
        alive = holder is not None and not holder.dead
        if stopped_at is None and expires_at > now and alive:
            text = f"job {old.id}: lease {old.lease} of {holder.name} was taken {(expires_at - now) / 1e6:.3f} s early"
            self.violated("lease_taken_early", text)
        if "false_loss" in self._strict and alive and not self._simulation.was_frozen(holder):
            text = f"job {old.id}: lease {old.lease} was taken from {holder.name}, which is healthy; now {new.state}"
            self.violated("false_loss", f"{text}, {new.reason}")

    def _count(self) -> None:
        running = [row for row in self.jobs.values() if row.queue == LIMITED and row.state == State.RUNNING]
        if len(running) > LIMIT:
            self.violated(
                "limit_exceeded", f"{len(running)} of {LIMIT} are running: jobs {[row.id for row in running]}"
            )
        keys = Counter((row.task, row.key) for row in self.jobs.values() if row.key and row.state not in FINAL)
        for (task, key), count in keys.items():
            if count > 1:
                self.violated("unique_key", f"{count} unfinished jobs of {task} have the key {key}")

    def _stale_reports(self, queries: Iterable[Query]) -> dict[int, int]:
        """Collect the reports of attempts that had lost their job before this transaction: lease by job."""
        reports = [params for query in queries if query.name == "progress_put" for params in query.many or ()]
        current = {job: row.lease for job, row in self.jobs.items()}
        fresh = {each["job_id"] for each in reports if current.get(each["job_id"]) == each["lease_id"]}
        return {each["job_id"]: each["lease_id"] for each in reports if each["job_id"] not in fresh}

    def _reported(self, stale: dict[int, int]) -> None:
        for row in self._read(_PROGRESS):
            lease = stale.get(row[0])
            if lease is not None and lease != self.jobs[row[0]].lease and self._progress.get(row[0]) != row:
                text = f"job {row[0]}: lease {lease} wrote its progress; current is {self.jobs[row[0]].lease}"
                self.violated("stale_write", text)
            self._progress[row[0]] = row

    # ---------------------------------------------------------------- after each start of a handler

    def started(self, job: int, lease: int, process: Process) -> Start:
        """Note that a handler starts."""
        now = self._simulation.scheduler.now
        start = Start(job, lease, process, now)
        if lease not in self._granted:
            return start  # a failover has lost its claim
        starts = self.ledger.starts[job]
        row = self.jobs[job]
        if row.task == AT_MOST_ONCE and starts:
            self.violated("started_twice", f"job {job} was started in {starts[0].process.name} and {process.name}")
        if len(starts) >= MOST_STARTS:
            self.violated("free_loop", f"job {job} was started {len(starts)} times and is at attempt {row.attempt}")
        starts.append(start)
        if row.queue == LIMITED:
            self._running(job)
        return start

    def _running(self, job: int) -> None:
        running = [
            each.job
            for starts in self.ledger.starts.values()
            for each in starts
            if each.ended is None
            and not each.process.dead
            and self.jobs[each.job].queue == LIMITED
            and (self.jobs[each.job].lease == each.lease or self._is_registered(self._cancelled.get(each.lease)))
        ]
        if len(running) > LIMIT:
            self.violated("limit_exceeded", f"with job {job}, {len(running)} handlers run: {running}")

    def _is_registered(self, worker: int | None) -> bool:
        """Return True if the worker has not left and was not struck off."""
        row = self._workers.get(worker or 0)
        return row is not None and row[3] is None

    def overlapping(self) -> None:
        """Check that no two handlers of one job run side by side in healthy processes."""
        now = self._simulation.scheduler.now
        for job, starts in self.ledger.starts.items():
            open_ones = [each for each in starts if each.ended is None and not each.process.dead]
            if len(open_ones) > 1 and now - open_ones[-1].at > SLACK:
                where = ", ".join(f"{each.process.name} since {each.at:.3f} s" for each in open_ones)
                self.violated("overlap", f"job {job} runs in {where}")

    # ---------------------------------------------------------------- at the end

    def finished(self) -> None:
        """Check the final state of the fleet."""
        for number, job in self.ledger.acknowledged.items():
            if job not in self.jobs:
                self.violated("acknowledged_job_lost", f"job {job}, enqueued by step #{number}")
        self.ledger.kept += len(self.ledger.acknowledged)
        self._history()
        effects = Counter(job for (job,) in self._read("SELECT job_id FROM effects"))
        for row in self.jobs.values():
            wanted = int(row.state == State.SUCCEEDED)
            if row.task == "booked" and effects[row.id] != wanted:
                self.violated("effect_doubled", f"job {row.id} is {row.state} and wrote {effects[row.id]} rows")

    def _history(self) -> None:
        last: dict[int, tuple[int, str]] = {}
        statement = "SELECT job_id, lease_id, number, outcome FROM redrive_history ORDER BY job_id, lease_id"
        for job, lease, number, outcome in self._read(statement):
            before, how = last.get(job, (0, ""))
            if number != before + 1 and not (how in ("snoozed", "released") and number == before):
                self.violated("attempt_gap", f"job {job}: attempt {number} follows {before}")
            if how == "succeeded":
                self.violated("ended_twice", f"job {job} has an attempt after the one that succeeded")
            returned = any(each.lease == lease and each.returned for each in self.ledger.starts[job])
            if outcome == "succeeded" and not returned and not self.jobs[job].has_flow:
                self.violated("success_without_run", f"job {job} succeeded under lease {lease}")
            last[job] = number, outcome


def _leases(queries: Iterable[Query]) -> frozenset[int]:
    """Collect the leases under which statements write."""
    found: set[int] = set()
    for query in queries:
        if query.name in ("settle", "suspend"):
            found.update(params["lease_id"] for params in query.many or ())
        elif query.name == "complete":
            found.add(query.params["lease_id"])
        elif query.name == "settle_succeeded":
            found.update(query.params["lease_ids"])
        elif query.name == "worker_release" and query.params["leases"]:
            found.update(query.params["leases"])
    return frozenset(found)


def _named(operations: Iterable[str]) -> str:
    return " + ".join(sorted(operations)) or "an unknown operation"


def reader(connection: sqlite3.Connection) -> Callable[[str], list[Any]]:
    """Make the function by which an observer reads a database."""
    cursor = sqlite3.Connection.cursor(connection, sqlite3.Cursor)
    return lambda statement: cursor.execute(statement).fetchall()
