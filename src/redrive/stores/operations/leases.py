"""Claims jobs, settles attempts, and sweeps lost leases. PURE.

A claim takes lease ids from a sequence that never repeats, and writes one into each row. Every later write names its
lease id, and its statement matches the row by it. If another claim, a sweep, a cancel or a settle came first, the row
has another lease id or none, and the statement changes nothing. This protects against zombie workers without a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from redrive.engine.frozen import UnreadablePolicy, is_readable
from redrive.engine.lease import ATTEMPT_LIMIT, GRACE, limit_of
from redrive.engine.lifecycle import LifecycleEvent, State
from redrive.engine.origin import Kind
from redrive.engine.outcome import Lost, Outcome, Settlement, Succeeded, Suspended, Unreadable
from redrive.engine.queue import Due
from redrive.engine.records import AttemptOutcome, Claim, Enqueue, JobRecord, KeyUntil
from redrive.engine.runs import RunState
from redrive.engine.settle import decide, set_aside
from redrive.engine.topics import Publish
from redrive.policy import format_duration
from redrive.stores.operations import jobs, keys, limited_queues, origins, settlements
from redrive.stores.operations.clock import instant
from redrive.stores.operations.limited_queues import ClaimFilter, Offer, QueueScan
from redrive.stores.operations.runs import endings as endings_of_runs
from redrive.stores.operations.runs import steps as run_steps
from redrive.stores.operations.settlements import drop_unstopped, put_unstopped
from redrive.stores.query import DRAWN, Compound, Operation, Query, Statements, reads, wakes_if_any, writes

# The time that a claimer waits while other claims take all due jobs.
CONTENDED = timedelta(milliseconds=10)

# The order in which jobs of plain queues start.
_BY_DUE_TIME = attrgetter("priority", "scheduled_at", "id")


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The result of a claim."""

    claims: tuple[Claim, ...]  # the jobs taken, in the order in which they should start
    # The time until the next job of these queues is due; None if none waits. Zero after a claim that took jobs: the
    # worker should claim again while these run.
    rest_for: timedelta | None
    # False if the worker is not registered. It must register again; nothing was claimed.
    known: bool = True
    scans: tuple[QueueScan, ...] = ()  # to be passed to the worker's next claim, which continues them
    # The settlements of jobs with unreadable policies, each with a traceback.
    held: tuple[tuple[Settlement, str], ...] = ()
    # True if a job is due and was not taken only because another claim has locked it, or because the rate of its queue
    # is used up, or because the scan of its queue goes on.
    soon: bool = False
    # True if jobs of limited queues can start. They are not claimed ahead, and take slots beside the jobs that are.
    scarce: bool = False
    # What is stored of the runs of workflows among the jobs taken, by their jobs.
    runs: Mapping[int, RunState] = {}

    @property
    def nothing(self) -> bool:
        """True if no job of these tasks and queues was due."""
        return self.known and not self.claims and not self.held and not self.soon


class Ending(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt, to be settled."""

    claim: Claim
    outcome: Outcome  # how it ended
    sample: float  # a random number in [0, 1), for jitter
    trace: str | None = None  # the trace for the next attempt
    unstopped: bool = False  # True if its handler still runs, in a thread


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The result of a settle."""

    moved: tuple[Settlement, ...]  # the settlements of the attempts that were settled
    lost: frozenset[int]  # lease ids that were not current: nothing was written for them
    cancelled: frozenset[int] = frozenset()  # those of the lost that were cancelled while they ran


# A claim is also a heartbeat: a worker that claims before its next heartbeat must not lose these jobs to a sweep. A job
# with an unreadable policy is held until a worker that can read it claims it, like a job of an unknown task.
@writes
def claim(
    worker_id: int,
    count: int,
    *,
    ahead: int = 0,
    lease_for: timedelta,
    queues: Sequence[str] | None = None,
    excluded: Sequence[str] | None = None,
    tasks: Collection[str] | None = None,
    scans: Sequence[QueueScan] = (),
    cursors: Sequence[LaneCursor] = (),
    now: datetime | None = None,
) -> Statements[Claimed]:
    """Take up to `count` due jobs, and `ahead` more if no job of a limited queue can start, each under a new lease.

    ``scans`` are those of the worker's last claim; ``cursors`` are the starts in lanes of plain queues
    (`redrive.stores.operations.leases`); ``queues`` and ``tasks`` are None for all; ``excluded`` are queues that are
    left out.
    """
    served = ClaimFilter(queues, tasks, excluded)
    where = {**served.parameters, **parameters(cursors)}
    due = yield from next_due(where, now)
    at = due.now
    special = _is_past(due.special_at, at)
    offers = (yield from limited_queues.offers(served, max(count, 1), at, scans)) if special else ()
    open_scans = tuple(offer.scan for offer in offers if offer.scan is not None)
    # A claimed job takes a slot of its limited queue, which would be in vain before it has a slot of the worker.
    scarce = any(offer.jobs for offer in offers)
    if not scarce:
        count += ahead
    elif not count:
        return Claimed((), timedelta(0), soon=True, scans=open_scans, scarce=True)
    soon = bool(open_scans) or any(offer.next_at is not None for offer in offers)
    if not _is_past(due.due_at, at) and not any(offer.jobs for offer in offers):
        return Claimed((), (yield from _rest(served, due, offers)), soon=soon, scans=open_scans)
    beat = Query("worker_beat", {"id": worker_id, "now": at, "expires_at": at + lease_for})
    rows = yield from _take(beat, count, where, at, offers)
    yield from keys.drop(keys.held_until_start(rows))
    held = yield from _hold([each for each in rows if not is_readable(each.policy)], at)
    claims = tuple(each for each in rows if is_readable(each.policy))
    if rows:
        # The next claim reads what is due next, while these jobs run.
        runs = yield from run_steps.states(claims, at)
        return Claimed(claims, timedelta(0), scans=open_scans, held=held, runs=runs, scarce=scarce)
    # The claim takes nothing for a worker that is not registered.
    if not (yield beat):
        return Claimed((), None, known=False)
    left = yield from next_due(where, at)
    rest = yield from _rest(served, left, offers)
    # Jobs that are due and were not taken are being taken or released by other claims: do not poll for them at once.
    soon = soon or _is_past(left.due_at, at)
    return Claimed((), None if rest is None else max(rest, CONTENDED), soon=soon, scans=open_scans)


def _hold(unreadable: Sequence[Claim], at: datetime) -> Statements[tuple[tuple[Settlement, str], ...]]:
    """Hold jobs with unreadable policies."""
    held = []
    for each in unreadable:
        assert isinstance(each.policy, UnreadablePolicy)  # the caller has checked
        held.append((each, decide(each, Unreadable(each.policy.why, policy=True), at, 0.0), each.policy.trace))
    if held:
        yield from origins.write_all([(claim, settlement) for claim, settlement, _ in held], at)
    return tuple((settlement, trace) for _, settlement, trace in held)


def _take(
    beat: Query, count: int, where: Mapping[str, object], at: datetime, offers: Sequence[Offer]
) -> Statements[Sequence[Claim]]:
    """Take jobs of plain queues in one statement, or of all queues in one order if limited queues have due jobs.

    Return them in the order in which they should start.
    """
    params = {"now": at, "worker_id": beat.params["id"], "count": count, "salt": DRAWN}
    # SQLite's claim uses the block of numbers that was taken just before it. PostgreSQL's reads the sequence itself; it
    # does not run a part of a statement that only reads if its result is not used.
    first = (beat, Query("take", {"name": "lease", "count": count}))
    rows: Sequence[Claim]
    if not any(offer.jobs for offer in offers):
        rows = yield Compound((*first, Query("claim", {**params, **where}, into=Claim)))
        return sorted(rows, key=_BY_DUE_TIME)
    served = {name: where[name] for name in ("queues", "excluded", "tasks")}
    heads: Sequence[Due] = yield Query("heads", {**served, "now": at, "count": count}, into=Due)
    ids = limited_queues.choose(heads, offers, at, count)
    rows = yield Compound((*first, Query("claim_chosen", {**params, "ids": ids}, into=Claim)))
    yield from limited_queues.note_starts(rows, offers, at)
    places = {number: place for place, number in enumerate(ids)}
    return sorted(rows, key=lambda each: places[each.id])


def _rest(where: ClaimFilter, due: NextDue, offers: Sequence[Offer]) -> Statements[timedelta | None]:
    """Return the time until the next job can start if nothing changes until then."""
    other = (yield from limited_queues.next_look(where, due.now, offers)) if offers else due.special_at
    earliest = min((each for each in (due.due_at, other) if each is not None), default=None)
    return None if earliest is None else earliest - due.now


def _is_past(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and instant <= now


def settle(
    endings: Sequence[Ending], *, stopped: Collection[int] = (), now: datetime | None = None
) -> Operation[Settled]:
    """Write the ends of attempts in one transaction, each only if its lease is still current.

    ``stopped`` are leases of attempts that ended before, with handlers that have stopped now.
    """
    # The worker that settles claims again by itself, but what a handler enqueues or publishes may be for others.
    wakes = any(map(_makes_work, endings))
    return Operation("settle", _settle(endings, stopped, now), writes=True, wakes=wakes)


def takes_keys(ending: Ending) -> bool:
    """Return True if a settle takes keys for this end, each of which another transaction may hold for any time."""
    claim, outcome = ending.claim, ending.outcome
    if isinstance(outcome, Succeeded | Suspended):
        return bool(outcome.effects) and any(
            isinstance(each, Enqueue) and jobs.is_keyed(each.job) for each in outcome.effects
        )
    # Its job is ready again, and holds its key until it starts.
    return claim.key is not None and claim.key_until is KeyUntil.START


def _makes_work(ending: Ending) -> bool:
    outcome, origin = ending.outcome, ending.claim.origin
    # The job that follows a batch may be due when one of its jobs has ended.
    return (origin is not None and origin.startswith(f"{Kind.BATCH}:")) or (
        isinstance(outcome, Succeeded | Suspended)
        and bool(outcome.effects)
        and any(isinstance(each, Enqueue | Publish) for each in outcome.effects)
    )


def _settle(endings: Sequence[Ending], stopped: Collection[int], now: datetime | None) -> Statements[Settled]:
    written = tuple(e.outcome.written for e in endings if isinstance(e.outcome, Succeeded) and e.outcome.written)
    if written:
        endings = [e for e in endings if not isinstance(e.outcome, Succeeded) or e.outcome.written is None]
        if not endings:
            yield from drop_unstopped(stopped)
            return Settled(written, frozenset())
        settled = yield from _settle(endings, stopped, now)
        return replace(settled, moved=(*settled.moved, *written))
    at = yield from instant(now)
    plain: list[Settlement] = []
    ends: list[tuple[Claim, Outcome, Settlement]] = []
    for ending in endings:
        settlement = decide(ending.claim, ending.outcome, at, ending.sample)
        if isinstance(ending.outcome, Succeeded) and not ending.claim.catching:
            plain.append(settlement)
        else:
            ends.append((ending.claim, ending.outcome, settlement))
    other = yield from endings_of_runs.undo_before_end(ends, at)
    parked = [settlement for _, settlement in other if settlement.run is not None]
    gaps: frozenset[int] = frozenset()
    if parked:
        if any(map(run_steps.begins_undo, parked)):
            # Their calls are dropped, which locks the runs of their children. Those may end here, too, and jobs are
            # locked before runs.
            yield Query("jobs_lock", {"ids": sorted({each.claim.id for each in endings})}, into=JobRecord)
        gaps = yield from run_steps.write_parked(parked, at)
    done = yield from settlements.write([each for each in other if each[1].lease_id not in gaps], at)
    if plain:
        alone = len(plain) == len(endings) and not any(map(_has_more, endings))
        current = yield from _write_successes(plain, at, alone=alone)
        done |= {each.lease_id: each for each in plain if each.lease_id in current}
        yield from keys.drop([each.claim.id for each in endings if each.claim.key and each.claim.lease_id in current])
    if parked:
        yield from run_steps.park([each for each in parked if each.lease_id in done], at)
    done = yield from origins.notify(done, at)
    yield from jobs.put_traces(
        (e.claim.id, e.trace) for e in endings if e.trace is not None and _is_unfinished(done, e)
    )
    yield from put_unstopped(e.claim for e in endings if e.unstopped and e.claim.lease_id in done)
    if len(done) == len(endings):
        yield from drop_unstopped(stopped)
        return Settled(tuple(done.values()), frozenset())
    missed = [each for each in (*(settlement for _, settlement in other), *plain) if each.lease_id not in done]
    already, cancelled = yield from _missed(missed)
    lost = frozenset(each.lease_id for each in missed) - already
    ended = {each.lease_id for each in missed} - {e.claim.lease_id for e in endings if e.unstopped}
    yield from drop_unstopped(ended | {*stopped})
    moved = (*done.values(), *(each for each in missed if each.lease_id in already))
    return Settled(moved, lost, cancelled)


def _missed(missed: Sequence[Settlement]) -> Statements[tuple[frozenset[int], frozenset[int]]]:
    """Return the leases of attempts that an earlier settle has written, and of those that were cancelled."""
    before = yield from settlements.closed_before(missed)
    already = {each.lease_id for each in missed if settlements.is_settled(each, before.get(each.lease_id))}
    lost = {each.lease_id for each in missed} - already
    return frozenset(already), frozenset(each for each in lost if before.get(each) == AttemptOutcome.CANCELLED)


def settle_one(
    ending: Ending, *, about: datetime | None = None, now: datetime | None = None
) -> Operation[Settlement | None]:
    """Write the end of one attempt in the transaction of its handler; return None if its lease is not current.

    ``about`` is the present instant as the worker estimates it. With it, most successes are one statement, which
    takes the exact instant; the estimate stands only in the settlement, for events and sums.
    """
    return Operation("settle_one", _settle_one(ending, about, now), writes=True, wakes=_makes_work(ending))


def _settle_one(ending: Ending, about: datetime | None, now: datetime | None) -> Statements[Settlement | None]:
    at, claim, outcome = now or about, ending.claim, ending.outcome
    is_plain = isinstance(outcome, Succeeded) and not claim.catching
    # The result is written by the same statement.
    if at is None or not is_plain or _has_more(replace(ending, outcome=replace(outcome, result=None))):
        return next(iter((yield from _settle([ending], (), now)).moved), None)
    settlement = decide(claim, outcome, at, ending.sample)
    params = {"job_id": claim.id, "lease_id": claim.lease_id, "result": settlement.result, "now": now}
    return settlement if (yield Query("complete", params)) else None


# A caller repeats a settle if its reply was lost. If the first one was committed, its leases are no longer current, as
# they would be after a sweep. The history has an entry under such a lease: the attempt is then settled, not lost.
def _is_unfinished(done: Mapping[int, Settlement], ending: Ending) -> bool:
    """Return True if the end was written and another attempt may follow."""
    moved = done.get(ending.claim.lease_id)
    return moved is not None and moved.state is not State.SUCCEEDED


def _has_more(ending: Ending) -> bool:
    """Return True if the end of a success writes more than the row of its job."""
    claim, outcome = ending.claim, ending.outcome
    more = ending.unstopped or ending.trace is not None or claim.key is not None or claim.origin is not None
    return more or not isinstance(outcome, Succeeded) or outcome.result is not None or bool(outcome.effects)


def _write_successes(plain: Sequence[Settlement], at: datetime, *, alone: bool) -> Statements[set[int]]:
    """Write successes without a catch, which differ only in their results, and return the leases that were current.

    ``alone`` is True if nothing else is written for them.
    """
    params = {"now": at, "job_ids": [each.job_id for each in plain], "lease_ids": [each.lease_id for each in plain]}
    # By lease and not by job: a batch may hold a job twice, under a lost lease and under the present one.
    done = {row[0] for row in (yield Query("settle_succeeded", params, own=alone))}
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
@wakes_if_any
def sweep(
    budget: int,
    *,
    every: timedelta | None = None,
    gone: Collection[int] = (),
    grace: timedelta = GRACE,
    now: datetime | None = None,
) -> Statements[tuple[Settlement, ...]]:
    """End the leases of dead workers, and of attempts that exceeded their hard timeout by `grace`.

    None are left to sweep if the settlements are fewer than the budget. ``every`` is the interval of the caller's
    sweeps (None counts all time); ``gone`` are workers that are known to be dead before their leases have expired.
    """
    at = yield from instant(now)
    if every is not None:
        yield Query("workers_late", {"now": at, "every": every})
    yield Query("workers_bury", {"now": at, "gone": sorted(gone)})
    params = {"now": at, "limit_for": ATTEMPT_LIMIT, "grace": grace, "every": every, "budget": budget}
    rows: Sequence[Claim] = yield Query("lost", params, into=Claim)
    runs = [each for each in rows if endings_of_runs.is_run(each) and is_readable(each.policy)]
    whys = [_describe_loss(each, at - grace) for each in runs]
    decided = yield from endings_of_runs.lost(runs, whys, at)
    yield from run_steps.write_parked([each for _, each in decided if each.run is not None], at)
    known = {lost.lease_id for lost, _ in decided}
    decided += [(lost, _decide_lost(lost, at, grace)) for lost in rows if lost.lease_id not in known]
    done = yield from origins.write_all(decided, at)
    over = (lost for lost, each in decided if each.event is not LifecycleEvent.SET_ASIDE and lost.lease_id in done)
    yield from put_unstopped(over)
    return tuple(done[settlement.lease_id] for _, settlement in decided if settlement.lease_id in done)


def _decide_lost(lost: Claim, at: datetime, grace: timedelta) -> Settlement:
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


# A lane is a queue, a priority and a task. PostgreSQL keeps a changed row in its indexes until no transaction can see
# the old version. While another session holds a snapshot for minutes (a backup, a report, an idle psql), the entries of
# claimed jobs stay at the head of each lane, and every claim would scan them again. A claimer therefore remembers for
# each lane the first job of its last claim (`LaneCursor`) and starts there.
#
# **Jobs before a cursor.** A claim takes the first jobs of each lane. At that moment every earlier due job was taken,
# locked by another claim, or not committed. No job is inserted before a cursor later: new jobs, retries, releases and
# redriven jobs become due no earlier than the start of the transaction that writes them, and a cursor is the due time
# of a job that was due already. Four kinds of jobs remain:
#
# - a job of a transaction that began before the cursor was set and committed afterwards;
# - a job that another claim locked and released, because its transaction was rolled back;
# - a job that a worker has claimed and given back before it started;
# - the old jobs of a queue that was limited and no longer is.
#
# To find these, the claimer scans without cursors from time to time: after `PATIENCE` times the duration of the last
# such scan, and at the latest after `FULL_SCAN_AFTER`. A scan below 50 ms thus takes at most a twentieth of the time;
# without an old snapshot it costs almost nothing and runs many times per second.
#
# The longest time between two scans without cursors.
FULL_SCAN_AFTER = timedelta(seconds=1)

# The time between two scans without cursors, in multiples of the duration of such a scan.
PATIENCE = 20

# The number of cursors that are kept: those of the lanes with the latest claims.
LANES = 64


class NextDue(msgspec.Struct, frozen=True, gc=False):
    """A row of the query ``next_due``."""

    now: datetime  # the instant of the transaction
    due_at: datetime | None  # the due time of the earliest ready job in plain queues
    special_at: datetime | None = None  # the same for limited queues that are not paused


# Cursors are kept per lane because a position in one priority gives no information about the others. A cursor has a due
# time and an id because jobs that are enqueued together are due at the same instant.
#
# SQLite removes index entries at once; its statements ignore cursors.
class LaneCursor(msgspec.Struct, frozen=True, gc=False):
    """The position in a lane, given by a job's due time and id, at which a claim starts."""

    queue: str
    priority: int
    task: str
    scheduled_at: datetime
    id: int


def advanced(cursors: Iterable[LaneCursor], claims: Iterable[Claim]) -> tuple[LaneCursor, ...]:
    """Return the cursors for the next claim: those of the lanes of `claims` are moved, and the latest stand last."""
    first: dict[tuple[str, int, str], tuple[datetime, int]] = {}
    for claim in claims:
        if claim.scheduled_at is None or claim.partition is not None:
            continue
        lane, position = (claim.queue, claim.priority, claim.task), (claim.scheduled_at, claim.id)
        if lane not in first or position < first[lane]:
            first[lane] = position
    kept = [cursor for cursor in cursors if (cursor.queue, cursor.priority, cursor.task) not in first]
    return tuple([*kept, *(LaneCursor(*lane, *position) for lane, position in first.items())][-LANES:])


def parameters(cursors: Sequence[LaneCursor]) -> Mapping[str, Sequence[object]]:
    """Return the cursors as parameters of a statement: one array for each attribute."""
    return {
        "cursor_queues": [cursor.queue for cursor in cursors],
        "cursor_priorities": [cursor.priority for cursor in cursors],
        "cursor_tasks": [cursor.task for cursor in cursors],
        "cursor_times": [cursor.scheduled_at for cursor in cursors],
        "cursor_ids": [cursor.id for cursor in cursors],
    }


@reads
def upcoming(tasks: Collection[str], *, now: datetime | None = None) -> Statements[NextDue]:
    """Return the instant, and when the next jobs of these tasks are due."""
    return (yield from next_due({**ClaimFilter(None, tasks, None).parameters, **parameters(())}, now))


def next_due(where: Mapping[str, object], now: datetime | None) -> Statements[NextDue]:
    """Return the instant of the transaction and the next due times; `where` has queues, tasks and cursors."""
    rows: Sequence[NextDue] = yield Query("next_due", {**where, "now": now}, into=NextDue)
    return rows[0]
