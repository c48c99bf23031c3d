"""Writing what becomes of jobs when their attempts end. PURE."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime

from redrive.engine.frozen import freeze
from redrive.engine.lifecycle import FINAL, LifecycleEvent
from redrive.engine.records import AttemptRecord, Claim, NewJob
from redrive.engine.transition import Transition
from redrive.stores.operations import keys, origins
from redrive.stores.operations.jobs import insert
from redrive.stores.query import Query, Rows

__all__ = ["write_all", "write_untold"]


def write_all(pairs: Sequence[tuple[Claim, Transition]], at: datetime) -> Generator[Query, Rows, dict[int, Transition]]:
    """Write transitions, each whole or not at all: job, history, result, catch job, caught parent, key (law 6).

    Args:
        pairs: attempts and what is to be written of them.
        at: the instant of the transaction.

    Returns:
        What became of the jobs, by the leases that were current: what was to be, unless another job has the key now.
    """
    done = yield from write_untold(pairs, at)
    yield from origins.tell(done.values(), at)
    return done


def write_untold(
    pairs: Sequence[tuple[Claim, Transition]], at: datetime
) -> Generator[Query, Rows, dict[int, Transition]]:
    """The same, but what has made the jobs is not told: whoever calls this does that, of all that it ends at once.

    They travel together: what they have in common is one statement each, whatever their number.

    Args:
        pairs: attempts and what is to be written of them.
        at: the instant of the transaction.

    Returns:
        What became of the jobs, by the leases that were current.
    """
    done: set[int] = set()
    waiting = [_still_open(each) for _, each in pairs if each.event is LifecycleEvent.WAIT]
    if waiting:
        done.update(row[0] for row in (yield Query("suspend", many=waiting)))
    aside = [_still_open(each) for _, each in pairs if each.event is LifecycleEvent.SET_ASIDE]
    if aside:
        done.update(row[0] for row in (yield Query("set_aside", many=aside)))
    ended = [pair for pair in pairs if pair[1].event not in _OPEN]
    if ended:
        current = {row[0] for row in (yield Query("settle", many=[_columns(each, at) for _, each in ended]))}
        yield from _write_rest([pair for pair in ended if pair[1].lease_id in current], at)
        done |= current
    written = [pair for pair in pairs if pair[1].lease_id in done]
    return {each.lease_id: each for _, each in written} | (yield from keys.follow(written, at))


def _write_rest(pairs: Sequence[tuple[Claim, Transition]], at: datetime) -> Generator[Query, Rows, None]:
    """Write what belongs to the ends of these attempts beside the job itself."""
    moved = [transition for _, transition in pairs]
    closed = [
        {name: getattr(each.closed, name) for name in AttemptRecord.__struct_fields__}
        for each in moved
        if each.closed is not None
    ]
    if closed:
        yield Query("attempt_insert", many=closed)
    results = [{"job_id": each.job_id, "result": each.result} for each in moved if each.result is not None]
    if results:
        yield Query("result_put", many=results)
    caught = [{"job_id": each.caught, "now": at} for each in moved if each.caught is not None]
    if caught:
        yield Query("caught", many=caught)
    yield from insert([_catch_job(claim, each.catch) for claim, each in pairs if each.catch is not None], at)


_OPEN = frozenset({LifecycleEvent.WAIT, LifecycleEvent.SET_ASIDE})
"""The events after which the attempt is still open."""


def _still_open(transition: Transition) -> dict[str, object]:
    wanted = ("job_id", "lease_id", "scheduled_at", "note")
    return {name: getattr(transition, name) for name in wanted}


def _columns(transition: Transition, at: datetime) -> dict[str, object]:
    return {
        "job_id": transition.job_id,
        "lease_id": transition.lease_id,
        "state": transition.state,
        "before": transition.before,
        "hold": transition.hold,
        "note": transition.note,
        "attempt": transition.attempt,
        "failures": transition.failures,
        "crashes": transition.crashes,
        "snoozes": transition.snoozes,
        "by_rule": list(transition.by_rule) or None,
        "scheduled_at": transition.scheduled_at,
        "last_delay": transition.last_delay,
        "unreadable_at": transition.unreadable_at,
        "finished_at": at if transition.state in FINAL else None,
        "reason": transition.reason,
        "error": transition.error,
    }


def _catch_job(claim: Claim, task: str) -> NewJob:
    """The catch task runs at once, on the queue where its parent ran, under the parent's policy (seed 001)."""
    return NewJob(
        task=task,
        queue=claim.queue,
        priority=claim.priority,
        payload=None,
        policy=freeze(claim.policy),
        parent_id=claim.id,
    )
