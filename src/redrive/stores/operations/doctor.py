"""The state of a database and its workers, and what in it needs a person. PURE.

`examine` reads all of it from one snapshot, by indexes; `diagnose` decides. Unlike `redrive.stores.operations.checks`,
which looks for rows that the engine cannot have written, this is about operation: what is not served, stuck or late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.engine.commands import command
from redrive.engine.explain import span
from redrive.engine.lifecycle import State
from redrive.engine.machine import StrandedCount
from redrive.engine.records import Count, Diagnosis, Hold, Severity, WorkerRecord
from redrive.engine.settle import CATCH_STUCK_AFTER
from redrive.stores.operations.machines.rows import Known
from redrive.stores.operations.queues import Depth, DepthState, QueueLimits, read_depths
from redrive.stores.query import Query, Statements, reads

# The time for which a job may be due while workers live.
LATE = timedelta(minutes=5)

# The time after the end of a lease in which a living worker has given the jobs back.
SWEPT = timedelta(minutes=1)

# Catch jobs and held runs that are read at most.
READ = 1_000

# Crons that start next.
STARTS = 5

# The time for which the event loop of a worker may not run, and after which health probes restart the worker.
BLOCKED = timedelta(seconds=10)

# Runs that are named one by one.
LISTED = 10

# Of the oldest PostgreSQL that is supported.
POSTGRES = 140_000


class StuckCatch(msgspec.Struct, frozen=True, gc=False):
    """A catch job that fails again and again."""

    id: int
    task: str
    parent_id: int
    failures: int


class FailedInstances(msgspec.Struct, frozen=True, gc=False):
    """The instances of a machine with a transition that has failed."""

    machine: str
    number: int
    key: str  # the smallest one


class HeldRun(msgspec.Struct, frozen=True, gc=False):
    """A run that is held because the code does not fit its recorded steps."""

    workflow: str
    id: str
    why: str | None
    since: datetime | None


class UnreadableJobs(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a task that wait because no worker can decode their arguments, or their policy.

    Attributes:
        hold: what cannot be decoded.
        number: of those among the first `READ` jobs that wait so.
        id: the smallest one.
        since: when the first of them could not be decoded.
    """

    task: str
    hold: Hold
    number: int
    id: int
    since: datetime | None


class UndoneInPart(msgspec.Struct, frozen=True, gc=False):
    """A run that has ended, with steps that were not undone."""

    job_id: int
    workflow: str
    id: str
    steps: str


class RunningBulk(msgspec.Struct, frozen=True, gc=False):
    """A bulk operation that has not ended.

    Attributes:
        read: jobs that were changed or kept so far.
        matched: jobs that matched at the preview; None if they were too many to be counted.
        rate: such as ``100/s``; None for no limit.
        last_error: why its last batch failed; None if it has not.
    """

    id: int
    action: str
    read: int
    matched: int | None
    rate: str | None
    last_error: str | None


class NextStart(msgspec.Struct, frozen=True, gc=False):
    """The next occurrence of a cron.

    Attributes:
        job_id: the job that it created last; None if there is none.
        state: of that job; None if it was deleted.
    """

    name: str
    at: datetime
    job_id: int | None
    state: State | None


class DeadTopic(msgspec.Struct, frozen=True, gc=False):
    """A subscription that publishes its dead events.

    Attributes:
        task: of the subscription; also its queue.
        readers: the subscriptions of the topic.
    """

    task: str
    topic: str
    readers: int


class _Fact(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``vitals``."""

    kind: str
    id: int | None
    name: str | None
    key: str | None
    text: str | None
    number: int | None
    other: int | None
    at: datetime | None


class Vitals(msgspec.Struct, frozen=True, gc=False):
    """What `diagnose` decides on, from one snapshot.

    Attributes:
        server: facts about the database, by name.
        busy: the attempts that each worker runs, by its id.
        settings: those of the queues.
        lanes: the queues that are not paused, with the tasks of their ready jobs.
        starts: the crons that start next.
    """

    now: datetime
    server: Mapping[str, str | None] = {}
    workers: tuple[WorkerRecord, ...] = ()
    busy: Mapping[int, int] = {}
    depths: tuple[Depth, ...] = ()
    settings: tuple[QueueLimits, ...] = ()
    lanes: tuple[tuple[str, str], ...] = ()
    catches: tuple[StuckCatch, ...] = ()
    failed: tuple[FailedInstances, ...] = ()
    stranded: tuple[StrandedCount, ...] = ()
    held: tuple[HeldRun, ...] = ()
    unreadable: tuple[UnreadableJobs, ...] = ()
    in_effect: tuple[UndoneInPart, ...] = ()
    operations: tuple[RunningBulk, ...] = ()
    starts: tuple[NextStart, ...] = ()
    dead_topics: tuple[DeadTopic, ...] = ()

    @property
    def alive(self) -> list[WorkerRecord]:
        """The workers with a lease that has not ended."""
        return [worker for worker in self.workers if worker.expires_at > self.now]

    def jobs(self, state: DepthState) -> dict[str, Depth]:
        """Return the queues that have jobs in a state."""
        return {each.queue: each for each in self.depths if each.standing is state and each.jobs}

    @property
    def paused(self) -> dict[str, datetime]:
        """Since when queues are paused."""
        return {each.name: each.paused_at for each in self.settings if each.paused_at is not None}

    @property
    def unserved(self) -> dict[str, Depth]:
        """The queues with due jobs that no live worker serves, although they are not paused."""
        alive, paused = self.alive, self.paused
        due = self.jobs(DepthState.DUE)
        return {
            name: each
            for name, each in sorted(due.items())
            if name not in paused and not any(worker.serves(name) for worker in alive)
        }

    @property
    def stopped(self) -> dict[str, Depth]:
        """The paused queues with jobs that wait: the due ones, or else the later ones."""
        due, later = self.jobs(DepthState.DUE), self.jobs(DepthState.LATER)
        found = {name: due.get(name) or later.get(name) for name in sorted(self.paused)}
        return {name: each for name, each in found.items() if each is not None}


@reads
def examine(now: datetime | None = None, *, machines: Known | None = None) -> Statements[Vitals]:
    """Read the state of the database and its workers; ``machines`` are those of the code."""
    facts: dict[str, list[Any]] = defaultdict(list)
    given = {"now": now, "failures": CATCH_STUCK_AFTER, "count": READ, "starts": STARTS}
    for fact in (yield Query("vitals", given, into=_Fact)):
        facts[fact.kind].append(fact)
    at = facts["clock"][0].at
    workers: Sequence[WorkerRecord] = yield Query("workers", into=WorkerRecord)
    depths = yield from read_depths(at)
    settings = yield from _limits(None, at)
    stranded: Sequence[StrandedCount] = ()
    if machines is not None and machines.machines:
        stranded = yield Query("machines_stranded", machines.params(), into=StrandedCount)
    return Vitals(
        at,
        {each.name: each.text for each in facts["server"]},
        tuple(workers),
        {each.id: each.number for each in facts["busy"]},
        depths,
        settings,
        tuple((each.name, each.key) for each in facts["lane"]),
        tuple(StuckCatch(each.id, each.name, each.other, each.number) for each in facts["catch"]),
        tuple(FailedInstances(each.name, each.number, each.key) for each in facts["machine"]),
        tuple(stranded),
        tuple(HeldRun(each.name, each.key, each.text, each.at) for each in facts["run"]),
        tuple(UnreadableJobs(each.name, Hold(each.key), each.number, each.id, each.at) for each in facts["unreadable"]),
        tuple(UndoneInPart(each.id, each.name, each.key, each.text) for each in facts["undo"]),
        tuple(
            RunningBulk(each.id, each.name, each.number, each.other, each.key, each.text) for each in facts["operation"]
        ),
        tuple(
            NextStart(each.name, each.at, each.id, None if each.text is None else State(each.text))
            for each in facts["start"]
        ),
        tuple(DeadTopic(each.name, each.key, each.number) for each in facts["letters"]),
    )


@reads
def waiting(depths: Sequence[Depth], at: datetime) -> Statements[Vitals]:
    """Read what `queues` decides on about due jobs."""
    due = tuple(each for each in depths if each.standing is DepthState.DUE)
    workers: Sequence[WorkerRecord] = yield Query("workers", into=WorkerRecord)
    return Vitals(
        at, workers=tuple(workers), depths=due, settings=(yield from _limits(sorted({each.queue for each in due}), at))
    )


def _limits(names: Sequence[str] | None, at: datetime) -> Statements[tuple[QueueLimits, ...]]:
    return tuple((yield Query("queue_limits", {"names": names, "now": at}, into=QueueLimits)))


def diagnose(found: Vitals, tasks: Collection[str], version: str, *, app: str = "APP") -> list[Diagnosis]:
    """Return the state of each part, with what to do.

    Args:
        found: from `examine`.
        tasks: the names under which the code can run jobs.
        version: of this redrive.
        app: the name of the app in commands.
    """
    return [
        *_server(found),
        *_workers(found, version, app),
        *_leases(found, app),
        *queues(found, app),
        *_tasks(found, tasks, app),
        *_oldest(found, app),
        *_catches(found, app),
        *_held(found, app),
        *_unreadable(found, app),
        *_in_effect(found, app),
        *_dead(found, app),
        *_machines(found, app),
        *_operations(found, app),
    ]


def _operations(found: Vitals, app: str) -> Iterator[Diagnosis]:
    for each in found.operations:
        if each.last_error is None:
            continue
        text = f"a batch of operation {each.id} ({each.action}) fails, and is tried again: {each.last_error}"
        advice = f"{command('operations show', app, str(each.id))}, or {command('operations stop', app, str(each.id))}"
        yield Diagnosis("operations", Severity.PROBLEM, text, advice)


def _server(found: Vitals) -> Iterator[Diagnosis]:
    facts = found.server
    mode = facts.get("journal_mode")
    if mode is not None and mode.lower() not in {"wal", "memory"}:
        text = f"the journal mode of the file is {mode}: readers and the writer block each other"
        advice = "stop the program that changed it, and restart the workers: redrive sets journal_mode=wal"
        yield Diagnosis("settings", Severity.PROBLEM, text, advice)
    number = facts.get("version_number")
    if number is not None and int(number) < POSTGRES:
        text = f"the server is PostgreSQL {facts.get('version')}"
        yield Diagnosis("settings", Severity.PROBLEM, text, "redrive needs PostgreSQL 14 or newer: upgrade the server")
    if facts.get("read_only") == "on":
        text = "the database is read-only: no job can be enqueued or run"
        yield Diagnosis("settings", Severity.PROBLEM, text, "connect to the primary server, not to a standby")
    if facts.get("synchronous_commit") == "off":
        text = "synchronous_commit is off: a crash of the server loses the jobs of its last moments"
        yield Diagnosis("settings", Severity.NOTE, text, "leave ?synchronous_commit=off out of the URL")


def _workers(found: Vitals, version: str, app: str) -> Iterator[Diagnosis]:
    alive, due = found.alive, found.jobs(DepthState.DUE)
    if not alive:
        severity = Severity.PROBLEM if due else Severity.NOTE
        text = "no worker is alive" + (", and jobs are due" if due else "")
        yield Diagnosis("workers", severity, text, command("worker", app))
        return
    versions = sorted({worker.version or "unknown" for worker in alive})
    number = "1 worker is" if len(alive) == 1 else f"{len(alive)} workers are"
    text = f"{number} alive, of version {', '.join(versions)}"
    if versions == [version]:
        yield Diagnosis("workers", Severity.OK, text)
    else:
        yield Diagnosis("workers", Severity.NOTE, f"{text}; this is {version}", "finish the deployment")
    for worker in alive:
        yield from stuck(worker, app)
    yield from _builds(alive)


def stuck(worker: WorkerRecord, app: str) -> Iterator[Diagnosis]:
    """Yield why a live worker does not do its work."""
    name = f"worker {worker.id} ({worker.name})"
    shows = f"{command('workers show', app, str(worker.id))} has its jobs"
    if worker.trouble is not None:
        text = f"{name} is in trouble: {worker.trouble}"
        yield Diagnosis("workers", Severity.PROBLEM, text, "read its log, and restart it")
    if worker.loop_lag_for is not None and worker.loop_lag_for >= BLOCKED:
        text = f"the event loop of {name} is blocked since {span(worker.loop_lag_for)}"
        advice = f"{shows}: an async def handler blocks it; make that a def, which runs in a thread, and restart it"
        yield Diagnosis("workers", Severity.PROBLEM, text, advice)
    if worker.unstopped:
        goes = (
            "1 handler that goes on after its attempt has"
            if worker.unstopped == 1
            else (f"{worker.unstopped} handlers that go on after their attempts have")
        )
        advice = f"{shows}: they ignore cancellation or their time limit, and keep their threads until it is restarted"
        yield Diagnosis("workers", Severity.NOTE, f"{name} has {goes} ended", advice)


def present_build(workers: Sequence[WorkerRecord]) -> str | None:
    """Return the build of the worker that started last; None if no worker has one."""
    return max(((each.started_at, each.id, each.build) for each in workers if each.build), default=(None,))[-1]


def _builds(alive: Sequence[WorkerRecord]) -> Iterator[Diagnosis]:
    present = present_build(alive)
    old = [each for each in alive if each.build is not None and each.build != present]
    if old:
        names = ", ".join(f"{each.name} ({each.build})" for each in old[:LISTED])
        more = "" if len(old) <= LISTED else f" and {len(old) - LISTED} more"
        run = "1 worker runs" if len(old) == 1 else f"{len(old)} workers run"
        text = f"{run} other code than the build {present}, which started last: {names}{more}"
        yield Diagnosis("workers", Severity.NOTE, text, "finish the deployment, or restart them")


def _leases(found: Vitals, app: str) -> Iterator[Diagnosis]:
    living = {worker.id for worker in found.alive}
    known = {worker.id: worker for worker in found.workers}
    for number, count in sorted(found.busy.items()):
        if number in living:
            continue
        silent = None if number not in known else found.now - known[number].expires_at
        since = "has left" if silent is None else f"lost its lease {span(silent)} ago"
        is_late = silent is None or not living or silent > SWEPT
        advice = "a worker that is alive gives them back" if living else f"{command('worker', app)} gives them back"
        severity = Severity.PROBLEM if is_late else Severity.NOTE
        jobs = "1 job" if count == 1 else f"{count} jobs"
        yield Diagnosis("leases", severity, f"worker {number} {since}, and still has {jobs}", advice)


def queues(found: Vitals, app: str) -> Iterator[Diagnosis]:
    """Return the queues with jobs that wait for an operator, a worker or a rate."""
    due, paused = found.jobs(DepthState.DUE), found.paused
    # Without a live worker there is another finding.
    for queue, each in found.unserved.items() if found.alive else ():
        text = f"no live worker serves queue {queue!r}, which has {_due(each, found.now)}"
        yield Diagnosis("queues", Severity.PROBLEM, text, command("worker", app, queue=queue))
    for queue, waiting in found.stopped.items():
        jobs = _due(waiting, found.now) if queue in due else f"{_count(waiting)} waiting"
        text = f"queue {queue!r} is paused since {span(found.now - paused[queue])}, and has {jobs}"
        yield Diagnosis("queues", Severity.PROBLEM, text, command("queues resume", app, queue))
    for limits in found.settings:
        name, next_at = limits.name, limits.next_at
        if name in due and name not in paused and next_at is not None and next_at > found.now:
            text = f"queue {name!r} has reached its rate {limits.rate}, and has {_due(due[name], found.now)}"
            advice = f"{command('queues limit', app, name, rate='none')}, or a higher one"
            yield Diagnosis("queues", Severity.NOTE, text, advice)


def lacking(found: Vitals, tasks: Collection[str]) -> dict[str, list[str]]:
    """Return the queues with ready jobs of each task that no worker of the queue has."""
    names: dict[str, list[str]] = defaultdict(list)
    for queue, task in found.lanes:
        serving = [worker for worker in found.alive if worker.serves(queue)]
        # Without a worker of the queue, which is a finding of its own, the present code stands for it.
        if not (any(worker.serves(queue, task) for worker in serving) if serving else task in tasks):
            names[task].append(queue)
    return names


def _tasks(found: Vitals, tasks: Collection[str], app: str) -> Iterator[Diagnosis]:
    for task, queues in sorted(lacking(found, tasks).items()):
        place = f"queue {queues[0]!r}" if len(queues) == 1 else f"queues {', '.join(map(repr, queues))}"
        if task in tasks:
            text = f"no live worker of {place} has the task {task!r}, which has waiting jobs"
            advice = "restart the workers with the present code"
        else:
            text = f"the code has no task {task!r}, which has waiting jobs in {place}"
            advice = f"deploy code that has it (aka= if it was renamed), or {command('jobs cancel', app, task=task)}"
        yield Diagnosis("tasks", Severity.PROBLEM, text, advice)


def _oldest(found: Vitals, app: str) -> Iterator[Diagnosis]:
    paused = found.paused
    known = [
        (each.oldest_at, each.queue) for each in found.depths if each.oldest_at is not None and each.queue not in paused
    ]
    if not known:
        text = "no job is due, except in paused queues" if found.jobs(DepthState.DUE) else "no job is due"
        yield Diagnosis("oldest", Severity.OK, text)
        return
    first, queue = min(known)
    waited = found.now - first
    text = f"the oldest due job waits since {span(waited)}, in queue {queue!r}"
    if waited > LATE:
        reasons = f"{command('jobs list', app, queue=queue)} has the reasons"
        advice = f"{reasons}; more workers or slots run more at once"
        yield Diagnosis("oldest", Severity.PROBLEM, text, advice)
    else:
        yield Diagnosis("oldest", Severity.OK, text)


def _catches(found: Vitals, app: str) -> Iterator[Diagnosis]:
    for each in found.catches:
        text = f"catch job {each.id} ({each.task}) of job {each.parent_id} failed {each.failures} times"
        # Not the error itself, which may repeat secret arguments of the job that is caught.
        shows, retries = (command(f"jobs {verb}", app, str(each.id)) for verb in ("show", "retry"))
        advice = f"{shows} has the error; repair {each.task}, then {retries}"
        yield Diagnosis("catches", Severity.PROBLEM, text, advice)


def _held(found: Vitals, app: str) -> Iterator[Diagnosis]:
    by_workflow: dict[str, list[HeldRun]] = defaultdict(list)
    for each in found.held:
        by_workflow[each.workflow].append(each)
    for workflow, runs in sorted(by_workflow.items()):
        first = runs[0]
        more = "+" if len(found.held) == READ else ""
        number = "1 run" if len(runs) == 1 and not more else f"{len(runs):,}{more} runs"
        since = "" if first.since is None else f" since {span(found.now - first.since)}"
        verb = "is" if number == "1 run" else "are"
        text = f"{number} of {workflow} {verb} held{since}: {first.why or 'no reason'}"
        advice = f"{command('runs list', app, workflow=workflow, held=True)}, then deploy code that fits"
        yield Diagnosis("held", Severity.PROBLEM, text, advice)


def unreadable_in_order(found: Vitals) -> list[UnreadableJobs]:
    """Return the jobs that no worker can read in the order of their findings."""
    return sorted(found.unreadable, key=lambda each: (each.task, each.hold))


def _unreadable(found: Vitals, app: str) -> Iterator[Diagnosis]:
    for each in unreadable_in_order(found):
        of_policy = each.hold is Hold.BAD_POLICY
        jobs, their = ("1 job", "its") if each.number == 1 else (f"{each.number:,} jobs", "their")
        what = f"{their} policy" if of_policy else f"{their} arguments"
        since = "" if each.since is None else f" since {span(found.now - each.since)}"
        verb = "waits" if each.number == 1 else "wait"
        text = f"{jobs} of task {each.task!r} {verb}{since}: no worker can read {what}"
        shows = f"{command('jobs show', app, str(each.id))} has the reason"
        ways = command("jobs repolicy" if of_policy else "jobs cancel", app, task=each.task, hold=each.hold.value)
        advice = f"{shows}; deploy code that reads {'it' if of_policy else 'them'}, or {ways}"
        yield Diagnosis("unreadable", Severity.PROBLEM, text, advice)


def _in_effect(found: Vitals, app: str) -> Iterator[Diagnosis]:
    for each in found.in_effect[:LISTED]:
        run = f"{each.workflow}/{each.id}"
        text = f"run {each.id} of {each.workflow} has ended, and these steps were not undone: {each.steps}"
        advice = (
            f"{command('runs show', app, run)} has the errors; then {command('jobs retry', app, str(each.job_id))}, or "
            f"take each back by hand and record it, as by {command('runs supply', app, run, 'u1', 'null')} for step 1"
        )
        yield Diagnosis("undos", Severity.PROBLEM, text, advice)
    more = len(found.in_effect) - LISTED
    if more > 0:
        yield Diagnosis("undos", Severity.PROBLEM, f"{more} more runs have ended with steps that were not undone")


def _dead(found: Vitals, app: str) -> Iterator[Diagnosis]:
    published = {each.task: each.topic for each in found.dead_topics}
    for each in found.dead_topics:
        if not each.readers:
            text = f"dead events of {each.task} are published to the topic {each.topic!r}, which no subscription reads"
            yield Diagnosis("dead", Severity.NOTE, text, "deploy code that subscribes to it")
    for queue, depth in sorted(found.jobs(DepthState.DEAD).items()):
        verb = "was" if depth.count == Count(1) else "were"
        text = f"queue {queue!r} has {_count(depth)} that gave up and {verb} neither caught nor skipped"
        if queue in published:
            text += f"; their events were published to the topic {published[queue]!r}, unless their notes say otherwise"
        listed, redriven = (
            command("jobs list", app, state="dead", queue=queue, not_caught=True, not_skipped=True),
            command("jobs redrive", app, queue=queue),
        )
        yield Diagnosis("dead", Severity.PROBLEM, text, f"{listed}, then {redriven}")


def _machines(found: Vitals, app: str) -> Iterator[Diagnosis]:
    for each in found.failed:
        many = "1 instance has" if each.number == 1 else f"{each.number:,} instances have"
        text = f"machine {each.machine!r}: {many} a transition that failed for good, such as {each.key!r}"
        advice = (
            f"{command('machines list', app, each.machine, status='failed')} has the errors; "
            "then redrive machines retry, skip or reset"
        )
        yield Diagnosis("machines", Severity.PROBLEM, text, advice)
    for row in found.stranded:
        text = f"machine {row.machine!r}: {row.text}, which the code does not have"
        yield Diagnosis("machines", Severity.PROBLEM, text, row.advice(app))


def _due(each: Depth, now: datetime) -> str:
    since = "" if each.oldest_at is None else f", the oldest since {span(now - each.oldest_at)}"
    return f"{_count(each)} due{since}"


def _count(each: Depth) -> str:
    if each.count == Count(1):
        return "1 job"
    return f"{each.count} jobs"
