"""What a handler may know about the attempt that it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """Given to a handler that has a parameter annotated with this class.

    Attributes:
        job_id: the job.
        task: name of the task.
        attempt: which execution this is, from 1.
        failures: how many executions have failed before this one.
        attempt_uid: names this execution and no other: ``<job id>.<lease id>``.
        idempotency_key: the same for every attempt of this job, and for no other job in any database. Send it to
            services that can recognise a repetition.
        started_at: when its first attempt started.
        deadline_at: when the attempt will be cut off; None without an attempt timeout.
    """

    job_id: int
    task: str
    attempt: int
    failures: int
    attempt_uid: str
    idempotency_key: str
    started_at: datetime
    deadline_at: datetime | None
