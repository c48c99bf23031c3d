"""Every exception that redrive raises, drawn as a tree.

Answers: what can go wrong, and what is it called? May import: nothing. Must never: do more than say so.

::

    RedriveError                        catch this to catch all that redrive raises by itself
    ├── ConfigurationError              the program is wrong; it fails at import, never in production
    │   ├── PolicyError                 (also a ValueError)
    │   │   ├── PolicySyntaxError       a directive or a duration that cannot be read
    │   │   └── PolicyValueError        readable, but it means nothing sensible
    │   ├── ScheduleError               (also a ValueError) a recurrence, a cron expression or a place means nothing
    │   │   └── ScheduleSyntaxError     a sentence that is not understood
    │   ├── TaskDefinitionError         a function that cannot be a task, or two of one name
    │   ├── CatchDefinitionError        a catch task that is missing or takes the wrong request
    │   └── AppLoadError                ``module:app`` does not lead to an App
    ├── PayloadError                    (also a TypeError) arguments that do not fit the task's annotations
    ├── StoreError                      the database refused, or is away
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
    ├── ScheduleNotFound                (also a LookupError) no worker has declared such a cron or refresh
    ├── NotTracked                      (also a LookupError) no such thing is kept fresh
    ├── DuplicateJob                    another job holds the key
    ├── JobError                        what ``job.result()`` raises when there is no result
    │   ├── JobDead                     it gave up
    │   ├── JobCancelled                somebody ended it
    │   └── ResultTimeout               (also a TimeoutError) it is not finished yet
    └── RequestError                    a request that ended without an answer of its own
        ├── OutcomeUnknown              it is unknown whether it took effect
        │   ├── StoreOutcomeUnknown     (also a StoreError) the answer to a commit was lost
        │   └── AmbiguousTimeout        (also a TimeoutError) and its time was up
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

from redrive.errors.base import RedriveError
from redrive.errors.durable import (
    DuplicateJob,
    IllegalMove,
    JobCancelled,
    JobDead,
    JobError,
    JobNotFound,
    LeaseLost,
    NotTracked,
    PayloadError,
    ResultTimeout,
    ScheduleNotFound,
    SchemaTooNew,
    SoftTimeout,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreOpenError,
    StoreOutcomeUnknown,
    StoreUnreachable,
    TokenError,
)
from redrive.errors.program import (
    AppLoadError,
    CatchDefinitionError,
    ConfigurationError,
    PolicyError,
    PolicySyntaxError,
    PolicyValueError,
    ScheduleError,
    ScheduleSyntaxError,
    TaskDefinitionError,
)
from redrive.errors.requests import (
    AmbiguousTimeout,
    AuthenticationFailure,
    CircuitOpen,
    ClientClosed,
    CollectionNotFound,
    OutcomeUnknown,
    Overloaded,
    RequestCancelled,
    RequestError,
    ScopeNotFound,
    TerminalFailure,
    TooManyInRetry,
    UnambiguousTimeout,
)
from redrive.errors.signals import Cancel, GiveUp, RetryAfter, Signal, Snooze

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
    "NotTracked",
    "OutcomeUnknown",
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
    "ScheduleError",
    "ScheduleNotFound",
    "ScheduleSyntaxError",
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
    "StoreOutcomeUnknown",
    "StoreUnreachable",
    "TaskDefinitionError",
    "TerminalFailure",
    "TokenError",
    "TooManyInRetry",
    "UnambiguousTimeout",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # in tracebacks and in histories they are called by where users find them
del _name
