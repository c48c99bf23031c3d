"""Every exception that redrive raises, drawn as a tree.

::

    RedriveError                        catch this to catch all that redrive raises by itself
    ├── ConfigurationError              the program is wrong; it fails at import, never in production
    │   ├── PolicyError                 (also a ValueError)
    │   │   ├── PolicySyntaxError       a directive or a duration that cannot be read
    │   │   └── PolicyValueError        readable, but it means nothing sensible
    │   ├── TaskDefinitionError         a function that cannot be a task, or two of one name
    │   ├── CatchDefinitionError        a catch task that is missing or takes the wrong request
    │   └── AppLoadError                ``module:app`` does not lead to an App
    ├── PayloadError                    (also a TypeError) arguments that do not fit the task's annotations
    ├── StoreError                      the database said no
    │   ├── StoreOpenError              not there, not writable, not a database
    │   ├── StoreBusy                   another process holds it locked
    │   ├── StoreFull                   its disk is full
    │   ├── StoreUnreachable            the server is away, or the connection was lost
    │   ├── StoreClosed                 used after ``close()``
    │   ├── StoreMismatch               ``using=`` is a connection to some other database
    │   └── SchemaTooNew                a newer redrive has migrated it
    ├── TokenError                      (also a ValueError) what was given as a token names no attempt
    ├── SoftTimeout                     (also a TimeoutError) raised *inside* a handler whose soft timeout has passed
    ├── LeaseLost                       this attempt is no longer yours; what it wrote changed nothing
    ├── IllegalMove                     the job's state does not allow what was asked
    ├── JobNotFound                     (also a LookupError)
    ├── DuplicateJob                    another job holds the key
    ├── JobError                        what ``job.result()`` raises when there is no result
    │   ├── JobDead                     it gave up
    │   ├── JobCancelled                somebody ended it
    │   └── ResultTimeout               (also a TimeoutError) it is not finished yet
    └── RequestError                    a request under RFC 0049 that ended without an answer of its own
        ├── AmbiguousTimeout            (also a TimeoutError) nobody knows whether it took effect
        ├── UnambiguousTimeout          (also a TimeoutError) it did not take effect
        ├── RequestCancelled            it is not sent again, or not wanted any more
        │   ├── ClientClosed            the orchestrator was closed
        │   └── TooManyInRetry          too many others wait already
        ├── CircuitOpen                 the circuit breaker of the endpoint refuses it
        ├── Overloaded                  a limiter refuses it, since the target refuses so many
        └── TerminalFailure             what ``FailFastOnTerminalError`` makes of a cause that stays
            ├── AuthenticationFailure   the credentials are wrong
            ├── CollectionNotFound      there is no such collection
            └── ScopeNotFound           there is no such scope

    Signal                              raised *by a handler* to say what should become of its job
    ├── RetryAfter                      failed; the error dictates the delay
    ├── GiveUp                          failed; do not try again
    ├── Snooze                          not a failure; come back later, nothing is spent
    └── Cancel                          not a failure; the job is no longer wanted

The docstring of a class is its default message (the habit of procrastinate's ``exceptions.py``), so that no error is
ever silent. Messages say what was wrong, where, and what would be right.

Signals are ``Exception``, not ``BaseException``: a handler raises them from its own ``except`` clauses, and two of the
four *are* failures. Code that swallows ``Exception`` swallows them, as it would swallow the failure itself.
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "AmbiguousTimeout",
    "AppLoadError",
    "AuthenticationFailure",
    "Cancel",
    "CatchDefinitionError",
    "CircuitOpen",
    "ClientClosed",
    "CollectionNotFound",
    "ConfigurationError",
    "DuplicateJob",
    "GiveUp",
    "IllegalMove",
    "JobCancelled",
    "JobDead",
    "JobError",
    "JobNotFound",
    "LeaseLost",
    "Overloaded",
    "PayloadError",
    "PolicyError",
    "PolicySyntaxError",
    "PolicyValueError",
    "RedriveError",
    "RequestCancelled",
    "RequestError",
    "ResultTimeout",
    "RetryAfter",
    "SchemaTooNew",
    "ScopeNotFound",
    "Signal",
    "Snooze",
    "SoftTimeout",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreMismatch",
    "StoreOpenError",
    "StoreUnreachable",
    "TaskDefinitionError",
    "TerminalFailure",
    "TokenError",
    "TooManyInRetry",
    "UnambiguousTimeout",
]


class RedriveError(Exception):
    """Something in redrive went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _first_line(type(self)))


def _first_line(cls: type) -> str:
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0]


class ConfigurationError(RedriveError):
    """The program is configured in a way that cannot work."""


class PolicyError(ConfigurationError, ValueError):
    """The retry policy is not valid.

    Attributes:
        text: the text that was read, or "" where there was none.
        at: offset of the fault in ``text`` in characters, or None.
        problem: the message without the drawing of the text and without a position.
    """

    def __init__(
        self, message: str | None = None, *, text: str = "", at: int | None = None, problem: str | None = None
    ) -> None:
        super().__init__(message)
        self.text = text
        self.at = at
        self.problem = problem or str(self)


class PolicySyntaxError(PolicyError):
    """The text of the policy cannot be read."""


class PolicyValueError(PolicyError):
    """The policy can be read but asks for something impossible."""


class TaskDefinitionError(ConfigurationError):
    """This function cannot be registered as a task."""


class CatchDefinitionError(ConfigurationError):
    """The catch task is missing or does not accept the request."""


class AppLoadError(ConfigurationError):
    """The reference does not lead to a redrive App."""


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
    """The database server cannot be reached, or the connection to it was lost."""


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


class DuplicateJob(RedriveError):
    """Another job holds the key.

    Attributes:
        job_id: the job that holds it; None where it is another call of the same `enqueue_many`.
        key: the key.
    """

    def __init__(self, message: str | None = None, *, job_id: int | None = None, key: str = "") -> None:
        super().__init__(message)
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


class RequestError(RedriveError):
    """The request has ended without an answer.

    What is known of the request stands in ``__retry__``: its attempts, reasons and endpoint.
    """


class AmbiguousTimeout(RequestError, TimeoutError):
    """The time was up, and nobody knows whether the request took effect."""


class UnambiguousTimeout(RequestError, TimeoutError):
    """The time was up, and the request did not take effect."""


class RequestCancelled(RequestError):
    """The request is not sent again.

    Attributes:
        cancellation: why, as a stable word: ``NO_MORE_RETRIES``, ``CANCELLED``, ``SHUTDOWN``,
            ``TOO_MANY_REQUESTS_IN_RETRY``.
        reason: name of the reason that was not retried, or None.
    """

    default_cancellation = "CANCELLED"

    def __init__(
        self, message: str | None = None, *, cancellation: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.cancellation = cancellation or self.default_cancellation
        self.reason = reason


class ClientClosed(RequestCancelled):
    """The client was closed while the request waited for its next attempt."""

    default_cancellation = "SHUTDOWN"


class TooManyInRetry(RequestCancelled):
    """Too many requests wait for their next attempt already."""

    default_cancellation = "TOO_MANY_REQUESTS_IN_RETRY"


class CircuitOpen(RequestError):
    """The circuit breaker of the endpoint is open; the request was not sent.

    Attributes:
        retry_after: how long until the breaker lets something through, at the earliest; None if nobody knows.
        permit: `redrive.retrying.orchestrator.Permit` of the probe that the client owes, or None.
    """

    def __init__(
        self, message: str | None = None, *, retry_after: timedelta | None = None, permit: object = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.permit = permit


class Overloaded(RequestError):
    """The target refuses too many calls; this one was not sent.

    Attributes:
        rejection: the part of all calls that is refused so at present, from 0 to 1.
    """

    def __init__(self, message: str | None = None, *, rejection: float = 0.0) -> None:
        super().__init__(message)
        self.rejection = rejection


class TerminalFailure(RequestError):
    """The request failed from a cause that will not go away by itself."""


class AuthenticationFailure(TerminalFailure):
    """The credentials were refused."""


class CollectionNotFound(TerminalFailure):
    """There is no such collection."""


class ScopeNotFound(TerminalFailure):
    """There is no such scope."""


class Signal(Exception):
    """Raised by a handler to say what should become of its job."""


class RetryAfter(Signal):
    """The attempt failed and the error itself says when to come back.

    The delay is a floor that replaces the computed backoff; it is never jittered down. It spends one retry.

    Args:
        delay: how long to wait: a ``timedelta``, seconds as a number, or text such as ``"15m"``.
        why: what happened, for the history of the job.
    """

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"retry after {delay}")
        self.delay = delay
        self.why = why


class GiveUp(Signal):
    """The attempt failed for good: no retry is spent on it, the catch task gets it at once.

    Args:
        why: what is final about it, for the history of the job.
    """

    def __init__(self, why: str = "gave up") -> None:
        super().__init__(why)
        self.why = why


class Snooze(Signal):
    """Not now: run the job again later. Spends no retry and records no error.

    Args:
        delay: how long to wait: a ``timedelta``, seconds as a number, or text such as ``"15m"``.
        why: shown while the job waits.
    """

    def __init__(self, delay: timedelta | float | str, why: str = "") -> None:
        super().__init__(why or f"snoozed for {delay}")
        self.delay = delay
        self.why = why


class Cancel(Signal):
    """The job is no longer wanted: it ends as cancelled. No retry, no catch.

    Args:
        why: shown on the job.
    """

    def __init__(self, why: str = "cancelled by its handler") -> None:
        super().__init__(why)
        self.why = why
