"""Claiming, settling, and sweeping up after the dead. PURE.

The fence
---------

A claim takes lease ids from a sequence that never goes back, and writes one into each row it takes. Every later write
names its lease id, and the statement matches the row by it; where another claim, a sweep, a cancel or a settle came
first, the row has another lease id or none, and the statement changes nothing. That is the whole of the protection
against zombies, and it needs no clock.

A settle whose commit succeeded but whose reply was lost is tried again by the driver's caller. Its leases are then not
current any more, which looks like being fenced off. The history tells the two apart: it has a line under this very
lease (conformance D25), and the answer is "already settled" rather than "lost".
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec

from redrive.engine.frozen import UnreadablePolicy, is_readable
from redrive.engine.lease import ATTEMPT_LIMIT, GRACE, limit_of
from redrive.engine.lifecycle import LifecycleEvent, State
from redrive.engine.outcome import Lost, Outcome, Succeeded, Unreadable
from redrive.engine.queue import Due
from redrive.engine.records import AttemptOutcome, Claim
from redrive.engine.settle import decide, set_aside
from redrive.engine.transition import Transition
from redrive.policy import format_duration
from redrive.stores.operations import keys, limited_queues, origins, traces, unstopped
from redrive.stores.operations.clock import instant
from redrive.stores.operations.floors import ClaimFilter, LaneCursor, NextDue, next_due, parameters
from redrive.stores.operations.history import closed_before, said_before
from redrive.stores.operations.limited_queues import Offer, QueueScan
from redrive.stores.operations.transitions import write_all, write_untold
from redrive.stores.query import DRAWN, Query, Rows, Steps, wakes, writes

__all__ = ["Claimed", "Ending", "Settled", "claim", "settle", "sweep"]

CONTENDED = timedelta(milliseconds=10)
"""How long a claimer rests where all that is due is just being taken by others."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim answers.

    Attributes:
        claims: the jobs taken, in the order in which they should start.
        rest_for: how long it is until the next job of these queues is due; None where none waits, zero after a claim
            that took something: look again, while that runs.
        known: is the worker registered? If not, nothing was claimed; it must register again.
        walks: what the worker's next claim should be told, so that it goes on where this one left off.
        held: what became of jobs whose policies cannot be read, each with the traceback of that.
    """

    claims: tuple[Claim, ...]
    rest_for: timedelta | None
    known: bool = True
    walks: tuple[QueueScan, ...] = ()
    held: tuple[tuple[Transition, str], ...] = ()


class Ending(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt, to be settled.

    Attributes:
        claim: the attempt.
        outcome: how it ended.
        sample: a random number in [0, 1), for jitter.
        trace: what links the next attempt to this one; see `redrive.stores.operations.traces`.
        unstopped: True if its handler goes on, in a thread.
    """

    claim: Claim
    outcome: Outcome
    sample: float
    trace: str | None = None
    unstopped: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle answers.

    Attributes:
        moved: what became of each attempt that was settled.
        lost: lease ids that were not current: nothing was written for them.
        cancelled: those of the lost whose job was cancelled while they ran.
    """

    moved: tuple[Transition, ...]
    lost: frozenset[int]
    cancelled: frozenset[int] = frozenset()


@writes
def claim(  # noqa: PLR0913 - who, how many, for how long, and from where
    worker_id: int,
    count: int,
    *,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    tasks: Collection[str] | None = None,
    walks: Sequence[QueueScan] = (),
    floors: Sequence[LaneCursor] = (),
    now: datetime | None = None,
) -> Steps[Claimed]:
    """Take up to ``count`` due jobs, each under a new lease.

    A job whose policy cannot be read waits, visibly, for a worker that can; like a job of an unknown task.

    A claim is a heartbeat too: a worker that claims before its next beat must not lose these jobs to a sweep.

    Args:
        worker_id: who takes them.
        count: how many at most.
        lease_for: how long the worker is believed from now on.
        queues: from which queues; None means all.
        tasks: of which tasks, by the names under which jobs are stored; None means all.
        walks: what the worker's last claim answered.
        floors: where to begin in lanes of plain queues; see `redrive.stores.operations.floors`.
        now: the instant, in tests.

    Returns:
        The claims and how long to rest.
    """
    served = ClaimFilter(queues, tasks)
    where = {**served.parameters, **parameters(floors)}
    due = yield from next_due(where, now)
    at = due.now
    offers = (yield from limited_queues.offers(served, count, at, walks)) if _is_past(due.special_at, at) else ()
    going = tuple(offer.walk for offer in offers if offer.walk is not None)
    if not _is_past(due.due_at, at) and not any(offer.jobs for offer in offers):
        return Claimed((), (yield from _rest(served, due, offers)), walks=going)
    beat = Query("worker_beat", {"id": worker_id, "now": at, "expires_at": at + lease_for})
    rows = yield from _take(beat, count, where, at, offers)
    yield from keys.drop(keys.starters(rows))
    held = yield from _hold([each for each in rows if not is_readable(each.policy)], at)
    claims = tuple(sorted((each for each in rows if is_readable(each.policy)), key=attrgetter("lease_id")))
    if rows:  # what is due next is asked by the next look, while these jobs run
        return Claimed(claims, timedelta(0), walks=going, held=held)
    if not (yield beat):  # nothing is taken for a worker that nobody knows: was that the reason?
        return Claimed((), None, known=False)
    rest = yield from _rest(served, (yield from next_due(where, at)), offers)
    # What is due and was not taken is just being taken by others, or let go of: it is not worth a busy look.
    return Claimed((), None if rest is None else max(rest, CONTENDED), walks=going)


def _hold(odd: Sequence[Claim], at: datetime) -> Generator[Query, Rows, tuple[tuple[Transition, str], ...]]:
    """Hold jobs whose policies cannot be read."""
    held = []
    for each in odd:
        assert isinstance(each.policy, UnreadablePolicy)  # noqa: S101 - the caller has looked
        held.append((each, decide(each, Unreadable(each.policy.why, policy=True), at, 0.0), each.policy.trace))
    if held:
        yield from write_all([(claim, transition) for claim, transition, _ in held], at)
    return tuple((transition, trace) for _, transition, trace in held)


def _take(
    beat: Query, count: int, where: Mapping[str, object], at: datetime, offers: Sequence[Offer]
) -> Generator[Query, Rows, Sequence[Claim]]:
    """Take jobs, of plain queues in one statement, and where special ones have any, of all in a common order."""
    params = {"now": at, "worker_id": beat.params["id"], "count": count, "salt": DRAWN}
    # SQLite's claim hands out the block that was taken just before it. PostgreSQL's draws from the sequence by itself;
    # there a part of a statement that only asks, and whose answer nobody uses, is not run at all.
    also = (beat, Query("take", {"name": "lease", "count": count}))
    rows: Sequence[Claim]
    if not any(offer.jobs for offer in offers):
        rows = yield Query("claim", {**params, **where}, into=Claim, also=also, complete=True)
        return rows
    served = {name: where[name] for name in ("queues", "tasks")}
    heads: Sequence[Due] = yield Query("heads", {**served, "now": at, "count": count}, into=Due)
    ids = limited_queues.choose(heads, offers, at, count)
    rows = yield Query("claim_chosen", {**params, "ids": ids}, into=Claim, also=also)
    yield from limited_queues.note(rows, offers, at)
    return rows


def _rest(where: ClaimFilter, due: NextDue, offers: Sequence[Offer]) -> Generator[Query, Rows, timedelta | None]:
    """How long it is until the next job can start, if nothing happens until then."""
    other = (yield from limited_queues.later(where, due.now, offers)) if offers else due.special_at
    earliest = min((each for each in (due.due_at, other) if each is not None), default=None)
    return None if earliest is None else earliest - due.now


def _is_past(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now


@writes
def settle(endings: Sequence[Ending], *, stopped: Collection[int] = (), now: datetime | None = None) -> Steps[Settled]:
    """Write the ends of attempts, in one transaction, each only if its lease is still current.

    Args:
        endings: the attempts and how they ended.
        stopped: leases of attempts that had ended before, and whose handlers have stopped now.
        now: the instant, in tests.

    Returns:
        What became of each, and which leases were lost.
    """
    at = yield from instant(now)
    plain: list[Transition] = []
    other: list[tuple[Claim, Transition]] = []
    for ending in endings:
        transition = decide(ending.claim, ending.outcome, at, ending.sample)
        if isinstance(ending.outcome, Succeeded) and not ending.claim.catching:
            plain.append(transition)
        else:
            other.append((ending.claim, transition))
    done = yield from write_untold(other, at)
    if plain:
        current = yield from _write_successes(plain, at)
        done |= {each.lease_id: each for each in plain if each.lease_id in current}
        yield from keys.drop([each.claim.id for each in endings if each.claim.key and each.claim.lease_id in current])
    yield from origins.tell(done.values(), at)
    yield from traces.put((e.claim.id, e.trace) for e in endings if e.trace is not None and _goes_on(done, e))
    yield from unstopped.put(e.claim for e in endings if e.unstopped and e.claim.lease_id in done)
    if len(done) == len(endings):
        yield from unstopped.drop(stopped)
        return Settled(tuple(done.values()), frozenset())
    decided = [*(transition for _, transition in other), *plain]
    moved = [done[each.lease_id] for each in decided if each.lease_id in done]
    missed = [each for each in decided if each.lease_id not in done]
    before = yield from closed_before(missed)
    already = {each.lease_id for each in missed if said_before(each, before.get(each.lease_id))}
    moved += [each for each in missed if each.lease_id in already]
    lost = frozenset(each.lease_id for each in missed) - already
    ended = {each.lease_id for each in missed} - {e.claim.lease_id for e in endings if e.unstopped}
    yield from unstopped.drop(ended | {*stopped})
    return Settled(tuple(moved), lost, frozenset(each for each in lost if before.get(each) == AttemptOutcome.CANCELLED))


def _goes_on(done: Mapping[int, Transition], ending: Ending) -> bool:
    """Was it written, and may another attempt follow?"""
    moved = done.get(ending.claim.lease_id)
    return moved is not None and moved.state is not State.SUCCEEDED


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


@wakes
def sweep(
    budget: int,
    *,
    every: timedelta | None = None,
    gone: Collection[int] = (),
    grace: timedelta = GRACE,
    now: datetime | None = None,
) -> Steps[tuple[Transition, ...]]:
    """Take away the leases of workers that fell silent and of attempts that outlived their hard timeout.

    Silence counts while sweeps look. Where none came for longer than `every`, the database was away, or all its users
    were, and nobody could have beaten: the rest of that span is added to the lease. It is added in the worker's row,
    once, whoever sweeps. Each sweep counts for something, so this comes to an end for a worker that is dead.

    Each row is guarded by the lease id that was read, so one odd row stops no other (poison for FTL's reaper).
    A row whose policy cannot be read is set aside, visibly, for a worker that can read it or for an operator: whether
    the task may run again is written there.

    Args:
        budget: how many leases at most; the work of one pass is bounded.
        every: how often the caller sweeps; None: all silence counts.
        gone: workers that are known to be dead, though they are not silent for long enough.
        grace: added to an attempt timeout before a living worker loses the attempt.
        now: the instant, in tests.

    Returns:
        What became of each job; shorter than ``budget`` when nothing is left to sweep.
    """
    at = yield from instant(now)
    if every is not None:
        yield Query("workers_late", {"now": at, "every": every})
    yield Query("workers_bury", {"now": at, "gone": sorted(gone)})
    params = {"now": at, "grace": grace, "every": every, "budget": budget}
    rows: Sequence[Claim] = yield Query("lost", params, into=Claim)
    decided = [(lost, _decide_lost(lost, at, grace)) for lost in rows]
    done = yield from write_all(decided, at)
    over = (lost for lost, each in decided if each.event is not LifecycleEvent.SET_ASIDE and lost.lease_id in done)
    yield from unstopped.put(over)
    return tuple(done[transition.lease_id] for _, transition in decided if transition.lease_id in done)


def _decide_lost(lost: Claim, at: datetime, grace: timedelta) -> Transition:
    return decide(lost, Lost(_fate(lost, at - grace)), at, 0.0) if is_readable(lost.policy) else set_aside(lost, at)


def _fate(lost: Claim, cut_off: datetime) -> str:
    limit = ATTEMPT_LIMIT if lost.catching else limit_of(lost.policy)
    if lost.claimed_at + limit <= cut_off:
        return f"attempt {lost.attempt} outlived its timeout of {format_duration(limit)} on worker {lost.worker_id}"
    return f"worker {lost.worker_id} fell silent during attempt {lost.attempt}"
