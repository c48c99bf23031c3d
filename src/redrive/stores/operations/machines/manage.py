"""Reads instances, and acts on them for operators: skip, reset, delete, migrate. PURE.

A failed transition has a dead job, which is locked before its instance. When an operator has dealt with the failure,
the job is marked as caught, as after a catch task.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from redrive.engine.machine import (
    Entered,
    InstanceRecord,
    InstanceStatus,
    MoveRecord,
    MoveSource,
    MoveStatus,
    StrandedCount,
)
from redrive.engine.records import Count, JobRecord
from redrive.errors import IllegalMove, MachineBusy
from redrive.stores.operations import jobs
from redrive.stores.operations.audit import UNKNOWN, record
from redrive.stores.operations.clock import instant
from redrive.stores.operations.machines.finish import entering
from redrive.stores.operations.machines.rows import (
    LAST,
    Known,
    end_moves,
    insert_moves,
    lock_deleted,
    lock_one,
    not_found,
    put,
    skip_failures,
    without_failure,
)
from redrive.stores.operations.machines.send import refusal
from redrive.stores.query import Compound, Query, Statements, reads, wakes, writes


class InstanceCount(msgspec.Struct, frozen=True, gc=False):
    """The number of instances of a machine in a state.

    Attributes:
        number: of all of them.
        busy: those with a transition that runs, waits for a retry, or has failed.
        since: when the first of them entered the state.
    """

    machine: str
    state: str | None
    status: InstanceStatus
    number: int
    busy: int
    since: datetime


class StateCount(msgspec.Struct, frozen=True, gc=False):
    """The number of instances of a machine in a state, counted up to a limit.

    Attributes:
        state: None for instances before the end of their first transition.
        number: exact up to `EXACT`.
        failed: those with a transition that has failed; exact if `failed_in_all` is.
        failed_in_all: the failed ones of the machine in all states, exact up to `EXACT`: their index has no states.
        since: when the first of them entered the state.
    """

    machine: str
    state: str | None
    number: int
    failed: int
    failed_in_all: int
    since: datetime | None

    @property
    def failed_count(self) -> Count:
        """The failed ones; there may be more if those of the machine were not counted to their end."""
        return Count(min(self.failed, EXACT), self.failed_in_all > EXACT)


class InstancesFound(msgspec.Struct, frozen=True, gc=False):
    """The result of a search with a budget.

    Attributes:
        searched_to: the key of the last instance that was read; None if all were.
    """

    instances: tuple[InstanceRecord, ...]
    searched_to: str | None


class Migrated(msgspec.Struct, frozen=True, gc=False):
    """The result of one batch of a migration.

    Attributes:
        keys: the instances that were moved.
        last: the last of them; None if the state has no other free instance.
    """

    keys: tuple[str, ...]
    last: str | None


#: The instances of a state that are counted; beyond it, it is "at least".
EXACT = 10_000

#: Machines, and states of each, that are counted.
WIDEST = 1_000

#: Instances that one transaction of a retention deletes.
PRUNED = 500


class Pruned(msgspec.Struct, frozen=True, gc=False):
    """The result of one batch of a retention."""

    number: int
    more: bool


# -------------------------------------------------------------------------------------------------------------- reading


@reads
def get(machine: str, key: str) -> Statements[InstanceRecord]:
    """Return an instance, or raise `InstanceNotFound`."""
    rows = yield from _select(machine, key=key)
    if not rows:
        raise not_found(machine, key)
    return rows[0]


@reads
def data(machine: str, key: str) -> Statements[bytes | None]:
    """Return the data of an instance as JSON; None without any, and if it does not exist."""
    rows = yield from _select(machine, key=key)
    return rows[0].data if rows else None


def _select(
    machine: str,
    *,
    key: str | None = None,
    state: str | None = None,
    status: InstanceStatus | None = None,
    after: str = "",
    limit: int = 1,
) -> Statements[Sequence[InstanceRecord]]:
    params = {"machine": machine, "key": key, "state": state, "status": status, "after": after, "count": limit}
    rows: Sequence[InstanceRecord] = yield Query("instances_select", params, into=InstanceRecord)
    return rows


@reads
def select(
    machine: str, *, state: str | None = None, status: InstanceStatus | None = None, after: str = "", limit: int = 100
) -> Statements[tuple[InstanceRecord, ...]]:
    """Return a page of instances by their keys."""
    return tuple((yield from _select(machine, state=state, status=status, after=after, limit=limit)))


@reads
def since(
    machine: str, states: Sequence[tuple[str, datetime]], *, limit: int = 100
) -> Statements[tuple[InstanceRecord, ...]]:
    """Return instances that have been in a state since an instant or longer, the longest there first."""
    found: list[InstanceRecord] = []
    for state, until in states:
        params = {"machine": machine, "state": state, "until": until, "count": limit}
        rows: Sequence[InstanceRecord] = yield Query("instances_since", params, into=InstanceRecord)
        found.extend(rows)
    return tuple(sorted(found, key=lambda each: each.entered_at)[:limit])


@reads
def counts(machine: str | None = None) -> Statements[tuple[InstanceCount, ...]]:
    """Count instances by machine, state and status."""
    return tuple((yield Query("instances_counts", {"machine": machine}, into=InstanceCount)))


@reads
def by_state(machine: str | None = None) -> Statements[tuple[StateCount, ...]]:
    """Count the instances of a machine, or of all, by state, each up to `EXACT`; see `counts` for exact numbers."""
    params = {"machine": machine, "most": EXACT + 1, "widest": WIDEST}
    rows: Sequence[StateCount] = yield Query("instances_states", params, into=StateCount)
    return tuple(row for row in rows if row.number)


@reads
def search(
    machine: str,
    *,
    state: str | None = None,
    status: InstanceStatus | None = None,
    after: str = "",
    limit: int = 100,
    budget: int = 20_000,
) -> Statements[InstancesFound]:
    """Return instances by their keys, among a limited number of them; failed ones have an index of their own."""
    params: dict[str, object] = {"machine": machine, "state": state, "after": after, "count": limit}
    if status is InstanceStatus.FAILED:
        failed: Sequence[InstanceRecord] = yield Query("instances_failed", params, into=InstanceRecord)
        return InstancesFound(tuple(failed), None)
    if state is None and status is None:
        return InstancesFound(tuple((yield from _select(machine, after=after, limit=limit))), None)
    floor = yield Query("instances_floor", {"machine": machine, "after": after, "budget": budget - 1})
    params |= {"status": status, "budget": budget}
    found: Sequence[InstanceRecord] = yield Query("instances_search", params, into=InstanceRecord)
    return InstancesFound(tuple(found), floor[0][0] if floor else None)


@reads
def stranded(known: Known) -> Statements[tuple[StrandedCount, ...]]:
    """Count what waits for a state or a class of events that the code does not have."""
    return tuple((yield Query("machines_stranded", known.params(), into=StrandedCount)))


@reads
def history(machine: str, key: str, *, before: int = LAST, limit: int = 100) -> Statements[tuple[MoveRecord, ...]]:
    """Return the latest events of an instance, in the order in which they have ended, the last one first."""
    params = {"machine": machine, "key": key, "before": before, "count": limit}
    rows: Sequence[MoveRecord] = yield Query("moves_of", params, into=MoveRecord)
    return tuple(sorted(rows, key=_ended, reverse=True))


# An event that waited for its turn has a smaller id than the events of the moves before its own.
def _ended(move: MoveRecord) -> tuple[bool, datetime, int]:
    return move.finished_at is None, move.finished_at or move.sent_at, move.id


# --------------------------------------------------------------------------------------------------------------- acting


@wakes
def skip(machine: str, key: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[InstanceRecord]:
    """Drop the event of a failed transition: the instance takes events in its state again.

    Raise `InstanceNotFound`, or `IllegalMove` if no transition has failed.
    """
    at = yield from instant(now)
    instance = yield from _lock(machine, key)
    if instance.status is not InstanceStatus.FAILED:
        raise IllegalMove(f"machine {machine!r}: {key!r} is {instance.status}; only a failed transition can be skipped")
    free = _without_transition(instance)
    yield from _settle(instance, at)
    yield put([free])
    yield from record(at, actor, "skip", machine=machine, key=key, event=instance.event)
    return free


@wakes
def reset(
    machine: str, key: str, state: str, how: Entered, *, actor: str = UNKNOWN, now: datetime | None = None
) -> Statements[InstanceRecord]:
    """Put an instance into a state without a transition; a failed transition is dropped.

    Raise `InstanceNotFound`, or `MachineBusy` if a transition runs or waits for a retry.
    """
    at = yield from instant(now)
    instance = yield from _lock(machine, key)
    _check_idle(instance)
    yield from _settle(instance, at)
    after = entering(_without_transition(instance), state, how, at, data=instance.data)
    (number,) = yield from jobs.take("job", 1)
    moved = _moved(instance, state, MoveSource.RESET, number, at, actor)
    yield Compound((put([after]), insert_moves([moved])))
    yield from record(at, actor, "reset", machine=machine, key=key, state=state)
    return after


@writes
def delete(machine: str, key: str, *, actor: str = UNKNOWN, now: datetime | None = None) -> Statements[None]:
    """Delete an instance with its history; its jobs stay.

    Raise `InstanceNotFound`, or `MachineBusy` if a transition runs or waits for a retry.
    """
    at = yield from instant(now)
    yield from remove(machine, key, at)
    yield from record(at, actor, "delete", machine=machine, key=key)


def remove(machine: str, key: str, at: datetime) -> Statements[None]:
    """Delete an instance with its history as a part of a larger operation; see `delete`."""
    instance = yield from _lock(machine, key, delete=True)
    _check_idle(instance)
    yield from _settle(instance, at)
    params = {"machine": machine, "key": key}
    yield Compound((Query("moves_delete", params), Query("instance_delete", params)))


# An event that was committed before the lock is seen here; a later sender waits, and creates the instance anew.
@writes
def prune_completed(
    machine: str, kept_for: timedelta, *, limit: int = PRUNED, now: datetime | None = None
) -> Statements[Pruned]:
    """Delete completed instances of a machine, with their histories, after a time; those with waiting events stay."""
    at = yield from instant(now)
    params = {"machine": machine, "before": at - kept_for, "count": limit}
    old = [row[0] for row in (yield Query("instances_completed", params))]
    if not old:
        return Pruned(0, more=False)
    queued = {row[0] for row in (yield Query("instances_queued", {"machine": machine, "keys": old}))}
    keys = [key for key in old if key not in queued]
    where = {"machine": machine, "keys": keys}
    yield Compound((Query("moves_prune", where), Query("instances_prune", where)))
    return Pruned(len(keys), more=len(old) == limit and len(keys) > 0)


@wakes
def migrate(
    machine: str,
    old: str,
    new: str,
    how: Entered,
    *,
    after: str = "",
    limit: int = 1000,
    actor: str = UNKNOWN,
    now: datetime | None = None,
) -> Statements[Migrated]:
    """Move free instances from one state to another, by their keys; instances with a transition stay."""
    at = yield from instant(now)
    params = {"machine": machine, "state": old, "after": after, "count": limit}
    rows: Sequence[InstanceRecord] = yield Query("instances_in", params, into=InstanceRecord)
    if not rows:
        return Migrated((), None)
    ids = yield from jobs.take("job", len(rows))
    moves = [_moved(row, new, MoveSource.MIGRATE, number, at, actor) for row, number in zip(rows, ids, strict=True)]
    yield Compound((put(entering(row, new, how, at, data=row.data) for row in rows), insert_moves(moves)))
    keys = tuple(row.key for row in rows)
    yield from record(at, actor, "migrate", machine=machine, old=old, new=new, count=len(keys))
    return Migrated(keys, keys[-1] if len(keys) == limit else None)


@writes
def rearm(machine: str, state: str, how: Entered, *, after: str = "", limit: int = 1000) -> Statements[Migrated]:
    """Compute the timeouts of the free instances in a state again, from the instants at which they entered it."""
    params = {"machine": machine, "state": state, "after": after, "count": limit}
    rows: Sequence[InstanceRecord] = yield Query("instances_in", params, into=InstanceRecord)
    if not rows:
        return Migrated((), None)
    yield put(
        replace(
            row,
            timeout_at=None if how.timeout_after is None else row.entered_at + how.timeout_after,
            timeout_event=how.timeout_event,
            timeout_payload=how.timeout_payload,
        )
        for row in rows
    )
    keys = tuple(row.key for row in rows)
    return Migrated(keys, keys[-1] if len(keys) == limit else None)


# A delete waits for the open transactions that put events into the line of the instance, and deletes their events.
def _lock(machine: str, key: str, *, delete: bool = False) -> Statements[InstanceRecord]:
    """Lock the job of a failed transition, and then the instance."""
    rows = yield from _select(machine, key=key)
    if rows and rows[0].status is InstanceStatus.FAILED:
        yield Query("job_lock", {"id": rows[0].job_id}, into=JobRecord)
    instance = yield from (lock_deleted if delete else lock_one)(machine, key)
    if instance.job_id != rows[0].job_id:
        raise MachineBusy(f"machine {machine!r}: {key!r} has just changed: repeat the command", job_id=instance.job_id)
    return instance


def _check_idle(instance: InstanceRecord) -> None:
    if instance.busy and instance.status is not InstanceStatus.FAILED:
        raise refusal(instance)


def _without_transition(instance: InstanceRecord) -> InstanceRecord:
    return replace(
        instance,
        status=InstanceStatus.RUNNING,
        to_state=None,
        job_id=None,
        event=None,
        error=None,
        waiting=without_failure(instance.waiting),
    )


def _settle(instance: InstanceRecord, at: datetime) -> Statements[None]:
    """Write that the failed transition of an instance, if it has one, was dealt with."""
    if instance.job_id is None:
        return
    moves: Sequence[MoveRecord] = yield Query("moves_these", {"ids": [instance.job_id]}, into=MoveRecord)
    queries = [Query("caught", many=[{"job_id": instance.job_id, "now": at}])]
    ended = [replace(each, status=MoveStatus.SKIPPED) for each in moves]
    ended += yield from skip_failures([instance], at)
    if ended:
        queries.append(end_moves(ended))
    yield Compound(tuple(queries))


def _moved(  # noqa: PLR0917 - the columns of one row
    instance: InstanceRecord, state: str, source: MoveSource, number: int, at: datetime, actor: str
) -> MoveRecord:
    return MoveRecord(
        id=number,
        machine=instance.machine,
        key=instance.key,
        source=source,
        status=MoveStatus.MOVED,
        from_state=instance.state,
        to_state=state,
        event=None,
        event_key=None,
        digest=None,
        payload=None,
        sent_at=at,
        finished_at=at,
        attempts=0,
        error=None,
        failed_to=None,
        actor=actor,
    )
