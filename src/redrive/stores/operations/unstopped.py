"""Handlers that go on although their attempts have ended. PURE.

A job that is cancelled is cancelled at once, but its handler hears of it a moment later and may take its time to stop.
A thread cannot be stopped at all when its attempt has reached its timeout. The limits of a queue have to count these
handlers until they have stopped. Their worker says when; if it is gone, they are gone too.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable

from redrive.engine.records import Claim, JobRecord
from redrive.stores.query import Query, Rows

__all__ = ["drop", "put"]


def put(attempts: Iterable[Claim | JobRecord]) -> Generator[Query, Rows, None]:
    """Note handlers that go on.

    Args:
        attempts: as they were before they ended.
    """
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


def drop(lease_ids: Collection[int]) -> Generator[Query, Rows, None]:
    """Forget handlers that have stopped.

    Args:
        lease_ids: the leases of their attempts; those of other attempts are ignored.
    """
    if lease_ids:
        yield Query("unstopped_drop", {"lease_ids": sorted(lease_ids)})
