"""Starts ended jobs again: one (`retry`) or many (`redrive`), or gives waiting jobs other policies (`repolicy`). PURE.

One death is caught once. Of a dead job and its catch jobs at most one is therefore started again, and none while the
catch task runs. A job with a unique key takes its key again; if another job holds it, the job stays as it is, and the
result names the holder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from redrive.engine.frozen import FrozenPolicy
from redrive.engine.lifecycle import FINAL, LifecycleEvent, State, next_state
from redrive.engine.machine import InstanceRecord, InstanceStatus, MoveRecord, MoveStatus
from redrive.engine.origin import Kind, Origin, read_origin
from redrive.engine.records import Filter, Hold, JobRecord
from redrive.engine.runs import is_far
from redrive.engine.settle import DEADLINE
from redrive.engine.topics import ALONE, OUT_OF_ORDER
from redrive.errors import IllegalMove
from redrive.stores.operations import batches
from redrive.stores.operations.admin import BulkResult, selected
from redrive.stores.operations.audit import UNKNOWN, conditions, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.jobs import lock
from redrive.stores.operations.keys import UNIQUE, Holder, KeyRequest, find, take
from redrive.stores.operations.machines.rows import end_moves, put
from redrive.stores.operations.machines.rows import lock as lock_instances
from redrive.stores.operations.runs.again import prepare
from redrive.stores.query import Compound, Query, Statements, reads, wakes, writes


def restart(jobs: Sequence[JobRecord]) -> Statements[dict[int, str]]:
    """Prepare instances for ended jobs that are about to start again; return why some must not, by their ids.

    A transition that its instance has left behind must not run again. The jobs of instances are locked before these.
    """
    origins = {job.id: origin for job in jobs if (origin := _of_machine(job)) is not None}
    if not origins:
        return {}
    rows: Sequence[JobRecord] = yield Query("job_locks", {"ids": sorted(origins)}, into=JobRecord)
    locked = {row.id: row for row in rows}
    found = yield from lock_instances((origin.name, origin.part) for origin in origins.values())
    refused: dict[int, str] = {}
    again = []
    for number, origin in origins.items():
        job, instance = locked.get(number), found.get((origin.name, origin.part))
        where = f"the instance {origin.part!r} of machine {origin.name!r}"
        if job is None:
            refused[number] = "is locked by another transaction"
        elif instance is None:
            refused[number] = f"is a transition of {where}, which was deleted"
        elif instance.job_id != (job.parent_id or job.id):
            refused[number] = f"is a transition that {where} has left behind"
        elif instance.job_id == job.id:
            again.append(instance)
    if again:
        yield from _begin(again)
    return refused


def _of_machine(job: JobRecord) -> Origin | None:
    origin = read_origin(job.origin)
    return origin if origin is not None and origin.kind is Kind.MACHINE else None


def _begin(instances: Sequence[InstanceRecord]) -> Statements[None]:
    """Write that failed transitions run again."""
    ids = [each.job_id for each in instances]
    moves: Sequence[MoveRecord] = yield Query("moves_these", {"ids": ids}, into=MoveRecord)
    queries = [put([replace(each, status=InstanceStatus.RUNNING, error=None) for each in instances])]
    if moves:
        running = [replace(each, status=MoveStatus.RUNNING, finished_at=None, error=None) for each in moves]
        queries.append(end_moves(running))
    yield Compound(tuple(queries))


# The smallest and the largest number of jobs that are read at once.
PAGE = 100
MOST = 10_000


@wakes
def retry(job_id: int, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[None]:
    """Run a job once more, now.

    A waiting job becomes due, and so do the next tries of its steps. A dead job is started with its last failure
    forgiven, so a job with exhausted retries gets exactly one more attempt. A cancelled job continues with the retries
    that it had left. Raise `JobNotFound` if the job does not exist, or `IllegalMove` if it runs, has succeeded, was
    caught, is being caught, is a catch job with nothing to catch, or another job holds its key.
    """
    at = yield from instant(now)
    job = yield from lock(job_id)
    if job.state is State.READY:
        yield Query("hasten", {"id": job_id, "now": at})
        yield _hasten_steps(job_id, at)
        yield from record(at, actor, "retry", ids=[job_id])
        return
    next_state(job.state, LifecycleEvent.REDRIVE)
    obstacle = _obstacle(job, (yield from _families([job]))[job_id], {})
    lost = (yield from _take_keys([job])) if obstacle is None else {}
    if lost:
        obstacle = _key_is_held(job, lost[job_id].job_id)
    if obstacle is None:
        obstacle = (yield from restart([job])).get(job_id)
    if obstacle is not None:
        raise IllegalMove(f"job {job_id} {obstacle}")
    forgive = int(job.state is State.DEAD and job.reason != DEADLINE)
    yield from _start([job_id], Restart("run once more by an operator", at, forgive=forgive))
    yield from _prepare_runs([job], at)
    yield _hasten_steps(job_id, at)
    yield from _mark_late([job])
    yield from record(at, actor, "retry", ids=[job_id])


def _hasten_steps(job_id: int, at: datetime) -> Query:
    # A run that is due executes no step before the time of its next try.
    return Query("steps_hasten", {"run_id": job_id, "now": at})


@reads
def dry_run(wanted: Filter) -> Statements[BulkResult]:
    """Return the result of `redrive` without starting a job; ``wanted.most`` counts the jobs that would start."""
    chosen = yield from choose(wanted)
    return BulkResult(tuple(job.id for job in chosen.jobs), tuple(chosen.kept), chosen.last_id)


# A redrive of many jobs is made of batches. Each is a transaction of its own and starts where the one before has ended,
# so an interrupted redrive leaves whole batches behind, and the same command continues with the rest. With a rate, the
# jobs of a batch are due one after the other. Jobs that have not started yet can be cancelled.
@wakes
def redrive(
    wanted: Filter,
    *,
    queue: str | None = None,
    spacing: timedelta = timedelta(0),
    first_after: timedelta = timedelta(0),
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[BulkResult]:
    """Start dead or cancelled jobs again, oldest first, with all their failures forgiven.

    The ``limit`` of the filter counts the jobs that start. ``queue`` moves them to another queue, ``spacing`` is the
    time between the due times of two jobs, and ``first_after`` the time until the first one is due.
    """
    at = yield from instant(now)
    how = Restart("redriven by an operator", at + first_after, spacing, queue)
    done = yield from restarted(wanted, how)
    if done.ids:
        rate = {"spacing": spacing.total_seconds()} if spacing else {}
        yield from record(at, actor, "redrive", ids=done.ids, filter=conditions(wanted), queue=queue, **rate)
    return done


class Restart(NamedTuple):
    """The way in which jobs start again."""

    note: str
    first_at: datetime  # when the first job is due
    spacing: timedelta = timedelta(0)  # between two jobs
    queue: str | None = None  # where they go; by default they stay
    forgive: int | None = None  # failures that are forgiven; None for all
    keep_due: bool = False  # True if a job is not due before the time at which it was due


def restarted(wanted: Filter, how: Restart, *, most: int | None = None) -> Statements[BulkResult]:
    """Start jobs again as a part of a larger operation; `choose` describes the limits."""
    chosen = yield from choose(wanted, most=most)
    lost = yield from _take_keys(chosen.jobs)
    kept = chosen.kept + [(job.id, _key_is_held(job, lost[job.id].job_id)) for job in chosen.jobs if job.id in lost]
    held = yield from restart([job for job in chosen.jobs if job.id not in lost])
    kept += held.items()
    ids = [job.id for job in chosen.jobs if job.id not in lost and job.id not in held]
    if ids:
        ids = yield from _start(ids, how)
        yield from _prepare_runs([job for job in chosen.jobs if job.id in ids], how.first_at)
        yield from _mark_late([job for job in chosen.jobs if job.id in ids])
        # Of the due times that are kept, only that of a job that follows a batch never comes.
        following = [job.id for job in chosen.jobs if how.keep_due and job.id in ids and is_far(job.scheduled_at)]
        if following:
            yield from batches.wait_again(following, how.first_at)
    return BulkResult(tuple(ids), tuple(kept), chosen.last_id)


def _start(ids: list[int], how: Restart) -> Statements[list[int]]:
    """Start jobs again; return those that no other transaction has started, in the order given."""
    started = {row[0] for row in (yield Query("redrive", {"ids": ids, **how._asdict()}))}
    return [number for number in ids if number in started]


# A run that starts again keeps its recorded steps, but for what has ended it: see `redrive.engine.undoing.again`.
def _prepare_runs(jobs: Sequence[JobRecord], at: datetime) -> Statements[None]:
    """Let the runs among jobs that start again repeat what ended them."""
    ids = [job.id for job in jobs if job.origin is not None and job.origin.startswith(f"{Kind.RUN}:")]
    if ids:
        yield from prepare(ids, at)


def _mark_late(jobs: Sequence[JobRecord]) -> Statements[None]:
    """Tag the deliveries among jobs that start again although later events of their lines may have been delivered."""
    late = [
        {"tag": OUT_OF_ORDER, "job_id": job.id}
        for job in jobs
        if job.origin is not None
        and job.origin.startswith(f"{Kind.TOPIC}:")
        and not (job.partition or ALONE).startswith(ALONE)
        and (job.skipped_at is not None or job.state is State.CANCELLED)
    ]
    if late:
        yield Query("tag_add", many=late)


def start_again(job: JobRecord, at: datetime) -> Statements[None]:
    """Start an ended run again as a part of a larger operation."""
    yield from _start([job.id], Restart("goes on by an operator", at))
    yield from _prepare_runs([job], at)


def _take_keys(jobs: Sequence[JobRecord]) -> Statements[dict[int, Holder]]:
    """Take the keys of jobs that start again; return the holder for each job that cannot have its key."""
    wanted = [KeyRequest(job.task, job.key, job.id) for job in jobs if job.key is not None]
    return (yield from take(UNIQUE, wanted)) if wanted else {}


# ------------------------------------------------------------------------------------------------------------ choosing


class Choice(msgspec.Struct):
    """The jobs that have been chosen so far."""

    jobs: list[JobRecord] = []  # to start
    kept: list[tuple[int, str]] = []  # to leave, with the reasons
    last_id: int | None = None  # the last job that was read; None when there are no more
    families: dict[int, int] = {}  # the job of each family that starts
    keys: dict[tuple[str, str], int] = {}  # the job that gets each key

    def consider(self, job: JobRecord, family: JobFamily) -> None:
        """Choose or leave one more job."""
        name = (job.task, job.key or "")
        obstacle = _obstacle(job, family, self.families)
        if obstacle is None and job.key is not None and self.keys.get(name, job.id) != job.id:
            obstacle = _key_is_held(job, self.keys[name])
        if obstacle is not None:
            self.kept.append((job.id, obstacle))
            return
        self.jobs.append(job)
        self.families[job.parent_id or job.id] = job.id
        if job.key is not None:
            self.keys[name] = job.id


def choose(wanted: Filter, *, most: int | None = None) -> Statements[Choice]:
    """Choose jobs to start, oldest first, up to the limit of the filter, or until `most` jobs are to be left."""
    chosen = Choice(last_id=wanted.after_id)
    while len(chosen.jobs) < wanted.most and chosen.last_id is not None:
        if most is not None and len(chosen.kept) >= most:
            break
        count = max(PAGE, min(MOST, wanted.most - len(chosen.jobs)))
        rest = replace(wanted, after_id=chosen.last_id, oldest_first=True, limit=count)
        page = yield from selected(rest, restarting=True)
        families = yield from _families(page)
        keyed = [KeyRequest(job.task, job.key, job.id) for job in page if job.key is not None]
        if keyed:
            held = yield from find(UNIQUE, keyed)
            chosen.keys |= {name: holder.job_id for name, holder in held.items()}
        for job in page:
            chosen.consider(job, families[job.id])
            chosen.last_id = job.id
            if len(chosen.jobs) == wanted.most:
                return chosen
        if len(page) < count:
            chosen.last_id = None
    return chosen


class JobFamily(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``families``."""

    id: int  # a job
    catching: bool  # True if a catch job of it waits or runs
    twin: bool  # True if it is a catch job, and another one of the same dead job waits or runs
    pointless: bool  # True if it is a catch job, and its parent is no longer to be caught


def _families(jobs: Sequence[JobRecord]) -> Statements[dict[int, JobFamily]]:
    if not jobs:
        return {}
    rows: Sequence[JobFamily] = yield Query("families", {"ids": [job.id for job in jobs]}, into=JobFamily)
    return {row.id: row for row in rows}


def _obstacle(job: JobRecord, family: JobFamily, started: Mapping[int, int]) -> str | None:
    """Return why a job must not be started again; `started` has the job of each family that starts."""
    if job.state not in _REDRIVABLE:
        return f"is {job.state}"
    if job.caught_at is not None:
        return "was caught: its catch task has dealt with it"
    if family.catching:
        return f"is being caught by {job.policy.catch}: cancel the catch job first, or let it finish"
    if family.pointless:
        return f"has nothing to catch: job {job.parent_id} is not dead any more, or was caught"
    if started.get(job.parent_id or job.id) == job.parent_id is not None:
        return f"has nothing to catch while job {job.parent_id} starts again"
    if family.twin or (job.parent_id or job.id) in started:
        return f"has a twin: another catch job of job {job.parent_id} waits or runs"
    return None


def _key_is_held(job: JobRecord, holder: int) -> str:
    return f"stays {job.state}: its key {job.key!r} is held by job {holder}"


_REDRIVABLE = frozenset({State.DEAD, State.CANCELLED})


# A job keeps the policy under which it was enqueued, so a deployment does not change waiting jobs. The new policy
# decides from the next failure on: stored due times stay, because no delay is computed twice, and the counters of rules
# start over, because they belong to the rules of the old policy.
#
# A job that is held because its policy cannot be read is released: it is due at once, or the end of its lost attempt is
# decided at once. A catch job then gets the policy of its own task, since that of its parent cannot be read.
@writes
def repolicy(
    wanted: Filter,
    policies: Mapping[str, FrozenPolicy],
    *,
    dry_run: bool = False,
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[BulkResult]:
    """Give unfinished jobs the present policies of their tasks; at most ``wanted.most`` jobs are read."""
    at = yield from instant(now)
    jobs = yield from selected(replace(wanted, oldest_first=True))
    changed, kept = repolicies(jobs, policies)
    ids = sorted(number for each in changed.values() for number in each)
    if ids and not dry_run:
        yield from put_policies(changed, at)
        yield from record(at, actor, "repolicy", ids=ids, filter=conditions(wanted))
    return BulkResult(tuple(ids), tuple(kept), jobs[-1].id if len(jobs) == wanted.most else None)


def repolicies(
    jobs: Sequence[JobRecord], policies: Mapping[str, FrozenPolicy]
) -> tuple[dict[FrozenPolicy, list[int]], list[tuple[int, str]]]:
    """Return the ids of the jobs that get each policy, and the jobs that cannot get one, with the reasons."""
    kept = [(job.id, why) for job in jobs if (why := _policy_obstacle(job, policies)) is not None]
    stay = {number for number, _ in kept}
    changed: dict[FrozenPolicy, list[int]] = defaultdict(list)
    for job in jobs:
        if job.id not in stay and (policies[job.task].policy != job.policy or job.hold is Hold.BAD_POLICY):
            changed[policies[job.task]].append(job.id)
    return changed, kept


def put_policies(changed: Mapping[FrozenPolicy, list[int]], at: datetime) -> Statements[None]:
    """Give jobs these policies as a part of a larger operation."""
    yield Query("policy_put", many=[{"digest": policy.digest, "document": policy.document} for policy in changed])
    for policy, numbers in changed.items():
        timeout = policy.policy.attempt_timeout
        yield Query("repolicy", {"ids": numbers, "policy": policy.digest, "timeout_for": timeout, "now": at})


def _policy_obstacle(job: JobRecord, policies: Mapping[str, FrozenPolicy]) -> str | None:
    if job.state in FINAL:
        return f"is {job.state}"
    is_held = job.hold is Hold.BAD_POLICY
    if job.state is State.RUNNING and not is_held:
        return "runs: it keeps its policy until this attempt has ended"
    if job.parent_id is not None and not is_held:
        return f"is a catch job: it goes by the policy of job {job.parent_id}"
    if job.task not in policies:
        return f"has the task {job.task}, which is not in this app"
    return None
