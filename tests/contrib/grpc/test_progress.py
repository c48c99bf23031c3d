"""How far an RPC got, and how gRPC handles it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.contrib.grpc import Code, Handling, RpcProgress, failure_of, read_retry_policy, row_of, transparently
from redrive.contrib.grpc.progress import PROGRESS
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, GiveUp, History, Policy, Reason, Retry, Rule, Stage, reading
from redrive.policy.budget import ThrottleBudget
from redrive.retrying import SharedBudget
from redrive.retrying.context import using
from tests.retrying.helpers import START, JumpingClock, Script

LISTED = read_retry_policy(
    {
        "maxAttempts": 3,
        "initialBackoff": "1s",
        "maxBackoff": "8s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
)
CAREFUL = Policy(on=("GRPC_UNAVAILABLE", "GRPC_ABORTED"), deadline=None, idempotent=False)


class Failed(Exception):
    """An RPC that has failed.

    Attributes:
        failure: its description."""

    def __init__(self, *args, **options) -> None:
        super().__init__("it failed")
        self.failure = failure_of(*args, **options, error=self)


def read(policy):
    """Return a policy that classifies the failures of this module and retries those that it names."""
    return policy.with_(on=reading(lambda error: error.failure, policy.on))


def decided(policy, failure, attempts=1):
    """Return a policy's decision about the first failure, or about a later one."""
    return policy.decide(History(attempts, START), failure, START, 0.0)


def test_every_progress_has_a_row():
    """Every progress has a row in the table."""
    assert set(RpcProgress) == set(PROGRESS)


def test_only_what_the_policy_sees_counts():
    """Transparent retries count neither for the policy nor for the throttle."""
    transparent = {Handling.TRANSPARENT, Handling.TRANSPARENT_ONCE}

    assert transparent == {row.handling for row in PROGRESS.values() if not row.counts_as_attempt}
    assert transparent | {Handling.FAIL_NOW} == {
        row.handling for row in PROGRESS.values() if not row.counts_as_throttle_failure
    }


def test_a_refused_stream_is_repeated_once():
    """Second refusals are decided by the policy, and count."""
    first = row_of(RpcProgress.REACHED_SERVER_NOT_APP)
    second = row_of(RpcProgress.REACHED_SERVER_NOT_APP, refused=1)

    assert (Handling.TRANSPARENT_ONCE, False, False) == (
        first.handling,
        first.counts_as_attempt,
        first.counts_as_throttle_failure,
    )
    assert (Handling.POLICY, True, True) == (
        second.handling,
        second.counts_as_attempt,
        second.counts_as_throttle_failure,
    )
    assert row_of(RpcProgress.NEVER_LEFT_CLIENT) is row_of(RpcProgress.NEVER_LEFT_CLIENT, refused=9)


@pytest.mark.parametrize(
    ("progress", "code", "stage", "reason"),
    [
        (RpcProgress.SEEN_BY_APP, "UNAVAILABLE", Stage.IN_FLIGHT, "GRPC_UNAVAILABLE"),
        (RpcProgress.SEEN_BY_APP, "ABORTED", Stage.ANSWERED, "GRPC_ABORTED"),
        (RpcProgress.LB_TRANSIENT_FAILURE, "UNAVAILABLE", Stage.NOT_SENT, "GRPC_UNAVAILABLE"),
        (RpcProgress.NEVER_LEFT_CLIENT, "UNAVAILABLE", Stage.NOT_SENT, "GRPC_NEVER_LEFT"),
        (RpcProgress.REACHED_SERVER_NOT_APP, "UNAVAILABLE", Stage.NOT_SENT, "GRPC_NOT_PROCESSED"),
        (RpcProgress.LB_DROP, "UNAVAILABLE", Stage.NOT_SENT, "GRPC_UNAVAILABLE"),
        (RpcProgress.RESPONSE_HEADERS_RECEIVED, "ABORTED", Stage.IN_FLIGHT, "GRPC_ABORTED"),
        (RpcProgress.BUFFER_OVERFLOW, "UNAVAILABLE", Stage.IN_FLIGHT, "GRPC_UNAVAILABLE"),
    ],
)
def test_an_rpc_is_a_failure(progress, code, stage, reason):
    """Its stage follows from the progress or the code; its reason is the code or a transparent retry."""
    failure = failure_of(code, progress)

    assert (stage, reason, f"gRPC status {code}") == (failure.stage, failure.reason, failure.message)


def test_success_is_no_failure():
    """RPCs that have succeeded are not described as failures."""
    assert None is failure_of(0)


def test_a_failure_keeps_the_classes_of_its_exception():
    """Failures of exceptions keep their classes and their message."""
    failure = failure_of(14, error=ConnectionError("reset"))

    assert ("builtins.ConnectionError", "reset", "GRPC_UNAVAILABLE") == (
        failure.error_type,
        failure.message,
        failure.reason,
    )


@pytest.mark.parametrize(
    ("progress", "retried"),
    [
        (RpcProgress.SEEN_BY_APP, False),
        (RpcProgress.LB_TRANSIENT_FAILURE, True),
        (RpcProgress.REACHED_SERVER_NOT_APP, True),
    ],
)
def test_unavailable_is_split_by_proof(progress, retried):
    """Calls that are not idempotent are repeated only with proof that no application has seen them."""
    policy = CAREFUL.with_(on=(*CAREFUL.on, "GRPC_NOT_PROCESSED"))

    assert retried is isinstance(decided(policy, failure_of("UNAVAILABLE", progress)), Retry)


@pytest.mark.parametrize(
    ("progress", "why"),
    [
        (RpcProgress.LB_DROP, "the load balancer dropped the call"),
        (RpcProgress.RESPONSE_HEADERS_RECEIVED, "the call is committed: its response had begun"),
        (RpcProgress.BUFFER_OVERFLOW, "the call is committed: its messages are no longer in the buffer"),
    ],
)
def test_some_calls_are_never_repeated(progress, why):
    """Dropped and committed calls fail at once under any policy, with the cause."""
    assert GiveUp(why, "permanent") == decided(LISTED, failure_of(14, progress))


def test_pushback_is_a_floor():
    """Pushback is the shortest wait; a negative one forbids the retry, and attempts remain the limit."""
    pushed_back = failure_of(14, pushback="5000")

    assert Retry(timedelta(seconds=5), timedelta(seconds=0.8), "hint") == decided(LISTED, pushed_back)
    assert "permanent" == decided(LISTED, failure_of(14, pushback="-1")).rule
    assert "attempts" == decided(LISTED, pushed_back, attempts=3).rule


def test_an_orchestrator_retries_the_reasons_of_grpc():
    """Orchestrators retry calls that never left under any strategy, and refused calls if the strategy allows it."""
    assert (True, True) == Reason.of("GRPC_NEVER_LEFT")[1:]
    assert (True, False) == Reason.of("GRPC_NOT_PROCESSED")[1:]


def test_transparent_retries_wait():
    """Calls that cannot leave are repeated at once and then after increasing delays, until their deadline."""
    policy = read(transparently(LISTED.with_(deadline="3s", jitter="none")))
    clock = JumpingClock()
    with using(clock=clock):
        found = policy.outcome(Script(Failed(14, RpcProgress.NEVER_LEFT_CLIENT)))

    assert [0, 0.001, 0.01, 0.05, 0.1, 0.5, 1, 1] == [0, *clock.slept]
    assert "deadline" == found.rule


def test_transparent_retries_use_no_attempts_or_tokens():
    """After two calls that never left and one that was refused, the policy has all attempts and all tokens."""
    throttle = ThrottleBudget(10, free=("GRPC_NEVER_LEFT", "GRPC_NOT_PROCESSED"))
    shared = SharedBudget(throttle)
    policy = read(transparently(LISTED.with_(deadline="1m", budget=shared)))
    unseen = [
        Failed(14, RpcProgress.NEVER_LEFT_CLIENT),
        Failed(14, RpcProgress.NEVER_LEFT_CLIENT),
        Failed(14, RpcProgress.REACHED_SERVER_NOT_APP),
    ]
    script = Script(*unseen, Failed(14, RpcProgress.REACHED_SERVER_NOT_APP, refused=1), Failed(14), "done")
    with using(clock=JumpingClock(), sample=0.0):
        assert "done" == policy.call(script)

    assert 6 == script.calls
    assert 8.1 == shared.left


def test_repeated_refusals_end_without_a_count_of_the_caller():
    """Repeated refusals end the call even if the caller does not pass their number."""
    policy = read(transparently(LISTED.with_(deadline="1m")))
    script = Script(Failed(14, RpcProgress.REACHED_SERVER_NOT_APP))
    with using(clock=JumpingClock()):
        policy.outcome(script)

    assert 2 == script.calls


def test_codes_that_are_not_listed_are_raised():
    """Unlisted codes are raised at the first attempt."""
    script = Script(Failed("INTERNAL"))
    with using(clock=JumpingClock()):
        assert "not_matched" == read(LISTED).outcome(script).rule

    assert 1 == script.calls


def test_transparent_retries_come_before_the_rules():
    """Rules of the policy keep their order behind the two new ones, and `on` names all retryable reasons."""
    policy = transparently(LISTED.with_(deadline="1m", rules=[Rule("GRPC_UNAVAILABLE", backoff=Backoff.constant(1))]))

    assert [("GRPC_NEVER_LEFT",), ("GRPC_NOT_PROCESSED",), ("GRPC_UNAVAILABLE",)] == [rule.on for rule in policy.rules]
    assert ("GRPC_NEVER_LEFT", "GRPC_NOT_PROCESSED", "GRPC_UNAVAILABLE") == policy.on
    assert policy == Policy.from_dict(policy.to_dict())
    assert None is transparently(Policy(deadline="1m")).on


def test_transparent_retries_need_an_end():
    """Policies without a deadline and combinations are refused."""
    with pytest.raises(PolicyValueError, match="end at the deadline only: give the policy one"):
        transparently(LISTED)
    with pytest.raises(PolicyValueError, match=r"call transparently\(\) on one of them"):
        transparently(LISTED.with_(deadline="1m") & Policy(on=Exception))


def test_codes_that_do_not_exist_are_refused():
    """Unknown codes are an error of the caller."""
    with pytest.raises(PolicyValueError, match="99 is not a status code"):
        failure_of(99)
    assert Code.ABORTED.reason == failure_of("aborted").reason


LASTS = {
    "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "DATA_LOSS", "UNAUTHENTICATED",
}  # fmt: skip


def test_codes_that_would_come_again_are_lasting():
    """A call that was wrong, may not be made, or met a state of data that has to change first is lasting."""
    found = {code.name for code in Code if code is not Code.OK and failure_of(code).lasting is not None}

    assert LASTS == found


def test_a_server_that_asks_for_no_retry_has_a_verdict():
    """A negative pushback holds for the code around the call, too."""
    assert "asks for no retry" in failure_of(14, pushback="-1").lasting.why
    assert failure_of(14, pushback="5000").lasting is None
