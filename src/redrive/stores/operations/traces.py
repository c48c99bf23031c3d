"""What links the attempts of a job to where it was enqueued, in the traces of whoever watches. PURE.

A text of the tracer's, which means nothing here: for OpenTelemetry it is the W3C ``traceparent`` of the enqueue, and of
the last attempt. It is kept in a table of its own, so that jobs that nobody traces pay nothing for it: no column, no
join in a claim.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from redrive.stores.query import Query, Rows, Steps, reads

__all__ = ["put", "trace"]


def put(kept: Iterable[tuple[int, str]]) -> Generator[Query, Rows, None]:
    """Keep the traces of jobs, as a part of a larger operation.

    Args:
        kept: ids of jobs, each with its trace, which replaces what was kept before.
    """
    rows = [{"job_id": number, "trace": trace} for number, trace in kept]
    if rows:
        yield Query("trace_put", many=rows)


@reads
def trace(job_id: int, parent_id: int | None = None) -> Steps[str | None]:
    """Read the trace of a job.

    Args:
        job_id: which.
        parent_id: the dead job that it is to catch: where it has no trace of its own yet, it has that one's.

    Returns:
        The trace; None where nobody has traced it.
    """
    rows = yield Query("trace_of", {"job_id": job_id, "parent_id": parent_id})
    return rows[0][0] if rows else None
