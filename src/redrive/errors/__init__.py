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
    │   └── AppLoadError                ``module:app`` does not name an App
    ├── PayloadError                    (also a TypeError) arguments that do not fit the task's annotations
    ├── StoreError                      the database refused a statement, or is not reachable
    │   ├── StoreOpenError              missing, not writable, or not a database
    │   ├── StoreBusy                   another process holds a lock
    │   ├── StoreFull                   its disk is full
    │   ├── StoreUnreachable            the server is not reachable, or the connection was lost
    │   ├── StoreClosed                 used after ``close()``
    │   ├── StoreMismatch               ``using=`` is a connection to another database
    │   └── SchemaTooNew                a newer redrive has migrated it
    ├── TokenError                      (also a ValueError) a token that does not name an attempt
    ├── SoftTimeout                     (also a TimeoutError) raised *inside* a handler after its soft timeout
    ├── LeaseLost                       this attempt has lost its job; its write changed nothing
    ├── IllegalMove                     the job's state does not allow the operation
    ├── JobNotFound                     (also a LookupError)
    ├── ScheduleNotFound                (also a LookupError) no worker has declared such a cron or refresh
    ├── NotTracked                      (also a LookupError) no such tracked item
    ├── DuplicateJob                    another job holds the key
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

The docstring of a class is its default message. Signals are ``Exception``, not ``BaseException``: handlers raise them
from their own ``except`` clauses, and two of the four *are* failures.
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
    # Tracebacks and histories show the module from which users import them.
    globals()[_name].__module__ = __name__
del _name
