"""gRPC's retry policies, hedging policies and throttles."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.contrib.grpc import read_hedging_policy, read_retry_policy, read_retry_throttling
from redrive.contrib.grpc.service_config import read_duration
from redrive.errors import PolicyValueError
from redrive.policy import Failure, History, Jitter, Policy, Retry, Stage
from redrive.retrying import Hedge
from tests.retrying.helpers import START

RETRY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
HEDGE = {"maxAttempts": 3, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["UNAVAILABLE", 13]}
THROTTLE = {"maxTokens": 10, "tokenRatio": 0.1}


def without(document, key):
    """Return a copy of the document without a key."""
    return {name: value for name, value in document.items() if name != key}


def test_a_retry_policy_is_a_policy():
    """Read the example of gRFC A6 into a policy that can be stored."""
    policy = read_retry_policy({**RETRY, "maxBackoff": "0.3s"})

    assert 4 == policy.attempts
    assert ("GRPC_UNAVAILABLE",) == policy.on
    assert [0.08, 0.16, 0.24] == policy.delays()
    assert Jitter.plus(0.5) == policy.jitter
    assert policy.idempotent is True
    assert policy.deadline_given is False
    assert policy == Policy.from_dict(policy.to_dict())


@given(st.integers(1, 12), st.floats(0, 1, exclude_max=True), st.sampled_from([0.3, 1, 1.5, 2.0, 40]))
def test_delays_are_within_a_fifth(retry, sample, multiplier):
    """Retry n comes after initial times multiplier to the power of n - 1, at most the maximum, plus or minus 20 %."""
    policy = read_retry_policy({**RETRY, "backoffMultiplier": multiplier}, most=20).with_(attempts=20, deadline=None)
    failure = Failure((), reason="GRPC_UNAVAILABLE", stage=Stage.IN_FLIGHT)
    decision = policy.decide(History(retry, START), failure, START, sample)
    middle = min(0.1 * multiplier ** (retry - 1), 1)

    assert isinstance(decision, Retry)
    assert 0.8 * middle - 1e-6 <= decision.delay.total_seconds() <= 1.2 * middle + 1e-6


def test_only_the_listed_codes_are_retried():
    """Codes that the policy does not list, and other failures, are not retried."""
    policy = read_retry_policy({**RETRY, "retryableStatusCodes": [14, "aborted"]}).with_(deadline=None)

    def retried(reason):
        return isinstance(policy.decide(History(1, START), Failure((), reason=reason), START, 0.0), Retry)

    assert [True, True, False, False] == [
        retried(reason) for reason in ("GRPC_UNAVAILABLE", "GRPC_ABORTED", "GRPC_INTERNAL", "TIMEOUT")
    ]


@pytest.mark.parametrize(("most", "attempts"), [(5, 5), (3, 3), (20, 9)])
def test_attempts_are_bounded_by_the_client(most, attempts):
    """More attempts than the client allows are reduced to its limit, without an error."""
    assert attempts == read_retry_policy({**RETRY, "maxAttempts": 9}, most=most).attempts
    assert 5 == read_retry_policy({**RETRY, "maxAttempts": 9}).attempts


def test_whole_floats_and_unknown_keys_are_accepted():
    """JSON parsers may return floats for all numbers, and newer configs may have more keys."""
    assert 4 == read_retry_policy({**RETRY, "maxAttempts": 4.0, "newer": {}}).attempts
    assert 10 == read_retry_throttling({**THROTTLE, "maxTokens": 10.0}).max_tokens


@pytest.mark.parametrize(
    ("document", "message"),
    [
        *((without(RETRY, key), f"retryPolicy.{key}: it is missing") for key in RETRY),
        ({**RETRY, "maxAttempts": None}, "retryPolicy.maxAttempts: it is missing"),
        ({**RETRY, "maxAttempts": 1}, "retryPolicy.maxAttempts: 1 is less than 2; it includes the first attempt"),
        ({**RETRY, "maxAttempts": 2.5}, "retryPolicy.maxAttempts: 2.5 is not a whole number"),
        ({**RETRY, "maxAttempts": "4"}, "retryPolicy.maxAttempts: '4' is not a number"),
        ({**RETRY, "maxAttempts": True}, "retryPolicy.maxAttempts: True is not a number"),
        ({**RETRY, "maxAttempts": float("inf")}, "retryPolicy.maxAttempts: inf is not a number"),
        ({**RETRY, "initialBackoff": "0s"}, "retryPolicy.initialBackoff: '0s' is not above zero"),
        ({**RETRY, "initialBackoff": "100"}, "retryPolicy.initialBackoff: '100' is not a duration: write seconds"),
        ({**RETRY, "maxBackoff": "-1s"}, "retryPolicy.maxBackoff: '-1s' is not above zero"),
        ({**RETRY, "backoffMultiplier": 0}, "retryPolicy.backoffMultiplier: 0 is not above zero"),
        ({**RETRY, "backoffMultiplier": float("nan")}, "retryPolicy.backoffMultiplier: nan is not a number"),
        ({**RETRY, "retryableStatusCodes": []}, "retryPolicy.retryableStatusCodes: it is empty"),
        ({**RETRY, "retryableStatusCodes": "UNAVAILABLE"}, "'UNAVAILABLE' is not a list of status codes"),
        ({**RETRY, "retryableStatusCodes": [14, "NOPE"]}, r"retryableStatusCodes\[1\]: 'NOPE' is not a status code"),
        ({**RETRY, "retryableStatusCodes": ["OK"]}, r"retryableStatusCodes\[0\]: 'OK' is not a failure"),
        ([], r"retryPolicy: \[\] is not a JSON object"),
    ],
)
def test_an_invalid_retry_policy_is_refused(document, message):
    """Each rule of A6 that a retry policy violates is reported with the place."""
    with pytest.raises(PolicyValueError, match=message):
        read_retry_policy(document)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [("0s", 0), ("1s", 10**9), ("0.1s", 10**8), ("3.000000001s", 3 * 10**9 + 1), ("-1.5s", -15 * 10**8)],
)
def test_durations_are_read(text, nanos):
    """Durations of protobuf are seconds with up to nine digits after the point."""
    assert nanos == read_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", "s", "1", ".1s", "1.s", "01s", "+1s", "1e3s", " 1s", "1s\n", "1.0000000001s", "315576000001s", 0, None, "1m"],
)
def test_an_invalid_duration_is_refused(text):
    """Refuse numbers without a unit, with another unit or in another form, and durations of ten thousand years."""
    with pytest.raises(PolicyValueError, match="somewhere: .* is not a duration: write seconds followed by an s"):
        read_duration(text, at="somewhere")


@given(st.integers(0, 315_576_000_000 * 10**9))
def test_durations_are_read_back(nanos):
    """Any duration that protobuf can hold is read exactly."""
    assert nanos == read_duration(f"{nanos // 10**9}.{nanos % 10**9:09}s")


def test_a_hedging_policy_is_a_policy():
    """Read a hedging policy into a policy of one attempt with a hedge."""
    policy = read_hedging_policy(HEDGE)

    assert (1, True) == (policy.attempts, policy.idempotent)
    assert ("GRPC_INTERNAL", "GRPC_UNAVAILABLE") == policy.on
    assert Hedge("500ms", 3) == policy.hedge
    assert Hedge("500ms", 5) == read_hedging_policy({**HEDGE, "maxAttempts": 9}).hedge
    assert None is read_hedging_policy(HEDGE, most=1).hedge


def test_defaults_of_a_hedging_policy():
    """Without a delay all copies are sent at once, and without codes every failure is fatal."""
    policy = read_hedging_policy({"maxAttempts": 2}).with_(deadline=None)
    decision = policy.decide(History(1, START), Failure((), reason="GRPC_UNAVAILABLE"), START, 0.0)

    assert Hedge(timedelta(0), 2) == policy.hedge
    assert "not_matched" == decision.rule


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "hedgingPolicy.maxAttempts: it is missing"),
        ({**HEDGE, "hedgingDelay": "-1s"}, "hedgingPolicy.hedgingDelay: '-1s' is negative"),
        ({**HEDGE, "hedgingDelay": 1}, "hedgingPolicy.hedgingDelay: 1 is not a duration"),
        ({**HEDGE, "nonFatalStatusCodes": ["NOPE"]}, r"nonFatalStatusCodes\[0\]: 'NOPE' is not a status code"),
    ],
)
def test_an_invalid_hedging_policy_is_refused(document, message):
    """Each rule of A6 that a hedging policy violates is reported with the place."""
    with pytest.raises(PolicyValueError, match=message):
        read_hedging_policy(document)


def test_a_throttle_is_a_budget():
    """Read a throttle into a budget that ignores calls which no application has seen."""
    budget = read_retry_throttling({"maxTokens": 10, "tokenRatio": 0.5466})
    ledger = budget.open()
    for reason in ("GRPC_NEVER_LEFT", "GRPC_NOT_PROCESSED", "GRPC_UNAVAILABLE"):
        ledger.spend(0, Failure((), reason=reason))

    assert (10, 0.546) == (budget.max_tokens, budget.ratio)
    assert 9 == ledger.left(0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        *((without(THROTTLE, key), f"retryThrottling.{key}: it is missing") for key in THROTTLE),
        ({**THROTTLE, "maxTokens": 0}, "retryThrottling.maxTokens: 0 is not from 1 to 1000"),
        ({**THROTTLE, "maxTokens": 1001}, "retryThrottling.maxTokens: 1001 is not from 1 to 1000"),
        ({**THROTTLE, "maxTokens": 10.5}, "retryThrottling.maxTokens: 10.5 is not a whole number"),
        ({**THROTTLE, "tokenRatio": 0}, "retryThrottling.tokenRatio: .*at least 0.001"),
        ({**THROTTLE, "tokenRatio": -1}, "retryThrottling.tokenRatio: .*zero or more"),
        ({**THROTTLE, "tokenRatio": "0.1"}, "retryThrottling.tokenRatio: '0.1' is not a number"),
        (None, "retryThrottling: None is not a JSON object"),
    ],
)
def test_an_invalid_throttle_is_refused(document, message):
    """Each rule of A6 that a throttle violates is reported with the place."""
    with pytest.raises(PolicyValueError, match=message):
        read_retry_throttling(document)
