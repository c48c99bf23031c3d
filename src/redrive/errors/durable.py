"""The exceptions of durable work: of jobs, stores, machines and runs.

A program that only retries calls does not load them. They are those of `redrive.errors`, where the tree is drawn, and
bear its name.
"""

from __future__ import annotations

from datetime import UTC, datetime

from redrive.errors import OutcomeUnknown, RedriveError, first_line

# --- jobs and their database


class PayloadError(RedriveError, TypeError):
    """The arguments do not fit the annotations of the task."""


class PayloadEncoded(PayloadError):
    """A stored document is encoded, and this process has no codec, or not the key, to decode it."""


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


class CodecError(StoreError):
    """The codec of the app could not encode a document; nothing was written."""


class TopicsRestored(StoreError):
    """The database was restored from a dump of another server; run ``redrive topics rebase`` before workers start."""


class StoreClosed(StoreError):
    """The store has been closed."""


class StoreMismatch(StoreError):
    """The connection given as `using` belongs to another database than the app."""


class SchemaTooNew(StoreError):
    """The database was migrated by a newer version of redrive."""


class ArchiveError(RedriveError):
    """The archive cannot be written, and the jobs stay."""


class TokenError(RedriveError, ValueError):
    """The token does not name an attempt."""


class StartHookError(RedriveError):
    """A start hook of a worker failed, and the worker has ended without claiming a job."""


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


class SubscriptionNotFound(RedriveError, LookupError):
    """There is no such subscription."""


class NotTracked(RedriveError, LookupError):
    """There is no such tracked item."""


class OperationNotFound(RedriveError, LookupError):
    """There is no such bulk operation."""


class DuplicateJob(RedriveError):
    """Another job holds the key."""

    def __init__(self, message: str | None = None, *, job_id: int | None = None, key: str = "") -> None:
        super().__init__(message)
        #: The job that holds it; None where it is another call of the same `enqueue_many`.
        self.job_id = job_id
        self.key = key


class MachineError(RedriveError):
    """The state machine refuses the event; nothing was stored."""


class MachineBusy(MachineError):
    """A transition of the instance runs already."""

    def __init__(self, message: str | None = None, *, job_id: int | None = None) -> None:
        super().__init__(message)
        #: The job of the transition that runs.
        self.job_id = job_id


class MachineFailed(MachineError):
    """A transition of the instance has failed for good; retry it, skip it, or reset the instance."""

    def __init__(self, message: str | None = None, *, job_id: int | None = None) -> None:
        super().__init__(message)
        #: The job of the transition that has failed.
        self.job_id = job_id


class NoTransition(MachineError):
    """The state of the instance has no transition for the event."""

    def __init__(
        self,
        message: str | None = None,
        *,
        state: str | None = None,
        event_type: str = "",
        candidates: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        #: The state of the instance; None before its first transition.
        self.state = state
        #: The name of the type of the event.
        self.event_type = event_type
        #: The states that can follow the present one.
        self.candidates = candidates


class EventConflict(MachineError):
    """The key of the event belongs to another event of the instance."""


class InstanceNotFound(RedriveError, LookupError):
    """The machine has no such instance."""


class JobError(RedriveError):
    """The job has no result."""


class JobDead(JobError):
    """The job gave up."""


class JobCancelled(JobError):
    """The job was cancelled."""


class ResultTimeout(JobError, TimeoutError):
    """The job did not finish in time; it goes on."""


# --- runs of workflows


class RunNotFound(RedriveError, LookupError):
    """There is no such run."""


class DuplicateRun(RedriveError):
    """A run with this id exists, and it was started with other arguments."""

    def __init__(self, message: str | None = None, *, job_id: int | None = None, id: str = "") -> None:
        super().__init__(message)
        #: The job of the run that has the id.
        self.job_id = job_id
        self.id = id


class RunError(RedriveError):
    """The run cannot go on."""


_NEVER = datetime.max.replace(tzinfo=UTC)


class StepNotReady(RunError):
    """The step has failed and waits for its next try."""

    def __init__(self, message: str | None = None, *, retry_at: datetime = _NEVER, retry_count: int = 0) -> None:
        super().__init__(message)
        #: When the next try is due.
        self.retry_at = retry_at
        #: The number of retries, including the one that is due then.
        self.retry_count = retry_count


class StepBusy(RunError):
    """Another caller executes the step."""


class StepExhausted(RunError):
    """The step has failed for good; it is not tried again."""

    def __init__(self, message: str | None = None, *, tries: int = 0, error: str = "") -> None:
        super().__init__(message)
        #: The number of tries.
        self.tries = tries
        #: The text of the last error.
        self.error = error


class StepFailed(RunError):
    """The step failed for good, and the class of its error cannot be imported."""

    def __init__(self, message: str | None = None, *, error_type: str = "", reason: str = "") -> None:
        super().__init__(message)
        #: Qualified name of the class of the error.
        self.error_type = error_type
        #: The reason of the failure, one upper-case word.
        self.reason = reason


class ResultTooLarge(RunError):
    """The result is too large to be stored; the function has run and is not called again."""


class TooManySteps(RunError):
    """The run has reached the limit of steps."""


class NonDeterminism(RunError):
    """The code of the workflow does not fit the recorded steps; nothing was run."""


class FlowMisused(RunError):
    """The body of a workflow uses its flow, or writes by redrive, in a way that cannot be recorded."""


class TimedOut(RunError, TimeoutError):
    """The wait has ended without an answer, which is recorded."""


class ChildFailed(RunError):
    """The child run has failed for good, or was cancelled."""

    def __init__(self, message: str | None = None, *, job_id: int = 0, reason: str = "") -> None:
        super().__init__(message)
        #: The job of the child run.
        self.job_id = job_id
        #: The reason of its failure, one upper-case word; CANCELLED if it was cancelled.
        self.reason = reason


class ParkingSwallowed(RunError):
    """The body caught the exception that parks it, and went on."""


class WaitsForItself(RunError):
    """The run waits for itself, or for a run that waits for it."""


# --- interrupts: raised in the body of a workflow, which must let them pass


class FlowInterrupt(BaseException):
    """The base of the exceptions that interrupt the body of a workflow."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or first_line(type(self)))


class Parking(FlowInterrupt):
    """The run waits, and its body is torn down; it is replayed when the wait is over."""


class BranchDropped(FlowInterrupt):
    """The result of this branch is not needed any more."""


class CancelRequested(FlowInterrupt):
    """The cancellation of the run has arrived: clean up, and let this exception pass."""


# The names of exceptions are stored, in policies and in the history of jobs.
_kind: object = None
for _kind in [*vars().values()]:
    if isinstance(_kind, type) and _kind.__module__ == __name__:
        _kind.__module__ = "redrive.errors"
del _kind
