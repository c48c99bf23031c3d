"""Writing where things that are kept fresh stand, and what follows from it. PURE.

What every move has in common: the row, the job of a new attempt, and the task that is told when something was given up.
All of it is written in the transaction of the move, which for the end of an attempt is the one that ends its job (law
6).

Locks are taken in one order everywhere: a job before the thing that it is an attempt at. Who ends a job has its row
already; who begins with the thing looks first which job it has, locks that, and then the thing. Whoever has things
never waits for a job. And whoever has one thing waits for no other, unless it takes several in one statement, by their
keys.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.items import RUNNING, OriginResult, TrackedItem, began_at, columns, disabled, ended
from redrive.engine.origin import of_refresh
from redrive.engine.records import JobRecord, NewJob
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord
from redrive.errors import ScheduleError
from redrive.schedule import Effect, RefreshOutcome, RefreshPolicy, RefreshState, RefreshTransition, refresh
from redrive.stores.operations import jobs
from redrive.stores.operations.numbers import take
from redrive.stores.query import Query, Rows

__all__ = [
    "ItemMove",
    "MoveResult",
    "attempt",
    "begin",
    "definition_of",
    "follow",
    "numbered",
    "rows",
    "schedule_of",
    "timed",
    "turned",
    "write",
]


class ItemMove(msgspec.Struct, frozen=True, gc=False):
    """A thing that moves.

    Attributes:
        thing: as it was.
        policy: what is done to keep it fresh.
        move: what becomes of it.
        error: the text of the error that has led to it.
        number: the job of the attempt that begins by it.
    """

    thing: TrackedItem
    policy: RefreshPolicy
    move: RefreshTransition
    error: str | None = None
    number: int | None = None

    @property
    def job_id(self) -> int | None:
        """The job of the attempt that runs after it."""
        return None if self.move.state.attempt_uid is None else self.number or self.thing.job_id


class MoveResult(msgspec.Struct, frozen=True, gc=False):
    """What became of a thing.

    Attributes:
        key: which.
        outcome: what the move came to.
        job_id: the job of its attempt, if one has begun.
        why: why it was given up, if it was.
    """

    key: str
    outcome: RefreshOutcome
    job_id: int | None = None
    why: str | None = None


def timed(policy: RefreshPolicy, state: RefreshState, job: JobRecord, *, now: datetime) -> RefreshState:
    """Return a state with the deadline that its attempt really has.

    The time allowed counts from the claim, which does not write to the rows of refreshes: their deadline is that of a
    claim without delay.

    Args:
        policy: of the refresh.
        state: with an attempt.
        job: the attempt's.
        now: the present instant, aware.
    """
    began = began_at(job)
    if began is None:
        return refresh.wait(policy, state, now=now).state
    return refresh.begun(policy, state, now=began, uid=str(job.id)).state


def definition_of(row: ScheduleRecord) -> RefreshDefinition | None:
    """What was declared of a refresh; None where this redrive cannot read it, or it is none.

    Args:
        row: the schedule.
    """
    found = row.definition
    return found if isinstance(found, RefreshDefinition) else None


def rows(schedule: str, keys: Sequence[str]) -> Generator[Query, Rows, Sequence[TrackedItem]]:
    """Read things that are to be moved: nobody else moves them meanwhile.

    Args:
        schedule: name of the refresh.
        keys: which.

    Returns:
        Those that are there, without their arguments.
    """
    found: Sequence[TrackedItem] = yield Query(
        "refresh_rows", {"schedule": schedule, "keys": list(keys)}, into=TrackedItem
    )
    return found


def attempt(definition: RefreshDefinition, moved: ItemMove) -> NewJob:
    """The job of an attempt that begins.

    Args:
        definition: of its refresh.
        moved: what has begun it; the thing has its arguments.

    Returns:
        The job.
    """
    made, thing = definition.job, moved.thing
    policy = made.policy if thing.own is None else _cut_off(made.policy, moved.policy.timeout)
    origin = of_refresh(thing.schedule, thing.key)
    return NewJob(made.task, made.queue, made.priority, thing.payload, policy, origin=origin)


@functools.lru_cache(maxsize=1024)
def _cut_off(policy: FrozenPolicy, timeout: timedelta) -> FrozenPolicy:
    return freeze(policy.policy.with_(attempt_timeout=timeout))


def write(definition: RefreshDefinition, moved: Sequence[ItemMove], at: datetime) -> Generator[Query, Rows, None]:
    """Write moves of things of one refresh, and tell what was given up.

    Args:
        definition: of the refresh.
        moved: the moves; the rows are locked.
        at: the instant of the transaction.
    """
    if not moved:
        return
    name, timing = definition.name, definition.timing
    other = []
    for each in _alike(moved):
        first = each[0]
        if len(each) == 1:
            other.append(
                {"schedule": name, "key": first.thing.key, "timing": timing, "job_id": first.job_id}
                | columns(first.policy, first.move.state)
            )
            continue
        keys = [thing.thing.key for thing in each]
        numbers = None if first.job_id is None else [thing.job_id for thing in each]
        shared = {"schedule": name, "timing": timing, **columns(first.policy, first.move.state)}
        yield Query("refresh_put_alike", {**shared, "keys": keys, "job_ids": numbers})
    if other:
        yield Query("refresh_put", many=other)
    told = definition.on_disabled
    if told is None:
        return
    news = [
        disabled(definition, each.thing.key, each.policy, each.move.state, each.error)
        for each in moved
        if Effect.NOTIFY in each.move.effects
    ]
    yield from jobs.insert([NewJob(told.task, told.queue, told.priority, text, told.policy) for text in news], at)


def schedule_of(name: str) -> Generator[Query, Rows, ScheduleRecord | None]:
    """Read a schedule, if it is there.

    Args:
        name: which.

    Returns:
        It, or None.
    """
    found: Sequence[ScheduleRecord] = yield Query("schedules_select", {"names": [name]}, into=ScheduleRecord)
    return found[0] if found else None


def begin(definition: RefreshDefinition, moved: Sequence[ItemMove], at: datetime) -> Generator[Query, Rows, None]:
    """Write moves, and make the jobs of the attempts that begin.

    Args:
        definition: of the refresh.
        moved: the moves; the rows are locked, and have their arguments where they begin.
        at: the instant of the transaction.
    """
    begun = [each for each in moved if each.number is not None]
    yield from jobs.put([each.number or 0 for each in begun], [attempt(definition, each) for each in begun], at)
    yield from write(definition, moved, at)


def numbered(moved: Sequence[ItemMove]) -> Generator[Query, Rows, list[ItemMove]]:
    """Take numbers for the jobs of attempts that begin; those that move alike get numbers that follow one another.

    Args:
        moved: the moves.

    Returns:
        The same, those together that are alike.
    """
    begun = [[*each] for each in _alike(moved) if each[0].move.outcome is RefreshOutcome.STARTED]
    rest = [each for each in moved if each.move.outcome is not RefreshOutcome.STARTED]
    count = sum(map(len, begun))
    ids = iter((yield from take("job", count)) if count else ())
    return [
        ItemMove(each.thing, each.policy, each.move, each.error, next(ids)) for alike in begun for each in alike
    ] + rest


def _alike(moved: Sequence[ItemMove]) -> Iterable[list[ItemMove]]:
    """Those together that have one and the same move: they differ in nothing but their keys and their jobs."""
    found: dict[int, list[ItemMove]] = {}
    for each in moved:
        found.setdefault(id(each.move), []).append(each)
    return found.values()


def turned(moved: ItemMove) -> MoveResult:
    """Say what became of a thing.

    Args:
        moved: the move.
    """
    why = moved.move.state.disabled_reason if moved.move.outcome is RefreshOutcome.GAVE_UP else None
    return MoveResult(moved.thing.key, moved.move.outcome, moved.number, why)


def follow(schedule: str, reports: Sequence[OriginResult], at: datetime) -> Generator[Query, Rows, int]:
    """Move the things of one refresh whose attempts have ended. What another attempt has taken the place of stays.

    Where this redrive cannot read what is to be done, nothing is done: a newer one sees the deadline pass.

    Args:
        schedule: name of the refresh.
        reports: how the attempts ended.
        at: the instant of the transaction.

    Returns:
        How many have moved.
    """
    row = yield from schedule_of(schedule)
    definition = None if row is None else definition_of(row)
    if definition is None:
        return 0
    done = yield from _succeed(definition, reports, at)
    told = {each.job_id: each for each in reports if each.job_id not in done}
    if not told:
        return len(done)
    things = yield from rows(schedule, sorted({each.origin.part for each in told.values()}))
    moved: list[ItemMove] = []
    known: dict[object, RefreshTransition] = {}
    for thing in things:
        each = told.get(thing.job_id or 0)
        if each is None:
            continue
        try:
            policy = thing.policy(definition)
        except ScheduleError:
            continue
        state = thing.running
        alike = (
            thing.own,
            state,
            each.succeeded,
            each.permanent,
            each.retry_after,
            each.at,
            each.began_at,
            policy.jitter and each.sample,
        )
        move = known.get(alike)
        if move is None:
            move = known[alike] = ended(policy, state, each, at)
        moved.append(ItemMove(thing, policy, move, each.why))
    yield from write(definition, moved, at)
    return len(moved) + len(done)


def _succeed(
    definition: RefreshDefinition, reports: Sequence[OriginResult], at: datetime
) -> Generator[Query, Rows, set[int]]:
    """The hot path. Where a success leads depends on nothing that was before it, so nothing is read.

    That holds for things without a policy of their own whose attempts began before this instant; then the planned
    refresh that comes next is the next one from now on.

    Args:
        definition: of the refresh.
        reports: how attempts ended; the things of all are locked, and those of successes written.
        at: the instant of the transaction.

    Returns:
        The jobs whose things have moved.
    """
    told = [each for each in reports if each.succeeded]
    jobs_of: dict[str, int] = {each.origin.part: each.job_id for each in told}
    if not told or definition.policy.jitter or len(jobs_of) < len(told):
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
    }
    return {jobs_of[row[0]] for row in (yield Query("refresh_succeeded", params))}
