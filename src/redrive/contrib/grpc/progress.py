"""How far an RPC got before it failed, and how gRPC handles it: the transparent retries of gRFC A6 as a table.

A call that the server's application has not seen is safe to repeat under any policy. gRPC repeats it *transparently*:
without counting an attempt and without taking a token from the retry throttle, which protects overloaded applications.
A call that never left the client is repeated until the deadline. A call that reached only the server's library
(``REFUSED_STREAM``, or a stream above the last one of a ``GOAWAY``) loads the network, and is repeated only once.

`failure_of` returns the `redrive.policy.Failure` of an RPC, on which a policy or an orchestrator decides.
`transparently` adds the rules for transparent retries to a policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from redrive.contrib.grpc.codes import Code
from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Failure, Policy, Reason, Rule, Stage
from redrive.policy.hints import Hint, grpc_pushback

# The two kinds of transparent retries are reasons of their own, so that rules can name them.
NEVER_LEFT = Reason.register("GRPC_NEVER_LEFT", always_retry=True).name
"""The reason of a call that never left the client. An orchestrator retries it under any strategy."""

NOT_PROCESSED = Reason.register("GRPC_NOT_PROCESSED", allows_non_idempotent_retry=True).name
"""The reason of a call that the server's library refused for the first time, before the application saw it."""


class RpcProgress(Enum):
    """How far an RPC got before it failed."""

    LB_DROP = "lb_drop"
    """The load balancer dropped it on purpose."""
    LB_TRANSIENT_FAILURE = "lb_transient_failure"
    """The load balancer had no connection to offer, and the call does not wait for one."""
    NEVER_LEFT_CLIENT = "never_left_client"
    """Nothing of it was written to a connection."""
    REACHED_SERVER_NOT_APP = "reached_server_not_app"
    """The server's library refused its stream: ``REFUSED_STREAM``, or above the last stream of a ``GOAWAY``."""
    SEEN_BY_APP = "seen_by_app"
    """The application has seen it, or may have seen it."""
    RESPONSE_HEADERS_RECEIVED = "response_headers_received"
    """The response had begun."""
    BUFFER_OVERFLOW = "buffer_overflow"
    """Its messages exceeded the buffer from which a retry would send them."""


class Handling(Enum):
    """How gRPC handles an RPC that has failed."""

    FAIL_NOW = "fail now"
    """It fails under any policy."""
    POLICY = "policy"
    """The policy decides by the status code."""
    TRANSPARENT = "transparent"
    """It is repeated until its deadline."""
    TRANSPARENT_ONCE = "transparent once"
    """It is repeated at once the first time; after that the policy decides."""
    COMMITTED = "committed"
    """It fails under any policy: the caller has seen a part of the response, or the request is lost."""


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """The handling of an RPC that got to a certain point.

    Attributes:
        progress: the point.
        handling: how gRPC handles it.
        stage: the stage of its failure; None if the status code determines it.
        reason: the reason under which it is repeated transparently; None if the status code is the reason.
        why: the cause for which it is never repeated; None if it may be repeated.
        counts_as_attempt: False if it uses none of the policy's attempts.
        counts_as_throttle_failure: False if it takes no token from the retry throttle; otherwise retryable codes do.
    """

    progress: RpcProgress
    handling: Handling
    stage: Stage | None
    reason: str | None = None
    why: str | None = None
    counts_as_attempt: bool = True
    counts_as_throttle_failure: bool = True


_ROWS = (
    ProgressRow(
        RpcProgress.LB_DROP,
        Handling.FAIL_NOW,
        Stage.NOT_SENT,
        why="the load balancer dropped the call",
        # gRPC's core handles drops before it counts tokens.
        counts_as_throttle_failure=False,
    ),
    ProgressRow(RpcProgress.LB_TRANSIENT_FAILURE, Handling.POLICY, Stage.NOT_SENT),
    ProgressRow(
        RpcProgress.NEVER_LEFT_CLIENT,
        Handling.TRANSPARENT,
        Stage.NOT_SENT,
        NEVER_LEFT,
        counts_as_attempt=False,
        counts_as_throttle_failure=False,
    ),
    ProgressRow(
        RpcProgress.REACHED_SERVER_NOT_APP,
        Handling.TRANSPARENT_ONCE,
        Stage.NOT_SENT,
        NOT_PROCESSED,
        counts_as_attempt=False,
        counts_as_throttle_failure=False,
    ),
    ProgressRow(RpcProgress.SEEN_BY_APP, Handling.POLICY, None),
    ProgressRow(
        RpcProgress.RESPONSE_HEADERS_RECEIVED,
        Handling.COMMITTED,
        Stage.IN_FLIGHT,
        why="the call is committed: its response had begun",
    ),
    ProgressRow(
        RpcProgress.BUFFER_OVERFLOW,
        Handling.COMMITTED,
        Stage.IN_FLIGHT,
        why="the call is committed: its messages are no longer in the buffer",
    ),
)

PROGRESS: Mapping[RpcProgress, ProgressRow] = MappingProxyType({row.progress: row for row in _ROWS})
"""The handling of each progress (gRFC A6, "Transparent Retries" and "When Retries are Valid")."""


def row_of(progress: RpcProgress, *, refused: int = 0) -> ProgressRow:
    """Return the handling of an RPC.

    Args:
        progress: how far the RPC got.
        refused: the number of times that servers' libraries have refused this call before. From the second refusal on
            the policy decides, and the attempt counts.
    """
    row = PROGRESS[progress]
    if row.handling is Handling.TRANSPARENT_ONCE and refused:
        return replace(
            row, handling=Handling.POLICY, reason=None, counts_as_attempt=True, counts_as_throttle_failure=True
        )
    return row


def failure_of(
    code: Code | int | str,
    progress: RpcProgress = RpcProgress.SEEN_BY_APP,
    *,
    pushback: str | None = None,
    refused: int = 0,
    error: BaseException | None = None,
) -> Failure | None:
    """Describe an RPC that has ended, for a policy or an orchestrator.

    Args:
        code: its status code.
        progress: how far it got; the default proves nothing.
        pushback: the ``grpc-retry-pushback-ms`` of the server's metadata: the shortest wait, in milliseconds.
        refused: see `row_of`.
        error: the exception; its classes and its message become the failure's.

    Returns:
        The failure; None for ``OK``. It is permanent if no policy may repeat it.

    Raises:
        PolicyValueError: there is no such code.
    """
    known = Code.of(code)
    if known is Code.OK:
        return None
    row = row_of(progress, refused=refused)
    hint = Hint(None) if pushback is None else grpc_pushback(pushback)
    base = Failure((), f"gRPC status {known.name}") if error is None else Failure.of(error)
    return base._replace(
        reason=row.reason or known.reason,
        stage=row.stage or known.stage,
        hint=hint.delay,
        permanent=row.why or (hint.problem if hint.stop else None),
    )


_UNLIMITED = 10**9
# A6 names no delays. These are those of Couchbase RFC 0049 for the same situation; they prevent a busy loop.
_CONTROLLED = Backoff.listed([0, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0])
_AT_ONCE = Backoff.constant(0)


def transparently(policy: Policy) -> Policy:
    """Return a policy that also makes the transparent retries of gRFC A6.

    A call that never left the client is repeated at once, then after 1 ms, 10 ms and so on up to a second, until the
    deadline; a call that the server's library refused is repeated once. Neither uses one of the policy's attempts.

    Args:
        policy: decides all other retries. It needs a deadline, which alone ends the retries of the first kind.

    Raises:
        PolicyValueError: the policy has no deadline, or is a combination of policies.
    """
    if policy.parts is not None:
        raise PolicyValueError("a combination has rules in its parts only: call transparently() on one of them")
    if policy.deadline is None:
        raise PolicyValueError(
            "transparent retries end at the deadline only: give the policy one, as in deadline='10s'"
        )
    rules = (
        Rule(NEVER_LEFT, attempts=_UNLIMITED, backoff=_CONTROLLED),
        Rule(NOT_PROCESSED, attempts=2, backoff=_AT_ONCE),
    )
    on = (*policy.on, NEVER_LEFT, NOT_PROCESSED) if isinstance(policy.on, tuple) else policy.on
    return policy.with_(on=on, rules=(*rules, *policy.rules))
