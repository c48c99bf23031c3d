"""The exceptions of redrive.

May import: nothing. Must never: contain behaviour.

::

    RedriveError                        the base of all errors that redrive raises
    ├── ConfigurationError              the program is wrong; raised at import or at start
    │   ├── PolicyError                 (also a ValueError)
    │   │   ├── PolicySyntaxError       a directive or a duration that cannot be read
    │   │   └── PolicyValueError        readable, but not valid
    │   ├── ScheduleError               (also a ValueError) an invalid recurrence, cron expression or time zone
    │   │   └── ScheduleSyntaxError     a sentence that cannot be read
    │   ├── TaskDefinitionError         a function that cannot be a task, or two of one name
    │   ├── CatchDefinitionError        a catch task that is missing or takes the wrong request
    │   ├── MachineDefinitionError      a state machine that is ambiguous or incomplete
    │   ├── CoroutineReturned           (also a TypeError) a call that nothing awaits returned a coroutine
    │   └── AppLoadError                ``module:app`` does not name an App, or its module writes when imported
    ├── PayloadError                    (also a TypeError) arguments that do not fit the task's annotations
    │   └── PayloadEncoded              a stored document that this process cannot decode
    ├── StoreError                      the database refused a statement, or is not reachable
    │   ├── StoreOpenError              missing, not writable, or not a database
    │   ├── StoreBusy                   another process holds a lock
    │   ├── StoreFull                   its disk is full
    │   ├── StoreUnreachable            the server is not reachable, or the connection was lost
    │   ├── StoreClosed                 used after ``close()``
    │   ├── StoreMismatch               ``using=`` is a connection to another database
    │   ├── CodecError                  the codec of the app could not encode a document
    │   ├── TopicsRestored              the cursors of its topics are those of another server
    │   └── SchemaTooNew                a newer redrive has migrated it
    ├── ArchiveError                    an archive of ended jobs cannot be written; the jobs stay
    ├── TokenError                      (also a ValueError) a token that does not name an attempt
    ├── StartHookError                  a start hook of a worker failed; the worker ends
    ├── SoftTimeout                     (also a TimeoutError) raised *inside* a handler after its soft timeout
    ├── LeaseLost                       this attempt has lost its job; its write changed nothing
    ├── IllegalMove                     the job's state does not allow the operation
    ├── JobNotFound                     (also a LookupError)
    ├── ScheduleNotFound                (also a LookupError) no worker has declared such a cron or refresh
    ├── SubscriptionNotFound            (also a LookupError) no worker has declared such a subscription
    ├── NotTracked                      (also a LookupError) no such tracked item
    ├── RunNotFound                     (also a LookupError) no such run
    ├── OperationNotFound               (also a LookupError) no such bulk operation
    ├── DuplicateJob                    another job holds the key
    ├── DuplicateRun                    another run has the id, with other arguments
    ├── RunError                        raised inside a run, or by the gate of a step
    │   ├── StepNotReady                the step waits for its next try
    │   ├── StepBusy                    another caller executes the step
    │   ├── StepExhausted               the step failed for good
    │   ├── StepFailed                  a recorded error of a step with a class that cannot be imported
    │   ├── ResultTooLarge              the result of a step cannot be stored
    │   ├── TooManySteps                the run has reached the limit of steps
    │   ├── NonDeterminism              the code and the recorded steps do not fit
    │   ├── FlowMisused                 the body uses its flow in a way that cannot be recorded
    │   ├── TimedOut                    (also a TimeoutError) a wait of a run ended without an answer
    │   ├── ChildFailed                 a child run failed for good, or was cancelled
    │   ├── ParkingSwallowed            the body caught the exception that parks it, and went on
    │   └── WaitsForItself              a run waits for itself, or for a run that waits for it
    ├── MachineError                    a state machine refuses an event
    │   ├── MachineBusy                 a transition of the instance runs already
    │   ├── MachineFailed               a transition of the instance has failed for good
    │   ├── NoTransition                the state of the instance has no transition for the event
    │   └── EventConflict               the key of the event belongs to another event
    ├── InstanceNotFound                (also a LookupError) a machine has no such instance
    ├── JobError                        raised by ``job.result()`` if there is no result
    │   ├── JobDead                     the job gave up
    │   ├── JobCancelled                the job was cancelled
    │   └── ResultTimeout               (also a TimeoutError) the job is not finished yet
    └── RequestError                    a request that ended without an answer of its own
        ├── OutcomeUnknown              it is unknown whether it took effect
        │   ├── StoreOutcomeUnknown     (also a StoreError) the answer to a commit was lost
        │   └── AmbiguousTimeout        (also a TimeoutError) and its time was up
        ├── UnambiguousTimeout          (also a TimeoutError) it did not take effect
        ├── RequestCancelled            it is not sent again, or was cancelled
        │   ├── ClientClosed            the orchestrator was closed
        │   └── TooManyInRetry          too many others wait already
        ├── CircuitOpen                 the circuit breaker of the endpoint refuses it
        ├── Overloaded                  a limiter refuses it, because the target refuses many
        └── TerminalFailure             ``FailFastOnTerminalError`` found a permanent cause
            ├── AuthenticationFailure   the credentials are wrong
            ├── CollectionNotFound      the collection does not exist
            └── ScopeNotFound           the scope does not exist

    Signal                              raised *by a handler* to choose what follows for its job
    ├── RetryAfter                      failed; the error sets the delay
    ├── GiveUp                          failed; do not try again
    ├── Snooze                          not a failure; run again later, without using an attempt
    └── Cancel                          not a failure; the job is no longer needed

    FlowInterrupt                       raised *in the body of a workflow*, which must let it pass
    ├── Parking                         the run waits, and gives its worker back
    ├── BranchDropped                   the result of this branch is not needed any more
    └── CancelRequested                 the run was cancelled; clean up, and let it pass

The docstring of a class is its default message. Signals are ``Exception``, not ``BaseException``: handlers raise them
from their own ``except`` clauses, and two of the four *are* failures. The interrupts of a workflow are
``BaseException``: an ``except Exception`` in the body must not swallow them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Self


class RedriveError(Exception):
    """An operation of redrive failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _first_line(type(self)))


def _first_line(cls: type) -> str:
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0]


# --- errors in the program that uses redrive


class ConfigurationError(RedriveError):
    """The program is configured in a way that cannot work."""


class PolicyError(ConfigurationError, ValueError):
    """The retry policy is not valid."""

    def __init__(
        self, message: str | None = None, *, text: str = "", at: int | None = None, problem: str | None = None
    ) -> None:
        super().__init__(message)
        #: The text that was read, or "".
        self.text = text
        #: Offset of the fault in ``text`` in characters, or None.
        self.at = at
        #: The message without the drawing of the text and without a position.
        self.problem: str = problem or str(self)

    @classmethod
    def with_caret(cls, text: str, at: int, problem: str, valid: str) -> Self:
        """Return an error that shows the text, a caret under the fault, and a valid form."""
        shown = "".join(c if c.isprintable() else " " for c in text)
        return cls(f"{problem}\n    {shown}\n    {' ' * at}^ {valid}", text=text, at=at, problem=problem)

    def within(self, where: str) -> Self:
        """Return the same error with a message that begins with its place in the program, such as ``task shop.pay``."""
        return type(self)(f"{where}: {self}", text=self.text, at=self.at, problem=self.problem)


class PolicySyntaxError(PolicyError):
    """The text of the policy cannot be read."""


class PolicyValueError(PolicyError):
    """The policy can be read but asks for something impossible."""


class ScheduleError(ConfigurationError, ValueError):
    """The schedule is not valid."""


class ScheduleSyntaxError(ScheduleError):
    """A sentence about a schedule cannot be read."""

    problem: str
    #: Counted from 1.
    line: int
    #: Counted from 1.
    column: int

    @classmethod
    def at(cls, problem: str, line: int, column: int) -> ScheduleSyntaxError:
        """Return the error for a fault at a line and a column, both from 1."""
        error = cls(f"line {line}, column {column}: {problem}")
        error.problem, error.line, error.column = problem, line, column
        return error


class TaskDefinitionError(ConfigurationError):
    """This function cannot be registered as a task."""


class CatchDefinitionError(ConfigurationError):
    """The catch task is missing or does not accept the request."""


class MachineDefinitionError(ConfigurationError):
    """The state machine is ambiguous or incomplete."""


class CoroutineReturned(ConfigurationError, TypeError):
    """A function returned a coroutine where nothing awaits it, so that its failures could not be retried."""


class AppLoadError(ConfigurationError):
    """The reference does not lead to a redrive App."""


# --- requests that end without an answer of their own


class RequestError(RedriveError):
    """The request has ended without an answer."""

    # `__retry__` has the attempts, the reasons and the endpoint of the request.


class OutcomeUnknown(RequestError):
    """It is unknown whether the request took effect."""


class AmbiguousTimeout(OutcomeUnknown, TimeoutError):
    """The time was up, and it is unknown whether the request took effect."""


class UnambiguousTimeout(RequestError, TimeoutError):
    """The time was up, and the request did not take effect."""


class RequestCancelled(RequestError):
    """The request is not sent again."""

    default_cancellation = "CANCELLED"

    def __init__(
        self, message: str | None = None, *, cancellation: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        #: The reason, as a stable word: ``NO_MORE_RETRIES``, ``CANCELLED``, ``SHUTDOWN``,
        #: ``TOO_MANY_REQUESTS_IN_RETRY``.
        self.cancellation: str = cancellation or self.default_cancellation
        #: Name of the reason that was not retried, or None.
        self.reason = reason


class ClientClosed(RequestCancelled):
    """The client was closed while the request waited for its next attempt."""

    default_cancellation = "SHUTDOWN"


class TooManyInRetry(RequestCancelled):
    """Too many requests wait for their next attempt already."""

    default_cancellation = "TOO_MANY_REQUESTS_IN_RETRY"


class CircuitOpen(RequestError):
    """The circuit breaker of the endpoint is open; the request was not sent."""

    def __init__(
        self, message: str | None = None, *, retry_after: timedelta | None = None, permit: object = None
    ) -> None:
        super().__init__(message)
        #: The earliest time until the breaker admits a request; None if unknown.
        self.retry_after = retry_after
        #: `redrive.orchestrator.Permit` of the probe that the client must send, or None.
        self.permit = permit


class Overloaded(RequestError):
    """The target refuses too many calls; this one was not sent."""

    def __init__(self, message: str | None = None, *, rejection: float = 0.0) -> None:
        super().__init__(message)
        #: The present share of calls that are refused so, from 0 to 1.
        self.rejection = rejection


class TerminalFailure(RequestError):
    """The request failed from a permanent cause."""


class AuthenticationFailure(TerminalFailure):
    """The credentials were refused."""


class CollectionNotFound(TerminalFailure):
    """There is no such collection."""


class ScopeNotFound(TerminalFailure):
    """There is no such scope."""


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


# --- signals: exceptions that a handler raises to choose what follows for its job


class Signal(Exception):
    """The base of the signals that a handler raises."""


class RetryAfter(Signal):
    """The attempt failed, and the error sets the delay.

    The delay replaces the computed backoff and gets no downward jitter. It uses one retry.
    """

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"retry after {delay}")
        #: A ``timedelta``, seconds as a number, or text such as ``"15m"``.
        self.delay = delay
        #: The cause, for the history of the job.
        self.why = why


class GiveUp(Signal):
    """The attempt failed for good: it is not retried, and the catch task runs at once."""

    def __init__(self, why: str = "gave up") -> None:
        super().__init__(why)
        #: The cause, for the history of the job.
        self.why = why


class Snooze(Signal):
    """Run the job again later, without using a retry or recording an error."""

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"snoozed for {delay}")
        #: A ``timedelta``, seconds as a number, or text such as ``"15m"``.
        self.delay = delay
        #: A text that is shown while the job waits.
        self.why = why


class Cancel(Signal):
    """End the job as cancelled, without a retry or a catch task."""

    def __init__(self, why: str = "cancelled by its handler") -> None:
        super().__init__(why)
        #: A text that is shown on the job.
        self.why = why


# --- interrupts: raised in the body of a workflow, which must let them pass


class FlowInterrupt(BaseException):
    """The base of the exceptions that interrupt the body of a workflow."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _first_line(type(self)))


class Parking(FlowInterrupt):
    """The run waits, and its body is torn down; it is replayed when the wait is over."""


class BranchDropped(FlowInterrupt):
    """The result of this branch is not needed any more."""


class CancelRequested(FlowInterrupt):
    """The cancellation of the run has arrived: clean up, and let this exception pass."""


# The tree above is the list; a test compares them.
__all__ = [name for name, kind in sorted(vars().items()) if isinstance(kind, type) and kind.__module__ == __name__]
