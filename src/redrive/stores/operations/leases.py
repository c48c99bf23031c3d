"""Claiming, settling, and sweeping up after the dead. PURE.

The fence
---------

A claim takes a block of lease ids from a sequence that never goes back, and writes one into each row it takes. Every
later write names its lease id, and the statement matches the row by it; where another claim, a sweep, a cancel or a
settle came first, the row has another lease id or none, and the statement changes nothing. That is the whole of the
protection against zombies, and it needs no clock.

A settle whose commit succeeded but whose reply was lost is tried again by the driver's caller. Its leases are then not
current any more, which looks like being fenced off. The history tells the two apart: it has a line under this very
lease (conformance D25), and the answer is "already settled" rather than "lost".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from redrive.engine.frozen import UNREADABLE, freeze
from redrive.engine.lease import GRACE, UNKNOWN_TASK_DELAY
from redrive.engine.lifecycle import FINAL
from redrive.engine.outcome import Lost, Outcome, Released, Succeeded
from redrive.engine.records import Attempt, Claim, NewJob
from redrive.engine.settle import Transition, decide
from redrive.policy import format_duration
from redrive.stores.operations.clock import instant
from redrive.stores.operations.jobs import insert
from redrive.stores.query import Query, Rows, Steps, writes

__all__ = ["Claimed", "Ending", "Settled", "claim", "settle", "sweep"]

_NEWER = Released("its policy cannot be read by this redrive: a newer one may", UNKNOWN_TASK_DELAY, unknown_task=True)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim answers.

    Attributes:
        claims: the jobs taken, in the order in which they should start.
        rest_for: how long it is until the next job of these queues is due; None where none waits, zero where more are
            due than were asked for.
        known: is the worker registered? If not, nothing was claimed; it must register again.
    """

    claims: tuple[Claim, ...]
    rest_for: timedelta | None
    known: bool = True


@dataclass(frozen=True, slots=True)
class NextDue:
    """A row of the query ``next_due``."""

    due_at: datetime | None


class Ending(msgspec.Struct, frozen=True):
    """The end of one attempt, to be settled.

    Attributes:
        claim: the attempt.
        outcome: how it ended.
        sample: a random number in [0, 1), for jitter.
    """

    claim: Claim
    outcome: Outcome
    sample: float


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle answers.

    Attributes:
        moved: what became of each attempt that was settled.
        lost: lease ids that were not current: nothing was written for them.
    """

    moved: tuple[Transition, ...]
    lost: frozenset[int]


@writes
def claim(
    worker_id: int,
    count: int,
    *,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    now: datetime | None = None,
) -> Steps[Claimed]:
    """Take up to ``count`` due jobs, each under a new lease.

    A job whose policy cannot be read waits, visibly, for a worker that can; like a job of an unknown task.

    A claim is a heartbeat too: a worker that wakes up after its lease ran out, and claims before it beats, would else
    lose to the next sweep what it has just taken.

    Args:
        worker_id: who takes them.
        count: how many at most.
        lease_for: how long the worker is believed from now on.
        queues: from which queues; None means all.
        now: the instant, in tests.

    Returns:
        The claims and how long to rest.
    """
    at = yield from instant(now)
    named = list(queues) if queues is not None else None
    due = yield Query("next_due", {"queues": named}, into=NextDue)
    earliest: datetime | None = due[0].due_at
    if earliest is None or earliest > at:
        return Claimed((), None if earliest is None else earliest - at)
    if not (yield Query("worker_beat", {"id": worker_id, "now": at, "expires_at": at + lease_for})):
        return Claimed((), None, known=False)
    taken = yield Query("take", {"name": "lease", "count": count})
    params = {"now": at, "count": count, "queues": named, "worker_id": worker_id, "lease_before": taken[0][0]}
    rows: Sequence[Claim] = yield Query("claim", params, into=Claim)
    for odd in rows:
        if odd.policy is UNREADABLE:
            yield from _write(odd, decide(odd, _NEWER, at, 0.0), at)
    claims = tuple(sorted((each for each in rows if each.policy is not UNREADABLE), key=_by_lease))
    if len(rows) == count:
        return Claimed(claims, timedelta(0))
    rest = yield Query("next_due", {"queues": named}, into=NextDue)
    later: datetime | None = rest[0].due_at
    return Claimed(claims, None if later is None else later - at)


def _by_lease(claim: Claim) -> int:
    return claim.lease_id


@writes
def settle(endings: Sequence[Ending], *, now: datetime | None = None) -> Steps[Settled]:
    """Write the ends of attempts, in one transaction, each only if its lease is still current.

    Args:
        endings: the attempts and how they ended.
        now: the instant, in tests.

    Returns:
        What became of each, and which leases were lost.
    """
    at = yield from instant(now)
    moved: list[Transition] = []
    missed: list[Transition] = []
    plain: list[Transition] = []
    for ending in endings:
        transition = decide(ending.claim, ending.outcome, at, ending.sample)
        if isinstance(ending.outcome, Succeeded) and not ending.claim.catching:
            plain.append(transition)
        else:
            written = yield from _write(ending.claim, transition, at)
            (moved if written else missed).append(transition)
    if plain:
        done = yield from _write_successes(plain, at)
        for transition in plain:
            (moved if transition.lease_id in done else missed).append(transition)
    already = (yield from _closed_before(missed)) if missed else frozenset()
    moved += [each for each in missed if each.lease_id in already]
    return Settled(tuple(moved), frozenset(each.lease_id for each in missed) - already)


def _write_successes(plain: Sequence[Transition], at: datetime) -> Generator[Query, Rows, set[int]]:
    """The hot path: successes without a catch differ only in their results. Answers the leases that were current."""
    params = {"now": at, "job_ids": [each.job_id for each in plain], "lease_ids": [each.lease_id for each in plain]}
    # By lease and not by job: a batch may hold a job twice, under the lease that it lost and under the present one.
    done = {row[0] for row in (yield Query("close_succeeded", params))}
    yield Query("settle_succeeded", params)
    results = [
        {"job_id": each.job_id, "result": each.result}
        for each in plain
        if each.result is not None and each.lease_id in done
    ]
    if results:
        yield Query("result_put", many=results)
    return done


_CLOSED = Attempt.__struct_fields__


def _write(claim: Claim, transition: Transition, at: datetime) -> Generator[Query, Rows, bool]:
    """Write one transition whole: job, history, result, catch job, caught parent (law 6)."""
    rows = yield Query("settle", _columns(transition, at))
    if not rows:
        return False
    closed = transition.closed
    if closed is not None:
        yield Query("attempt_insert", {name: getattr(closed, name) for name in _CLOSED})
    if transition.result is not None:
        yield Query("result_put", {"job_id": transition.job_id, "result": transition.result})
    if transition.caught is not None:
        yield Query("caught", {"job_id": transition.caught, "now": at})
    if transition.catch is not None:
        yield from insert([_catch_job(claim, transition.catch)], at)
    return True


def _columns(transition: Transition, at: datetime) -> dict[str, object]:
    return {
        "job_id": transition.job_id,
        "lease_id": transition.lease_id,
        "state": transition.state,
        "hold": transition.hold,
        "note": transition.note,
        "attempt": transition.attempt,
        "failures": transition.failures,
        "crashes": transition.crashes,
        "snoozes": transition.snoozes,
        "by_rule": list(transition.by_rule) or None,
        "scheduled_at": transition.scheduled_at,
        "last_delay": transition.last_delay,
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


def _closed_before(missed: Sequence[Transition]) -> Generator[Query, Rows, frozenset[int]]:
    """Which of these were in truth settled by this very lease, in a commit whose reply was lost?"""
    params = {"job_ids": [each.job_id for each in missed], "lease_ids": [each.lease_id for each in missed]}
    outcomes = dict((yield Query("closed_before", params)))
    return frozenset(
        each.lease_id for each in missed if each.closed and outcomes.get(each.lease_id) == each.closed.outcome.value
    )


@writes
def sweep(budget: int, *, grace: timedelta = GRACE, now: datetime | None = None) -> Steps[tuple[Transition, ...]]:
    """Take away the leases of workers that fell silent and of attempts that outlived their hard timeout.

    Row by row, each guarded by the lease id that was read, so one odd row stops no other (poison for FTL's reaper).
    A row whose policy cannot be read is left to a worker that can: whether the task may run again is written there.

    Args:
        budget: how many leases at most; the work of one pass is bounded.
        grace: added to an attempt timeout before a living worker loses the attempt.
        now: the instant, in tests.

    Returns:
        What became of each job; shorter than ``budget`` when nothing is left to sweep.
    """
    at = yield from instant(now)
    yield Query("workers_bury", {"now": at})
    rows: Sequence[Claim] = yield Query("lost", {"now": at, "grace": grace, "budget": budget}, into=Claim)
    moved = []
    for lost in rows:
        if lost.policy is UNREADABLE:
            continue
        transition = decide(lost, Lost(_fate(lost, at - grace)), at, 0.0)
        if (yield from _write(lost, transition, at)):
            moved.append(transition)
    return tuple(moved)


def _fate(lost: Claim, cut_off: datetime) -> str:
    limit = None if lost.catching else lost.policy.attempt_timeout
    if limit is not None and lost.claimed_at + limit <= cut_off:
        return f"attempt {lost.attempt} outlived its timeout of {format_duration(limit)} on worker {lost.worker_id}"
    return f"worker {lost.worker_id} fell silent during attempt {lost.attempt}"
