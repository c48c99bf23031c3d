"""Ends transitions: moves instances when their jobs succeed, and marks them when they fail for good. PURE.

The report of the job comes with the effects of its handler. The move, the next event, the timeout of the new state, the
data and the row of the history are written by the transaction that ends the attempt. A job that was superseded, because
an operator has reset its instance, ends under an id that the row no longer has, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from redrive.engine.machine import (
    FAILED,
    DataChange,
    Entered,
    FailedTransition,
    InstanceRecord,
    InstanceStatus,
    MoveRecord,
    MoveSource,
    MoveStatus,
    NextMachineEvent,
)
from redrive.engine.origin import Effect, OriginResult
from redrive.engine.records import NewJob
from redrive.stores.operations import jobs
from redrive.stores.operations.machines import rows
from redrive.stores.query import Query, Statements

E = TypeVar("E", bound=Effect)


class _Ended(msgspec.Struct):
    """The rows to be written after the ends of transitions."""

    instances: list[InstanceRecord] = []
    moved: list[InstanceRecord] = []  # of which only the state has changed
    done: dict[int, list[int]] = {}  # the events of transitions that succeeded, by the number of attempts
    ended: list[MoveRecord] = []
    added: list[MoveRecord] = []
    new: dict[int, NewJob] = {}
    caught: list[int] = []


def finish_all(reports: Sequence[OriginResult], at: datetime) -> Statements[None]:
    """Apply the ends of the jobs of transitions."""
    found = yield from rows.lock((each.origin.name, each.origin.part) for each in reports)
    current = []
    for each in reports:
        instance = found.get((each.origin.name, each.origin.part))
        if instance is not None and instance.job_id == (each.catches or each.job_id):
            current.append((each, instance))
    if not current:
        return
    known = yield from _unsuccessful(current)
    wanted = sum(_count(each, known.get(instance.job_id or 0)) for each, instance in current)
    ids = iter((yield from jobs.take("job", wanted)) if wanted else ())
    result = _Ended()
    for each, instance in current:
        move = known.get(instance.job_id or 0)
        if _is_move(each):
            _moved(result, each, instance, ids, at)
        elif each.has_catch:
            result.instances.append(replace(instance, error=each.why))
            if move is not None:
                result.ended.append(replace(move, attempts=each.attempt))
        else:
            _failed(result, each, instance, move, ids, at)
    yield from _write(result, at)


def _is_move(report: OriginResult) -> bool:
    """Return True if the instance enters its new state."""
    return report.succeeded and report.catches is None


# The end of a move, by far the most frequent one, needs nothing of the row of its event.
def _unsuccessful(ended: Sequence[tuple[OriginResult, InstanceRecord]]) -> Statements[dict[int, MoveRecord]]:
    """Return the events of the transitions that did not succeed."""
    ids = [instance.job_id for report, instance in ended if not _is_move(report)]
    if not ids:
        return {}
    moves: Sequence[MoveRecord] = yield Query("moves_these", {"ids": ids}, into=MoveRecord)
    return {move.id: move for move in moves}


def _count(report: OriginResult, move: MoveRecord | None) -> int:
    """Return how many ids the end of a transition takes, for a next event or for the event of a failure."""
    if _is_move(report):
        return int(_only(NextMachineEvent, report.effects) is not None)
    return int(not report.has_catch and move is not None and move.failed_to is not None)


def _moved(result: _Ended, report: OriginResult, instance: InstanceRecord, ids: Iterator[int], at: datetime) -> None:
    assert instance.to_state is not None  # a transition leads somewhere
    assert instance.job_id is not None  # and is a job
    effects = report.effects
    following, change = _only(NextMachineEvent, effects), _only(DataChange, effects)
    data = instance.data if change is None else change.data
    after = entering(instance, instance.to_state, _only(Entered, effects), at, data=data)
    result.done.setdefault(report.attempt, []).append(instance.job_id)
    if following is not None:
        number = next(ids)
        start = rows.Start(following.to_state, following.job, following.failed_to)
        event = rows.MachineEvent(instance.machine, instance.key, following.event, b"", following.digest)
        result.added.append(
            rows.new_move(
                event, number, at, source=MoveSource.NEXT, status=MoveStatus.RUNNING, instance=after, start=start
            )
        )
        after = rows.began(after, number, start, following.event)
        result.new[number] = following.job
    # Hot path: most moves change the state only.
    is_plain = following is None and change is None and instance.timeout_at is None and after.timeout_at is None
    (result.moved if is_plain else result.instances).append(after)


def entering(
    instance: InstanceRecord, state: str, how: Entered | None, at: datetime, *, data: bytes | None
) -> InstanceRecord:
    """Return an instance that enters a state, without a transition."""
    timeout_at = None if how is None or how.timeout_after is None else at + how.timeout_after
    return replace(
        instance,
        state=state,
        to_state=None,
        job_id=None,
        event=None,
        status=InstanceStatus.COMPLETED if how is not None and how.final else InstanceStatus.RUNNING,
        moves=instance.moves + 1,
        entered_at=at,
        timeout_at=timeout_at,
        timeout_event=None if how is None else how.timeout_event,
        timeout_payload=None if how is None else how.timeout_payload,
        data=data,
        error=None,
        version=instance.version if how is None else how.version,
    )


def _failed(  # noqa: PLR0917 - the parts of one failure
    result: _Ended,
    report: OriginResult,
    instance: InstanceRecord,
    move: MoveRecord | None,
    ids: Iterator[int],
    at: datetime,
) -> None:
    # After a catch, the error of the transition stands in the row already.
    error = (instance.error if report.catches is not None else None) or report.why or "it failed"
    result.instances.append(replace(instance, status=InstanceStatus.FAILED, error=error))
    if move is None:
        return
    attempts = move.attempts if report.catches is not None else report.attempt
    result.ended.append(replace(move, status=MoveStatus.FAILED, finished_at=at, attempts=attempts, error=error))
    if move.failed_to is not None:
        result.added.append(_to_failure(instance, move, error, next(ids), at))
        result.caught.append(move.id)


def _to_failure(instance: InstanceRecord, move: MoveRecord, error: str, number: int, at: datetime) -> MoveRecord:
    """Return the event that leads an instance to the state of ``failed_to=``; a worker with the code starts it."""
    what = FailedTransition(
        instance.machine, instance.key, instance.state, move.to_state or "", move.event or "", error, move.id
    )
    key = f"failed:{move.id}"
    event = rows.MachineEvent(instance.machine, instance.key, FAILED, msgspec.json.encode(what), key, key)
    return rows.new_move(event, number, at, source=MoveSource.FAILED_TO, status=MoveStatus.QUEUED, instance=instance)


def _only(kind: type[E], effects: Sequence[Effect]) -> E | None:
    """Return the last effect of a kind."""
    return next((each for each in reversed(effects) if isinstance(each, kind)), None)


def _write(result: _Ended, at: datetime) -> Statements[None]:
    queries = []
    if result.moved:
        queries.append(rows.put_moved(result.moved))
    if result.instances:
        queries.append(rows.put(result.instances))
    for attempts, numbers in result.done.items():
        queries.append(Query("moves_done", {"ids": numbers, "attempts": attempts, "now": at}))
    if result.ended:
        queries.append(rows.end_moves(result.ended))
    if result.added:
        queries.append(rows.insert_moves(result.added))
    if result.caught:
        # The state of ``failed_to=`` deals with the failure, as a catch task does.
        queries.append(Query("caught", many=[{"job_id": number, "now": at} for number in result.caught]))
    yield from rows.write(result.new, queries, at)
