"""What Pydantic AI's errors say about another attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic_ai import ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UsageLimitExceeded,
)

from redrive.contrib.pydantic_ai import failure_of
from redrive.policy import Policy

LASTING = [
    ModelHTTPError(400, "m"),
    ModelHTTPError(404, "m"),
    ModelHTTPError(503, "m", headers={"x-should-retry": "false"}),
    ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name="m"),
    ModelRequestRejectedError("m", "rejected"),
    UsageLimitExceeded("too many"),
    UserError("no key"),
]
PASSING = [
    ModelHTTPError(429, "m"),
    ModelHTTPError(503, "m"),
    ModelHTTPError(400, "m", headers={"x-should-retry": "true"}),
    ModelHTTPError.for_category(ModelRateLimitError, status_code=429, model_name="m"),
    ModelAPIError("m", "lost"),
    UnexpectedModelBehavior("no JSON"),
    OSError("lost"),
]


def first(error: Exception) -> bool:
    """Return True if a policy with a retry repeats a call that has raised the error."""
    policy = Policy.parse("1 1s").durable()
    calls = []

    def call() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise error

    return policy.classify(error).lasting is None and policy.classify(error).candidate is not False


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_would_come_again_is_lasting(error: Exception):
    """A policy that names no failures does not repeat what the next request would meet again."""
    failure = failure_of(error)

    assert failure is not None
    assert failure.lasting is not None
    assert not first(error)


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_repeated(error: Exception):
    """Busy services, lost connections and answers that cannot be read may be better at the next request."""
    assert first(error)


def test_a_service_says_how_long_to_wait():
    """The hint is that of the headers, also in milliseconds and of exhausted limits."""
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}

    assert timedelta(minutes=6) == Policy.parse("1 1s").classify(ModelHTTPError(429, "m", headers=headers)).hint
    assert timedelta(milliseconds=20) == (
        Policy.parse("1 1s").classify(ModelHTTPError(429, "m", headers={"retry-after-ms": "20"})).hint
    )


def test_other_errors_are_none_of_pydantic_ai():
    """The reader describes its own errors only."""
    assert failure_of(OSError("lost")) is None
