"""Failures without a response: connections that could not be made, broke, or were full.

The decision depends on whether the request had been sent. RFC 0049 calls the two stages *client dispatch* and *network
time*. Before, every request may be repeated; after, only idempotent ones. A request counts as sent if its first byte
may have been written, with one exception: a key-value frame that was cut short has its length in its header, so the
server waits for the rest and never executes it.

The exceptions of HTTP clients are recognised by the names of their base classes, so that no client must be installed.
Two of them look as if the request was not sent: a server that disconnects "without sending a response" on a kept-alive
connection, and a timeout while writing. Both are in flight. A failed TLS handshake is raised by httpx as a connection
error; only its text distinguishes it, and a wrong certificate should not be retried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

from redrive.contrib.couchbase.verdict import LOST, SUCCESS, SdkError, Verdict
from redrive.policy import Failure, Stage

__all__ = [
    "EVENTS",
    "EXCEPTIONS",
    "HTTP_STATUSES",
    "EventRow",
    "ExceptionRow",
    "HttpStatusRow",
    "classify_event",
    "classify_exception",
    "classify_http_status",
]

_NONE_AVAILABLE = "SOCKET_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened to a connection while a request waited for it."""

    event: str
    reason: str
    #: How far the request got.
    stage: Stage
    #: The error of the caller if the request is not retried.
    error: SdkError = SdkError.REQUEST_CANCELED
    #: True if the connection must be closed.
    closes: bool = False


#: The events by name.
EVENTS: Mapping[str, EventRow] = MappingProxyType(
    {
        row.event: row
        for row in (
            EventRow("connection refused", _NONE_AVAILABLE, Stage.NOT_SENT),
            EventRow("connect timeout", _NONE_AVAILABLE, Stage.NOT_SENT, SdkError.UNAMBIGUOUS_TIMEOUT),
            EventRow("not resolved", _NONE_AVAILABLE, Stage.NOT_SENT),
            EventRow("closed before write", _NONE_AVAILABLE, Stage.NOT_SENT),
            EventRow("closed in flight", LOST, Stage.IN_FLIGHT, closes=True),
            EventRow("timeout in flight", LOST, Stage.IN_FLIGHT, SdkError.TIMEOUT, closes=True),
            EventRow("short write", "MEMD_WRITE_FAILURE", Stage.NOT_SENT, closes=True),
            EventRow("queue full", "PIPELINE_OVERLOADED", Stage.NOT_SENT),
            EventRow("no active node", "NODE_NOT_AVAILABLE", Stage.NOT_SENT),
            EventRow("no such service", "SERVICE_NOT_AVAILABLE", Stage.NOT_SENT, SdkError.SERVICE_NOT_AVAILABLE),
            EventRow("circuit open", "CIRCUIT_BREAKER_OPEN", Stage.NOT_SENT),
            # The stream is out of step.
            EventRow("unknown opaque", LOST, Stage.IN_FLIGHT, closes=True),
            EventRow("authentication failed", "AUTHENTICATION_ERROR", Stage.NOT_SENT, SdkError.AUTHENTICATION_FAILURE),
            EventRow("tls failed", "TLS_ERROR", Stage.NOT_SENT, SdkError.COUCHBASE_EXCEPTION),
            # RFC 9113, 6.8 and 8.7.
            EventRow("stream not processed", _NONE_AVAILABLE, Stage.NOT_SENT),
        )
    }
)


def classify_event(event: str) -> Verdict:
    """Return the verdict on an event of `EVENTS`."""
    row = EVENTS[event]
    return Verdict(row.reason, row.error, row.stage, detail=event, closes=row.closes)


@dataclass(frozen=True, slots=True)
class ExceptionRow:
    """The event of an exception of an HTTP client or of a socket."""

    #: The qualified name of a class; its subclasses match too.
    name: str
    #: The matching event of `EVENTS`; "" for none: the request is not retried.
    event: str
    #: A pattern that must be found in the text of the exception.
    message: str = ""
    #: The error of the caller where there is no event.
    error: SdkError = SdkError.COUCHBASE_EXCEPTION


_CERTIFICATE = r"\[SSL:|CERTIFICATE_VERIFY_FAILED"

#: The exceptions, the specific before the general; the first row that matches wins.
EXCEPTIONS: tuple[ExceptionRow, ...] = (
    ExceptionRow("ssl.SSLCertVerificationError", "tls failed"),
    ExceptionRow("httpx.ConnectError", "tls failed", message=_CERTIFICATE),
    ExceptionRow("httpx.ConnectError", "connection refused"),
    ExceptionRow("httpx.ConnectTimeout", "connect timeout"),
    ExceptionRow("httpx.PoolTimeout", "connect timeout"),
    # The tunnel was refused, so the request stayed here.
    ExceptionRow("httpx.ProxyError", "connection refused"),
    ExceptionRow("httpx.UnsupportedProtocol", "", error=SdkError.INVALID_ARGUMENT),
    ExceptionRow("httpx.LocalProtocolError", "", error=SdkError.INVALID_ARGUMENT),
    ExceptionRow("httpx.TimeoutException", "timeout in flight"),
    # Broken connections, invalid responses.
    ExceptionRow("httpx.TransportError", "closed in flight"),
    ExceptionRow("httpx.InvalidURL", "", error=SdkError.INVALID_ARGUMENT),
    # Redirects and bodies that cannot be decoded: a response has come.
    ExceptionRow("httpx.HTTPError", ""),
    ExceptionRow("httpx.StreamError", ""),
    ExceptionRow("socket.gaierror", "not resolved"),
    ExceptionRow("builtins.ConnectionRefusedError", "connection refused"),
    ExceptionRow("builtins.ConnectionError", "closed in flight"),
    ExceptionRow("builtins.TimeoutError", "timeout in flight"),
    ExceptionRow("builtins.EOFError", "closed in flight"),
    ExceptionRow("builtins.OSError", "closed in flight"),
)


def classify_exception(failure: Failure) -> Verdict:
    """Judge an exception of an HTTP client or of a socket.

    Returns:
        The verdict. An exception that no row knows is not retried.
    """
    for row in EXCEPTIONS:
        if row.name in failure.types and re.search(row.message, failure.message):
            if row.event:
                verdict = classify_event(row.event)
                return Verdict(verdict.reason, verdict.error, verdict.stage, failure.message, closes=verdict.closes)
            return Verdict(None, row.error, detail=failure.message)
    return Verdict(None, SdkError.COUCHBASE_EXCEPTION, detail=failure.message)


@dataclass(frozen=True, slots=True)
class HttpStatusRow:
    """An HTTP status that asks for another attempt, where the service has no list of its own."""

    status: int
    #: The progress of the request that the status proves.
    stage: Stage


#: The statuses that mean ``SERVICE_RESPONSE_CODE_INDICATED``.
HTTP_STATUSES: Mapping[int, HttpStatusRow] = MappingProxyType(
    {
        row.status: row
        for row in (
            # RFC 9110, 15.5.20: sent to the wrong server, which has refused it.
            HttpStatusRow(421, Stage.ANSWERED),
            # RFC 6585: refused before any work.
            HttpStatusRow(429, Stage.ANSWERED),
            HttpStatusRow(502, Stage.IN_FLIGHT),
            HttpStatusRow(503, Stage.IN_FLIGHT),
            HttpStatusRow(504, Stage.IN_FLIGHT),
        )
    }
)

_FAILURES = range(400, 600)


def classify_http_status(
    status: int, *, idempotent: bool, after: timedelta | None = None, refusals: Iterable[int] = ()
) -> Verdict:
    """Judge an HTTP status of a service that has no list of its own.

    Args:
        status: of the response.
        idempotent: whether the request is; for Couchbase's own services only GET is (RFC 0071).
        after: its Retry-After, counted from now.
        refusals: statuses by which the service promises that it has done nothing.

    Returns:
        The verdict; no reason if a retry could repeat what has happened.
    """
    row = HTTP_STATUSES.get(status)
    if row is None:
        failed = status in _FAILURES
        return Verdict(None, SdkError.COUCHBASE_EXCEPTION, detail=f"HTTP status {status}") if failed else SUCCESS
    stage = Stage.ANSWERED if status in frozenset(refusals) else row.stage
    verdict = Verdict(
        "SERVICE_RESPONSE_CODE_INDICATED",
        SdkError.COUCHBASE_EXCEPTION,
        stage,
        detail=f"HTTP status {status}",
        after=after,
    )
    if verdict.permits(idempotent=idempotent):
        return verdict
    return Verdict(None, verdict.error, stage, verdict.detail, after=after)
