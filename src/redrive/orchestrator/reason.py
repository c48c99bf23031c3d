"""The reasons of RFC 0049: those of `redrive.policy`, with a parser for the spellings of the SDKs."""

from __future__ import annotations

from typing import ClassVar

from redrive.policy import Reason


class RetryReason(Reason):
    """A reason with its two flags; equal to the `redrive.policy.Reason` of the same name.

    The twenty reasons of RFC 0049 are attributes, such as ``RetryReason.KV_LOCKED``; `of` and `parse` return all.
    """

    __slots__ = ()

    UNKNOWN: ClassVar[RetryReason]
    SOCKET_NOT_AVAILABLE: ClassVar[RetryReason]
    SERVICE_NOT_AVAILABLE: ClassVar[RetryReason]
    NODE_NOT_AVAILABLE: ClassVar[RetryReason]
    KV_NOT_MY_VBUCKET: ClassVar[RetryReason]
    KV_COLLECTION_OUTDATED: ClassVar[RetryReason]
    KV_ERROR_MAP_RETRY_INDICATED: ClassVar[RetryReason]
    KV_LOCKED: ClassVar[RetryReason]
    KV_TEMPORARY_FAILURE: ClassVar[RetryReason]
    KV_SYNC_WRITE_IN_PROGRESS: ClassVar[RetryReason]
    KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS: ClassVar[RetryReason]
    SERVICE_RESPONSE_CODE_INDICATED: ClassVar[RetryReason]
    SOCKET_CLOSED_WHILE_IN_FLIGHT: ClassVar[RetryReason]
    CIRCUIT_BREAKER_OPEN: ClassVar[RetryReason]
    QUERY_PREPARED_STATEMENT_FAILURE: ClassVar[RetryReason]
    QUERY_INDEX_NOT_FOUND: ClassVar[RetryReason]
    ANALYTICS_TEMPORARY_FAILURE: ClassVar[RetryReason]
    SEARCH_TOO_MANY_REQUESTS: ClassVar[RetryReason]
    VIEWS_TEMPORARY_FAILURE: ClassVar[RetryReason]
    VIEWS_NO_ACTIVE_PARTITION: ClassVar[RetryReason]

    @staticmethod
    def of(name: str) -> RetryReason:
        """Return the reason with this name; an unknown one has both flags false."""
        return RetryReason(*Reason.of(name))

    @staticmethod
    def register(name: str, *, allows_non_idempotent_retry: bool = False, always_retry: bool = False) -> RetryReason:
        """Register a reason for the whole process; see `redrive.policy.Reason.register`."""
        known = Reason.register(
            name, allows_non_idempotent_retry=allows_non_idempotent_retry, always_retry=always_retry
        )
        _BY_LETTERS[_letters(name)] = name
        return RetryReason(*known)

    @staticmethod
    def parse(text: str) -> RetryReason:
        """Return the reason of a text such as ``KV_LOCKED``, ``KvLocked`` or ``kv_locked``; ``UNKNOWN`` for others."""
        # It may be registered by `Reason.register`.
        exact = RetryReason.of(text)
        if exact.allows_non_idempotent_retry or exact.always_retry:
            return exact
        return RetryReason.of(_BY_LETTERS.get(_letters(text), "UNKNOWN"))


_RFC_0049 = tuple(name for name in RetryReason.__annotations__ if name.isupper())

# The reasons that SDKs have added to the RFC's twenty, with the flags of that SDK, except for two. The Rust SDK repeats
# any request after HTTP_SEND_REQUEST_FAILED; since the request may have been sent, only idempotent ones are repeated
# here. .NET always retries a scope or collection that is not found; the draft of revision 16 leaves that to the
# strategy, as `FailFastOnTerminalError` requires.

# Allow retries of non-idempotent requests; the strategy decides.
_LATER = (
    "AUTHENTICATION_ERROR", "BUCKET_ACCESS_ERROR", "BUCKET_NOT_AVAILABLE", "BUCKET_NOT_FOUND",
    "BUCKET_OPEN_IN_PROGRESS", "COLLECTION_MAP_REFRESH_IN_PROGRESS", "COLLECTION_NOT_FOUND", "CONNECTION_ERROR",
    "ENDPOINT_NOT_AVAILABLE", "ENDPOINT_NOT_WRITABLE", "GLOBAL_CONFIG_LOAD_IN_PROGRESS", "HTTP_CONNECT_FAILED",
    "NO_PIPELINE_SNAPSHOT", "QUERY_ERROR_RETRYABLE", "QUERY_TRANSACTION_BUFFER_FULL", "SCOPE_NOT_FOUND",
    "SEND_QUEUE_FULL", "TLS_ERROR",
)  # fmt: skip
# May have been sent.
_LATER_IN_FLIGHT = ("HTTP_SEND_REQUEST_FAILED",)
_LATER_ALWAYS = (
    "CREDENTIALS_FETCH_FAILED",
    "ENDPOINT_TEMPORARILY_NOT_AVAILABLE",
    "KV_INVALID_VBUCKET_MAP",
    "MEMD_WRITE_FAILURE",
    "NOT_PIPELINED_REQUEST_IN_FLIGHT",
    "NOT_READY",
    "PIPELINE_OVERLOADED",
)
_ALIASES = {
    # The RFC's list of response codes.
    "KV_SYNC_RE_COMMIT_IN_PROGRESS": "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS",
    # The Java SDK.
    "CHANNEL_CLOSED_WHILE_IN_FLIGHT": "SOCKET_CLOSED_WHILE_IN_FLIGHT",
    "ENDPOINT_CIRCUIT_OPEN": "CIRCUIT_BREAKER_OPEN",
    "KV_ERROR_MAP_INDICATED": "KV_ERROR_MAP_RETRY_INDICATED",
    # The Go and C++ SDKs.
    "SOCKET_CLOSE_IN_FLIGHT": "SOCKET_CLOSED_WHILE_IN_FLIGHT",
}


def _letters(text: str) -> str:
    """Return the common form of all spellings of a reason: without case, underscores and the two forms of KV."""
    # KV_LOCKED in the RFC and most SDKs, KvLocked in .NET, kv_locked in texts of C++, key_value_locked in Python.
    bare = "".join(character for character in text.upper() if character.isalnum())
    return "KV" + bare.removeprefix("KEYVALUE") if bare.startswith("KEYVALUE") else bare


_BY_LETTERS = {_letters(alias): name for alias, name in _ALIASES.items()}

for _name in _RFC_0049:
    _BY_LETTERS[_letters(_name)] = _name
    setattr(RetryReason, _name, RetryReason.of(_name))
for _name in _LATER:
    RetryReason.register(_name, allows_non_idempotent_retry=True)
for _name in _LATER_IN_FLIGHT:
    RetryReason.register(_name)
for _name in _LATER_ALWAYS:
    RetryReason.register(_name, always_retry=True)
