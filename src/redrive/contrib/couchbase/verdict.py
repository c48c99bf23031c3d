"""The result of classifying a response, an exception or a lost connection, for all tables of this package.

RFC 0049 requires three decisions after a failed dispatch: whether the retry orchestrator is asked, and with which
reason; the error of the caller if there is no retry; and whether the server has answered. A `Verdict` contains them,
and the actions that some responses require of the owner of the connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum

from redrive.orchestrator.reason import RetryReason
from redrive.policy import Failure, Stage

#: The reason of a write with an unknown outcome, also where the service has a reason of its own for reads.
#:
#: A client may hand on the name of the reason only, as RFC 0049's own interface does. The name alone must then state
#: that the write may not be repeated.
LOST = "SOCKET_CLOSED_WHILE_IN_FLIGHT"


class Profile(Enum):
    """The set of rules."""

    STRICT = "strict"
    """RFC 0049, revision 13, without additions."""
    EXTENDED = "extended"
    """RFC 0049 and what has been learned since."""


class SdkError(StrEnum):
    """The errors that an application sees, by the names of RFC 0058 (those that some row of a table gives)."""

    AMBIGUOUS_TIMEOUT = "AmbiguousTimeout"
    AUTHENTICATION_FAILURE = "AuthenticationFailure"
    BUCKET_NOT_FLUSHABLE = "BucketNotFlushable"
    CAS_MISMATCH = "CasMismatch"
    COLLECTION_NOT_FOUND = "CollectionNotFound"
    COMPILATION_FAILURE = "CompilationFailure"
    COUCHBASE_EXCEPTION = "CouchbaseException"
    DATASET_EXISTS = "DatasetExists"
    DATASET_NOT_FOUND = "DatasetNotFound"
    DATAVERSE_EXISTS = "DataverseExists"
    DATAVERSE_NOT_FOUND = "DataverseNotFound"
    DELTA_INVALID = "DeltaInvalid"
    DML_FAILURE = "DmlFailure"
    DOCUMENT_EXISTS = "DocumentExists"
    DOCUMENT_LOCKED = "DocumentLocked"
    DOCUMENT_NOT_FOUND = "DocumentNotFound"
    DOCUMENT_NOT_JSON = "DocumentNotJson"
    DOCUMENT_NOT_LOCKED = "DocumentNotLocked"
    DURABILITY_AMBIGUOUS = "DurabilityAmbiguous"
    DURABILITY_IMPOSSIBLE = "DurabilityImpossible"
    DURABILITY_LEVEL_NOT_AVAILABLE = "DurabilityLevelNotAvailable"
    DURABLE_WRITE_IN_PROGRESS = "DurableWriteInProgress"
    DURABLE_WRITE_RE_COMMIT_IN_PROGRESS = "DurableWriteReCommitInProgress"
    FEATURE_NOT_AVAILABLE = "FeatureNotAvailable"
    INDEX_EXISTS = "IndexExists"
    INDEX_FAILURE = "IndexFailure"
    INDEX_NOT_FOUND = "IndexNotFound"
    INTERNAL_SERVER_FAILURE = "InternalServerFailure"
    INVALID_ARGUMENT = "InvalidArgument"
    INVALID_CREDENTIAL = "InvalidCredential"
    JOB_QUEUE_FULL = "JobQueueFull"
    LINK_NOT_FOUND = "LinkNotFound"
    NOT_STORED = "NotStored"
    NUMBER_TOO_BIG = "NumberTooBig"
    PARSING_FAILURE = "ParsingFailure"
    PATH_EXISTS = "PathExists"
    PATH_INVALID = "PathInvalid"
    PATH_MISMATCH = "PathMismatch"
    PATH_NOT_FOUND = "PathNotFound"
    PATH_TOO_BIG = "PathTooBig"
    PATH_TOO_DEEP = "PathTooDeep"
    PLANNING_FAILURE = "PlanningFailure"
    PREPARED_STATEMENT_FAILURE = "PreparedStatementFailure"
    QUERY_ERROR = "QueryError"
    QUOTA_LIMITED = "QuotaLimited"
    RATE_LIMITED = "RateLimited"
    REQUEST_CANCELED = "RequestCanceled"
    SCOPE_NOT_FOUND = "ScopeNotFound"
    SERVICE_NOT_AVAILABLE = "ServiceNotAvailable"
    TEMPORARY_FAILURE = "TemporaryFailure"
    TIMEOUT = "Timeout"
    UNAMBIGUOUS_TIMEOUT = "UnambiguousTimeout"
    UNSUPPORTED_OPERATION = "UnsupportedOperation"
    VALUE_INVALID = "ValueInvalid"
    VALUE_TOO_DEEP = "ValueTooDeep"
    VALUE_TOO_LARGE = "ValueTooLarge"
    VIEW_NOT_FOUND = "ViewNotFound"
    XATTR_CANNOT_MODIFY_VIRTUAL_ATTRIBUTE = "XattrCannotModifyVirtualAttribute"
    XATTR_INVALID_KEY_COMBO = "XattrInvalidKeyCombo"
    XATTR_NO_ACCESS = "XattrNoAccess"
    XATTR_UNKNOWN_MACRO = "XattrUnknownMacro"
    XATTR_UNKNOWN_VIRTUAL_ATTRIBUTE = "XattrUnknownVirtualAttribute"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The classification of a failed dispatch."""

    #: The reason for the retry orchestrator; None: it must not be asked.
    reason: str | None
    #: The error of the caller if there is no retry; None: the request has not failed.
    error: SdkError | None
    #: The progress of the request. `Stage.ANSWERED` is a definite answer, after which a timeout is unambiguous.
    stage: Stage = Stage.ANSWERED
    #: The server's text, for the error's message.
    detail: str = ""
    #: True if the connection is in an unknown state and must be closed; other requests in flight on it are lost.
    closes: bool = False
    #: True if a newer cluster configuration must be fetched before the next dispatch.
    refreshes: bool = False
    #: True if the cached plan is void: evict it and prepare anew, which is another request, instead of resending.
    prepares: bool = False
    #: The earliest time of the next request, as a delay; a lower bound that jitter does not shorten.
    after: timedelta | None = None

    @property
    def repeats_mutations(self) -> bool | None:
        """True if a non-idempotent request may be sent again; None where no request may be sent again.

        It requires that the reason allows it (RFC 0049's flag) and that the request is known not to have taken effect.
        """
        if self.reason is None:
            return None
        return RetryReason.of(self.reason).allows_non_idempotent_retry and self.stage is not Stage.IN_FLIGHT

    def permits(self, *, idempotent: bool) -> bool:
        """Return True if a retry of an idempotent, or not idempotent, request is safe, before any strategy."""
        return self.reason is not None and (idempotent or bool(self.repeats_mutations))

    def failure(self) -> Failure:
        """The failure for `redrive.Policy.decide`: reason, stage and hint.

        A verdict without a reason is a failure that no policy may retry.
        """
        return Failure(
            (),
            self.detail or str(self.error),
            self.reason or "ERROR",
            self.stage,
            self.after,
            candidate=self.reason is not None,
        )

    def classified(self) -> Failure | None:
        """Return the failure for `redrive.orchestrator.Orchestrator`, as its classifier or an error's ``retry_reason``.

        None if the orchestrator must not be asked.
        """
        return None if self.reason is None else self.failure()


#: Nothing has failed.
SUCCESS = Verdict(None, None)
