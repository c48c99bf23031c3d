"""Errors of jobs and their database."""

from __future__ import annotations

from redrive.errors.base import RedriveError
from redrive.errors.requests import OutcomeUnknown

__all__ = [
    "DuplicateJob",
    "IllegalMove",
    "JobCancelled",
    "JobDead",
    "JobError",
    "JobNotFound",
    "LeaseLost",
    "NotTracked",
    "PayloadError",
    "ResultTimeout",
    "ScheduleNotFound",
    "SchemaTooNew",
    "SoftTimeout",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreMismatch",
    "StoreOpenError",
    "StoreOutcomeUnknown",
    "StoreUnreachable",
    "TokenError",
]


class PayloadError(RedriveError, TypeError):
    """The arguments do not fit the annotations of the task."""


class StoreError(RedriveError):
    """The database refused."""


class StoreOpenError(StoreError):
    """The database cannot be opened."""


class StoreBusy(StoreError):
    """The database is locked by another process."""


class StoreFull(StoreError):
    """The disk of the database is full; nothing was written."""


class StoreUnreachable(StoreError):
    """The database server cannot be reached, or the connection was lost; the transaction wrote nothing."""


class StoreOutcomeUnknown(OutcomeUnknown, StoreError):
    """The answer of the database to a commit was lost; it is unknown whether the write took effect."""


class StoreClosed(StoreError):
    """The store has been closed."""


class StoreMismatch(StoreError):
    """The connection given as `using` belongs to another database than the app."""


class SchemaTooNew(StoreError):
    """The database was migrated by a newer version of redrive."""


class TokenError(RedriveError, ValueError):
    """The token does not name an attempt."""


class SoftTimeout(RedriveError, TimeoutError):
    """The soft timeout of the attempt has passed; its handler may clean up until the hard one."""


class LeaseLost(RedriveError):
    """The lease of this attempt is no longer current; nothing was written."""


class IllegalMove(RedriveError):
    """The job's state does not allow this."""


class JobNotFound(RedriveError, LookupError):
    """There is no such job."""


class ScheduleNotFound(RedriveError, LookupError):
    """There is no such schedule."""


class NotTracked(RedriveError, LookupError):
    """There is no such tracked item."""


class DuplicateJob(RedriveError):
    """Another job holds the key."""

    def __init__(self, message: str | None = None, *, job_id: int | None = None, key: str = "") -> None:
        super().__init__(message)
        #: The job that holds it; None where it is another call of the same `enqueue_many`.
        self.job_id = job_id
        self.key = key


class JobError(RedriveError):
    """The job has no result."""


class JobDead(JobError):
    """The job gave up."""


class JobCancelled(JobError):
    """The job was cancelled."""


class ResultTimeout(JobError, TimeoutError):
    """The job did not finish in time; it goes on."""
