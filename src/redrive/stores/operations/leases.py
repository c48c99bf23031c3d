"""Claims jobs, settles attempts, and sweeps lost leases. PURE.

A claim takes lease ids from a sequence that never repeats, and writes one into each row. Every later write names its
lease id, and its statement matches the row by it. If another claim, a sweep, a cancel or a settle came first, the row
has another lease id or none, and the statement changes nothing. This protects against zombie workers without a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from redrive.stores.operations import jobs, keys, limited_queues, origins, transitions
from redrive.stores.operations.clock import instant
from redrive.stores.operations.ending import drop_unstopped, put_unstopped
from redrive.stores.operations.lanes import ClaimFilter, LaneCursor, NextDue, next_due, parameters
from redrive.stores.operations.limited_queues import Offer, QueueScan
from redrive.stores.query import DRAWN, Batch, Query, Steps, wakes, writes

# The time that a claimer waits while other claims take all due jobs.
CONTENDED = timedelta(milliseconds=10)


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of a claim."""

    # The jobs taken, in the order in which they should start.
    claims: tuple[Claim, ...]
    # The time until the next job of these queues is due; None if none waits. Zero after a claim that took jobs: the
    # worker should claim again while these run.
    rest_for: timedelta | None
    # False if the worker is not registered. It must register again; nothing was claimed.
    known: bool = True
    # To be passed to the worker's next claim, which continues them.
    scans: tuple[QueueScan, ...] = ()
    # The transitions of jobs with unreadable policies, each with a traceback.
    held: tuple[tuple[Transition, str], ...] = ()


class Ending(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt, to be settled."""

    claim: Claim
    # How it ended.
    outcome: Outcome
    # A random number in [0, 1), for jitter.
    sample: float
    # The trace for the next attempt.
    trace: str | None = None
    # True if its handler still runs, in a thread.
    unstopped: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a settle."""

    # The transitions of the attempts that were settled.
    moved: tuple[Transition, ...]
    # Lease ids that were not current: nothing was written for them.
    lost: frozenset[int]
    # Those of the lost that were cancelled while they ran.
    cancelled: frozenset[int] = frozenset()


# A claim is also a heartbeat: a worker that claims before its next heartbeat must not lose these jobs to a sweep. A job
# with an unreadable policy is held until a worker that can read it claims it, like a job of an unknown task.
@writes
def claim(  # noqa: PLR0913 - options of one operation, by keyword
    worker_id: int,
    count: int,
    *,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    tasks: Collection[str] | None = None,
    scans: Sequence[QueueScan] = (),
    cursors: Sequence[LaneCursor] = (),
    now: datetime | None = None,
) -> Steps[Claimed]:
    """Take up to `count` due jobs, each under a new lease.

    ``scans`` are those of the worker's last claim; ``cursors`` are the starts in lanes of plain queues
    (`redrive.stores.operations.lanes`); ``queues`` and ``tasks`` are None for all.
    """
    served = ClaimFilter(queues, tasks)
    where = {**served.parameters, **parameters(cursors)}
    due = yield from next_due(where, now)
    at = due.now
    offers = (yield from limited_queues.offers(served, count, at, scans)) if _is_past(due.special_at, at) else ()
    open_scans = tuple(offer.scan for offer in offers if offer.scan is not None)
    if not _is_past(due.due_at, at) and not any(offer.jobs for offer in offers):
        return Claimed((), (yield from _rest(served, due, offers)), scans=open_scans)
    beat = Query("worker_beat", {"id": worker_id, "now": at, "expires_at": at + lease_for})
    rows = yield from _take(beat, count, where, at, offers)
    yield from keys.drop(keys.held_until_start(rows))
    held = yield from _hold([each for each in rows if not is_readable(each.policy)], at)
    claims = tuple(sorted((each for each in rows if is_readable(each.policy)), key=attrgetter("lease_id")))
    if rows:
        # The next claim reads what is due next, while these jobs run.
        return Claimed(claims, timedelta(0), scans=open_scans, held=held)
    # The claim takes nothing for a worker that is not registered.
    if not (yield beat):
        return Claimed((), None, known=False)
    rest = yield from _rest(served, (yield from next_due(where, at)), offers)
    # Jobs that are due and were not taken are being taken or released by other claims: do not poll for them at once.
    return Claimed((), None if rest is None else max(rest, CONTENDED), scans=open_scans)


def _hold(unreadable: Sequence[Claim], at: datetime) -> Steps[tuple[tuple[Transition, str], ...]]:
    """Hold jobs with unreadable policies."""
    held = []
    for each in unreadable:
        assert isinstance(each.policy, UnreadablePolicy)  # noqa: S101 - the caller has checked
        held.append((each, decide(each, Unreadable(each.policy.why, policy=True), at, 0.0), each.policy.trace))
    if held:
        yield from origins.write_all([(claim, transition) for claim, transition, _ in held], at)
    return tuple((transition, trace) for _, transition, trace in held)


def _take(
    beat: Query, count: int, where: Mapping[str, object], at: datetime, offers: Sequence[Offer]
) -> Steps[Sequence[Claim]]:
    """Take jobs of plain queues in one statement, or of all queues in one order if limited queues have due jobs."""
    params = {"now": at, "worker_id": beat.params["id"], "count": count, "salt": DRAWN}
    # SQLite's claim uses the block of numbers that was taken just before it. PostgreSQL's reads the sequence itself; it
    # does not run a part of a statement that only reads and whose result is not used.
    first = (beat, Query("take", {"name": "lease", "count": count}))
    rows: Sequence[Claim]
    if not any(offer.jobs for offer in offers):
        rows = yield Batch((*first, Query("claim", {**params, **where}, into=Claim)))
        return rows
    served = {name: where[name] for name in ("queues", "tasks")}
    heads: Sequence[Due] = yield Query("heads", {**served, "now": at, "count": count}, into=Due)
    ids = limited_queues.choose(heads, offers, at, count)
    rows = yield Batch((*first, Query("claim_chosen", {**params, "ids": ids}, into=Claim)))
    yield from limited_queues.note_starts(rows, offers, at)
    return rows


def _rest(where: ClaimFilter, due: NextDue, offers: Sequence[Offer]) -> Steps[timedelta | None]:
    """Return the time until the next job can start if nothing changes until then."""
    other = (yield from limited_queues.next_look(where, due.now, offers)) if offers else due.special_at
    earliest = min((each for each in (due.due_at, other) if each is not None), default=None)
    return None if earliest is None else earliest - due.now


def _is_past(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now


@writes
def settle(endings: Sequence[Ending], *, stopped: Collection[int] = (), now: datetime | None = None) -> Steps[Settled]:
    """Write the ends of attempts in one transaction, each only if its lease is still current.

    ``stopped`` are leases of attempts that ended before, with handlers that have stopped now.
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
    done = yield from transitions.write(other, at)
    if plain:
        current = yield from _write_successes(plain, at)
        done |= {each.lease_id: each for each in plain if each.lease_id in current}
        yield from keys.drop([each.claim.id for each in endings if each.claim.key and each.claim.lease_id in current])
    yield from origins.notify(done.values(), at)
    yield from jobs.put_traces(
        (e.claim.id, e.trace) for e in endings if e.trace is not None and _is_unfinished(done, e)
    )
    yield from put_unstopped(e.claim for e in endings if e.unstopped and e.claim.lease_id in done)
    if len(done) == len(endings):
        yield from drop_unstopped(stopped)
        return Settled(tuple(done.values()), frozenset())
    decided = [*(transition for _, transition in other), *plain]
    moved = [done[each.lease_id] for each in decided if each.lease_id in done]
    missed = [each for each in decided if each.lease_id not in done]
    before = yield from transitions.closed_before(missed)
    already = {each.lease_id for each in missed if transitions.is_settled(each, before.get(each.lease_id))}
    moved += [each for each in missed if each.lease_id in already]
    lost = frozenset(each.lease_id for each in missed) - already
    ended = {each.lease_id for each in missed} - {e.claim.lease_id for e in endings if e.unstopped}
    yield from drop_unstopped(ended | {*stopped})
    return Settled(tuple(moved), lost, frozenset(each for each in lost if before.get(each) == AttemptOutcome.CANCELLED))


# A caller repeats a settle if its reply was lost. If the first one was committed, its leases are no longer current, as
# they would be after a sweep. The history has an entry under such a lease: the attempt is then settled, not lost.
def _is_unfinished(done: Mapping[int, Transition], ending: Ending) -> bool:
    """Return True if the end was written and another attempt may follow."""
    moved = done.get(ending.claim.lease_id)
    return moved is not None and moved.state is not State.SUCCEEDED


def _write_successes(plain: Sequence[Transition], at: datetime) -> Steps[set[int]]:
    """Write successes without a catch, which differ only in their results, and return the leases that were current."""
    params = {"now": at, "job_ids": [each.job_id for each in plain], "lease_ids": [each.lease_id for each in plain]}
    # By lease and not by job: a batch may hold a job twice, under a lost lease and under the present one.
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


# The time without heartbeats counts only while sweeps run. After a gap of more than `every` between sweeps the database
# or all its clients were down, and no worker could send a heartbeat: the gap beyond `every` is added to the leases,
# once, in the rows of the workers. Each sweep counts for at most `every`, so a dead worker is detected in the end.
#
# Each row is guarded by the lease id that was read, so one bad row stops no other. A job with an unreadable policy is
# set aside for a worker that can read it or for an operator: the policy decides whether the task may run again.
@wakes
def sweep(
    budget: int,
    *,
    every: timedelta | None = None,
    gone: Collection[int] = (),
    grace: timedelta = GRACE,
    now: datetime | None = None,
) -> Steps[tuple[Transition, ...]]:
    """End the leases of dead workers, and of attempts that exceeded their hard timeout.

    Args:
        budget: the largest number of leases in one pass.
        every: the interval of the caller's sweeps; None counts all time.
        gone: workers that are known to be dead before their leases have expired.
        grace: added to an attempt timeout before a living worker loses the attempt.
        now: the instant, in tests.

    Returns:
        The transitions; none are left to sweep if these are fewer than the budget.
    """
    at = yield from instant(now)
    if every is not None:
        yield Query("workers_late", {"now": at, "every": every})
    yield Query("workers_bury", {"now": at, "gone": sorted(gone)})
    params = {"now": at, "grace": grace, "every": every, "budget": budget}
    rows: Sequence[Claim] = yield Query("lost", params, into=Claim)
    decided = [(lost, _decide_lost(lost, at, grace)) for lost in rows]
    done = yield from origins.write_all(decided, at)
    over = (lost for lost, each in decided if each.event is not LifecycleEvent.SET_ASIDE and lost.lease_id in done)
    yield from put_unstopped(over)
    return tuple(done[transition.lease_id] for _, transition in decided if transition.lease_id in done)


def _decide_lost(lost: Claim, at: datetime, grace: timedelta) -> Transition:
    return (
        decide(lost, Lost(_describe_loss(lost, at - grace)), at, 0.0)
        if is_readable(lost.policy)
        else set_aside(lost, at)
    )


def _describe_loss(lost: Claim, cut_off: datetime) -> str:
    limit = ATTEMPT_LIMIT if lost.catching else limit_of(lost.policy)
    if lost.claimed_at + limit <= cut_off:
        return f"attempt {lost.attempt} outlived its timeout of {format_duration(limit)} on worker {lost.worker_id}"
    return f"worker {lost.worker_id} fell silent during attempt {lost.attempt}"
