"""What a response, an exception or a lost connection comes to: the one answer that all tables of this package give.

RFC 0049 asks a client three questions after a failed dispatch. Shall the retry orchestrator hear of it, and under which
reason? What does the caller get if there is no retry? And did the server say no, or did it say nothing? A `Verdict` is
the three answers, and the few duties that some responses bring along. It is data: whoever owns the connection and the
clock acts on it.

Two profiles read the same tables:

* **strict**: RFC 0049 to the letter, revision 13. What it does not list is not retried.
* **extended**: what the SDKs and the later RFCs have learned since: 0x85 and 0x8c of the key-value service, the
  ``retry`` flag of query errors, texts with other blanks than the RFC's literals.

Rows that name no profile belong to both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum

from redrive.orchestrator.reason import RetryReason
from redrive.policy import Failure, Stage

__all__ = ["LOST", "SUCCESS", "Profile", "SdkError", "Verdict"]

LOST = "SOCKET_CLOSED_WHILE_IN_FLIGHT"
"""The reason of a write whose outcome is not known, also where the service has a reason of its own for reads.

A client may hand on the name of the reason and nothing else, as RFC 0049's own interface does. The name alone must
then say that the write may not be repeated.
"""


class Profile(Enum):
    """Whose rules apply."""

    STRICT = "strict"
    """RFC 0049, revision 13, and nothing else."""
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
    """What a failed dispatch comes to.

    Attributes:
        reason: the reason under which the retry orchestrator is asked; None: it must not be asked at all.
        error: what the caller gets if there is no retry; None: nothing has failed.
        stage: how far the request got. `Stage.ANSWERED` is a definite answer, after which a timeout is unambiguous.
        detail: what the server said, for the error's message.
        closes: the connection is in an unknown state and must be closed; whatever else is in flight on it is lost.
        refreshes: a newer cluster configuration must be fetched before the next dispatch.
        prepares: the cached plan is void: evict it and prepare anew, which is another request, instead of resending.
        after: the server asks not to be asked earlier than this; a floor, never jittered down.
    """

    reason: str | None
    error: SdkError | None
    stage: Stage = Stage.ANSWERED
    detail: str = ""
    closes: bool = False
    refreshes: bool = False
    prepares: bool = False
    after: timedelta | None = None

    @property
    def repeats_mutations(self) -> bool | None:
        """Whether a request that is not idempotent may be sent again; None where nothing may be sent again.

        Both must hold: the reason allows it (RFC 0049's flag), and the request is known not to have taken effect.
        """
        if self.reason is None:
            return None
        return RetryReason.of(self.reason).allows_non_idempotent_retry and self.stage is not Stage.IN_FLIGHT

    def permits(self, *, idempotent: bool) -> bool:
        """Whether a retry is safe, strategies aside.

        Args:
            idempotent: whether the request is.
        """
        return self.reason is not None and (idempotent or bool(self.repeats_mutations))

    def failure(self) -> Failure:
        """The same as data for `redrive.Policy.decide`: reason, stage and hint.

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
        """The same for `redrive.orchestrator.Orchestrator`, as its classifier or an error's ``retry_reason``.

        None tells the orchestrator that this is none of its business.
        """
        return None if self.reason is None else self.failure()


SUCCESS = Verdict(None, None)
"""Nothing has failed."""
