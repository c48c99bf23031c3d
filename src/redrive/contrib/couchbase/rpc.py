"""Responses of Couchbase's gRPC service (``couchbase2://``), by status code and precondition.

``UNAVAILABLE`` proves nothing: a proxy may send it after the server has done the work. Its stage is *in flight*, and
only read-only calls are repeated (the SDKs repeat writes too, of which gRPC warns). Its reason is
``SERVICE_NOT_AVAILABLE`` for a read and ``SOCKET_CLOSED_WHILE_IN_FLIGHT`` for a write, since the former allows
non-idempotent retries. A client that can prove that the call was never sent passes ``dispatched=False``; every call may
then be repeated. An unknown precondition is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from redrive.contrib.couchbase.verdict import LOST, SUCCESS, SdkError, Verdict
from redrive.policy import Stage

E = SdkError


#: The status codes by name.
CODES: Mapping[str, Verdict] = MappingProxyType(
    {
        "CANCELLED": Verdict(None, E.REQUEST_CANCELED, Stage.IN_FLIGHT),
        "UNKNOWN": Verdict(None, E.COUCHBASE_EXCEPTION, Stage.IN_FLIGHT),
        "INVALID_ARGUMENT": Verdict(None, E.INVALID_ARGUMENT),
        "DEADLINE_EXCEEDED": Verdict(None, E.AMBIGUOUS_TIMEOUT, Stage.IN_FLIGHT),
        "NOT_FOUND": Verdict(None, E.DOCUMENT_NOT_FOUND),
        "ALREADY_EXISTS": Verdict(None, E.DOCUMENT_EXISTS),
        "PERMISSION_DENIED": Verdict(None, E.AUTHENTICATION_FAILURE),
        "UNAUTHENTICATED": Verdict(None, E.AUTHENTICATION_FAILURE),
        "RESOURCE_EXHAUSTED": Verdict(None, E.RATE_LIMITED, Stage.IN_FLIGHT),
        "FAILED_PRECONDITION": Verdict(None, E.INTERNAL_SERVER_FAILURE),
        "ABORTED": Verdict(None, E.CAS_MISMATCH),
        "OUT_OF_RANGE": Verdict(None, E.COUCHBASE_EXCEPTION),
        "UNIMPLEMENTED": Verdict(None, E.FEATURE_NOT_AVAILABLE),
        "INTERNAL": Verdict(None, E.INTERNAL_SERVER_FAILURE, Stage.IN_FLIGHT),
        "UNAVAILABLE": Verdict("SERVICE_NOT_AVAILABLE", E.SERVICE_NOT_AVAILABLE, Stage.IN_FLIGHT),
        "DATA_LOSS": Verdict(None, E.COUCHBASE_EXCEPTION, Stage.IN_FLIGHT),
    }
)

#: The violated preconditions by type.
PRECONDITIONS: Mapping[str, Verdict] = MappingProxyType(
    {
        "LOCKED": Verdict("KV_LOCKED", E.DOCUMENT_LOCKED),
        "UNLOCKED": Verdict(None, E.DOCUMENT_NOT_LOCKED),
        "DOC_NOT_LOCKED": Verdict(None, E.DOCUMENT_NOT_LOCKED),
        "NOT_LOCKED": Verdict(None, E.DOCUMENT_NOT_LOCKED),
        "DOC_NOT_JSON": Verdict(None, E.DOCUMENT_NOT_JSON),
        "DOC_TOO_DEEP": Verdict(None, E.PATH_TOO_DEEP),
        "DURABILITY_IMPOSSIBLE": Verdict(None, E.DURABILITY_IMPOSSIBLE),
        "FLUSH_DISABLED": Verdict(None, E.BUCKET_NOT_FLUSHABLE),
        "PATH_MISMATCH": Verdict(None, E.PATH_MISMATCH),
        "PATH_VALUE_OUT_OF_RANGE": Verdict(None, E.NUMBER_TOO_BIG),
        "VALUE_TOO_LARGE": Verdict(None, E.VALUE_TOO_LARGE),
        "WOULD_INVALIDATE_JSON": Verdict(None, E.VALUE_INVALID),
    }
)

_UNKNOWN = Verdict(None, E.COUCHBASE_EXCEPTION, Stage.IN_FLIGHT)


def classify_grpc(code: str, *, read_only: bool, violation: str = "", dispatched: bool = True) -> Verdict:
    """Return the verdict on a gRPC status; a code or a precondition that is not in the tables is not retried.

    Args:
        code: the name of its code.
        read_only: whether the call only reads.
        violation: the type of the violated precondition, if there is one.
        dispatched: False if it is proved that the call was never sent.
    """
    if code == "OK":
        return SUCCESS
    detail = f"{code}: {violation}".rstrip(": ")
    if code == "FAILED_PRECONDITION" and violation:
        return replace(PRECONDITIONS.get(violation, Verdict(None, E.COUCHBASE_EXCEPTION)), detail=detail)
    row = CODES.get(code, _UNKNOWN)
    stage = row.stage if dispatched else Stage.NOT_SENT
    # A call that only reads, or was never sent, has certainly changed nothing.
    is_harmless = read_only or not dispatched
    may_have_run = row.reason is not None and stage is Stage.IN_FLIGHT and not read_only
    return Verdict(
        reason=LOST if may_have_run else row.reason,
        error=E.UNAMBIGUOUS_TIMEOUT if row.error is E.AMBIGUOUS_TIMEOUT and is_harmless else row.error,
        stage=stage,
        detail=detail,
    )
