"""Responses of Couchbase's gRPC service (``couchbase2://``), by status code and precondition.

``UNAVAILABLE`` proves nothing: a proxy may send it after the server has done the work. Its stage is *in flight*, and
only read-only calls are repeated (the SDKs repeat writes too, of which gRPC warns). Its reason is
``SERVICE_NOT_AVAILABLE`` for a read and ``SOCKET_CLOSED_WHILE_IN_FLIGHT`` for a write, since the former allows
non-idempotent retries. A client that can prove that the call was never sent passes ``dispatched=False``; every call may
then be repeated. An unknown precondition is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from redrive.contrib.couchbase.verdict import LOST, SUCCESS, SdkError, Verdict
from redrive.policy import Stage

__all__ = ["CODES", "PRECONDITIONS", "PreconditionRow", "StatusRow", "classify_grpc"]

E = SdkError


@dataclass(frozen=True, slots=True)
class StatusRow:
    """The verdict on a status code."""

    code: str
    error: SdkError
    #: None: the request is not retried.
    reason: str | None = None
    #: The progress of the request that the code proves.
    stage: Stage = Stage.ANSWERED
    #: The error if the call only reads or was never sent.
    reading: SdkError | None = None


#: The status codes by name.
CODES: Mapping[str, StatusRow] = MappingProxyType(
    {
        row.code: row
        for row in (
            StatusRow("CANCELLED", E.REQUEST_CANCELED, stage=Stage.IN_FLIGHT),
            StatusRow("UNKNOWN", E.COUCHBASE_EXCEPTION, stage=Stage.IN_FLIGHT),
            StatusRow("INVALID_ARGUMENT", E.INVALID_ARGUMENT),
            StatusRow("DEADLINE_EXCEEDED", E.AMBIGUOUS_TIMEOUT, stage=Stage.IN_FLIGHT, reading=E.UNAMBIGUOUS_TIMEOUT),
            StatusRow("NOT_FOUND", E.DOCUMENT_NOT_FOUND),
            StatusRow("ALREADY_EXISTS", E.DOCUMENT_EXISTS),
            StatusRow("PERMISSION_DENIED", E.AUTHENTICATION_FAILURE),
            StatusRow("UNAUTHENTICATED", E.AUTHENTICATION_FAILURE),
            StatusRow("RESOURCE_EXHAUSTED", E.RATE_LIMITED, stage=Stage.IN_FLIGHT),
            StatusRow("FAILED_PRECONDITION", E.INTERNAL_SERVER_FAILURE),
            StatusRow("ABORTED", E.CAS_MISMATCH),
            StatusRow("OUT_OF_RANGE", E.COUCHBASE_EXCEPTION),
            StatusRow("UNIMPLEMENTED", E.FEATURE_NOT_AVAILABLE),
            StatusRow("INTERNAL", E.INTERNAL_SERVER_FAILURE, stage=Stage.IN_FLIGHT),
            StatusRow("UNAVAILABLE", E.SERVICE_NOT_AVAILABLE, "SERVICE_NOT_AVAILABLE", Stage.IN_FLIGHT),
            StatusRow("DATA_LOSS", E.COUCHBASE_EXCEPTION, stage=Stage.IN_FLIGHT),
        )
    }
)


@dataclass(frozen=True, slots=True)
class PreconditionRow:
    """The verdict on a violated precondition (with ``FAILED_PRECONDITION``)."""

    #: The type of the violation.
    violation: str
    error: SdkError
    #: None: the request is not retried.
    reason: str | None = None


#: The preconditions by type.
PRECONDITIONS: Mapping[str, PreconditionRow] = MappingProxyType(
    {
        row.violation: row
        for row in (
            PreconditionRow("LOCKED", E.DOCUMENT_LOCKED, "KV_LOCKED"),
            PreconditionRow("UNLOCKED", E.DOCUMENT_NOT_LOCKED),
            PreconditionRow("DOC_NOT_LOCKED", E.DOCUMENT_NOT_LOCKED),
            PreconditionRow("NOT_LOCKED", E.DOCUMENT_NOT_LOCKED),
            PreconditionRow("DOC_NOT_JSON", E.DOCUMENT_NOT_JSON),
            PreconditionRow("DOC_TOO_DEEP", E.PATH_TOO_DEEP),
            PreconditionRow("DURABILITY_IMPOSSIBLE", E.DURABILITY_IMPOSSIBLE),
            PreconditionRow("FLUSH_DISABLED", E.BUCKET_NOT_FLUSHABLE),
            PreconditionRow("PATH_MISMATCH", E.PATH_MISMATCH),
            PreconditionRow("PATH_VALUE_OUT_OF_RANGE", E.NUMBER_TOO_BIG),
            PreconditionRow("VALUE_TOO_LARGE", E.VALUE_TOO_LARGE),
            PreconditionRow("WOULD_INVALIDATE_JSON", E.VALUE_INVALID),
        )
    }
)

_PRECONDITION = "FAILED_PRECONDITION"


def classify_grpc(code: str, *, read_only: bool, violation: str = "", dispatched: bool = True) -> Verdict:
    """Judge a gRPC status.

    Args:
        code: the name of its code.
        read_only: whether the call only reads.
        violation: the type of the violated precondition, if there is one.
        dispatched: False if it is proved that the call was never sent.

    Returns:
        The verdict. A code or a precondition that is not in the tables is not retried.
    """
    if code == "OK":
        return SUCCESS
    if code == _PRECONDITION and violation:
        known = PRECONDITIONS.get(violation, PreconditionRow(violation, SdkError.COUCHBASE_EXCEPTION))
        return Verdict(known.reason, known.error, detail=f"{code}: {violation}")
    row = CODES.get(code, StatusRow(code, SdkError.COUCHBASE_EXCEPTION, stage=Stage.IN_FLIGHT))
    stage = row.stage if dispatched else Stage.NOT_SENT
    may_have_run = row.reason is not None and stage is Stage.IN_FLIGHT and not read_only
    return Verdict(
        reason=LOST if may_have_run else row.reason,
        error=row.reading if row.reading and (read_only or not dispatched) else row.error,
        stage=stage,
        detail=f"{code}: {violation}".rstrip(": "),
    )
