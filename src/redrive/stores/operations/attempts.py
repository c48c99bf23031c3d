"""What a running attempt says and asks of itself. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from redrive.engine.records import JobRecord, Progress
from redrive.stores.operations.clock import instant
from redrive.stores.query import Query, Steps, reads, writes

__all__ = ["ProgressReport", "is_current", "progress", "report"]


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a handler says of itself.

    Attributes:
        job_id: its job.
        lease_id: its lease.
        details: JSON; None says no more than that it goes on.
    """

    job_id: int
    lease_id: int
    details: str | None


@writes
def report(reports: Sequence[ProgressReport], *, now: datetime | None = None) -> Steps[frozenset[int]]:
    """Keep what handlers say of themselves, each only if its lease is still current.

    Args:
        reports: what they say.
        now: the instant, in tests.

    Returns:
        The leases that are current; what was said under the others was not written.
    """
    at = yield from instant(now)
    said = [{"job_id": each.job_id, "lease_id": each.lease_id, "details": each.details, "now": at} for each in reports]
    return frozenset(row[0] for row in (yield Query("progress_put", many=said)))


@reads
def progress(job_id: int) -> Steps[Progress | None]:
    """Read what the handler of a job last said of itself.

    Args:
        job_id: which.

    Returns:
        It, or None where it has not said anything.
    """
    rows: Sequence[Progress] = yield Query("progress_of", {"job_id": job_id}, into=Progress)
    return rows[0] if rows else None


@reads
def is_current(job_id: int, lease_id: int) -> Steps[bool]:
    """Ask whether an attempt still has its job.

    Args:
        job_id: which job.
        lease_id: the lease of the attempt.

    Returns:
        Does it?
    """
    rows: Sequence[JobRecord] = yield Query("job_get", {"id": job_id}, into=JobRecord)
    return bool(rows) and rows[0].lease_id == lease_id
