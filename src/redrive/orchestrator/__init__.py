"""RFC 0049: the retry handling of Couchbase's SDKs, for a client that sends requests to a server.

A decorated function knows one thing about its failure: an exception. A client knows more: whether a request has left,
whether an answer has come, what the answer said, which node it was sent to. RFC 0049 decides on that, in four parts:

=====================  =============================================================================================
`Request`              may it be repeated, does it change anything, how often was it sent, why again, until when
`RetryReason`          why an attempt failed, with two flags: allowed for what is not idempotent; always retried
`RetryStrategy`        the user's say: how long to wait, or not at all. `BestEffort` unless something else is given
`Orchestrator`         the one place that every failure goes through: decides, records, tells, waits, ends
=====================  =============================================================================================

May import: retrying, policy, observe, clock, errors. Must never import: engine, stores, app, runtime.

The shortest use gives the orchestrator a function that sends a request once, and raises errors that say why::

    class Locked(Exception):
        retry_reason = RetryReason.KV_LOCKED


    async def send(request, attempt):
        ...  # connect
        attempt.dispatch("node1:11210")  # the first byte leaves
        ...  # write, read
        attempt.answer()  # the server has answered
        raise Locked


    orchestrator = Orchestrator()
    await orchestrator.run(Request("upsert", timeout="2500ms"), send, marks=True)

A client that is built otherwise calls `Orchestrator.begin` before it sends and `Orchestrator.maybe_retry` after a
failure, and completes the request itself (`Request.succeed`).

What is decided where the RFC is silent, or its pseudo-code and its text differ:

* An always-retry reason is capped to the deadline too (the text; the pseudo-code forgets it).
* The guard for what may have taken effect stands before the strategy, so that no user code can repeat a mutation by
  mistake; who means it says ``may_repeat_in_flight=True``. It goes by what is proved of the attempt, see `attempt`.
* ``UNKNOWN`` follows the pseudo-code: best effort retries it for what is idempotent.
* One counter counts all retries, whatever their reason. (RFC 0069 would begin anew when the code changes; no SDK does.)
* A refused retry raises the error that the server caused, not "no more retries"; its attempts and reasons are in
  ``__retry__``.
* A request always has an end: without a timeout of its own it gets the orchestrator's.
* Once a part of a result has reached the caller, nothing is sent again, whatever the reason (`Attempt.deliver`).
* ``redrive.disabled()`` switches these retries off too.

All waiting goes through the clock of the request. Everything here is asynchronous, for asyncio and trio; there is no
blocking form, since RFC 0049 has none.
"""

from __future__ import annotations

from redrive.orchestrator.action import RetryAction
from redrive.orchestrator.attempt import Attempt
from redrive.orchestrator.backoff import (
    RandomJitter,
    controlled_backoff,
    exponential_backoff,
    previous_backoff,
)
from redrive.orchestrator.events import RequestNotRetried, RequestRetryScheduled, RetryEvent
from redrive.orchestrator.orchestrator import Orchestrator
from redrive.orchestrator.orphans import RequestEvent, ResponseOrphaned
from redrive.orchestrator.reason import RetryReason
from redrive.orchestrator.record import RETRIES_ATTRIBUTE, AttemptRecord, RequestRecord, Span
from redrive.orchestrator.request import Request, RetryStrategy
from redrive.orchestrator.strategy import BestEffort, FailFast
from redrive.orchestrator.terminal import TERMINAL, FailFastOnTerminalError, TerminalErrors
from redrive.orchestrator.timeouts import Wait, cap, server_timeout, timed_out
from redrive.policy.breaker import BreakerSettings, BreakerStatus
from redrive.retrying.circuit_breaker import CircuitBreaker, Permit

__all__ = [
    "RETRIES_ATTRIBUTE",
    "TERMINAL",
    "Attempt",
    "AttemptRecord",
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
    "Wait",
    "cap",
    "controlled_backoff",
    "exponential_backoff",
    "previous_backoff",
    "server_timeout",
    "timed_out",
]
