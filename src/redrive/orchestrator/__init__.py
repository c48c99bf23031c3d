"""RFC 0049 of Couchbase: retries in client libraries that send requests to a server.

The retry decision of a client library depends on more than an exception: whether the request was sent, whether an
answer has come, what it was, and which node it was sent to. The package has four parts:

=====================  =============================================================================================
`Request`              idempotent and read-only flags, attempts, reasons for retries, deadline
`RetryReason`          the reason of a failed attempt, with two flags: allows non-idempotent retry; always retry
`RetryStrategy`        the delay before the next attempt, or no retry; `BestEffort` by default
`Orchestrator`         decides on each failure, records it, emits events, waits and completes the request
=====================  =============================================================================================

May import: retrying, policy, observe, clock, errors. Must never import: engine, stores, app, runtime.

An orchestrator takes a function that sends a request once and raises errors with a reason::

    class Locked(Exception):
        retry_reason = RetryReason.KV_LOCKED


    async def send(request, attempt):
        ...  # connect
        attempt.dispatch("node1:11210")  # before the first byte is written
        ...  # write, read
        attempt.answer()  # a response has come
        raise Locked


    orchestrator = Orchestrator()
    await orchestrator.run(Request("upsert", timeout="2500ms"), send, marks=True)

A client with its own dispatch loop calls `Orchestrator.begin` before it sends and `Orchestrator.maybe_retry` after a
failure, and completes the request itself (`Request.succeed`).

Waits use the clock of the request. The package is asynchronous, for asyncio and trio; RFC 0049 has no blocking form.
"""

from redrive.orchestrator.attempt import Attempt
from redrive.orchestrator.decision import WaitDecision, cap, server_timeout, timed_out
from redrive.orchestrator.events import (
    RETRIES_ATTRIBUTE,
    RequestAttemptRecord,
    RequestEvent,
    RequestNotRetried,
    RequestRecord,
    RequestRetryScheduled,
    ResponseOrphaned,
    RetryEvent,
    Span,
)
from redrive.orchestrator.orchestrator import Orchestrator
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.request import Request, RetryAction, RetryStrategy
from redrive.orchestrator.strategy import (
    TERMINAL,
    BestEffort,
    FailFast,
    FailFastOnTerminalError,
    RandomJitter,
    TerminalErrors,
    controlled_backoff,
    exponential_backoff,
    previous_backoff,
)
from redrive.policy.breaker import BreakerSettings, BreakerStatus
from redrive.retrying.circuit_breaker import CircuitBreaker, Permit

__all__ = [
    "RETRIES_ATTRIBUTE",
    "TERMINAL",
    "Attempt",
    "BestEffort",
    "BreakerSettings",
    "BreakerStatus",
    "CircuitBreaker",
    "FailFast",
    "FailFastOnTerminalError",
    "Orchestrator",
    "Permit",
    "RandomJitter",
    "Request",
    "RequestAttemptRecord",
    "RequestEvent",
    "RequestNotRetried",
    "RequestRecord",
    "RequestRetryScheduled",
    "ResponseOrphaned",
    "RetryAction",
    "RetryEvent",
    "RetryReason",
    "RetryStrategy",
    "Span",
    "TerminalErrors",
    "WaitDecision",
    "cap",
    "controlled_backoff",
    "exponential_backoff",
    "previous_backoff",
    "server_timeout",
    "timed_out",
]
