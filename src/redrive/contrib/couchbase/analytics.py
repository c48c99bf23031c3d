"""Responses of the analytics service, and of Enterprise Analytics, which has other rules.

The analytics service of a Couchbase cluster is retried for three codes, after which no part of the statement has run.
Its errors may have a ``retriable`` flag, which the operational SDKs and these rows ignore. A timeout of the service
(21002) is ambiguous if the statement writes.

For Enterprise Analytics (the ``couchbase-analytics`` client) the flag decides, and **all** errors must have it; codes
are ignored. Its HTTP status is checked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from redrive.contrib.couchbase.service import AllCodes, CodeError, CodeReason, ServiceError, first_match
from redrive.contrib.couchbase.verdict import SUCCESS, Profile, SdkError, Verdict
from redrive.policy import Stage

E = SdkError
_TEMPORARY = "ANALYTICS_TEMPORARY_FAILURE"

#: RFC 0049's list of the analytics service.
RETRIES: tuple[CodeReason, ...] = (CodeReason(codes=(23000, 23003, 23007), reason=_TEMPORARY),)

#: RFC 0058's meaning of a code.
ERRORS: tuple[CodeError, ...] = (
    CodeError(codes=range(20000, 21000), error=E.AUTHENTICATION_FAILURE),
    CodeError(codes=(21002,), error=E.AMBIGUOUS_TIMEOUT),
    CodeError(codes=(23000, 23003), error=E.TEMPORARY_FAILURE),
    CodeError(codes=(23007,), error=E.JOB_QUEUE_FULL),
    CodeError(codes=(24000,), error=E.PARSING_FAILURE),
    CodeError(codes=(24006,), error=E.LINK_NOT_FOUND),
    CodeError(codes=(24025, 24044, 24045), error=E.DATASET_NOT_FOUND),
    CodeError(codes=(24034,), error=E.DATAVERSE_NOT_FOUND),
    CodeError(codes=(24039,), error=E.DATAVERSE_EXISTS),
    CodeError(codes=(24040,), error=E.DATASET_EXISTS),
    CodeError(codes=(24047,), error=E.INDEX_NOT_FOUND),
    CodeError(codes=(24048,), error=E.INDEX_EXISTS),
    CodeError(codes=range(24000, 25000), error=E.COMPILATION_FAILURE),
    CodeError(codes=range(25000, 26000), error=E.INTERNAL_SERVER_FAILURE),
    CodeError(codes=AllCodes(), error=E.COUCHBASE_EXCEPTION),
)

_OK = 200


def classify_analytics(
    errors: Sequence[ServiceError],
    *,
    http_status: int = 400,
    readonly: bool = False,
    rows_delivered: int = 0,
    profile: Profile = Profile.EXTENDED,
) -> Verdict:
    """Return the verdict on a response of the analytics service of a Couchbase cluster.

    A timeout of the service has the stage `redrive.policy.Stage.IN_FLIGHT`: the statement may have run.

    Args:
        errors: from `redrive.contrib.couchbase.service.read_service_errors`.
        http_status: of the response; used only if there are no errors.
        readonly: True if the request was marked as read-only.
        rows_delivered: the number of rows that have reached the caller.
        profile: the set of rules; both have the same.
    """
    if not errors:
        if http_status == _OK:
            return SUCCESS
        return Verdict(None, SdkError.COUCHBASE_EXCEPTION, detail=f"HTTP status {http_status} without an error")
    first = errors[0]
    retry = first_match(RETRIES, first, profile) if not rows_delivered else None
    row = first_match(ERRORS, first, profile)
    error = row.error if row else SdkError.COUCHBASE_EXCEPTION
    timed_out = error is SdkError.AMBIGUOUS_TIMEOUT
    return Verdict(
        reason=retry.reason if retry else None,
        error=SdkError.UNAMBIGUOUS_TIMEOUT if timed_out and readonly else error,
        stage=Stage.IN_FLIGHT if timed_out else Stage.ANSWERED,
        detail=first.detail,
    )


#: The verdicts by HTTP status on which the body has no influence.
ENTERPRISE: Mapping[int, Verdict] = MappingProxyType(
    {
        401: Verdict(None, E.INVALID_CREDENTIAL),
        404: Verdict(None, E.QUERY_ERROR),
        503: Verdict(_TEMPORARY, E.QUERY_ERROR),
    }
)

_ENTERPRISE_CODES: tuple[CodeError, ...] = (
    CodeError(codes=(20000,), error=E.INVALID_CREDENTIAL),
    CodeError(codes=(21002,), error=E.TIMEOUT),
)


def classify_enterprise_analytics(
    http_status: int, errors: Sequence[ServiceError]
) -> tuple[Verdict, ServiceError | None]:
    """Return the verdict on a response of Enterprise Analytics.

    It has the error to report: the first that may not be retried, otherwise the first.
    """
    final = next((error for error in errors if error.retry is not True), None)
    reported = final or (errors[0] if errors else None)
    detail = reported.detail if reported else f"HTTP status {http_status}"
    row = ENTERPRISE.get(http_status)
    if row is not None:
        return replace(row, detail=detail), reported
    if reported is None:
        return (SUCCESS if http_status == _OK else Verdict(None, SdkError.QUERY_ERROR, detail=detail)), None
    named = next((code for error in errors for code in _ENTERPRISE_CODES if error.code in code.codes), None)
    if named is not None:
        return Verdict(None, named.error, detail=detail), reported
    return Verdict(_TEMPORARY if final is None else None, SdkError.QUERY_ERROR, detail=detail), reported
