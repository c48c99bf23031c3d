"""What an error of gRPC's library proves: how far its call got, and when the server wants to be asked again.

``UNAVAILABLE`` is what the server says when it is overloaded, what a proxy says when it has lost the server, and what
the library says when it found nobody to send to, or lost the connection with the call on it. Only one of these may be
repeated without thought. What the library offers to tell them apart is little:

=====================================================  ==========================================================
what is seen                                           what it proves
=====================================================  ==========================================================
the details say that no connection could be made, and  not sent. Together, since either alone is no proof: the
the channel was not connected before nor after, or     details are text, which a gateway may have handed on from
they name the very address that it was made for        a call of its own; and a connection may come and go
``grpc-retry-pushback-ms``, or a ``RetryInfo``, with   answered: no library makes them up, and the server would
a time                                                 not invite to a call that it had carried out
custom metadata before the answer                      the response had begun: committed (gRFC A6)
a code that only applications use                      answered (`redrive.contrib.grpc.Code.stage`)
anything else                                          nothing: in flight
=====================================================  ==========================================================

Not a proof, although it looks like one: empty metadata (a server that fails at once sends none either), ``Socket
closed`` and ``Connection reset by peer`` (of a connection that may have carried the call), ``DEADLINE_EXCEEDED`` of a
call that waited for a connection (it looks like any other), and the refusal of a stream, which the library reports as
text only.

Nothing here imports the library: an error is what has its methods ``code``, ``details`` and ``trailing_metadata``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from redrive.contrib.grpc.codes import Code
from redrive.contrib.grpc.progress import Progress, failure_of
from redrive.policy import Failure, Stage
from redrive.policy.duration import LONGEST, ZERO

__all__ = ["MARK", "describe", "mark", "retry_info"]

MARK = "redrive_progress"
"""The attribute of an error that says how far its call got, where that was found out."""

_UNREACHED = (
    "failed to connect to all addresses",
    "errors resolving ",  # since 1.70
    "DNS resolution failed",  # before
    "empty address list",
)
_PUSHBACK, _STATUS = "grpc-retry-pushback-ms", "grpc-status-details-bin"
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def mark(error: Any, *, connected: bool, address: str = "") -> None:  # noqa: ANN401 - an error of a library without types
    """Write down on an error how far its call got.

    Args:
        error: of a call that has just failed.
        connected: whether its channel was connected when the call began, or is now.
        address: that the channel was made for, as details name it: ``ipv4:127.0.0.1:50051``; "" if it is a name, which
            nobody but the library has looked up.
    """
    if not hasattr(error, "details"):
        return  # somebody else's, raised by an interceptor behind ours
    if any(True for _ in error.initial_metadata() or ()):
        found = Progress.RESPONSE_HEADERS_RECEIVED
    elif (error.details() or "").startswith(_UNREACHED) and (not connected or _names(error.details(), address)):
        found = Progress.LB_TRANSIENT_FAILURE
    else:
        found = Progress.SEEN_BY_APP
    setattr(error, MARK, found)


def _names(details: str, address: str) -> bool:
    return bool(address) and f" {address}: " in details


def describe(error: BaseException) -> Failure | None:
    """Describe an error of gRPC's library for a policy, as its ``on``.

    Args:
        error: what a call raised: ``grpc.RpcError``, ``grpc.aio.AioRpcError``.

    Returns:
        The failure, with a reason such as ``GRPC_UNAVAILABLE``; None for what is no such error. Where the call was not
        made through a channel of this package, nothing proves that it was not sent.
    """
    code = getattr(error, "code", None)
    said: Any = code() if callable(code) else None
    name = str(getattr(said, "name", ""))
    if name not in Code.__members__:
        return None
    call: Any = error
    trailers: list[tuple[str, Any]] = list(call.trailing_metadata() or ())
    pushback = next((value for key, value in trailers if key == _PUSHBACK), None)
    progress = getattr(error, MARK, Progress.SEEN_BY_APP)
    failure = failure_of(name, progress, pushback=pushback, error=error)
    if failure is None:
        return None
    if pushback is None:
        failure = failure._replace(hint=retry_info(trailers) or failure.hint)
    if failure.hint is not None and progress is Progress.SEEN_BY_APP:
        failure = failure._replace(stage=Stage.ANSWERED)
    return failure._replace(message=f"{name}: {call.details() or 'without details'}")


def retry_info(metadata: Iterable[tuple[str, object]]) -> timedelta | None:
    """The time that a server has put into a ``google.rpc.RetryInfo``.

    Args:
        metadata: behind the answer; the message is in ``grpc-status-details-bin``.

    Returns:
        How long to wait at least; None if there is none, or it cannot be read.
    """
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


# ------------------------------------------------------------------------------------------------- protobuf, a little

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_MORE, _BITS = 0x80, 7
_SIGN, _WHOLE = 1 << 63, 1 << 64


def _fields(message: bytes, number: int) -> Iterator[bytes]:
    """The fields of a message that have this number and hold bytes."""
    for found, value in _walk(message):
        if found == number and isinstance(value, bytes):
            yield value


def _span(duration: bytes) -> timedelta | None:
    """A ``google.protobuf.Duration``; a negative one is none."""
    parts = {number: value for number, value in _walk(duration) if isinstance(value, int)}
    seconds, nanos = (value - _WHOLE if value >= _SIGN else value for value in (parts.get(1, 0), parts.get(2, 0)))
    if seconds >= LONGEST.total_seconds():
        return LONGEST
    span = timedelta(seconds=seconds, microseconds=-(-nanos // 1000))  # rounded up: a hint is never undercut
    return span if span >= ZERO else None


def _walk(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """All fields of a message, by number, in order.

    Raises:
        IndexError: it ends in the middle of one.
        ValueError: it is no message.
    """
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
            raise ValueError(f"{kind} is no type of a field")
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
