"""Things that are kept fresh: starting what is due, and seeing to what is overdue. PURE.

All moves are those of `redrive.schedule.refresh`; here they are made on rows. A start takes rows that nobody else has
in hand, and makes their jobs in the same transaction: so a fleet starts each thing once, and a crash in between starts
none or all. Which things are due, an index answers that holds nothing else, so that a million of them cost no more
than a thousand.

Workers ask for this now and then, for all refreshes that their code declares; what people ask for is the subject of
`redrive.stores.operations.tracking`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.engine.items import NEW, OriginResult, TrackedItem, began_at, unreadable
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.origin import Kind, Origin
from redrive.engine.outcome import Failed
from redrive.engine.records import Claim, JobRecord
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord
from redrive.engine.settle import decide
from redrive.errors import ScheduleError
from redrive.policy import Failure, Stage
from redrive.schedule import RefreshOutcome, RefreshTransition, refresh
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import end
from redrive.stores.operations.freshness import (
    ItemMove,
    MoveResult,
    begin,
    definition_of,
    numbered,
    rows,
    schedule_of,
    timed,
    turned,
    write,
)
from redrive.stores.operations.origins import follow
from redrive.stores.operations.transitions import write_untold
from redrive.stores.query import Query, Rows, Steps, wakes, writes

__all__ = ["replan", "start", "sweep"]

OVERDUE = Failed(
    Failure(
        ("builtins.TimeoutError", "builtins.OSError", "builtins.Exception"),
        "the deadline of the refresh has passed",
        "TIMEOUT",
        Stage.IN_FLIGHT,
    )
)
"""How the attempt at a thing ends whose deadline has passed."""


@wakes
def start(
    name: str, budget: int, samples: Iterable[float], *, now: datetime | None = None
) -> Steps[tuple[MoveResult, ...]]:
    """Start things of a refresh that are due, the earliest first.

    Args:
        name: of the refresh.
        budget: how many at most.
        samples: random numbers in [0, 1), for jitter.
        now: the instant, in tests.

    Returns:
        Those that moved; as many as the budget if there may be more.
    """
    at = yield from instant(now)
    row = yield from schedule_of(name)
    definition = definition_of(row) if row is not None and row.paused_at is None else None
    if row is None or definition is None:
        return ()
    due: Sequence[TrackedItem] = yield Query(
        "refresh_due", {"schedule": name, "now": at, "count": budget}, into=TrackedItem
    )
    if not due:
        return ()
    known: dict[object, ItemMove] = {}
    moved = []
    for thing, sample in zip(due, samples, strict=False):
        # Most are in the same state, and then one move is made for all.
        alike = (thing.own, thing.state)
        like = known.get(alike)
        if like is None:
            like = _started(definition, row, thing, at, sample)
            if not like.policy.jitter:
                known[alike] = like
        moved.append(ItemMove(thing, like.policy, like.move, like.error))
    moved = yield from numbered(moved)
    yield from begin(definition, moved, at)
    return tuple(map(turned, moved))


def _started(
    definition: RefreshDefinition, row: ScheduleRecord, thing: TrackedItem, at: datetime, sample: float
) -> ItemMove:
    try:
        policy = thing.policy(definition)
    except ScheduleError as error:
        return ItemMove(thing, definition.policy, unreadable(thing.state, error), str(error))
    state = thing.state
    if row.resumed_at is not None and thing.refresh_at is not None and thing.refresh_at < row.resumed_at:
        resumed = refresh.resume(policy, replace(state, paused=True), now=at, sample=sample)
        if not refresh.is_due(resumed.state, at):
            return ItemMove(thing, policy, resumed)
        state = resumed.state
    return ItemMove(thing, policy, refresh.start(policy, state, now=at, uid=NEW, sample=sample))


@wakes
def sweep(budget: int, samples: Iterable[float], *, now: datetime | None = None) -> Steps[int]:
    """See to things for which time alone makes a difference: an attempt is overdue, or all have failed for too long.

    The job of an overdue attempt ends here: whoever runs it loses its lease.

    Args:
        budget: how many at most.
        samples: random numbers in [0, 1), for jitter.
        now: the instant, in tests.

    Returns:
        How many have moved. What others have in hand is theirs, and what only a newer redrive can read waits for it.
    """
    at = yield from instant(now)
    found: Sequence[TrackedItem] = yield Query("refresh_overdue", {"now": at, "count": budget}, into=TrackedItem)
    if not found:
        return 0
    sample = iter(samples)
    done = yield from _sweep_running([each for each in found if each.job_id is not None], at, sample)
    idle = [each for each in found if each.job_id is None]
    for name in sorted({each.schedule for each in idle}):
        done += yield from _sweep_idle(name, [each.key for each in idle if each.schedule == name], at, sample)
    return done


def _sweep_running(found: Sequence[TrackedItem], at: datetime, sample: Iterator[float]) -> Generator[Query, Rows, int]:
    things = {each.job_id: each for each in found if each.job_id is not None}
    if not things:
        return 0
    locked: Sequence[JobRecord] = yield Query("job_locks", {"ids": list(things)}, into=JobRecord)
    known = {job.id: job for job in locked}
    going = [job for job in locked if job.state in {State.RUNNING, State.WAITING}]
    moved = yield from _put_off([job for job in locked if job.state not in FINAL], things, at)
    # What waits in its queue is not overdue, even if only a newer redrive can read what it is for.
    spared = moved | {job.id for job in locked if job.state not in FINAL and began_at(job) is None}
    reports = yield from _cut_off([job for job in going if job.id not in spared], things, at, sample)
    for number in sorted(things.keys() - {job.id for job in going} - spared):
        job = known.get(number)
        if job is None and (yield Query("job_get", {"id": number}, into=JobRecord)):
            continue  # somebody has it in hand, and perhaps its answer
        if job is not None and job.state not in FINAL:
            yield from end(job, at, OVERDUE.failure.message)
        reports.append(_overdue(things[number], number, next(sample), job))
    return len(moved) + (yield from follow(reports, at))


def _put_off(
    jobs: Sequence[JobRecord], things: dict[int, TrackedItem], at: datetime
) -> Generator[Query, Rows, set[int]]:
    """Put deadlines off: of attempts that wait in their queues, and of those that a worker has taken late.

    Args:
        jobs: of attempts whose deadlines have passed, which are not final; they are locked.
        things: by the numbers of their jobs.
        at: the instant of the transaction.

    Returns:
        The jobs whose attempts have another deadline now.
    """
    known = {job.id: job for job in jobs}
    done: set[int] = set()
    for name in sorted({things[job.id].schedule for job in jobs}):
        row = yield from schedule_of(name)
        definition = None if row is None else definition_of(row)
        if definition is None:
            continue
        keys = sorted(things[job.id].key for job in jobs if things[job.id].schedule == name)
        moved = []
        for thing in (yield from rows(name, keys)):
            job = known.get(thing.job_id or 0)
            move = None if job is None else _allowed(definition, thing, job, at)
            if move is not None:
                moved.append(move)
        yield from write(definition, moved, at)
        done |= {each.thing.job_id for each in moved if each.thing.job_id is not None}
    return done


def _allowed(definition: RefreshDefinition, thing: TrackedItem, job: JobRecord, at: datetime) -> ItemMove | None:
    """Return the move that puts the deadline of an attempt off; None if its time is over."""
    try:
        policy = thing.policy(definition)
    except ScheduleError:
        return None
    state = timed(policy, thing.state, job, now=at)
    is_over = state.deadline_at is None or state.deadline_at <= at
    return None if is_over else ItemMove(thing, policy, RefreshTransition(state, RefreshOutcome.NOTHING))


def _cut_off(
    going: Sequence[JobRecord], things: dict[int, TrackedItem], at: datetime, sample: Iterator[float]
) -> Generator[Query, Rows, list[OriginResult]]:
    """End the jobs of attempts that run: each has failed at its deadline, however late that is seen."""
    if not going:
        return []
    claims: Sequence[Claim] = yield Query("open_attempts", {"ids": [job.id for job in going]}, into=Claim)
    states = {job.id: job.state for job in going}
    pairs = [(each, decide(each, OVERDUE, at, next(sample), state=states[each.id])) for each in claims]
    moved = yield from write_untold(pairs, at)
    told = [each.report for each in moved.values() if each.report is not None]
    return [replace(each, at=things[each.job_id].deadline_at) for each in told]


def _overdue(thing: TrackedItem, number: int, sample: float, job: JobRecord | None) -> OriginResult:
    origin = Origin(Kind.REFRESH, thing.schedule, thing.key)
    why = OVERDUE.failure.message
    began = None if job is None else began_at(job)
    return OriginResult(origin, number, succeeded=False, why=why, sample=sample, at=thing.deadline_at, began_at=began)


def _sweep_idle(name: str, keys: Sequence[str], at: datetime, sample: Iterator[float]) -> Generator[Query, Rows, int]:
    row = yield from schedule_of(name)
    definition = None if row is None else definition_of(row)
    if definition is None:
        return 0
    # None of them is waited for: locks on attempts are held already, and whoever has one of these may want them.
    idle: Sequence[TrackedItem] = yield Query("refresh_idle", {"schedule": name, "keys": list(keys)}, into=TrackedItem)
    moved = []
    for thing in idle:
        try:
            policy = thing.policy(definition)
            move = refresh.sweep(policy, thing.state, now=at, sample=next(sample))
        except ScheduleError as error:
            policy, move = definition.policy, unreadable(thing.state, error)
        if move.outcome is not RefreshOutcome.NOTHING:
            moved.append(ItemMove(thing, policy, move))
    yield from write(definition, moved, at)
    return len(moved)


@writes
def replan(name: str, budget: int, samples: Iterable[float], *, now: datetime | None = None) -> Steps[int]:
    """Reckon anew what was reckoned by an older policy of a refresh.

    Args:
        name: of the refresh.
        budget: how many things at most.
        samples: random numbers in [0, 1), for jitter.
        now: the instant, in tests.

    Returns:
        How many; as many as the budget if there may be more.
    """
    at = yield from instant(now)
    row = yield from schedule_of(name)
    definition = None if row is None else definition_of(row)
    if definition is None:
        return 0
    params = {"schedule": name, "timing": definition.timing, "count": budget}
    found: Sequence[TrackedItem] = yield Query("refresh_outdated", params, into=TrackedItem)
    moves = [
        ItemMove(each, definition.policy, refresh.replan(definition.policy, each.state, now=at, sample=sample))
        for each, sample in zip(found, samples, strict=False)
    ]
    yield from write(definition, moves, at)
    return len(found)
