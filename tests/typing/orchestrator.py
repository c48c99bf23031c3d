"""Type tests of RFC 0049's orchestrator: typical uses, with their types. mypy reads this file; nothing runs it."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

from redrive.orchestrator import (
    Attempt,
    BestEffort,
    BreakerSettings,
    CircuitBreaker,
    FailFast,
    Orchestrator,
    Request,
    RequestAttemptRecord,
    RetryAction,
    RetryReason,
    RetryStrategy,
)
from redrive.policy import Backoff, Failure, Reason


class Careful(BestEffort):
    """A strategy of a user's own."""

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """Decide one case, and leave the others."""
        if "is_robot" in request.context:
            return None
        return await super().retry_after(request, reason)


class Plain:
    """A strategy that waits for nothing."""

    def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """Decide."""
        return RetryAction("5ms") if request.retry_attempts < 3 else None


def function(request: Request, reason: RetryReason) -> RetryAction | None:
    """Decide as a strategy does, as a plain function."""
    return None


async def send(request: Request, attempt: Attempt) -> bytes:
    """Send a request once."""
    assert_type(attempt.remaining, float | None)
    attempt.dispatch("node1")
    attempt.answer(definite=False)
    return b""


def classify(request: Request, error: Exception) -> Failure | Reason | str | None:
    """Return the reason of a failure."""
    return None


strategies: list[RetryStrategy] = [BestEffort(Backoff.constant("5ms")), Careful(jitter="full"), FailFast(), Plain()]


async def use() -> None:
    """Send requests."""
    orchestrator = Orchestrator(strategy=function, classify=classify, breaker=BreakerSettings(volume_threshold=5))
    request = Request("get", idempotent=True, timeout="2500ms", retry_strategy=Plain(), context={"user": 7})
    assert_type(await orchestrator.run(request, send, marks=True), bytes)
    assert_type(await orchestrator.maybe_retry(request, RetryReason.KV_LOCKED, ConnectionError()), bool)
    assert_type(await orchestrator.maybe_retry(request, "kv_locked"), bool)
    assert_type(request.deadline, datetime | None)
    assert_type(request.retry_reasons, tuple[Reason, ...])
    assert_type(request.history, tuple[RequestAttemptRecord, ...])
    assert_type(orchestrator.breaker("node1"), CircuitBreaker | None)
    await orchestrator.run(request, lambda request: send(request, request.attempt))  # type: ignore[arg-type, misc]
    Orchestrator(strategy=5)  # type: ignore[arg-type]
