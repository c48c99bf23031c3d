"""Errors of requests that end without an answer of their own."""

from __future__ import annotations

from datetime import timedelta

from redrive.errors.base import RedriveError

__all__ = [
    "AmbiguousTimeout",
    "AuthenticationFailure",
    "CircuitOpen",
    "ClientClosed",
    "CollectionNotFound",
    "OutcomeUnknown",
    "Overloaded",
    "RequestCancelled",
    "RequestError",
    "ScopeNotFound",
    "TerminalFailure",
    "TooManyInRetry",
    "UnambiguousTimeout",
]


class RequestError(RedriveError):
    """The request has ended without an answer."""

    # `__retry__` has the attempts, the reasons and the endpoint of the request.


class OutcomeUnknown(RequestError):
    """It is unknown whether the request took effect."""


class AmbiguousTimeout(OutcomeUnknown, TimeoutError):
    """The time was up, and it is unknown whether the request took effect."""


class UnambiguousTimeout(RequestError, TimeoutError):
    """The time was up, and the request did not take effect."""


class RequestCancelled(RequestError):
    """The request is not sent again."""

    default_cancellation = "CANCELLED"

    def __init__(
        self, message: str | None = None, *, cancellation: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        #: The reason, as a stable word: ``NO_MORE_RETRIES``, ``CANCELLED``, ``SHUTDOWN``,
        #: ``TOO_MANY_REQUESTS_IN_RETRY``.
        self.cancellation = cancellation or self.default_cancellation
        #: Name of the reason that was not retried, or None.
        self.reason = reason


class ClientClosed(RequestCancelled):
    """The client was closed while the request waited for its next attempt."""

    default_cancellation = "SHUTDOWN"


class TooManyInRetry(RequestCancelled):
    """Too many requests wait for their next attempt already."""

    default_cancellation = "TOO_MANY_REQUESTS_IN_RETRY"


class CircuitOpen(RequestError):
    """The circuit breaker of the endpoint is open; the request was not sent."""

    def __init__(
        self, message: str | None = None, *, retry_after: timedelta | None = None, permit: object = None
    ) -> None:
        super().__init__(message)
        #: The earliest time until the breaker admits a request; None if unknown.
        self.retry_after = retry_after
        #: `redrive.orchestrator.Permit` of the probe that the client must send, or None.
        self.permit = permit


class Overloaded(RequestError):
    """The target refuses too many calls; this one was not sent."""

    def __init__(self, message: str | None = None, *, rejection: float = 0.0) -> None:
        super().__init__(message)
        #: The present share of calls that are refused so, from 0 to 1.
        self.rejection = rejection


class TerminalFailure(RequestError):
    """The request failed from a permanent cause."""


class AuthenticationFailure(TerminalFailure):
    """The credentials were refused."""


class CollectionNotFound(TerminalFailure):
    """There is no such collection."""


class ScopeNotFound(TerminalFailure):
    """There is no such scope."""
