"""Responses of the query service.

RFC 0049 lists four codes. For a prepared statement that the server has forgotten, the same bytes would fail again: the
cached plan is evicted and the statement prepared anew, which is another request. A missing index counts only with code
5000 *and* the text of the query port.
"""

from __future__ import annotations

from collections.abc import Sequence

from redrive.contrib.couchbase.service import AllCodes, CodeError, CodeReason, ServiceError, first_match
from redrive.contrib.couchbase.verdict import LOST, SUCCESS, Profile, SdkError, Verdict
from redrive.policy import Stage

E = SdkError
_INDEX_NOT_FOUND_WITH_FLAG = 12016

#: RFC 0049's list of the query service, and what the SDKs have added.
RETRIES: tuple[CodeReason, ...] = (
    CodeReason(codes=(4040, 4050, 4070), reason="QUERY_PREPARED_STATEMENT_FAILURE", prepares=True),
    CodeReason(codes=(5000,), message=r"queryport\.indexNotFound", reason="QUERY_INDEX_NOT_FOUND"),
    CodeReason(codes=(17013,), reason="QUERY_TRANSACTION_BUFFER_FULL", extended_only=True),
    CodeReason(
        codes=AllCodes(but=(_INDEX_NOT_FOUND_WITH_FLAG,)),
        flagged=True,
        reason="QUERY_ERROR_RETRYABLE",
        extended_only=True,
    ),
)

#: RFC 0058's meaning of a code.
ERRORS: tuple[CodeError, ...] = (
    CodeError(codes=(1065,), message="query_context|preserve_expiry|use_replica", error=E.FEATURE_NOT_AVAILABLE),
    CodeError(codes=(1065,), error=E.INVALID_ARGUMENT),
    CodeError(codes=(1080,), error=E.UNAMBIGUOUS_TIMEOUT),
    CodeError(codes=range(1191, 1195), error=E.RATE_LIMITED),
    # The server demands a query context.
    CodeError(codes=(1197,), error=E.FEATURE_NOT_AVAILABLE),
    CodeError(codes=(2120,), error=E.AUTHENTICATION_FAILURE),
    CodeError(codes=(3000,), error=E.PARSING_FAILURE),
    CodeError(codes=(4040, 4050, 4060, 4070, 4080, 4090), error=E.PREPARED_STATEMENT_FAILURE),
    CodeError(codes=(4300,), message=r"index .*already exist", error=E.INDEX_EXISTS),
    CodeError(codes=range(4000, 5000), error=E.PLANNING_FAILURE),
    CodeError(
        codes=(5000,),
        message="limit for number of indexes that can be created per scope has been reached",
        error=E.QUOTA_LIMITED,
    ),
    CodeError(codes=(5000,), message=r"index .+ already exist", error=E.INDEX_EXISTS),
    CodeError(codes=(5000,), message=r"index .+ not found", error=E.INDEX_NOT_FOUND),
    CodeError(codes=range(5000, 6000), error=E.INTERNAL_SERVER_FAILURE),
    CodeError(codes=range(10000, 11000), error=E.AUTHENTICATION_FAILURE),
    CodeError(codes=(12004, _INDEX_NOT_FOUND_WITH_FLAG), error=E.INDEX_NOT_FOUND),
    CodeError(codes=(12009,), message="CAS mismatch", error=E.CAS_MISMATCH),
    CodeError(codes=(12009,), causes=frozenset({12033}), error=E.CAS_MISMATCH),
    CodeError(codes=(12009,), causes=frozenset({17012}), error=E.DOCUMENT_EXISTS),
    CodeError(codes=(12009,), causes=frozenset({17014}), error=E.DOCUMENT_NOT_FOUND),
    CodeError(codes=(12009,), error=E.DML_FAILURE),
    CodeError(codes=(12033,), error=E.CAS_MISMATCH),
    CodeError(codes=range(12000, 13000), error=E.INDEX_FAILURE),
    CodeError(codes=(13014,), error=E.AUTHENTICATION_FAILURE),
    CodeError(codes=range(14000, 15000), error=E.INDEX_FAILURE),
    CodeError(codes=(17012,), error=E.DOCUMENT_EXISTS),
    CodeError(codes=(17014,), error=E.DOCUMENT_NOT_FOUND),
    CodeError(codes=AllCodes(), error=E.COUCHBASE_EXCEPTION),
)

_OK = 200
_UNAVAILABLE = 503


def classify_query(
    http_status: int,
    errors: Sequence[ServiceError],
    *,
    readonly: bool = False,
    rows_delivered: int = 0,
    profile: Profile = Profile.EXTENDED,
) -> Verdict:
    """Return the verdict on a response of the query service.

    Args:
        http_status: of the response.
        errors: from `redrive.contrib.couchbase.service.read_service_errors`.
        readonly: True if the request was marked as read-only.
        rows_delivered: the number of rows that have reached the caller.
        profile: the set of rules.
    """
    if not errors:
        return _without_errors(http_status, profile, readonly=readonly)
    first = errors[0]
    retry = first_match(RETRIES, first, profile) if not rows_delivered else None
    error = first_match(ERRORS, first, profile)
    return Verdict(
        reason=retry.reason if retry else None,
        error=error.error if error else SdkError.COUCHBASE_EXCEPTION,
        detail=first.detail,
        prepares=retry is not None and retry.prepares,
    )


def _without_errors(http_status: int, profile: Profile, *, readonly: bool) -> Verdict:
    if http_status == _OK:
        return SUCCESS
    if http_status == _UNAVAILABLE and profile is Profile.EXTENDED:
        # A gateway has answered. The statement may have run, so only one that reads may be sent again.
        return Verdict(
            "SERVICE_NOT_AVAILABLE" if readonly else LOST,
            SdkError.SERVICE_NOT_AVAILABLE,
            Stage.IN_FLIGHT,
            "the service is not available",
        )
    return Verdict(None, SdkError.COUCHBASE_EXCEPTION, detail=f"HTTP status {http_status} without an error")
