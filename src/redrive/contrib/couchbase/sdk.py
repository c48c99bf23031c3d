"""The errors of the official Python SDK (``couchbase`` 4), by their error codes.

The SDK retries key-value operations until their timeout, in its C++ core; no setting switches that off. It retries no
other operations. Its exceptions have an ``error_context`` with the number of retries, their reasons and the last node.
However, the *class* of the exception is chosen from the reasons of **past** retries. An upsert that was refused once as
locked, sent again, and then lost, ends with error code 13, "ambiguous timeout", and is raised as
``DocumentLockedException``, as if it had no effect. If two reasons are in the set, the order of the set decides.

The ``error_code`` is the real end of the operation, and this module uses it: `report_of` returns all known data,
`true_error` the exception of the right class, `verdict_of` the verdict, and `failure_of` a failure for a
`redrive.Policy`::

    @redrive.retry("5 100ms 2s", on=sdk.failure_of)
    async def save(order): ...

`redrive.contrib.couchbase.calls.CouchbaseCalls` calls the operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from redrive.contrib import extra
from redrive.contrib.couchbase.analytics import classify_analytics
from redrive.contrib.couchbase.bodies import classify_search, classify_views
from redrive.contrib.couchbase.query import classify_query
from redrive.contrib.couchbase.service import ServiceError, read_service_errors
from redrive.contrib.couchbase.transport import classify_http_status
from redrive.contrib.couchbase.verdict import LOST, Profile, SdkError, Verdict
from redrive.errors.foreign import is_a
from redrive.orchestrator.reason import RetryReason
from redrive.policy import Failure, Stage
from redrive.policy.failure import Lasting

with extra("couchbase"):
    from couchbase import exceptions

E = SdkError
TIMEOUTS = frozenset({E.AMBIGUOUS_TIMEOUT, E.UNAMBIGUOUS_TIMEOUT})


#: The codes of RFC 0058 that are distinguished here; any other is an error that is not retried.
CODES: Mapping[int, Verdict] = MappingProxyType(
    {
        2: Verdict(LOST, E.REQUEST_CANCELED, Stage.IN_FLIGHT),
        3: Verdict(None, E.INVALID_ARGUMENT),
        4: Verdict("SERVICE_NOT_AVAILABLE", E.SERVICE_NOT_AVAILABLE, Stage.NOT_SENT),
        5: Verdict(None, E.INTERNAL_SERVER_FAILURE),
        6: Verdict(None, E.AUTHENTICATION_FAILURE),
        7: Verdict("KV_TEMPORARY_FAILURE", E.TEMPORARY_FAILURE),
        8: Verdict(None, E.PARSING_FAILURE),
        9: Verdict(None, E.CAS_MISMATCH),
        11: Verdict(None, E.COLLECTION_NOT_FOUND),
        12: Verdict(None, E.UNSUPPORTED_OPERATION),
        13: Verdict(None, E.AMBIGUOUS_TIMEOUT, Stage.IN_FLIGHT),
        14: Verdict(None, E.UNAMBIGUOUS_TIMEOUT),
        15: Verdict(None, E.FEATURE_NOT_AVAILABLE),
        16: Verdict(None, E.SCOPE_NOT_FOUND),
        17: Verdict(None, E.INDEX_NOT_FOUND),
        18: Verdict(None, E.INDEX_EXISTS),
        21: Verdict(None, E.RATE_LIMITED),
        22: Verdict(None, E.QUOTA_LIMITED),
        101: Verdict(None, E.DOCUMENT_NOT_FOUND),
        103: Verdict("KV_LOCKED", E.DOCUMENT_LOCKED),
        104: Verdict(None, E.VALUE_TOO_LARGE),
        105: Verdict(None, E.DOCUMENT_EXISTS),
        107: Verdict(None, E.DURABILITY_LEVEL_NOT_AVAILABLE),
        108: Verdict(None, E.DURABILITY_IMPOSSIBLE),
        109: Verdict(None, E.DURABILITY_AMBIGUOUS, Stage.IN_FLIGHT),
        110: Verdict("KV_SYNC_WRITE_IN_PROGRESS", E.DURABLE_WRITE_IN_PROGRESS),
        111: Verdict("KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS", E.DURABLE_WRITE_RE_COMMIT_IN_PROGRESS),
        113: Verdict(None, E.PATH_NOT_FOUND),
        114: Verdict(None, E.PATH_MISMATCH),
        115: Verdict(None, E.PATH_INVALID),
        116: Verdict(None, E.PATH_TOO_BIG),
        117: Verdict(None, E.PATH_TOO_DEEP),
        118: Verdict(None, E.VALUE_TOO_DEEP),
        119: Verdict(None, E.VALUE_INVALID),
        120: Verdict(None, E.DOCUMENT_NOT_JSON),
        121: Verdict(None, E.NUMBER_TOO_BIG),
        122: Verdict(None, E.DELTA_INVALID),
        123: Verdict(None, E.PATH_EXISTS),
        131: Verdict(None, E.DOCUMENT_NOT_LOCKED),
        303: Verdict(None, E.DATASET_NOT_FOUND),
        304: Verdict(None, E.DATAVERSE_NOT_FOUND),
        305: Verdict(None, E.DATASET_EXISTS),
        306: Verdict(None, E.DATAVERSE_EXISTS),
        501: Verdict(None, E.VIEW_NOT_FOUND),
    }
)

_CHOSEN_FROM_THE_PAST = (exceptions.DocumentLockedException, exceptions.TemporaryFailException)


@dataclass(frozen=True, slots=True)
class SdkReport:
    """The data of an exception of the SDK."""

    code: int | None
    #: The meaning of the code; `SdkError.COUCHBASE_EXCEPTION` if unknown.
    error: SdkError
    retry_attempts: int = 0
    #: Names of the reasons of the retries.
    retry_reasons: tuple[RetryReason, ...] = ()
    #: The last node; None if it was not sent, or the SDK does not name it.
    last_dispatched_to: str | None = None
    #: The client's end of that connection.
    last_dispatched_from: str | None = None

    @property
    def note(self) -> str:
        """One line of text."""
        reasons = ", ".join(reason.name for reason in self.retry_reasons)
        retried = f"the SDK retried {self.retry_attempts} times ({reasons})" if reasons else "the SDK did not retry"
        return f"{self.error}: {retried}, last sent to {self.last_dispatched_to or 'no node that it names'}"


def report_of(error: exceptions.CouchbaseException) -> SdkReport:
    """Return the error code and the context of an exception of the SDK; missing fields are empty."""
    code = error.error_code
    context = error.error_context
    row = CODES.get(code)
    reasons = {RetryReason.parse(text) for text in context.retry_reasons or ()}
    return SdkReport(
        code=code,
        error=(row.error if row else None) or SdkError.COUCHBASE_EXCEPTION,
        retry_attempts=context.retry_attempts or 0,
        retry_reasons=tuple(sorted(reasons)),
        last_dispatched_to=context.last_dispatched_to,
        last_dispatched_from=context.last_dispatched_from,
    )


def true_error(error: exceptions.CouchbaseException) -> exceptions.CouchbaseException:
    """Return the exception of the class that belongs to the error code.

    That is the same object, unless its class was chosen from past retries; then a new one of the right class with the
    same code, message and context, and the original as its cause.
    """
    right = exceptions.PYCBC_ERROR_MAP.get(error.error_code)
    if right is None or not is_a(error, _CHOSEN_FROM_THE_PAST) or is_a(error, right):
        return error
    made: exceptions.CouchbaseException = right(
        message=error.message, context=error.error_context, error_code=error.error_code
    )
    made.__cause__ = error
    return made


def verdict_of(
    error: exceptions.CouchbaseException,
    *,
    read_only: bool = False,
    rows_delivered: int = 0,
    profile: Profile = Profile.EXTENDED,
) -> Verdict:
    """Return the verdict on an exception of the SDK.

    Args:
        error: raised by the SDK.
        read_only: True if the request changes nothing.
        rows_delivered: the number of rows of its result that have reached the caller.
        profile: the set of rules.

    Returns:
        The verdict of the service that has answered; that of the error code if there is no answer, or the SDK timed
        out. The SDK has retried key-value operations already.
    """
    by_code = _by_code(error, read_only=read_only)
    if by_code.error in TIMEOUTS:
        return by_code
    context = error.error_context
    status = getattr(context, "response_code", None)
    if not status:
        return by_code
    verdict = _by_service(context, status, read_only=read_only, rows_delivered=rows_delivered, profile=profile)
    # A success that the SDK could not read.
    return by_code if verdict.error is None else verdict


def _by_code(error: exceptions.CouchbaseException, *, read_only: bool) -> Verdict:
    report = report_of(error)
    row = CODES.get(report.code) if report.code is not None else None
    detail = str(error.message or report.error)
    if row is None:
        return Verdict(None, report.error, detail=detail)
    if row.error is SdkError.AMBIGUOUS_TIMEOUT and read_only:
        return Verdict(None, SdkError.UNAMBIGUOUS_TIMEOUT, row.stage, detail)
    # The context names a node, so the request was sent, whatever the code.
    if row.stage is Stage.NOT_SENT and report.last_dispatched_to:
        return Verdict(row.reason if read_only else LOST, row.error, Stage.IN_FLIGHT, detail)
    return replace(row, detail=detail)


def _by_service(
    context: exceptions.HTTPErrorContext, status: int, *, read_only: bool, rows_delivered: int, profile: Profile
) -> Verdict:
    body = str(getattr(context, "response_body", None) or "")
    match context:
        case exceptions.QueryErrorContext():
            errors = _service_errors(context, body)
            return classify_query(status, errors, readonly=read_only, rows_delivered=rows_delivered, profile=profile)
        case exceptions.AnalyticsErrorContext():
            return classify_analytics(
                _service_errors(context, body),
                http_status=status,
                readonly=read_only,
                rows_delivered=rows_delivered,
                profile=profile,
            )
        case exceptions.SearchErrorContext():
            return classify_search(status, body, profile=profile)
        case exceptions.ViewErrorContext():
            return classify_views(status, body, profile=profile)
        case _:
            return classify_http_status(status, idempotent=read_only)


def _service_errors(
    context: exceptions.QueryErrorContext | exceptions.AnalyticsErrorContext, body: str
) -> tuple[ServiceError, ...]:
    read = read_service_errors(body)
    if context.first_error_code and not any(error.code for error in read):
        return (ServiceError(context.first_error_code, context.first_error_message or ""),)
    return read


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure of an exception of the SDK, as the ``on`` of a policy; None for other exceptions.

    A timeout has the reason ``TIMEOUT``; an ambiguous one is *in flight*, so that a policy repeats only idempotent
    calls. An error with a reason of RFC 0049 has that reason. Any other error is lasting.
    """
    if not is_a(error, exceptions.CouchbaseException):
        return None
    verdict = verdict_of(error)
    reason = "TIMEOUT" if verdict.error in TIMEOUTS else verdict.reason
    said = Failure.of(true_error(error), reason=reason, stage=verdict.stage)
    lasting = Lasting(stage=verdict.stage) if reason is None else None
    return said._replace(lasting=lasting, hint=verdict.after or said.hint, message=verdict.detail)
