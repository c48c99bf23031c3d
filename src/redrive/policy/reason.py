"""Reasons of failures, with the two flags of RFC 0049.

A `Failure` carries the *name* of a reason, so that it can be stored and compared. Adapters register their own reasons;
an unregistered name has both flags false.
"""

from __future__ import annotations

from redrive.errors import PolicyValueError
from redrive.policy.value import NamedTuple


class Reason(NamedTuple):
    """A registered reason."""

    #: Upper-case letters, digits and underscores.
    name: str
    #: True if a call that is not idempotent may be repeated although its outcome is unknown (RFC 0049, "Retry
    #: Reasons").
    allows_non_idempotent_retry: bool = False
    #: True if the call is repeated with controlled backoff whatever the strategy decides (RFC 0049); only the
    #: orchestrator uses this flag.
    always_retry: bool = False

    @staticmethod
    def of(name: str) -> Reason:
        """Return the registered reason of a name; for an unknown name one with both flags false."""
        return _REGISTRY.get(name) or Reason(name)

    @staticmethod
    def register(name: str, *, allows_non_idempotent_retry: bool = False, always_retry: bool = False) -> Reason:
        """Register a reason for the whole process. The same registration may be repeated.

        Args:
            name: upper-case letters, digits and underscores, starting with a letter.
            allows_non_idempotent_retry: see `Reason`.
            always_retry: see `Reason`; it includes the other flag.

        Raises:
            PolicyValueError: the name has another form, or it is already registered with other flags.
        """
        if not is_reason_name(name):
            raise PolicyValueError(
                f"{name!r} is not the name of a reason: use upper-case letters, digits and underscores"
            )
        new = Reason(name, allows_non_idempotent_retry or always_retry, always_retry)
        known = _REGISTRY.setdefault(name, new)
        if known != new:
            raise PolicyValueError(f"the reason {name} is already registered with other flags: {known}")
        return known


def is_reason_name(text: str) -> bool:
    """Return True if the text has the form of a reason's name: ``TIMEOUT``, ``KV_LOCKED``, ``HTTP_503``."""
    return text[:1].isalpha() and text.isascii() and text.replace("_", "A").isalnum() and text == text.upper()


# The reasons of redrive itself, none of which proves that nothing has happened.
_SAFE_ONLY = (
    "ERROR", "TIMEOUT", "WORKER_LOST", "POISON", "LOST_IN_FLIGHT", "BAD_PAYLOAD", "BAD_RESULT", "RESULT", "RETRY_AFTER",
    "GAVE_UP", "PROGRAMMING_ERROR",
    # RFC 0049
    "UNKNOWN", "SOCKET_CLOSED_WHILE_IN_FLIGHT",
)  # fmt: skip
# RFC 0049: "Non-idempotent Retry: true".
_MAY_REPEAT = (
    "SOCKET_NOT_AVAILABLE", "SERVICE_NOT_AVAILABLE", "NODE_NOT_AVAILABLE", "KV_ERROR_MAP_RETRY_INDICATED", "KV_LOCKED",
    "KV_TEMPORARY_FAILURE", "KV_SYNC_WRITE_IN_PROGRESS", "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS",
    "SERVICE_RESPONSE_CODE_INDICATED", "CIRCUIT_BREAKER_OPEN", "QUERY_PREPARED_STATEMENT_FAILURE",
    "QUERY_INDEX_NOT_FOUND", "ANALYTICS_TEMPORARY_FAILURE", "SEARCH_TOO_MANY_REQUESTS", "VIEWS_TEMPORARY_FAILURE",
)  # fmt: skip
# RFC 0049: both true.
_ALWAYS = ("KV_NOT_MY_VBUCKET", "KV_COLLECTION_OUTDATED", "VIEWS_NO_ACTIVE_PARTITION")

# RFC 9110, 15: other statuses are invalid, and those of 1xx end no request.
STATUSES = range(200, 600)
"""The statuses of HTTP that a failure can have: the reasons ``HTTP_200`` to ``HTTP_599``."""

GRPC_REASONS = (
    "GRPC_CANCELLED", "GRPC_UNKNOWN", "GRPC_INVALID_ARGUMENT", "GRPC_DEADLINE_EXCEEDED", "GRPC_NOT_FOUND",
    "GRPC_ALREADY_EXISTS", "GRPC_PERMISSION_DENIED", "GRPC_RESOURCE_EXHAUSTED", "GRPC_FAILED_PRECONDITION",
    "GRPC_ABORTED", "GRPC_OUT_OF_RANGE", "GRPC_UNIMPLEMENTED", "GRPC_INTERNAL", "GRPC_UNAVAILABLE", "GRPC_DATA_LOSS",
    "GRPC_UNAUTHENTICATED", "GRPC_NEVER_LEFT", "GRPC_NOT_PROCESSED",
)  # fmt: skip
"""The reasons of `redrive.contrib.grpc`: the codes of failures, and its two kinds of transparent retries."""


def refuse_unknown(name: str, field: str) -> None:
    """Raise `PolicyValueError` for the name of a status or a code that does not exist, which no failure could have."""
    status = name[5:]
    # Reasons such as HTTP_1_1_REQUIRED name no status.
    if name.startswith("HTTP_") and (status.isdecimal() or status[1:] == "XX"):
        if not (len(status) == len("404") and status.isdecimal() and int(status) in STATUSES):
            valid = f"{STATUSES[0]} to {STATUSES[-1]}"
            raise PolicyValueError(f"{field}: {name} names no status of HTTP, which are {valid}, as in HTTP_404")
    # The lists of a service config may have OK, which no failure has.
    elif name.startswith("GRPC_") and name not in ("GRPC_OK", *GRPC_REASONS) and name not in _REGISTRY:
        import difflib  # most programs never need it

        near = difflib.get_close_matches(name, GRPC_REASONS, n=1) or ["GRPC_UNAVAILABLE"]
        raise PolicyValueError(f"{field}: {name} names no failure of gRPC: give one of its codes, such as {near[0]}")


_REGISTRY: dict[str, Reason] = {
    **{name: Reason(name) for name in _SAFE_ONLY},
    **{name: Reason(name, allows_non_idempotent_retry=True) for name in _MAY_REPEAT},
    **{name: Reason(name, allows_non_idempotent_retry=True, always_retry=True) for name in _ALWAYS},
}
