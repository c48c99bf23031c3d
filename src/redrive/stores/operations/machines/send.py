"""Sends events to instances: starts their transitions, or puts the events into line. PURE.

A transition of an instance runs alone. An event that arrives during one is refused, waits for its turn, or is dropped;
its sender does not lock the instance then, because the end of the transition would wait for the sender's transaction,
and other ends of attempts with it.
An event that waits is only inserted: its sender keeps the instance from being deleted, and locks nothing else, so a
transaction of a user that stays open holds up no other event. `redrive.stores.operations.machines.turns` starts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from redrive.engine.machine import Ignored, InstanceRecord, InstanceStatus, MoveRecord, MoveSource, MoveStatus
from redrive.errors import ConfigurationError, EventConflict, MachineBusy, MachineFailed, NoTransition
from redrive.stores.operations import jobs
from redrive.stores.operations.jobs import NumberBlock, numbers
from redrive.stores.operations.machines.rows import (
    Choice,
    Choose,
    MachineEvent,
    Start,
    began,
    insert_moves,
    lock_idle,
    new_move,
    put,
    write,
)
from redrive.stores.query import Query, Statements, wakes


class Busy(StrEnum):
    """The effect of an event while a transition of the instance runs."""

    RAISE = "raise"
    """The sender receives `redrive.errors.MachineBusy`."""
    QUEUE = "queue"
    """The event waits for its turn."""
    DROP = "drop"
    """The event is dropped."""


class SentStatus(StrEnum):
    """The result of a send."""

    STARTED = "started"
    """The transition of the event has begun."""
    QUEUED = "queued"
    """The event waits for its turn."""
    IGNORED = "ignored"
    """The state of the instance ignores the event."""
    DROPPED = "dropped"
    """The instance was busy, and the event was dropped."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The answer to a send; a repetition with the same event key has the same one.

    Attributes:
        id: of the event, and of the job of its transition; None if the event was not stored.
        status: what has become of the event.
        from_state: the state of the instance when the transition began; None before its first transition.
        to_state: the state to which the transition leads; None if none has begun.
    """

    machine: str
    key: str
    id: int | None
    status: SentStatus
    from_state: str | None = None
    to_state: str | None = None


# Round trips on PostgreSQL: one for the numbers, and BEGIN, lock, all writes, COMMIT.
@wakes
def send(
    event: MachineEvent,
    choose: Choose,
    *,
    busy: Busy = Busy.RAISE,
    queues: Sequence[str] = (),
    begun: Callable[[int], object] | None = None,
    now: datetime | None = None,
) -> Statements[Sent]:
    """Send an event to an instance, which its first event creates.

    ``queues`` are those of the machine's jobs. ``begun`` receives the id of the event if this call begins a transition,
    which the answer does not show: a repetition has the same one. Raise `NoTransition`, `MachineBusy` or
    `MachineFailed` if no transition can begin, `EventConflict` if another event has its key, `ConfigurationError` if a
    queue is ordered, or what a guard raises; nothing is written then.
    """
    wanted = {"now": now, "queues": sorted(queues), "count": 1}
    rows: Sequence[NumberBlock] = yield Query("gate", wanted, into=NumberBlock)
    if rows[0].ordered is not None:
        message = f"queue {rows[0].ordered!r} is ordered, and transitions have no partition: give the machine another"
        raise ConfigurationError(message)
    (number,) = numbers((row.first, row.last) for row in rows)
    if busy is Busy.QUEUE:
        return (yield from _wait(event, number, rows[0].now))
    sent = yield from _send(event, choose, number, rows[0].now, drop=busy is Busy.DROP)
    if begun is not None and sent.id == number:
        begun(number)
    return sent


def _send(event: MachineEvent, choose: Choose, number: int, at: datetime, *, drop: bool) -> Statements[Sent]:
    while (instance := (yield from lock_idle(event.machine, event.key))) is None:
        choice = choose(None)
        if isinstance(choice, NoTransition):
            raise choice
        if isinstance(choice, Start) and (yield from _create(event, choice, number, at)):
            return _started(event, number, choice, None)
        # Another transaction has created it in between, and yet another one may have deleted it.
    answer = yield from _answer(event)
    if answer is not None:
        return answer
    if instance.busy:
        if drop and instance.status is not InstanceStatus.FAILED:
            return Sent(event.machine, event.key, None, SentStatus.DROPPED, instance.state)
        raise refusal(instance)
    return (yield from _chosen(event, instance, choose(instance), number, at))


def _chosen(
    event: MachineEvent, instance: InstanceRecord, choice: Choice, number: int, at: datetime
) -> Statements[Sent]:
    match choice:
        case NoTransition():
            raise choice
        case Ignored():
            if event.event_key is not None:
                ignored = new_move(
                    event, number, at, source=MoveSource.SEND, status=MoveStatus.IGNORED, instance=instance
                )
                yield insert_moves([ignored])
            return Sent(event.machine, event.key, None, SentStatus.IGNORED, instance.state)
        case Start():  # pragma: no branch - the last one; mypy proves that all are here
            yield from begin(event, instance, choice, number, at)
            return _started(event, number, choice, instance.state)


def _create(event: MachineEvent, start: Start, number: int, at: datetime) -> Statements[bool]:
    """Insert an instance with its first transition; return False if the instance exists now."""
    row = {"machine": event.machine, "key": event.key, "now": at}
    row |= {"to_state": start.to_state, "job_id": number, "event": event.event}
    if not (yield Query("instance_insert", row)):
        return False
    move = new_move(event, number, at, source=MoveSource.SEND, status=MoveStatus.RUNNING, instance=None, start=start)
    yield from write({number: start.job}, [insert_moves([move])], at)
    return True


def begin(event: MachineEvent, instance: InstanceRecord, start: Start, number: int, at: datetime) -> Statements[None]:
    """Begin the transition of an event that was sent now; the instance is locked and free."""
    moves = [
        new_move(event, number, at, source=MoveSource.SEND, status=MoveStatus.RUNNING, instance=instance, start=start)
    ]
    if instance.timeout_at is not None and instance.timeout_at <= at:
        moves.append((yield from late(instance, at)))
    queries = [put([began(instance, number, start, event.event)]), insert_moves(moves)]
    yield from write({number: start.job}, queries, at)


def late(instance: InstanceRecord, at: datetime) -> Statements[MoveRecord]:
    """Return the row of a timeout that was due, but another event came first."""
    (number,) = yield from jobs.take("job", 1)
    event = timeout_of(instance)
    return new_move(event, number, at, source=MoveSource.TIMEOUT, status=MoveStatus.LATE, instance=instance)


def timeout_of(instance: InstanceRecord) -> MachineEvent:
    """Return the event of the timeout of an instance; its key names the move that has set it."""
    assert instance.timeout_event is not None  # the caller has checked
    assert instance.timeout_payload is not None
    key = f"timeout:{instance.moves}"
    return MachineEvent(instance.machine, instance.key, instance.timeout_event, instance.timeout_payload, key, key)


def refusal(instance: InstanceRecord) -> MachineBusy | MachineFailed:
    """Return the error for an event to an instance that is busy."""
    where = f"machine {instance.machine!r}: the transition of {instance.key!r} from {instance.state or '(new)'} to "
    if instance.status is InstanceStatus.FAILED:
        return MachineFailed(
            f"{where}{instance.to_state} has failed: {instance.error}; retry or skip it, or reset the instance",
            job_id=instance.job_id,
        )
    return MachineBusy(
        f"{where}{instance.to_state} is already executing, as job {instance.job_id}; send the event later, or with "
        'busy="queue"',
        job_id=instance.job_id,
    )


def _started(event: MachineEvent, number: int, start: Start, state: str | None) -> Sent:
    return Sent(event.machine, event.key, number, SentStatus.STARTED, state, start.to_state)


def _answer(event: MachineEvent) -> Statements[Sent | None]:
    """Return the answer to an event with the same key; None if there is none."""
    if event.event_key is None:
        return None
    params = {"machine": event.machine, "key": event.key, "event_key": event.event_key}
    rows: Sequence[MoveRecord] = yield Query("move_keyed", params, into=MoveRecord)
    return _repeated(rows[0], event) if rows else None


def _repeated(move: MoveRecord, event: MachineEvent) -> Sent:
    if move.digest != event.digest:
        other = f"{move.event}" if move.event != event.event else f"{move.event} with other content"
        raise EventConflict(
            f"machine {event.machine!r}: the key {event.event_key!r} belongs to another event of {event.key!r}, "
            f"{other} of {move.sent_at:%Y-%m-%d %H:%M:%S} UTC; this one is {event.event}"
        )
    if move.status is MoveStatus.IGNORED:
        return Sent(event.machine, event.key, None, SentStatus.IGNORED, move.from_state)
    if move.to_state is None:
        return Sent(event.machine, event.key, move.id, SentStatus.QUEUED)
    return Sent(event.machine, event.key, move.id, SentStatus.STARTED, move.from_state, move.to_state)


# -------------------------------------------------------------------------------------------------------------- waiting


def _wait(event: MachineEvent, number: int, at: datetime) -> Statements[Sent]:
    """Put an event into line."""
    where = {"machine": event.machine, "key": event.key}
    row = where | {"now": at, "to_state": None, "job_id": None, "event": None}
    while not (yield Query("instance_hold", where)):
        if (yield Query("instance_insert", row)):
            break
    move = new_move(event, number, at, source=MoveSource.SEND, status=MoveStatus.QUEUED, instance=None)
    if not (yield insert_moves([move])):
        answer = yield from _answer(event)
        assert answer is not None  # its key was taken
        return answer
    return Sent(event.machine, event.key, number, SentStatus.QUEUED)
