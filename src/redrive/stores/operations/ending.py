"""Ending a job from outside, as a part of a larger operation. PURE."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime

from redrive.engine.lifecycle import State
from redrive.engine.records import AttemptOutcome, AttemptRecord, JobRecord
from redrive.stores.operations import unstopped
from redrive.stores.operations.keys import drop
from redrive.stores.query import Query, Rows

__all__ = ["end"]


def end(job: JobRecord, at: datetime, why: str) -> Generator[Query, Rows, bool]:
    """End a job that is not final. Whoever runs it loses the lease: a late completion changes nothing.

    Its handler counts against the limits of its queue until it has stopped.

    What has made the job is not told; see `redrive.stores.operations.origins`.

    Args:
        job: as it was read under its lock.
        at: the instant of the transaction.
        why: shown on the job.

    Returns:
        Was it ended by this?
    """
    if not (yield Query("cancel", {"id": job.id, "note": why, "now": at})):
        return False
    if job.state is State.RUNNING:
        yield from unstopped.put([job])
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
