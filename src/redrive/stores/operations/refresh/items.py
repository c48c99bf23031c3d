"""Reads tracked items, writes their state and creates the jobs of their next attempts. PURE.

Every move writes the row of the item, the job of a new attempt, and the job of the task that is notified when an item
was given up, in one transaction. For the end of an attempt that is the transaction that ends its job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.engine.frozen import FrozenPolicy, freeze
from redrive.engine.items import TrackedItem, columns, disabled
from redrive.engine.origin import of_refresh
from redrive.engine.records import JobRecord, NewJob
from redrive.engine.recurring import RefreshDefinition, ScheduleRecord
from redrive.engine.reports import began_at
from redrive.errors import NotTracked
from redrive.schedule import RefreshEffect, RefreshOutcome, RefreshPolicy, RefreshState, RefreshTransition, refresh
from redrive.stores.operations import jobs
from redrive.stores.query import Query, Statements, reads


def schedule(name: str) -> Statements[ScheduleRecord | None]:
    """Return the row of a schedule, or None if it does not exist."""
    rows: Sequence[ScheduleRecord] = yield Query("schedules_select", {"names": [name]}, into=ScheduleRecord)
    return rows[0] if rows else None


def definition_of(row: ScheduleRecord | None) -> RefreshDefinition | None:
    """Return the definition in a row; None if it is missing, unreadable to this version, or no refresh."""
    definition = None if row is None else row.definition
    return definition if isinstance(definition, RefreshDefinition) else None


def declared(name: str) -> Statements[RefreshDefinition | None]:
    """Return the definition of a refresh that is stored, if this version can read it."""
    return definition_of((yield from schedule(name)))


class ItemMove(msgspec.Struct, frozen=True, gc=False):
    """A move of an item."""

    item: TrackedItem  # as it was
    policy: RefreshPolicy
    move: RefreshTransition
    error: str | None = None  # the error message of the attempt that has ended, if any
    number: int | None = None  # the id of the job of the attempt that begins, if one does

    @property
    def job_id(self) -> int | None:
        """The job of the attempt that runs after the move."""
        return None if self.move.state.attempt_uid is None else self.number or self.item.job_id


class MoveResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a move.

    Attributes:
        outcome: of the move.
        job_id: the job of its attempt, if one has begun.
        why: the reason for which the item was given up, if it was.
    """

    key: str
    outcome: RefreshOutcome
    job_id: int | None = None
    why: str | None = None


def result_of(moved: ItemMove) -> MoveResult:
    """Return the result of a move."""
    why = moved.move.state.disabled_reason if moved.move.outcome is RefreshOutcome.GAVE_UP else None
    return MoveResult(moved.item.key, moved.move.outcome, moved.number, why)


# A claim does not write to the rows of items, so the deadline in the row assumes a claim without delay. The actual
# deadline counts from the claim of `job`.
def with_deadline(policy: RefreshPolicy, state: RefreshState, job: JobRecord, *, now: datetime) -> RefreshState:
    """Return the state with the actual deadline of its attempt."""
    began = began_at(job)
    if began is None:
        return refresh.wait(policy, state, now=now).state
    return refresh.begun(policy, state, now=began, uid=str(job.id)).state


def lock(schedule: str, keys: Sequence[str]) -> Statements[Sequence[TrackedItem]]:
    """Lock items until the transaction ends, and return those that exist, without their arguments."""
    found: Sequence[TrackedItem] = yield Query(
        "refresh_rows", {"schedule": schedule, "keys": list(keys)}, into=TrackedItem
    )
    return found


def attempt(definition: RefreshDefinition, moved: ItemMove) -> NewJob:
    """Return the job of an attempt that begins; the item in `moved` has its arguments."""
    template, item = definition.job, moved.item
    policy = template.policy if item.own is None else _with_timeout(template.policy, moved.policy.timeout)
    origin = of_refresh(item.schedule, item.key)
    return NewJob(template.task, template.queue, template.priority, item.payload, policy, origin=origin)


@functools.lru_cache(maxsize=1024)
def _with_timeout(policy: FrozenPolicy, timeout: timedelta) -> FrozenPolicy:
    return freeze(policy.policy.with_(attempt_timeout=timeout))


def write(definition: RefreshDefinition, moves: Sequence[ItemMove], at: datetime) -> Statements[None]:
    """Write moves of locked items of one refresh, and enqueue the ``on_disabled`` task for those that were given up."""
    if not moves:
        return
    name, timing = definition.name, definition.timing
    other = []
    for group in _grouped(moves):
        first = group[0]
        if len(group) == 1:
            other.append(
                {"schedule": name, "key": first.item.key, "timing": timing, "job_id": first.job_id}
                | columns(first.policy, first.move.state)
            )
            continue
        keys = [each.item.key for each in group]
        numbers = None if first.job_id is None else [each.job_id for each in group]
        shared = {"schedule": name, "timing": timing, **columns(first.policy, first.move.state)}
        yield Query("refresh_put_alike", {**shared, "keys": keys, "job_ids": numbers})
    if other:
        yield Query("refresh_put", many=other)
    task = definition.on_disabled
    if task is None:
        return
    payloads = [
        disabled(definition, each.item.key, each.policy, each.move.state, each.error)
        for each in moves
        if RefreshEffect.NOTIFY in each.move.effects
    ]
    yield from jobs.insert([NewJob(task.task, task.queue, task.priority, text, task.policy) for text in payloads], at)


def begin(definition: RefreshDefinition, moves: Sequence[ItemMove], at: datetime) -> Statements[None]:
    """Write moves of locked items, and create the jobs of the attempts that begin."""
    yield from put_jobs(definition, [each for each in moves if each.number is not None], at)
    yield from write(definition, moves, at)


def put_jobs(definition: RefreshDefinition, begun: Sequence[ItemMove], at: datetime) -> Statements[None]:
    """Create the jobs of attempts that begin, under their numbers."""
    yield from jobs.put([each.number or 0 for each in begun], [attempt(definition, each) for each in begun], at)


def numbered(moves: Sequence[ItemMove]) -> Statements[list[ItemMove]]:
    """Take ids for the jobs of attempts that begin; items with the same move get consecutive ids and stand together."""
    begun = [[*each] for each in _grouped(moves) if each[0].move.outcome is RefreshOutcome.STARTED]
    rest = [each for each in moves if each.move.outcome is not RefreshOutcome.STARTED]
    count = sum(map(len, begun))
    ids = iter((yield from jobs.take("job", count)) if count else ())
    return [
        ItemMove(each.item, each.policy, each.move, each.error, next(ids)) for group in begun for each in group
    ] + rest


def _grouped(moves: Sequence[ItemMove]) -> Iterable[list[ItemMove]]:
    """Group items by their move object: those of one group differ only in their keys and jobs."""
    found: dict[int, list[ItemMove]] = {}
    for each in moves:
        found.setdefault(id(each.move), []).append(each)
    return found.values()


class Counts(msgspec.Struct, frozen=True, gc=False):
    """The numbers of items of a refresh.

    Attributes:
        running: items with a running attempt.
        failing: items with a failed last attempt, or that are being retried.
        disabled: items that were given up until the next update.
        paused: items that are not started.
        completed: items with schedules that have ended.
    """

    schedule: str
    tracked: int
    running: int
    failing: int
    disabled: int
    paused: int
    completed: int


class ItemLoad(msgspec.Struct, frozen=True, gc=False):
    """The items of a refresh, counted up to a limit.

    Attributes:
        troubled: items with a failed last attempt, and items that were given up.
    """

    schedule: str
    tracked: int
    troubled: int


def found(name: str, key: str) -> Statements[TrackedItem]:
    """Return an item with its arguments."""
    items: Sequence[TrackedItem] = yield Query("refresh_get", {"schedule": name, "key": key}, into=TrackedItem)
    if not items:
        raise untracked(name, key)
    return items[0]


def untracked(name: str, key: str) -> NotTracked:
    """Return the error for an item that does not exist."""
    return NotTracked(f"{name} does not track an item with the key {key!r}")


@reads
def get(name: str, key: str) -> Statements[TrackedItem]:
    """Return an item with its arguments, or raise `NotTracked`."""
    return (yield from found(name, key))


@reads
def select(
    name: str, *, after: str = "", limit: int = 100, troubled: bool = False
) -> Statements[tuple[TrackedItem, ...]]:
    """Return the items of a refresh with keys larger than `after`, by key and without their arguments.

    With `troubled`, only items with a failed last attempt and items that were given up.
    """
    params = {"schedule": name, "after": after, "count": limit}
    if troubled:
        return tuple((yield Query("refreshes_troubled", params, into=TrackedItem)))
    return tuple((yield Query("refreshes_select", params, into=TrackedItem)))


@reads
def counts() -> Statements[tuple[Counts, ...]]:
    """Count the items of each refresh, by name."""
    return tuple((yield Query("refresh_counts", into=Counts)))


@reads
def loads(most: int) -> Statements[tuple[ItemLoad, ...]]:
    """Count the items of each refresh, and those in trouble, each up to a limit, by name."""
    return tuple((yield Query("refreshes_loads", {"most": most}, into=ItemLoad)))
