"""Reads and writes the rows of instances and of their events, and starts transitions. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.engine.machine import Ignored, InstanceRecord, InstanceStatus, MoveRecord, MoveSource, MoveStatus, Waiting
from redrive.engine.records import NewJob
from redrive.errors import InstanceNotFound, NoTransition
from redrive.stores.operations import jobs
from redrive.stores.query import Compound, Query, Statements

#: Larger than every id.
LAST = 2**63 - 1


class Start(msgspec.Struct, frozen=True, gc=False):
    """The transition that was chosen for an event."""

    to_state: str
    job: NewJob
    failed_to: str | None = None


Choice: TypeAlias = Start | Ignored | NoTransition
Choose: TypeAlias = Callable[[InstanceRecord | None], Choice]
"""Chooses the transition of one event under the lock of its instance, which is None if it does not exist."""


class MachineEvent(msgspec.Struct, frozen=True, gc=False):
    """An event for an instance.

    Attributes:
        event: the name of its type.
        payload: the event as JSON.
        digest: of the type and the payload.
        event_key: identifies the event among those of the instance; None if it is not identified.
    """

    machine: str
    key: str
    event: str
    payload: bytes
    digest: str
    event_key: str | None = None


class Known(msgspec.Struct, frozen=True, gc=False):
    """The machines of the code, with their states and the classes of their events.

    Attributes:
        states: as ``machine/state``.
        events: as ``machine/event``.
    """

    machines: tuple[str, ...]
    states: tuple[str, ...]
    events: tuple[str, ...]

    def params(self) -> dict[str, object]:
        """Return the parameters of queries."""
        return {"machines": list(self.machines), "states": list(self.states), "events": list(self.events)}


def lock(pairs: Iterable[tuple[str, str]]) -> Statements[dict[tuple[str, str], InstanceRecord]]:
    """Lock instances, given by their machines and keys, and return those that exist."""
    many = [{"machine": machine, "key": key} for machine, key in sorted(set(pairs))]
    rows: Sequence[InstanceRecord] = yield Query("instances_lock", many=many, into=InstanceRecord)
    return {(row.machine, row.key): row for row in rows}


class MaybeLocked(InstanceRecord, frozen=True, gc=False):
    """A row of the query ``instance_lock_idle``."""

    locked: bool


def lock_idle(machine: str, key: str) -> Statements[InstanceRecord | None]:
    """Lock an instance unless a transition of it runs, and return it; None if it does not exist."""
    while True:
        params = {"machine": machine, "key": key}
        rows: Sequence[MaybeLocked] = yield Query("instance_lock_idle", params, into=MaybeLocked)
        if not rows:
            return None
        # A row that is neither locked nor busy was busy when the lock was granted, and idle in the snapshot before.
        is_busy = rows[0].busy and rows[0].status is not InstanceStatus.FAILED
        if rows[0].locked or is_busy:
            return rows[0]


def lock_one(machine: str, key: str) -> Statements[InstanceRecord]:
    """Lock an instance and return it; raise `InstanceNotFound`."""
    found = yield from lock([(machine, key)])
    if not found:
        raise not_found(machine, key)
    return found[machine, key]


def lock_deleted(machine: str, key: str) -> Statements[InstanceRecord]:
    """Lock an instance that is to be deleted, and return it; raise `InstanceNotFound`."""
    params = {"machine": machine, "key": key}
    rows: Sequence[InstanceRecord] = yield Query("instance_lock_delete", params, into=InstanceRecord)
    if not rows:
        raise not_found(machine, key)
    return rows[0]


def not_found(machine: str, key: str) -> InstanceNotFound:
    """Return the error for an instance that does not exist."""
    return InstanceNotFound(f"machine {machine!r} has no instance {key!r}")


def began(instance: InstanceRecord, number: int, start: Start, event: str) -> InstanceRecord:
    """Return an instance at the beginning of a transition, which is the job of this number."""
    return replace(
        instance, to_state=start.to_state, job_id=number, event=event, status=InstanceStatus.RUNNING, error=None
    )


def new_move(
    event: MachineEvent,
    number: int,
    at: datetime,
    *,
    source: MoveSource,
    status: MoveStatus,
    instance: InstanceRecord | None,
    start: Start | None = None,
    error: str | None = None,
    actor: str | None = None,
) -> MoveRecord:
    """Return the row of an event."""
    is_open = status in {MoveStatus.QUEUED, MoveStatus.RUNNING}
    return MoveRecord(
        id=number,
        machine=event.machine,
        key=event.key,
        source=source,
        status=status,
        from_state=None if instance is None else instance.state,
        to_state=None if start is None else start.to_state,
        event=event.event,
        event_key=event.event_key,
        digest=event.digest,
        payload=event.payload if status in {MoveStatus.QUEUED, MoveStatus.REFUSED} else None,
        sent_at=at,
        finished_at=None if is_open else at,
        attempts=0,
        error=error,
        failed_to=None if start is None else start.failed_to,
        actor=actor,
    )


_MUTABLE = (
    "machine", "key", "state", "to_state", "status", "job_id", "event", "moves", "entered_at", "timeout_at",
    "timeout_event", "timeout_payload", "data", "error", "version", "waiting",
)  # fmt: skip


def put(instances: Iterable[InstanceRecord]) -> Query:
    """Return the query that writes the state of instances."""
    return Query("instance_put", many=[{name: getattr(each, name) for name in _MUTABLE} for each in instances])


def put_moved(instances: Iterable[InstanceRecord]) -> Query:
    """Return the query that writes that instances, as they are then, have entered their states.

    It writes fewer columns than `put`: the data and the timeout, of which there is none before and after, stay.
    """
    names = ("machine", "key", "status", "entered_at", "version")
    return Query("instance_move", many=[{name: getattr(each, name) for name in names} for each in instances])


def insert_moves(moves: Iterable[MoveRecord]) -> Query:
    """Return the query that inserts events."""
    names = MoveRecord.__struct_fields__
    return Query("move_insert", many=[{name: getattr(each, name) for name in names} for each in moves])


def next_moves(instances: Iterable[InstanceRecord]) -> Statements[dict[tuple[str, str], list[MoveRecord]]]:
    """Return the first two waiting events of instances; the event of a failure alone, if they show one."""
    many = [
        {
            "machine": each.machine,
            "key": each.key,
            "source": MoveSource.FAILED_TO if each.waiting is Waiting.FAILURE else None,
        }
        for each in instances
    ]
    found: dict[tuple[str, str], list[MoveRecord]] = {}
    rows: Sequence[MoveRecord] = (yield Query("moves_next", many=many, into=MoveRecord)) if many else ()
    for move in rows:
        found.setdefault((move.machine, move.key), []).append(move)
    return found


def skip_failures(instances: Iterable[InstanceRecord], at: datetime) -> Statements[list[MoveRecord]]:
    """Return the rows that end the events of failures which an operator has dealt with, before they had their turns."""
    many = [{"machine": each.machine, "key": each.key, "source": MoveSource.FAILED_TO} for each in instances]
    rows: Sequence[MoveRecord] = yield Query("moves_next", many=many, into=MoveRecord)
    return [replace(each, status=MoveStatus.SKIPPED, finished_at=at) for each in rows]


def without_failure(waiting: Waiting | None) -> Waiting | None:
    """Return what an instance has to take next after the event of its failure."""
    return Waiting.EVENT if waiting is Waiting.FAILURE else waiting


def end_moves(moves: Iterable[MoveRecord]) -> Query:
    """Return the query that writes that events have ended."""
    names = ("id", "status", "finished_at", "attempts", "error")
    return Query("move_end", many=[{name: getattr(each, name) for name in names} for each in moves])


def start_moves(started: Iterable[tuple[int, InstanceRecord, Start]]) -> Query:
    """Return the query that writes that the transitions of waiting events have begun."""
    rows = [
        {"id": number, "from_state": instance.state, "to_state": start.to_state, "failed_to": start.failed_to}
        for number, instance, start in started
    ]
    return Query("move_start", many=rows)


def write(new: Mapping[int, NewJob], queries: Iterable[Query], at: datetime) -> Statements[None]:
    """Insert the jobs of transitions and write the rows of their instances, as one batch."""
    inserts = jobs.statements(list(new.items()), at) if new else []
    yield Compound((*inserts, *queries))
