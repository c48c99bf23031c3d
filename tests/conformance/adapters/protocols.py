"""Adapters for ``inprocess.json``: the rules of gRPC (documents, transparent retries) and of HTTP (methods).

The treatment of an RPC is not looked up but observed: it fails again and again under a policy of one attempt, or of
two, with a throttle that counts its tokens. Only where nothing is retried, the table separates the two causes.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from redrive.contrib.grpc import (
    Code,
    Handling,
    RpcProgress,
    failure_of,
    read_retry_policy,
    read_retry_throttling,
    read_service_config,
    row_of,
    transparently,
)
from redrive.errors import PolicyError
from redrive.policy import Backoff, GiveUp, History, Policy, Retry
from redrive.policy.duration import ZERO
from redrive.retrying import http
from tests.conformance.adapters.policies import START
from tests.conformance.adapters.vocabulary import UnknownWord, demand, read, word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.loading import Case

Json = dict[str, Any]


# ----------------------------------------------------------------------------------------------------------- documents

_SERVICE_CONFIG = {"retryThrottling", "methodConfig", "loadBalancingPolicy", "loadBalancingConfig"}


def document(case: Case) -> None:
    """Check that a document is read, or refused."""
    data = read(case.data, "doc", "valid", "client_cap", "expect_attempts")
    demand(data, "valid", "expect_attempts")
    options = {"most": data["client_cap"]} if "client_cap" in data else {}
    if not data.get("valid", True):
        with pytest.raises(PolicyError) as refused:
            _read(data["doc"], options)
        assert refused.value.problem
        return
    found = _read(data["doc"], options)
    if "expect_attempts" in data:
        assert data["expect_attempts"] == found.attempts


def _read(given: Json, options: Json) -> Any:
    if _SERVICE_CONFIG & set(given):
        return read_service_config(given, **options)
    return read_retry_policy(given.get("retryPolicy", given), **options)


# -------------------------------------------------------------------------------------------------- transparent retries

_CODE = Code.UNAVAILABLE
_DOCUMENT = {
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": [_CODE.name],
}
_THROTTLE = {"maxTokens": 1000, "tokenRatio": 0.1}
_DEADLINE = timedelta(hours=1)
_MANY = 1000


def transparent(case: Case) -> None:
    """Check the treatment of an RPC that fails at a stage, and what that counts for."""
    data = read(case.data, "stage", "expect", "counts_as_attempt", "counts_as_throttle_failure")
    demand(data, "expect")
    progress = _progress(data["stage"])
    assert word(data["expect"], _HANDLINGS) is _watched(progress)
    if "counts_as_attempt" in data:
        assert data["counts_as_attempt"] == (_retries(progress, attempts=1) == 0)
    if "counts_as_throttle_failure" in data:
        ledger = read_retry_throttling(_THROTTLE).open()
        ledger.spend(0, failure_of(_CODE, progress))
        assert data["counts_as_throttle_failure"] == (ledger.left(0) < _THROTTLE["maxTokens"])


_HANDLINGS = {
    "fail_now": Handling.FAIL_NOW,
    "policy": Handling.POLICY,
    "transparent_unlimited_until_deadline": Handling.TRANSPARENT,
    "transparent_once_then_policy": Handling.TRANSPARENT_ONCE,
    "committed_no_retry": Handling.COMMITTED,
}


def _progress(given: str) -> RpcProgress:
    """Return the stage of a case, which may explain itself in brackets."""
    name = given.partition(" (")[0]
    if name not in {each.value for each in RpcProgress}:
        raise UnknownWord(f"{given!r} (known: {', '.join(each.value for each in RpcProgress)})")
    return RpcProgress(name)


def _watched(progress: RpcProgress) -> Handling:
    """Return the treatment that the decisions show: how many retries there are beside those that the policy has."""
    beside, own = _retries(progress, attempts=1), _retries(progress, attempts=2)
    if not own:
        return row_of(progress).handling
    if own == _MANY:
        assert [GiveUp] == [type(each) for each in _decisions(progress, attempts=1, after=_DEADLINE)]
        return Handling.TRANSPARENT
    assert own == beside + 1
    return {0: Handling.POLICY, 1: Handling.TRANSPARENT_ONCE}[beside]


def _retries(progress: RpcProgress, *, attempts: int) -> int:
    decisions = islice(_decisions(progress, attempts=attempts), _MANY)
    return sum(isinstance(each, Retry) for each in decisions)


def _decisions(progress: RpcProgress, *, attempts: int, after: timedelta = ZERO) -> Iterator[Any]:
    """Yield the decisions on one failure after the other, all at one instant, until the policy gives up."""
    plain = read_retry_policy({**_DOCUMENT, "maxAttempts": 2})
    policy = transparently(plain.with_(attempts=attempts, deadline=_DEADLINE))
    history, refused, now = History(1, START), 0, START + after
    while True:
        failure = failure_of(_CODE, progress, refused=refused)
        decision = policy.decide(history, failure, now, 0.0)
        yield decision
        if not isinstance(decision, Retry):
            return
        refused += row_of(progress, refused=refused).handling is Handling.TRANSPARENT_ONCE
        history = policy.advance(history, failure, decision.delay, now=now, sample=0.0)


# ------------------------------------------------------------------------------------------------------- HTTP methods


def http_method(case: Case) -> None:
    """Check whether a request may be repeated, and whether a policy that sees only the failure repeats it."""
    data = read(case.data, "method", "headers", "idempotent")
    demand(data, "idempotent")
    method, headers = data["method"], data.get("headers", {})
    assert data["idempotent"] is http.is_idempotent(method, headers)

    policy = Policy(deadline=None, backoff=Backoff.constant(ZERO))
    failure = http.failure_of(method, 503, sent=headers, now=START)
    decision = policy.decide(History(1, START), failure, START, 0.0)
    assert data["idempotent"] is isinstance(decision, Retry)
