"""Writes the ends of attempts, and ends jobs from outside. PURE."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from redrive.engine.frozen import freeze
from redrive.engine.lifecycle import FINAL, LifecycleEvent, State
from redrive.engine.origin import Kind
from redrive.engine.outcome import Settlement
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, JobRecord, NewJob
from redrive.engine.settle import CATCH_HISTORY
from redrive.stores.operations import keys
from redrive.stores.operations.jobs import insert
from redrive.stores.operations.keys import drop
from redrive.stores.query import Query, Statements

# The events after which the attempt is still open.
_OPEN = frozenset({LifecycleEvent.WAIT, LifecycleEvent.SET_ASIDE})

_ANSWERS = frozenset({AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED})


def write(pairs: Sequence[tuple[Claim, Settlement]], at: datetime) -> Statements[dict[int, Settlement]]:
    """Write settlements, each entirely or not at all: job, history, result, catch job, caught parent, key.

    Return the settlements under leases that were current, by lease. One differs from its argument if another job has
    the key now. The schedules that created the jobs are not notified; see `redrive.stores.operations.origins`.
    """
    done: set[int] = set()
    # The settlements of a batch share one statement of each kind.
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
    return {each.lease_id: each for _, each in written} | (yield from keys.update(written, at))


def _write_rest(pairs: Sequence[tuple[Claim, Settlement]], at: datetime) -> Statements[None]:
    """Write the rows that belong to ended attempts besides the job itself."""
    settlements = [settlement for _, settlement in pairs]
    # The history entry of a success is the row of its job.
    closed = [
        {name: getattr(each.closed, name) for name in AttemptRecord.__struct_fields__}
        for each in settlements
        if each.closed is not None and each.closed.outcome is not AttemptOutcome.SUCCEEDED
    ]
    if closed:
        yield Query("attempt_insert", many=closed)
    older = [
        {"job_id": each.job_id, "number": each.attempt - CATCH_HISTORY}
        for claim, each in pairs
        if claim.catching and each.attempt > CATCH_HISTORY
    ]
    if older:
        yield Query("attempts_forget", many=older)
    results = [{"job_id": each.job_id, "result": each.result} for each in settlements if each.result is not None]
    if results:
        yield Query("result_put", many=results)
    caught = [{"job_id": each.caught, "now": at} for each in settlements if each.caught is not None]
    if caught:
        yield Query("caught", many=caught)
    yield from insert([_catch_job(claim, each.catch) for claim, each in pairs if each.catch is not None], at)


def _still_open(settlement: Settlement) -> dict[str, object]:
    return {name: getattr(settlement, name) for name in ("job_id", "lease_id", "scheduled_at", "note")}


_WRITTEN = (
    "job_id", "lease_id", "state", "before", "hold", "note", "attempt", "failures", "crashes", "snoozes",
    "scheduled_at", "last_delay", "unreadable_at", "reason", "error", "unstarted",
)  # fmt: skip
_VALUES = operator.attrgetter(*_WRITTEN)


def _columns(settlement: Settlement, at: datetime) -> dict[str, object]:
    columns = dict(zip(_WRITTEN, _VALUES(settlement), strict=True))
    columns["by_rule"] = list(settlement.by_rule) or None
    columns["finished_at"] = at if settlement.state in FINAL else None
    columns["fingerprint"] = _fingerprint(settlement)
    return columns


# A failed attempt of a refresh is retried by its schedule, and no operator has to: it is in no group that is redriven.
def _fingerprint(settlement: Settlement) -> str | None:
    if settlement.seen is None or (settlement.origin or "").startswith(f"{Kind.REFRESH}:"):
        return None
    return settlement.seen.fingerprint


def _catch_job(claim: Claim, task: str) -> NewJob:
    """Return the catch job of a claim; it is due at once, on the queue and under the policy of its parent."""
    return NewJob(
        task=task,
        queue=claim.queue,
        priority=claim.priority,
        payload=None,
        policy=freeze(claim.policy),
        parent_id=claim.id,
        origin=claim.origin,
    )


def closed_before(missed: Sequence[Settlement]) -> Statements[dict[int, str]]:
    """Return the outcome that the history has for the lease of each settlement that could not be written."""
    params = {"job_ids": [each.job_id for each in missed], "lease_ids": [each.lease_id for each in missed]}
    return dict((yield Query("closed_before", params)))


def is_settled(settlement: Settlement, outcome: str | None) -> bool:
    """Return True if an earlier commit with a lost reply settled this end under its lease.

    ``outcome`` is the outcome of the attempt in the history, if there is one.
    """
    if settlement.event is LifecycleEvent.WAIT:
        # The external completion may arrive before the handler has returned `Pending`.
        return outcome in _ANSWERS
    return settlement.closed is not None and settlement.closed.outcome.value == outcome


# The worker that runs it loses the lease, so a late completion changes nothing. The schedule that created the job is
# not notified; see `redrive.stores.operations.origins`.
def end(job: JobRecord, at: datetime, why: str) -> Statements[bool]:
    """End a job that is not final, and return True if this call ended it."""
    if not (yield Query("cancel", {"id": job.id, "note": why, "now": at})):
        return False
    if job.state is State.RUNNING:
        yield from put_unstopped([job])
    if job.lease_id is not None:
        yield from put_cancelled(job, at, why)
    if job.key is not None:
        yield from drop([job.id])
    return True


def put_cancelled(job: JobRecord, at: datetime, why: str) -> Statements[None]:
    """Write the record of an open attempt that ends from outside."""
    yield Query("attempt_insert", many=[_cancelled_attempt(job, at, why)])


def _cancelled_attempt(job: JobRecord, at: datetime, why: str) -> dict[str, object]:
    empty: dict[str, object] = dict.fromkeys(AttemptRecord.__struct_fields__)
    return empty | {
        "job_id": job.id,
        "lease_id": job.lease_id,
        "number": job.attempt,
        "worker_id": job.worker_id,
        "started_at": job.claimed_at,
        "finished_at": at,
        "outcome": AttemptOutcome.CANCELLED,
        "verdict": why,
    }


# A cancelled job ends at once, but its handler is notified a moment later and may take time to stop. A thread cannot be
# stopped at all after its timeout. The limits of a queue count such a handler until its worker reports that it has
# stopped, or until the worker is gone.
def put_unstopped(attempts: Iterable[Claim | JobRecord]) -> Statements[None]:
    """Record handlers that still run; the attempts are given as they were before they ended."""
    rows = [
        {
            "lease_id": each.lease_id,
            "job_id": each.id,
            "queue": each.queue,
            "partition": each.partition,
            "worker_id": each.worker_id,
        }
        for each in attempts
    ]
    if rows:
        yield Query("unstopped_put", many=rows)


def drop_unstopped(lease_ids: Collection[int]) -> Statements[None]:
    """Delete the records of handlers that have stopped; leases without a record are ignored."""
    if lease_ids:
        yield Query("unstopped_drop", {"lease_ids": sorted(lease_ids)})
