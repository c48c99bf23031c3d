"""Ends jobs from outside, and records handlers that still run after their attempts have ended. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, JobRecord
from redrive.stores.operations.keys import drop
from redrive.stores.query import Query, Steps


# The worker that runs it loses the lease, so a late completion changes nothing. The schedule that created the job is
# not notified; see `redrive.stores.operations.origins`.
def end(job: JobRecord, at: datetime, why: str) -> Steps[bool]:
    """End a job that is not final, and return True if this call ended it."""
    if not (yield Query("cancel", {"id": job.id, "note": why, "now": at})):
        return False
    if job.state is State.RUNNING:
        yield from put_unstopped([job])
    if job.lease_id is not None:
        yield Query("attempt_insert", many=[_cancelled_attempt(job, at, why)])
    if job.key is not None:
        yield from drop([job.id])
    return True


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
def put_unstopped(attempts: Iterable[Claim | JobRecord]) -> Steps[None]:
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


def drop_unstopped(lease_ids: Collection[int]) -> Steps[None]:
    """Delete the records of handlers that have stopped; leases without a record are ignored."""
    if lease_ids:
        yield Query("unstopped_drop", {"lease_ids": sorted(lease_ids)})
