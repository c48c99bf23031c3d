"""The exceptions of redrive.

May import: nothing. Must never: contain behaviour. Those of durable work are loaded at their first use, from `durable`.

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

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from redrive.errors.durable import *  # noqa: F403 - type checkers read the names here


class RedriveError(Exception):
    """An operation of redrive failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or first_line(type(self)))


def first_line(cls: type) -> str:
    """Return the default message of an exception."""
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


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == __name__


if not TYPE_CHECKING:  # type checkers report a name that the package does not have

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a list
        """Load the errors of durable work at the first use of one."""
        durable = import_module("redrive.errors.durable")
        if name == "__all__":
            # The tree above is the list; a test compares them.
            return sorted(name for name, kind in {**globals(), **vars(durable)}.items() if _is_error(kind))
        try:
            found = globals()[name] = getattr(durable, name)
        except AttributeError:
            message = f"module 'redrive.errors' has no attribute {name!r}"
            raise AttributeError(message) from None
        return found

    def __dir__() -> list[str]:
        """Return the names of all errors, loaded or not."""
        return [*__getattr__("__all__")]
