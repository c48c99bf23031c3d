"""Starts the transitions of due timeouts and of waiting events. PURE.

Timeouts and waiting events have no sender that could receive an error: an event without a transition is recorded as
refused, and an error of a guard is recorded with it.

The sender of a waiting event does not lock the instance and so cannot mark it. `take_turns` does that: the events that
are not noted yet are read by an index, and then the instances that are marked and free by another one. Neither contains
the events that wait for busy instances, so a turn costs the same with any number of these.

While versions of the code differ, as during a deployment, a state
or a class of event may be new to this code: the event stays where it is until a worker with other code takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.engine.machine import Ignored, InstanceRecord, InstanceStatus, MoveRecord, MoveSource, MoveStatus, Waiting
from redrive.errors.foreign import summary
from redrive.stores.operations import jobs
from redrive.stores.operations.clock import instant
from redrive.stores.operations.machines.rows import (
    Choice,
    Known,
    Start,
    began,
    end_moves,
    insert_moves,
    new_move,
    next_moves,
    put,
    start_moves,
    without_failure,
    write,
)
from redrive.stores.operations.machines.send import late, timeout_of
from redrive.stores.query import Compound, Query, Statements, reads, wakes

Resolve: TypeAlias = Callable[[InstanceRecord, str, bytes], Choice]
"""Chooses the transition of a stored event, given by the name of its type and its JSON."""

NOTED = 1000
"""Waiting events that one turn of a machine notes."""


class DueTurns(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``machines_look``."""

    now: datetime
    timeout_at: datetime | None  # when the next timeout is due
    new: bool  # True if an event waits that was not noted yet
    startable: bool  # True if an event that was noted waits for an instance that is free
    waiting: bool  # True if an event waits

    @property
    def events(self) -> bool:
        """Return True if a turn has something to do for waiting events."""
        return self.new or self.startable


class MachineTurn(msgspec.Struct, frozen=True, gc=False):
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
    source: MoveSource
    status: MoveStatus
    from_state: str | None
    to_state: str | None = None
    error: str | None = None


class TurnsTaken(msgspec.Struct, frozen=True, gc=False):
    """The result of `take_turns`.

    Attributes:
        turns: the events that had their turns.
        marked: the number of changes to what instances and events show of waiting. Each of them changes the result of
            the next look, also if no event had its turn.
    """

    turns: tuple[MachineTurn, ...]
    marked: int


@reads
def look(known: Known, *, now: datetime | None = None) -> Statements[DueTurns]:
    """Return when the next timeout is due that the code can start, and whether events wait."""
    rows: Sequence[DueTurns] = yield Query("machines_look", known.params() | {"now": now}, into=DueTurns)
    return rows[0]


# Instances that another transaction has locked are skipped, so no worker waits for a transaction of a user.
@wakes
def take_turns(known: Known, resolve: Resolve, *, budget: int, now: datetime | None = None) -> Statements[TurnsTaken]:
    """Start the transitions of due timeouts, and then of waiting events of free instances.

    ``budget`` is the largest number of either, for each machine.
    """
    at = yield from instant(now)
    done: list[MachineTurn] = []
    marked = 0
    for machine in known.machines:
        params = known.params() | {"machine": machine, "count": budget}
        done += yield from _time_out(params, resolve, at)
        marked += yield from _note(machine)
        free: Sequence[InstanceRecord] = yield Query("machines_free", params, into=InstanceRecord)
        taken = yield from _take(free, known, resolve, at)
        done += taken.turns
        marked += len(taken.marks)
    return TurnsTaken(tuple(done), marked)


@wakes
def take_turn(
    known: Known, machine: str, key: str, resolve: Resolve, *, now: datetime | None = None
) -> Statements[tuple[MachineTurn, ...]]:
    """Start the transition of the first waiting event of an instance, if it is free and not locked."""
    at = yield from instant(now)
    params = {"machine": machine, "key": key, "states": list(known.states)}
    free: Sequence[InstanceRecord] = yield Query("instance_free", params, into=InstanceRecord)
    return tuple((yield from _take(free, known, resolve, at)).turns)


class _NewMove(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``moves_new``."""

    id: int
    key: str
    source: MoveSource


def _note(machine: str) -> Statements[int]:
    """Write that instances have waiting events, and return the number of events for which that was not written yet."""
    new: Sequence[_NewMove] = yield Query("moves_new", {"machine": machine, "count": NOTED}, into=_NewMove)
    if not new:
        return 0
    marks = dict.fromkeys((each.key for each in new), Waiting.EVENT)
    marks |= {each.key: Waiting.FAILURE for each in new if each.source is MoveSource.FAILED_TO}
    rows = [{"machine": machine, "key": key, "waiting": waiting} for key, waiting in marks.items()]
    yield Compound((Query("instance_mark", many=rows), Query("moves_noted", {"ids": [each.id for each in new]})))
    return len(new)


def _time_out(params: Mapping[str, object], resolve: Resolve, at: datetime) -> Statements[list[MachineTurn]]:
    due: Sequence[InstanceRecord] = yield Query("machines_overdue", {**params, "now": at}, into=InstanceRecord)
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
                source=MoveSource.TIMEOUT,
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
        result.note(instance, number, event.event, MoveSource.TIMEOUT, choice)
    yield from result.write(at)
    return result.turns


def _none() -> Statements[list[int]]:
    """Return no numbers."""
    yield from ()
    return []


def _take(free: Sequence[InstanceRecord], known: Known, resolve: Resolve, at: datetime) -> Statements[_Turns]:
    """Start the first waiting event of each of these instances, which are locked and free."""
    waiting = yield from next_moves(free)
    result = _Turns()
    for given in free:
        events = waiting.get((given.machine, given.key), [])
        instance = replace(given, waiting=_left(given, events))
        if not events:
            result.marks.append(instance)
        elif f"{given.machine}/{events[0].event}" in known.events:
            yield from _take_one(result, given, instance, events[0], resolve, at)
    yield from result.write(at)
    return result


def _take_one(  # noqa: PLR0917 - an instance before and after the turn of an event
    result: _Turns, given: InstanceRecord, instance: InstanceRecord, move: MoveRecord, resolve: Resolve, at: datetime
) -> Statements[None]:
    if instance.status is InstanceStatus.FAILED:
        instance = _released(instance)
    assert move.event is not None  # it waits
    assert move.payload is not None
    choice = _chosen(resolve, instance, move.event, move.payload)
    if isinstance(choice, Start):
        if instance.timeout_at is not None and instance.timeout_at <= at:
            result.moves.append((yield from late(instance, at)))
        result.begin(instance, move.id, choice, move.event)
        result.started.append((move.id, instance, choice))
    else:
        error = choice if isinstance(choice, str) else None
        result.ended.append(replace(move, status=_status(choice), finished_at=at, error=error))
        if instance.waiting is not given.waiting:
            result.marks.append(replace(given, waiting=instance.waiting))
    result.note(instance, move.id, move.event, move.source, choice)


def _left(instance: InstanceRecord, events: Sequence[MoveRecord]) -> Waiting | None:
    """Return what an instance has to take after its first waiting event."""
    return without_failure(instance.waiting) if len(events) > 1 or instance.waiting is Waiting.FAILURE else None


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
        self.turns: list[MachineTurn] = []
        self.instances: list[InstanceRecord] = []
        self.moves: list[MoveRecord] = []
        self.started: list[tuple[int, InstanceRecord, Start]] = []
        self.ended: list[MoveRecord] = []
        self.marks: list[InstanceRecord] = []
        self._new: dict[int, Start] = {}

    def begin(self, instance: InstanceRecord, number: int, start: Start, event: str) -> None:
        """Begin a transition."""
        self.instances.append(began(instance, number, start, event))
        self._new[number] = start

    def note(
        self, instance: InstanceRecord, number: int, event: str, source: MoveSource, choice: Start | Ignored | str
    ) -> None:
        """Add a turn to the result."""
        turn = MachineTurn(instance.machine, instance.key, number, event, source, _status(choice), instance.state)
        if isinstance(choice, Start):
            turn = replace(turn, to_state=choice.to_state)
        elif isinstance(choice, str):
            turn = replace(turn, error=choice)
        self.turns.append(turn)

    def write(self, at: datetime) -> Statements[None]:
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
        if self.marks:
            queries.append(put(self.marks))
        if queries:
            yield from write({number: start.job for number, start in self._new.items()}, queries, at)
