"""Classification of the errors of ``grpcio``: how far a call got, and how long the server asks the client to wait.

``UNAVAILABLE`` comes from an overloaded server, from a proxy that has lost its server, and from ``grpcio`` if it could
not connect or lost the connection with the call on it. Only a call that was not sent is always safe to repeat. A call
without evidence is *in flight*: empty metadata, ``Socket closed``, ``Connection reset by peer``, ``DEADLINE_EXCEEDED``
during a connection attempt, and the refusal of a stream, which ``grpcio`` reports as text only, prove nothing.

This module does not import ``grpcio``: it reads the methods ``code``, ``details`` and ``trailing_metadata`` of errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from redrive.contrib.grpc.progress import Code, RpcProgress, failure_of
from redrive.errors.foreign import attribute, set_attribute
from redrive.policy import Failure, Stage
from redrive.policy.duration import LONGEST, ZERO

MARK = "redrive_progress"
"""The attribute of an error with the progress of its call, set by `mark`."""

_UNREACHED = (
    "failed to connect to all addresses",
    # The first since grpcio 1.70, the second before.
    "errors resolving ",
    "DNS resolution failed",
    "empty address list",
)
_PUSHBACK, _STATUS = "grpc-retry-pushback-ms", "grpc-status-details-bin"
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def mark(error: Any, *, connected: bool, address: str = "") -> None:
    """Store on the error of a failed call how far the call got.

    Args:
        error: the error.
        connected: True if its channel was connected when the call began, or is connected now.
        address: the channel's address as error details name it, ``ipv4:127.0.0.1:50051``; "" for a host name.
    """
    # An interceptor behind this one may raise errors of other classes.
    details = _answer(error, "details")
    if details is None and not callable(attribute(error, "details")):
        return
    # Custom metadata before the answer: the response had begun, which commits the call (gRFC A6).
    if any(True for _ in _answer(error, "initial_metadata") or ()):
        found = RpcProgress.RESPONSE_HEADERS_RECEIVED
    # Details of a failed connection attempt alone prove nothing, because a gateway may pass on those of its own call.
    # The state of the channel alone proves nothing either, because a connection may be lost and made anew in between.
    elif (details or "").startswith(_UNREACHED) and (not connected or _names(details, address)):
        found = RpcProgress.LB_TRANSIENT_FAILURE
    else:
        found = RpcProgress.SEEN_BY_APP
    set_attribute(error, MARK, found)


def _names(details: str, address: str) -> bool:
    return bool(address) and f" {address}: " in details


def describe(error: BaseException) -> Failure | None:
    """Describe ``grpc.RpcError`` or ``grpc.aio.AioRpcError`` for a policy, as its ``on``; None for other exceptions.

    The reason is one such as ``GRPC_UNAVAILABLE``. A failure of a call that was not made through a channel of this
    package is never *not sent*.
    """
    name = str(getattr(_answer(error, "code"), "name", ""))
    if name not in Code.__members__:
        return None
    trailers: list[tuple[str, Any]] = list(_answer(error, "trailing_metadata") or ())
    pushback = next((value for key, value in trailers if key == _PUSHBACK), None)
    progress = attribute(error, MARK, RpcProgress.SEEN_BY_APP)
    failure = failure_of(name, progress, pushback=pushback, error=error)
    if failure is None:
        return None
    if pushback is None:
        failure = failure._replace(hint=retry_info(trailers) or failure.hint)
    # No library generates a hint, and a server does not invite the client to repeat a call that it has executed.
    if failure.hint is not None and progress is RpcProgress.SEEN_BY_APP:
        failure = failure._replace(stage=Stage.ANSWERED)
    return failure._replace(message=f"{name}: {_answer(error, 'details') or 'without details'}")


def _answer(error: BaseException, method: str) -> Any:
    """Return the result of a method of an error; None if it has no such method, or if that raises."""
    ask = attribute(error, method)
    try:
        return ask() if callable(ask) else None
    except Exception:  # noqa: BLE001 - an exception that has only the name of that method in common with grpcio's
        return None


def retry_info(metadata: Iterable[tuple[str, object]]) -> timedelta | None:
    """Return the wait in a ``google.rpc.RetryInfo`` of trailing metadata; None if it is missing or malformed."""
    for key, value in metadata:
        if key != _STATUS or not isinstance(value, bytes):
            continue
        try:
            for detail in _fields(value, 3):
                if _RETRY_INFO in _fields(detail, 1):
                    return _span(next(_fields(next(_fields(detail, 2)), 1)))
        except (StopIteration, IndexError, OverflowError, ValueError):
            return None
    return None


# The few rules of the protobuf wire format that a RetryInfo needs; a dependency on protobuf is not worth it.

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_MORE, _BITS = 0x80, 7
_SIGN, _WHOLE = 1 << 63, 1 << 64


def _fields(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the values of a message's byte fields with this number."""
    for found, value in _all_fields(message):
        if found == number and isinstance(value, bytes):
            yield value


def _span(duration: bytes) -> timedelta | None:
    """Parse a ``google.protobuf.Duration``; return None if it is negative."""
    parts = {number: value for number, value in _all_fields(duration) if isinstance(value, int)}
    seconds, nanos = (value - _WHOLE if value >= _SIGN else value for value in (parts.get(1, 0), parts.get(2, 0)))
    if seconds >= LONGEST.total_seconds():
        return LONGEST
    # Rounded up, so that the wait is never shorter than the hint.
    span = timedelta(seconds=seconds, microseconds=-(-nanos // 1000))
    return span if span >= ZERO else None


def _all_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of all fields of a message; raise IndexError or ValueError if it is malformed."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            raise ValueError(f"{kind} is not a protobuf wire type")
        if at + length > len(message):
            raise IndexError(length)
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] & _MORE:
        value |= (message[at] & ~_MORE & 0xFF) << shift
        at, shift = at + 1, shift + _BITS
    return value | message[at] << shift, at + 1
