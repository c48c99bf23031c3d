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
from enum import Enum, IntEnum
from types import MappingProxyType

from redrive.errors import PolicyValueError
from redrive.policy import Backoff, Failure, Policy, Reason, Rule, Stage
from redrive.policy.failure import Lasting
from redrive.policy.hints import Hint, grpc_pushback


class Code(IntEnum):
    """A status code of gRPC, and whether the code alone proves that the application has answered.

    ``UNAVAILABLE`` may come from the server, from a proxy behind which the server has done the work, or from the
    client's own library: it is then unknown whether the call took effect, unless `RpcProgress` proves more.
    """

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def of(cls, value: object) -> Code:
        """Read a code from its number or its name; raise PolicyValueError if there is no such code."""
        # gRFC A6 allows names in any case. Many JSON parsers return whole numbers as floats.
        if isinstance(value, str):
            found = cls.__members__.get(value.upper()) if value.isascii() else None
        elif isinstance(value, int | float) and not isinstance(value, bool) and value in _NUMBERS:
            found = cls(int(value))
        else:
            found = None
        if found is None:
            raise PolicyValueError(
                f"{value!r} is not a status code of gRPC: give a number from 0 to 16, or a name such as UNAVAILABLE"
            )
        return found

    @property
    def reason(self) -> str:
        """Return the reason of a failure with this code, for ``on`` and for rules: ``GRPC_UNAVAILABLE``."""
        return f"GRPC_{self.name}"

    @property
    def lasts(self) -> bool:
        """True if the same call would get this code again, by gRPC's descriptions of its codes."""
        return self in _LASTING

    @property
    def stage(self) -> Stage:
        """Return what the code alone proves: ``ANSWERED`` or, without proof, ``IN_FLIGHT``."""
        return Stage.ANSWERED if self in _ANSWERS else Stage.IN_FLIGHT


_NUMBERS = frozenset(code.value for code in Code)
# The caller, its rights or the state of the data has to change first. ABORTED is missing: a conflict passes.
_LASTING = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.ALREADY_EXISTS,
        Code.PERMISSION_DENIED,
        Code.FAILED_PRECONDITION,
        Code.OUT_OF_RANGE,
        Code.UNIMPLEMENTED,
        Code.DATA_LOSS,
        Code.UNAUTHENTICATED,
    }
)
# A code is an answer if no library generates it on the way (gRPC documents which codes its libraries generate).
# RESOURCE_EXHAUSTED is missing: clients generate it for a response that is too long, after all work has been done.
_ANSWERS = frozenset({
    Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.ALREADY_EXISTS, Code.PERMISSION_DENIED,
    Code.FAILED_PRECONDITION, Code.ABORTED, Code.OUT_OF_RANGE,
    # Servers' libraries generate these two as well, before they call the application.
    Code.UNIMPLEMENTED, Code.UNAUTHENTICATED,
})  # fmt: skip


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
    """

    progress: RpcProgress
    handling: Handling
    stage: Stage | None
    reason: str | None = None
    why: str | None = None

    @property
    def counts_as_attempt(self) -> bool:
        """False if it uses none of the policy's attempts."""
        return self.handling not in {Handling.TRANSPARENT, Handling.TRANSPARENT_ONCE}

    @property
    def counts_as_throttle_failure(self) -> bool:
        """False if it takes no token from the retry throttle; otherwise retryable codes do."""
        # gRPC's core handles drops before it counts tokens.
        return self.counts_as_attempt and self.handling is not Handling.FAIL_NOW


_ROWS = (
    ProgressRow(RpcProgress.LB_DROP, Handling.FAIL_NOW, Stage.NOT_SENT, why="the load balancer dropped the call"),
    ProgressRow(RpcProgress.LB_TRANSIENT_FAILURE, Handling.POLICY, Stage.NOT_SENT),
    ProgressRow(RpcProgress.NEVER_LEFT_CLIENT, Handling.TRANSPARENT, Stage.NOT_SENT, NEVER_LEFT),
    ProgressRow(RpcProgress.REACHED_SERVER_NOT_APP, Handling.TRANSPARENT_ONCE, Stage.NOT_SENT, NOT_PROCESSED),
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
        return replace(row, handling=Handling.POLICY, reason=None)
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
        The failure; None for ``OK``. It is permanent if no policy may repeat the call, and lasting if the same call
        would get the same code, or if the server asks for no retry.

    Raises:
        PolicyValueError: there is no such code.
    """
    known = Code.of(code)
    if known is Code.OK:
        return None
    row = row_of(progress, refused=refused)
    hint = Hint(None) if pushback is None else grpc_pushback(pushback)
    base = Failure((), f"gRPC status {known.name}") if error is None else Failure.of(error)
    stopped = hint.problem if hint.stop else ""
    return base._replace(
        reason=row.reason or known.reason,
        stage=row.stage or known.stage,
        hint=hint.delay,
        permanent=row.why or stopped or None,
        lasting=Lasting(stopped, row.stage or known.stage) if stopped or known.lasts else None,
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
