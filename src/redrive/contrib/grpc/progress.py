"""How far an RPC got before it failed, and what gRPC does then: the transparent retries of gRFC A6, as a table.

A retry policy is for calls that the server's application has seen. A call that it has not seen is safe to repeat
whatever the policy says, and gRPC does so *transparently*: without counting an attempt, and without taking a token from
the retry throttle, which exists for applications that are overloaded. There are two kinds:

* It never left the client: repeated until it leaves, or until the deadline.
* It reached the server's library and no further (``REFUSED_STREAM``, or a stream above the last one of a ``GOAWAY``):
  repeated at once, but only once, since it does load the wire. Then the policy takes over.

And there are calls that must not be repeated although the policy would: those that the load balancer drops on purpose,
and those that are *committed*, because the caller may have seen response headers or because the request is no longer
in the buffer.

`PROGRESS` is the table. `failure_of` makes a `redrive.policy.Failure` of an RPC, by which a policy or an orchestrator
decides; the two kinds of transparent retries are two reasons, ``GRPC_NEVER_LEFT`` and ``GRPC_NOT_PROCESSED``, and
`transparently` gives a policy the rules for them.
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

__all__ = [
    "NEVER_LEFT",
    "NOT_PROCESSED",
    "PROGRESS",
    "Handling",
    "Progress",
    "ProgressRow",
    "failure_of",
    "row_of",
    "transparently",
]

NEVER_LEFT = Reason.register("GRPC_NEVER_LEFT", always_retry=True).name
"""The reason of a call that never left the client. (An orchestrator retries it whatever its strategy says.)"""

NOT_PROCESSED = Reason.register("GRPC_NOT_PROCESSED", allows_non_idempotent_retry=True).name
"""The reason of a call that the server's library turned away unseen, at the first time."""


class Progress(Enum):
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
    """The application has seen it, or may have."""
    RESPONSE_HEADERS_RECEIVED = "response_headers_received"
    """The response had begun."""
    BUFFER_OVERFLOW = "buffer_overflow"
    """Its messages did not fit into the buffer from which they would be sent again."""


class Handling(Enum):
    """What becomes of an RPC that has failed."""

    FAIL_NOW = "fail now"
    """It fails, whatever the policy says."""
    POLICY = "policy"
    """The policy decides, by the status code."""
    TRANSPARENT = "transparent"
    """It is repeated until its deadline."""
    TRANSPARENT_ONCE = "transparent once"
    """It is repeated at once, the first time; then the policy decides."""
    COMMITTED = "committed"
    """It fails, whatever the policy says: the caller has seen a part of the answer, or the request is gone."""


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """What follows from how far an RPC got.

    Attributes:
        progress: how far.
        handling: what becomes of it.
        stage: the same in redrive's words; None where the status code tells more.
        reason: under which reason it is repeated transparently; None where the status code is the reason.
        why: why nothing repeats it; None where something may.
        counts_as_attempt: whether it uses up one of the policy's attempts.
        counts_as_throttle_failure: whether it takes a token from the retry throttle, if its code is one that is
            retried.
    """

    progress: Progress
    handling: Handling
    stage: Stage | None
    reason: str | None = None
    why: str | None = None
    counts_as_attempt: bool = True
    counts_as_throttle_failure: bool = True


PROGRESS: Mapping[Progress, ProgressRow] = MappingProxyType(
    {
        row.progress: row
        for row in (
            ProgressRow(
                Progress.LB_DROP,
                Handling.FAIL_NOW,
                Stage.NOT_SENT,
                why="the load balancer dropped the call",
                counts_as_throttle_failure=False,  # as gRPC's core: it looks at drops before it looks at tokens
            ),
            ProgressRow(Progress.LB_TRANSIENT_FAILURE, Handling.POLICY, Stage.NOT_SENT),
            ProgressRow(
                Progress.NEVER_LEFT_CLIENT,
                Handling.TRANSPARENT,
                Stage.NOT_SENT,
                NEVER_LEFT,
                counts_as_attempt=False,
                counts_as_throttle_failure=False,
            ),
            ProgressRow(
                Progress.REACHED_SERVER_NOT_APP,
                Handling.TRANSPARENT_ONCE,
                Stage.NOT_SENT,
                NOT_PROCESSED,
                counts_as_attempt=False,
                counts_as_throttle_failure=False,
            ),
            ProgressRow(Progress.SEEN_BY_APP, Handling.POLICY, None),
            ProgressRow(
                Progress.RESPONSE_HEADERS_RECEIVED,
                Handling.COMMITTED,
                Stage.IN_FLIGHT,
                why="the call is committed: its response had begun",
            ),
            ProgressRow(
                Progress.BUFFER_OVERFLOW,
                Handling.COMMITTED,
                Stage.IN_FLIGHT,
                why="the call is committed: its messages are no longer in the buffer",
            ),
        )
    }
)
"""What follows, by how far an RPC got (gRFC A6, "Transparent Retries" and "When Retries are Valid")."""


def row_of(progress: Progress, *, refused: int = 0) -> ProgressRow:
    """What follows from how far an RPC got.

    Args:
        progress: how far.
        refused: how often the servers' libraries have turned this call away before; after the first time the policy
            decides, and it counts.
    """
    row = PROGRESS[progress]
    if row.handling is Handling.TRANSPARENT_ONCE and refused:
        return replace(
            row, handling=Handling.POLICY, reason=None, counts_as_attempt=True, counts_as_throttle_failure=True
        )
    return row


def failure_of(
    code: Code | int | str,
    progress: Progress = Progress.SEEN_BY_APP,
    *,
    pushback: str | None = None,
    refused: int = 0,
    error: BaseException | None = None,
) -> Failure | None:
    """Describe an RPC that has ended, for a policy or an orchestrator.

    Args:
        code: its status code.
        progress: how far it got, if that is known; by default nothing is proved.
        pushback: the ``grpc-retry-pushback-ms`` of the server's metadata, if there is one.
        refused: see `row_of`.
        error: what was raised; its classes and its message become the failure's.

    Returns:
        The failure; None for ``OK``. Its reason is that of the code, or that of a transparent retry; its hint is the
        pushback, a floor as every hint. It is permanent where no policy may repeat it.

    Raises:
        PolicyValueError: there is no such code.
    """
    known = Code.of(code)
    if known is Code.OK:
        return None
    row = row_of(progress, refused=refused)
    told = Hint(None) if pushback is None else grpc_pushback(pushback)
    base = Failure((), f"gRPC status {known.name}") if error is None else Failure.of(error)
    return base._replace(
        reason=row.reason or known.reason,
        stage=row.stage or known.stage,
        hint=told.delay,
        permanent=row.why or (told.problem if told.stop else None),
    )


_WITHOUT_END = 10**9
_CONTROLLED = Backoff.listed([0, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0])
_AT_ONCE = Backoff.constant(0)


def transparently(policy: Policy) -> Policy:
    """A policy that also makes the transparent retries of gRFC A6.

    A call that never left the client is repeated at once, then after 1 ms, 10 ms and so on up to a second, until the
    deadline; one that was turned away unseen is repeated once. Neither counts for the policy's attempts. (A6 names no
    delays; these are those of RFC 0049 for the same situation, so that nothing spins.)

    Args:
        policy: what decides the rest. It needs a deadline, which is the only end of the first kind.

    Raises:
        PolicyValueError: it has none, or is a combination of policies.
    """
    if policy.parts is not None:
        raise PolicyValueError("a combination has rules in its parts only: call transparently() on one of them")
    if policy.deadline is None:
        raise PolicyValueError(
            "transparent retries end at the deadline only: give the policy one, as in deadline='10s'"
        )
    rules = (
        Rule(NEVER_LEFT, attempts=_WITHOUT_END, backoff=_CONTROLLED),
        Rule(NOT_PROCESSED, attempts=2, backoff=_AT_ONCE),
    )
    on = (*policy.on, NEVER_LEFT, NOT_PROCESSED) if isinstance(policy.on, tuple) else policy.on
    return policy.with_(on=on, rules=(*rules, *policy.rules))
