"""Starts the transitions of due timeouts and of waiting events. PURE.

Timeouts and waiting events have no sender that could receive an error: an event without a transition is recorded as
refused, and an error of a guard is recorded with it. While versions of the code differ, as during a deployment, a state
or a class of event may be new to this code: the event stays where it is until a worker with other code takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.engine.machine import EventSource, Ignored, InstanceRecord, InstanceStatus, MoveRecord, MoveStatus
from redrive.errors.foreign import summary
from redrive.stores.operations import jobs
from redrive.stores.operations.clock import instant
from redrive.stores.operations.machines.rows import (
    Choice,
    Start,
    began,
    end_moves,
    insert_moves,
    new_move,
    put,
    start_moves,
    write,
)
from redrive.stores.operations.machines.send import late, timeout_of
from redrive.stores.query import Query, Steps, reads, wakes

Resolve: TypeAlias = Callable[[InstanceRecord, str, bytes], Choice]
"""Chooses the transition of a stored event, given by the name of its type and its JSON."""


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


class DueTurns(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``machines_look``."""

    now: datetime
    timeout_at: datetime | None  # when the next timeout is due
    startable: bool  # True if an event waits for an instance that is free
    waiting: bool  # True if an event waits


class EventTurn(msgspec.Struct, frozen=True, gc=False):
    """An event that had its turn.

    Attributes:
        id: of the event, and of the job of its transition.
        status: RUNNING if its transition has begun.
        error: why it was refused.
    """

    machine: str
    key: str
    id: int
    event: str
    source: EventSource
    status: MoveStatus
    from_state: str | None
    to_state: str | None = None
    error: str | None = None


@reads
def look(known: Known, *, now: datetime | None = None) -> Steps[DueTurns]:
    """Return when the next timeout is due that the code can start, and whether events wait."""
    rows: Sequence[DueTurns] = yield Query("machines_look", known.params() | {"now": now}, into=DueTurns)
    return rows[0]


# Instances that another transaction has locked are skipped, so no worker waits for a transaction of a user.
@wakes
def take_turns(
    known: Known, resolve: Resolve, *, budget: int, now: datetime | None = None
) -> Steps[tuple[EventTurn, ...]]:
    """Start the transitions of due timeouts, and then of waiting events of free instances."""
    at = yield from instant(now)
    done = yield from _time_out(known, resolve, budget, at)
    params = known.params() | {"count": budget}
    free: Sequence[InstanceRecord] = yield Query("machines_free", params, into=InstanceRecord)
    more = yield from _take(free, known, resolve, at)
    return (*done, *more)


@wakes
def take_turn(
    known: Known, machine: str, key: str, resolve: Resolve, *, now: datetime | None = None
) -> Steps[tuple[EventTurn, ...]]:
    """Start the transition of the first waiting event of an instance, if it is free and not locked."""
    at = yield from instant(now)
    params = {"machine": machine, "key": key, "states": list(known.states)}
    free: Sequence[InstanceRecord] = yield Query("instance_free", params, into=InstanceRecord)
    return tuple((yield from _take(free, known, resolve, at)))


def _time_out(known: Known, resolve: Resolve, budget: int, at: datetime) -> Steps[list[EventTurn]]:
    params = known.params() | {"count": budget, "now": at}
    due: Sequence[InstanceRecord] = yield Query("machines_overdue", params, into=InstanceRecord)
    ids = yield from jobs.take("job", len(due)) if due else _none()
    result = _Turns()
    for instance, number in zip(due, ids, strict=True):
        event = timeout_of(instance)
        choice = _chosen(resolve, instance, event.event, event.payload)
        result.moves.append(
            new_move(
                event,
                number,
                at,
                source=EventSource.TIMEOUT,
                status=_status(choice),
                instance=instance,
                start=choice if isinstance(choice, Start) else None,
                error=choice if isinstance(choice, str) else None,
            )
        )
        if isinstance(choice, Start):
            result.begin(instance, number, choice, event.event)
        else:
            result.instances.append(replace(instance, timeout_at=None, timeout_event=None, timeout_payload=None))
        result.note(instance, number, event.event, EventSource.TIMEOUT, choice)
    yield from result.write(at)
    return result.turns


def _none() -> Steps[list[int]]:
    """Return no numbers."""
    yield from ()
    return []


def _take(free: Sequence[InstanceRecord], known: Known, resolve: Resolve, at: datetime) -> Steps[list[EventTurn]]:
    """Start the first waiting event of each of these instances, which are locked and free."""
    many = [{"machine": each.machine, "key": each.key} for each in free]
    waiting: Sequence[MoveRecord] = (yield Query("moves_next", many=many, into=MoveRecord)) if many else ()
    instances = {(each.machine, each.key): each for each in free}
    result = _Turns()
    for move in waiting:
        if f"{move.machine}/{move.event}" not in known.events:
            continue
        instance = instances[move.machine, move.key]
        if instance.status is InstanceStatus.FAILED:
            instance = _released(instance)
        assert move.event is not None and move.payload is not None  # noqa: S101, PT018 - it waits
        choice = _chosen(resolve, instance, move.event, move.payload)
        if isinstance(choice, Start):
            if instance.timeout_at is not None and instance.timeout_at <= at:
                result.moves.append((yield from late(instance, at)))
            result.begin(instance, move.id, choice, move.event)
            result.started.append((move.id, instance, choice))
        else:
            error = choice if isinstance(choice, str) else None
            result.ended.append(replace(move, status=_status(choice), finished_at=at, error=error))
        result.note(instance, move.id, move.event, move.source, choice)
    yield from result.write(at)
    return result.turns


def _released(instance: InstanceRecord) -> InstanceRecord:
    """Return a failed instance without its transition, so that the event of the failure can begin another one."""
    return replace(instance, status=InstanceStatus.RUNNING, to_state=None, job_id=None, event=None)


def _chosen(resolve: Resolve, instance: InstanceRecord, event: str, payload: bytes) -> Start | Ignored | str:
    """Return the choice for an event; the reason if there is none."""
    try:
        choice = resolve(instance, event, payload)
    except Exception as error:  # noqa: BLE001 - a guard of the user may raise anything
        # Of a guard, or of the type of the event; no sender could receive it.
        return summary(error)
    return choice if isinstance(choice, Start | Ignored) else str(choice)


def _status(choice: Start | Ignored | str) -> MoveStatus:
    if isinstance(choice, Start):
        return MoveStatus.RUNNING
    return MoveStatus.IGNORED if isinstance(choice, Ignored) else MoveStatus.REFUSED


class _Turns:
    """The rows to be written for several turns."""

    def __init__(self) -> None:
        self.turns: list[EventTurn] = []
        self.instances: list[InstanceRecord] = []
        self.moves: list[MoveRecord] = []
        self.started: list[tuple[int, InstanceRecord, Start]] = []
        self.ended: list[MoveRecord] = []
        self._new: dict[int, Start] = {}

    def begin(self, instance: InstanceRecord, number: int, start: Start, event: str) -> None:
        """Begin a transition."""
        self.instances.append(began(instance, number, start, event))
        self._new[number] = start

    def note(
        self, instance: InstanceRecord, number: int, event: str, source: EventSource, choice: Start | Ignored | str
    ) -> None:
        """Add a turn to the result."""
        turn = EventTurn(instance.machine, instance.key, number, event, source, _status(choice), instance.state)
        if isinstance(choice, Start):
            turn = replace(turn, to_state=choice.to_state)
        elif isinstance(choice, str):
            turn = replace(turn, error=choice)
        self.turns.append(turn)

    def write(self, at: datetime) -> Steps[None]:
        """Write all rows."""
        queries = []
        if self.instances:
            queries.append(put(self.instances))
        if self.moves:
            queries.append(insert_moves(self.moves))
        if self.started:
            queries.append(start_moves(self.started))
        if self.ended:
            queries.append(end_moves(self.ended))
        if queries:
            yield from write({number: start.job for number, start in self._new.items()}, queries, at)
