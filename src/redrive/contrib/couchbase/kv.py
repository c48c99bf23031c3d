"""Responses of the key-value service: which are retried, and what the caller gets of those that are not.

Two tables, read one after the other. `RETRIES` has RFC 0049's response code list with every exception that it makes;
`ERRORS` has what RFC 0058 makes of a status. A status is *known* if `ERRORS` has it. For a known status the error map
of the server is never asked: it marks 0x09 as retryable, for every operation, and would bring back the retry of
``unlock``; it marks rate limits too. For an unknown status the map is all there is
(`redrive.contrib.couchbase.errormap`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from redrive.contrib.couchbase.errormap import ErrorMap, verdict_of_entry
from redrive.contrib.couchbase.operations import OPERATIONS, Family
from redrive.contrib.couchbase.verdict import SUCCESS, Profile, SdkError, Verdict
from redrive.policy import Stage

E = SdkError
_NONE: frozenset[str] = frozenset()
_EXISTS = 0x02
# Its answer for a missing collection is 0x88.
_COLLECTIONS = frozenset({"get_collection_id"})
# The scan itself is started again on another node.
_SCAN_STEPS = frozenset({"range_scan_continue", "range_scan_cancel"})


@dataclass(frozen=True, slots=True)
class RetryRow:
    """A status that is passed to the retry orchestrator."""

    status: int
    reason: str
    #: Operations for which the status has another meaning.
    not_for: frozenset[str] = _NONE
    #: Further such operations, in the extended profile.
    not_for_extended: frozenset[str] = _NONE
    #: True if the strict profile has no such row.
    extended_only: bool = False
    #: True if a newer configuration must be fetched first.
    refreshes: bool = False


_RETRY_ROWS = (
    RetryRow(0x07, "KV_NOT_MY_VBUCKET", not_for_extended=_SCAN_STEPS),
    RetryRow(0x09, "KV_LOCKED", not_for=frozenset({"unlock"})),
    RetryRow(0x0D, "SERVICE_RESPONSE_CODE_INDICATED", extended_only=True, refreshes=True),
    RetryRow(0x85, "KV_TEMPORARY_FAILURE", not_for_extended=frozenset({"range_scan_create"}), extended_only=True),
    RetryRow(0x86, "KV_TEMPORARY_FAILURE"),
    RetryRow(0x88, "KV_COLLECTION_OUTDATED", not_for=_COLLECTIONS, not_for_extended=_SCAN_STEPS),
    RetryRow(0x8C, "KV_COLLECTION_OUTDATED", not_for=_COLLECTIONS, not_for_extended=_SCAN_STEPS, extended_only=True),
    RetryRow(0xA2, "KV_SYNC_WRITE_IN_PROGRESS"),
    RetryRow(0xA4, "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"),
)

#: RFC 0049's response code list of the key-value service, and what the SDKs have added to it.
RETRIES: Mapping[int, RetryRow] = MappingProxyType({row.status: row for row in _RETRY_ROWS})

_NO_RETRY = {Profile.STRICT: frozenset({Family.DCP}), Profile.EXTENDED: frozenset({Family.DCP, Family.BOOTSTRAP})}


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """The error of a status."""

    status: int
    #: The error of RFC 0058; None for a status that is not a failure of the request.
    error: SdkError | None
    #: The server's own name of the status, for messages.
    name: str
    #: Other errors for some operations, in pairs.
    instead: tuple[tuple[str, SdkError], ...] = ()
    #: True if the connection must be closed.
    closes: bool = False
    #: Answered, unless the answer leaves the effect open.
    stage: Stage = Stage.ANSWERED


_APPEND = (("append", E.DOCUMENT_NOT_FOUND), ("prepend", E.DOCUMENT_NOT_FOUND))
_INSERT = (("insert", E.DOCUMENT_EXISTS),)
_UNLOCK = (("unlock", E.CAS_MISMATCH),)
_XATTRS = (("lookup_in", E.XATTR_NO_ACCESS), ("mutate_in", E.XATTR_NO_ACCESS))

_ERROR_ROWS = (
    ErrorRow(0x00, None, "success"),
    ErrorRow(0x01, E.DOCUMENT_NOT_FOUND, "key not found"),
    ErrorRow(0x02, E.CAS_MISMATCH, "key exists", _INSERT),
    ErrorRow(0x03, E.VALUE_TOO_LARGE, "value too large"),
    ErrorRow(0x04, E.INVALID_ARGUMENT, "invalid arguments"),
    ErrorRow(0x05, E.NOT_STORED, "not stored", (*_APPEND, *_INSERT)),
    ErrorRow(0x06, E.DELTA_INVALID, "value is no number"),
    ErrorRow(0x07, E.COUCHBASE_EXCEPTION, "not my vbucket"),
    ErrorRow(0x08, E.COUCHBASE_EXCEPTION, "no bucket selected", closes=True),
    ErrorRow(0x09, E.DOCUMENT_LOCKED, "locked", _UNLOCK),
    ErrorRow(0x0D, E.COUCHBASE_EXCEPTION, "bucket has a configuration only"),
    ErrorRow(0x0E, E.DOCUMENT_NOT_LOCKED, "not locked"),
    ErrorRow(0x1F, E.AUTHENTICATION_FAILURE, "authentication is stale", closes=True),
    ErrorRow(0x20, E.AUTHENTICATION_FAILURE, "authentication failed"),
    ErrorRow(0x24, E.AUTHENTICATION_FAILURE, "no access", _XATTRS),
    ErrorRow(0x25, E.TEMPORARY_FAILURE, "not initialised", closes=True),
    ErrorRow(0x30, E.RATE_LIMITED, "rate limit: network ingress"),
    ErrorRow(0x31, E.RATE_LIMITED, "rate limit: network egress"),
    ErrorRow(0x32, E.RATE_LIMITED, "rate limit: connections"),
    ErrorRow(0x33, E.RATE_LIMITED, "rate limit: commands"),
    ErrorRow(0x34, E.QUOTA_LIMITED, "the scope is full"),
    ErrorRow(0x81, E.UNSUPPORTED_OPERATION, "unknown command"),
    ErrorRow(0x82, E.TEMPORARY_FAILURE, "out of memory"),
    ErrorRow(0x83, E.UNSUPPORTED_OPERATION, "not supported"),
    ErrorRow(0x84, E.INTERNAL_SERVER_FAILURE, "internal error", closes=True),
    ErrorRow(0x85, E.TEMPORARY_FAILURE, "busy"),
    ErrorRow(0x86, E.TEMPORARY_FAILURE, "temporary failure"),
    ErrorRow(0x88, E.COLLECTION_NOT_FOUND, "unknown collection"),
    ErrorRow(0x89, E.FEATURE_NOT_AVAILABLE, "no collections manifest"),
    ErrorRow(0x8C, E.SCOPE_NOT_FOUND, "unknown scope"),
    ErrorRow(0xA0, E.DURABILITY_LEVEL_NOT_AVAILABLE, "invalid durability level"),
    ErrorRow(0xA1, E.DURABILITY_IMPOSSIBLE, "durability impossible"),
    ErrorRow(0xA2, E.DURABLE_WRITE_IN_PROGRESS, "durable write in progress"),
    ErrorRow(0xA3, E.DURABILITY_AMBIGUOUS, "durable write is ambiguous", stage=Stage.IN_FLIGHT),
    ErrorRow(0xA4, E.DURABLE_WRITE_RE_COMMIT_IN_PROGRESS, "durable write is being committed again"),
    ErrorRow(0xC0, E.PATH_NOT_FOUND, "path not found"),
    ErrorRow(0xC1, E.PATH_MISMATCH, "path does not fit the document"),
    ErrorRow(0xC2, E.PATH_INVALID, "path is invalid"),
    ErrorRow(0xC3, E.PATH_TOO_BIG, "path is too big"),
    ErrorRow(0xC4, E.PATH_TOO_DEEP, "document is too deep"),
    ErrorRow(0xC5, E.VALUE_INVALID, "value cannot be inserted"),
    ErrorRow(0xC6, E.DOCUMENT_NOT_JSON, "document is not JSON"),
    ErrorRow(0xC7, E.NUMBER_TOO_BIG, "number is out of range"),
    ErrorRow(0xC8, E.DELTA_INVALID, "delta is out of range"),
    ErrorRow(0xC9, E.PATH_EXISTS, "path exists"),
    ErrorRow(0xCA, E.VALUE_TOO_DEEP, "value is too deep"),
    ErrorRow(0xCB, E.INVALID_ARGUMENT, "invalid combination of paths"),
    # Each path has a status of its own.
    ErrorRow(0xCC, None, "some paths failed"),
    ErrorRow(0xCD, None, "success, on a deleted document"),
    ErrorRow(0xCE, E.INVALID_ARGUMENT, "invalid combination of extended attributes' flags"),
    ErrorRow(0xCF, E.XATTR_INVALID_KEY_COMBO, "invalid combination of extended attributes"),
    ErrorRow(0xD0, E.XATTR_UNKNOWN_MACRO, "unknown macro"),
    ErrorRow(0xD1, E.XATTR_UNKNOWN_VIRTUAL_ATTRIBUTE, "unknown virtual attribute"),
    ErrorRow(0xD2, E.XATTR_CANNOT_MODIFY_VIRTUAL_ATTRIBUTE, "virtual attribute cannot be modified"),
    ErrorRow(0xD3, None, "some paths failed, on a deleted document"),
)

#: RFC 0058's meaning of a status. 0x02 is a mismatch only if the request carried a CAS; see `classify_kv`.
ERRORS: Mapping[int, ErrorRow] = MappingProxyType({row.status: row for row in _ERROR_ROWS})


def is_known(status: int) -> bool:
    """Return True if the client has a status in its table, so that the server's error map is not used."""
    return status in ERRORS


def classify_kv(
    status: int,
    operation: str,
    *,
    cas: int | None = None,
    error_map: ErrorMap | None = None,
    profile: Profile = Profile.EXTENDED,
) -> Verdict:
    """Return the verdict on a response of the key-value service.

    The stage is `redrive.policy.Stage.ANSWERED`; only an ambiguous durable write (0xa3) leaves its effect open.

    Args:
        status: of the response, 0 to 0xffff.
        operation: a name of `redrive.contrib.couchbase.operations.OPERATIONS`; any other counts as an ordinary one.
        cas: of the request; 0 for none, None if unknown.
        error_map: the error map of the node that answered, if there is one.
        profile: the set of rules.
    """
    known = ERRORS.get(status)
    if known is None:
        return verdict_of_entry(status, error_map)
    if known.error is None:
        return SUCCESS
    retry = _retry_row(status, operation, profile)
    return Verdict(
        reason=retry.reason if retry else None,
        error=_error(known, operation, cas),
        stage=known.stage,
        detail=f"{known.name} (status 0x{status:02x})",
        closes=known.closes,
        refreshes=retry is not None and retry.refreshes,
    )


def _retry_row(status: int, operation: str, profile: Profile) -> RetryRow | None:
    row = RETRIES.get(status)
    known = OPERATIONS.get(operation)
    if row is None or operation in row.not_for or (known is not None and known.family in _NO_RETRY[profile]):
        return None
    if profile is Profile.EXTENDED:
        return None if operation in row.not_for_extended else row
    return None if row.extended_only else row


def _error(row: ErrorRow, operation: str, cas: int | None) -> SdkError | None:
    if row.status == _EXISTS and cas == 0:
        return SdkError.DOCUMENT_EXISTS
    return dict(row.instead).get(operation, row.error)
