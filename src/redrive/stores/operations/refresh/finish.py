"""Applies the ends of attempts to tracked items, and ends attempts after their deadlines. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.items import RUNNING, TrackedItem, ended, unreadable
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import Kind, Origin, OriginResult
from redrive.engine.outcome import Failed, NextRefresh
from redrive.engine.records import Claim, JobRecord
from redrive.engine.recurring import RefreshDefinition
from redrive.engine.reports import began_at
from redrive.engine.settle import decide
from redrive.errors import ScheduleError
from redrive.policy import Failure, Stage
from redrive.schedule import RefreshOutcome, RefreshState, RefreshTransition, refresh
from redrive.stores.operations import settlements
from redrive.stores.operations.clock import instant
from redrive.stores.operations.refresh.items import ItemMove, declared, lock, with_deadline, write
from redrive.stores.operations.settlements import end
from redrive.stores.query import Query, Statements, wakes

# The outcome of an attempt after its deadline.
OVERDUE = Failed(
    Failure(
        ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception"),
        "the deadline of the refresh has passed",
        "TIMEOUT",
        Stage.IN_FLIGHT,
    )
)


def finish_all(reports: Iterable[OriginResult], at: datetime) -> Statements[dict[int, ItemMove]]:
    """Apply the ends of attempts, and return the moves of their items by jobs, without those of some successes."""
    moved: dict[int, ItemMove] = {}
    by_refresh: dict[str, list[OriginResult]] = defaultdict(list)
    for each in reports:
        by_refresh[each.origin.name].append(each)
    for schedule in sorted(by_refresh):
        moved |= yield from _finish(schedule, by_refresh[schedule], at)
        # The refresh has handled the failure of its attempt, as a catch task does.
        caught = [{"job_id": each.job_id, "now": at} for each in by_refresh[schedule] if each.dead]
        if caught:
            yield Query("caught", many=caught)
    return moved


def _finish(schedule: str, reports: Sequence[OriginResult], at: datetime) -> Statements[dict[int, ItemMove]]:
    """Move the items of one refresh after the ends of their attempts; an attempt that was superseded moves nothing."""
    definition = yield from declared(schedule)
    if definition is None:
        # A version that can read the definition ends the attempt when its deadline has passed.
        return {}
    done = yield from _succeed(definition, reports, at)
    rest = {each.job_id: each for each in reports if each.job_id not in done}
    if not rest:
        return {}
    items = yield from lock(schedule, sorted({each.origin.part for each in rest.values()}))
    moves: dict[int, ItemMove] = {}
    known: dict[object, RefreshTransition] = {}
    for item in items:
        each = rest.get(item.job_id or 0)
        if each is None:
            continue
        try:
            policy = item.policy(definition)
        except ScheduleError:
            continue
        state = item.running
        alike = (
            item.own,
            state,
            each.succeeded,
            each.permanent,
            each.lasting,
            each.retry_after,
            each.at,
            each.began_at,
            policy.jitter and each.sample,
        )
        move = known.get(alike)
        if move is None:
            move = known[alike] = ended(policy, state, each, at)
        moves[each.job_id] = ItemMove(item, policy, move, each.why)
    yield from write(definition, [*moves.values()], at)
    return moves


def next_refresh(moved: ItemMove) -> NextRefresh | None:
    """Return what follows an attempt that has failed; None if nothing does."""
    after, why = moved.move.state.refresh_at, _FOLLOWS.get(moved.move.outcome)
    return None if after is None or why is None else NextRefresh(moved.item.attempt_no, after, why)


_FOLLOWS = {RefreshOutcome.RETRY_SCHEDULED: "retry", RefreshOutcome.WAITING_NEXT: "the next planned refresh"}


# This is the hot path. The state after a success does not depend on the state before it, for items without a policy of
# their own and with attempts that began before this instant. The items of all `reports` are locked.
def _succeed(definition: RefreshDefinition, reports: Sequence[OriginResult], at: datetime) -> Statements[set[int]]:
    """Move the items of successful attempts without reading them, and return their jobs."""
    successes = [each for each in reports if each.succeeded]
    jobs_of: dict[str, int] = {each.origin.part: each.job_id for each in successes}
    if not successes or definition.policy.jitter or len(jobs_of) < len(successes):
        return set()
    after = refresh.success(definition.policy, RefreshState(attempt_uid=RUNNING), now=at, uid=RUNNING).state
    params = {
        "schedule": definition.name,
        "keys": [each.origin.part for each in reports],
        "job_ids": list(jobs_of.values()),
        "now": at,
        "timing": definition.timing,
        "refresh_at": after.refresh_at,
        "planned_at": after.planned_at,
        "completed": after.completed,
        "succeeded_at": after.succeeded_at,
    }
    return {jobs_of[row[0]] for row in (yield Query("refresh_succeeded", params))}


# The job of an overdue attempt ends here: the worker that runs it loses its lease. Rows that other transactions have
# locked are skipped; items that only a newer version can read stay as they are.
@wakes
def end_overdue(budget: int, samples: Iterable[float], *, now: datetime | None = None) -> Statements[int]:
    """End attempts after their deadlines, and give up items that have failed for too long; return their number."""
    at = yield from instant(now)
    found: Sequence[TrackedItem] = yield Query("refresh_overdue", {"now": at, "count": budget}, into=TrackedItem)
    if not found:
        return 0
    rolls = iter(samples)
    done = yield from _end_running([each for each in found if each.job_id is not None], at, rolls)
    idle = [each for each in found if each.job_id is None]
    for name in sorted({each.schedule for each in idle}):
        done += yield from _sweep_idle(name, [each.key for each in idle if each.schedule == name], at, rolls)
    return done


def _end_running(found: Sequence[TrackedItem], at: datetime, rolls: Iterator[float]) -> Statements[int]:
    items = {each.job_id: each for each in found if each.job_id is not None}
    if not items:
        return 0
    locked: Sequence[JobRecord] = yield Query("job_locks", {"ids": list(items)}, into=JobRecord)
    known = {job.id: job for job in locked}
    gone: list[int] = []
    for number in sorted(items.keys() - known.keys()):
        # A job that exists is locked by another transaction, which may be about to settle it.
        found_again = yield Query("job_get", {"id": number}, into=JobRecord)
        gone += [] if found_again else [number]
    held = yield from _held([items[number] for number in (*known, *gone)])
    moved = yield from _postpone([job for job in locked if job.state not in FINAL], items, held, at)
    # A job that waits in its queue is not overdue, even if only a newer version can read its item's policy.
    spared = moved | {job.id for job in locked if job.state not in FINAL and began_at(job) is None}
    running = [job for job in locked if job.state in {State.RUNNING, State.WAITING} and job.id not in spared]
    reports = yield from _fail_running(running, items, at, rolls)
    for number in sorted({*known, *gone} - {job.id for job in running} - spared):
        job = known.get(number)
        if job is not None and job.state not in FINAL:
            yield from end(job, at, OVERDUE.failure.message)
        reports.append(_overdue(items[number], number, next(rolls), job))
    return len(moved) + len((yield from finish_all(reports, at)))


def _held(found: Sequence[TrackedItem]) -> Statements[dict[str, Sequence[TrackedItem]]]:
    """Lock items in the common order, all before the first one moves, and return them by refresh."""
    keys: dict[str, list[str]] = defaultdict(list)
    for each in found:
        keys[each.schedule].append(each.key)
    held = {}
    for name in sorted(keys):
        held[name] = yield from lock(name, sorted(keys[name]))
    return held


def _postpone(
    jobs: Sequence[JobRecord], items: dict[int, TrackedItem], held: dict[str, Sequence[TrackedItem]], at: datetime
) -> Statements[set[int]]:
    """Postpone the deadlines of attempts that wait in their queues or were claimed late; return their jobs."""
    known = {job.id: job for job in jobs}
    done: set[int] = set()
    for name in sorted({items[job.id].schedule for job in jobs}):
        definition = yield from declared(name)
        if definition is None:
            continue
        moves = []
        for item in held[name]:
            job = known.get(item.job_id or 0)
            move = None if job is None else _postponed(definition, item, job, at)
            if move is not None:
                moves.append(move)
        yield from write(definition, moves, at)
        done |= {each.item.job_id for each in moves if each.item.job_id is not None}
    return done


def _postponed(definition: RefreshDefinition, item: TrackedItem, job: JobRecord, at: datetime) -> ItemMove | None:
    """Return the move to the actual deadline of an attempt; None if that has passed too."""
    try:
        policy = item.policy(definition)
    except ScheduleError:
        return None
    state = with_deadline(policy, item.state, job, now=at)
    is_over = state.deadline_at is None or state.deadline_at <= at
    return None if is_over else ItemMove(item, policy, RefreshTransition(state, RefreshOutcome.NOTHING))


def _fail_running(
    running: Sequence[JobRecord], items: dict[int, TrackedItem], at: datetime, rolls: Iterator[float]
) -> Statements[list[OriginResult]]:
    """End the jobs of running attempts; each counts as failed at its deadline, however late this is detected."""
    if not running:
        return []
    claims: Sequence[Claim] = yield Query("open_attempts", {"ids": [job.id for job in running]}, into=Claim)
    states = {job.id: job.state for job in running}
    pairs = [(each, decide(each, OVERDUE, at, next(rolls), state=states[each.id])) for each in claims]
    done = yield from settlements.write(pairs, at)
    reports = [each.report for each in done.values() if each.report is not None]
    return [replace(each, at=items[each.job_id].deadline_at) for each in reports]


def _overdue(item: TrackedItem, number: int, sample: float, job: JobRecord | None) -> OriginResult:
    origin = Origin(Kind.REFRESH, item.schedule, item.key)
    why = OVERDUE.failure.message
    began = None if job is None else began_at(job)
    return OriginResult(origin, number, succeeded=False, why=why, sample=sample, at=item.deadline_at, began_at=began)


def _sweep_idle(name: str, keys: Sequence[str], at: datetime, rolls: Iterator[float]) -> Statements[int]:
    definition = yield from declared(name)
    if definition is None:
        return 0
    # This statement skips locked rows: this transaction holds locks on jobs, and must not wait for items.
    idle: Sequence[TrackedItem] = yield Query("refresh_idle", {"schedule": name, "keys": list(keys)}, into=TrackedItem)
    moves = []
    for item in idle:
        try:
            policy = item.policy(definition)
            move = refresh.sweep(policy, item.state, now=at, sample=next(rolls))
        except ScheduleError as error:
            policy, move = definition.policy, unreadable(item.state, error)
        if move.outcome is not RefreshOutcome.NOTHING:
            moves.append(ItemMove(item, policy, move))
    yield from write(definition, moves, at)
    return len(moves)
