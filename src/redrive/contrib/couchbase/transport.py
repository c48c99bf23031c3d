"""Failures without a response: connections that could not be made, broke, or were full.

The decision depends on whether the request had been sent. RFC 0049 calls the two stages *client dispatch* and *network
time*. Before, every request may be repeated; after, only idempotent ones. A request counts as sent if its first byte
may have been written, with one exception: a key-value frame that was cut short has its length in its header, so the
server waits for the rest and never executes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

from redrive.contrib.couchbase.verdict import LOST, SUCCESS, SdkError, Verdict
from redrive.policy import Failure, Stage

E = SdkError
_NONE_AVAILABLE = "SOCKET_NOT_AVAILABLE"


#: Events of a connection while a request waits for it, by name.
EVENTS: Mapping[str, Verdict] = MappingProxyType(
    {
        "connection refused": Verdict(_NONE_AVAILABLE, E.REQUEST_CANCELED, Stage.NOT_SENT),
        "connect timeout": Verdict(_NONE_AVAILABLE, E.UNAMBIGUOUS_TIMEOUT, Stage.NOT_SENT),
        "not resolved": Verdict(_NONE_AVAILABLE, E.REQUEST_CANCELED, Stage.NOT_SENT),
        "closed before write": Verdict(_NONE_AVAILABLE, E.REQUEST_CANCELED, Stage.NOT_SENT),
        "closed in flight": Verdict(LOST, E.REQUEST_CANCELED, Stage.IN_FLIGHT, closes=True),
        "timeout in flight": Verdict(LOST, E.TIMEOUT, Stage.IN_FLIGHT, closes=True),
        "short write": Verdict("MEMD_WRITE_FAILURE", E.REQUEST_CANCELED, Stage.NOT_SENT, closes=True),
        "queue full": Verdict("PIPELINE_OVERLOADED", E.REQUEST_CANCELED, Stage.NOT_SENT),
        "no active node": Verdict("NODE_NOT_AVAILABLE", E.REQUEST_CANCELED, Stage.NOT_SENT),
        "no such service": Verdict("SERVICE_NOT_AVAILABLE", E.SERVICE_NOT_AVAILABLE, Stage.NOT_SENT),
        "circuit open": Verdict("CIRCUIT_BREAKER_OPEN", E.REQUEST_CANCELED, Stage.NOT_SENT),
        # The stream is out of step.
        "unknown opaque": Verdict(LOST, E.REQUEST_CANCELED, Stage.IN_FLIGHT, closes=True),
        "authentication failed": Verdict("AUTHENTICATION_ERROR", E.AUTHENTICATION_FAILURE, Stage.NOT_SENT),
        "tls failed": Verdict("TLS_ERROR", E.COUCHBASE_EXCEPTION, Stage.NOT_SENT),
        # RFC 9113, 6.8 and 8.7.
        "stream not processed": Verdict(_NONE_AVAILABLE, E.REQUEST_CANCELED, Stage.NOT_SENT),
    }
)


def classify_event(event: str) -> Verdict:
    """Return the verdict on an event of `EVENTS`."""
    return replace(EVENTS[event], detail=event)


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
    error: SdkError = E.COUCHBASE_EXCEPTION


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
    ExceptionRow("httpx.UnsupportedProtocol", "", error=E.INVALID_ARGUMENT),
    ExceptionRow("httpx.LocalProtocolError", "", error=E.INVALID_ARGUMENT),
    ExceptionRow("httpx.TimeoutException", "timeout in flight"),
    # Broken connections, invalid responses.
    ExceptionRow("httpx.TransportError", "closed in flight"),
    ExceptionRow("httpx.InvalidURL", "", error=E.INVALID_ARGUMENT),
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
    """Return the verdict on an exception of an HTTP client or of a socket; one without a row is not retried."""
    # The classes of httpx2 are those of httpx.
    names = {name.replace("httpx2.", "httpx.", 1) for name in failure.types}
    for row in EXCEPTIONS:
        if row.name in names and re.search(row.message, failure.message):
            known = EVENTS[row.event] if row.event else Verdict(None, row.error)
            return replace(known, detail=failure.message)
    return Verdict(None, E.COUCHBASE_EXCEPTION, detail=failure.message)


#: The HTTP statuses that mean ``SERVICE_RESPONSE_CODE_INDICATED``, with the progress of the request that they prove.
HTTP_STATUSES: Mapping[int, Stage] = MappingProxyType(
    {
        # RFC 9110, 15.5.20: sent to the wrong server, which has refused it.
        421: Stage.ANSWERED,
        # RFC 6585: refused before any work.
        429: Stage.ANSWERED,
        **dict.fromkeys((502, 503, 504), Stage.IN_FLIGHT),
    }
)

_FAILURES = range(400, 600)


def classify_http_status(
    status: int, *, idempotent: bool, after: timedelta | None = None, refusals: Iterable[int] = ()
) -> Verdict:
    """Return the verdict on an HTTP status of a service without a list; no reason if a retry could repeat an effect.

    Args:
        status: of the response.
        idempotent: whether the request is; for Couchbase's own services only GET is (RFC 0071).
        after: its Retry-After, counted from now.
        refusals: statuses by which the service promises that it has done nothing.
    """
    detail = f"HTTP status {status}"
    stage = HTTP_STATUSES.get(status)
    if stage is None:
        return Verdict(None, E.COUCHBASE_EXCEPTION, detail=detail) if status in _FAILURES else SUCCESS
    if status in frozenset(refusals):
        stage = Stage.ANSWERED
    verdict = Verdict("SERVICE_RESPONSE_CODE_INDICATED", E.COUCHBASE_EXCEPTION, stage, detail, after=after)
    return verdict if verdict.permits(idempotent=idempotent) else replace(verdict, reason=None)
