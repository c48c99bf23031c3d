"""The progress of a call before it failed, as exceptions prove it (RFC 0049).

=============================================================  ===========  ============================================
exception                                                      stage        reason
=============================================================  ===========  ============================================
``ConnectionRefusedError``, ``socket.gaierror``, ``herror``    not sent     there was no connection
``ssl.SSLCertVerificationError``                               not sent     the handshake ends before the request
`TimeoutError`, ``trio.TooSlowError``                          in flight    no answer came; the call may have arrived
``ConnectionResetError``, `BrokenPipeError`,                   in flight    the connection was lost
``ConnectionAbortedError``
other ``ssl.SSLError``                                         in flight    the connection was lost
``http.client.RemoteDisconnected``, ``IncompleteRead`` and     in flight    the answer is missing, or cannot be read
others of the table below
all of these, raised while a connection was opened             not sent     the traceback proves it (`_OPENING`)
every other exception                                          answered     as is a bare ``OSError`` or
                                                                            ``ConnectionError``
=============================================================  ===========  ============================================

Subclasses have the stage of their base class. An exception also has the stage of its origins: of its explicit causes
(``raise Declined from error``), of exceptions among its arguments (``urllib.error.URLError``, requests, urllib3,
httpcore), and of the leaves of a group. If one of them was in flight, the whole call was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from types import TracebackType
from typing import TypeVar, cast

from redrive.errors.foreign import cause_of, is_a

T = TypeVar("T")


class Stage(Enum):
    """The progress of a call before it failed (RFC 0049: Client Dispatch, Network Time, Response Received)."""

    NOT_SENT = "not_sent"
    """It was never sent: nothing can have happened."""
    IN_FLIGHT = "in_flight"
    """It was sent and no answer came: its effect is unknown."""
    ANSWERED = "answered"
    """The other side refused it; local exceptions have this stage, too."""


_NOT_SENT, _IN_FLIGHT, _ANSWERED = Stage.NOT_SENT, Stage.IN_FLIGHT, Stage.ANSWERED

#: The class of a certificate that was not trusted.
DISTRUSTED = "ssl.SSLCertVerificationError"

# By name, so that no module has to be imported, and so that a failure from another process has the same stage.
_STAGES = {
    "builtins.ConnectionRefusedError": _NOT_SENT,
    "socket.gaierror": _NOT_SENT,
    "socket.herror": _NOT_SENT,
    DISTRUSTED: _NOT_SENT,
    "builtins.TimeoutError": _IN_FLIGHT,
    "builtins.ConnectionResetError": _IN_FLIGHT,
    "builtins.BrokenPipeError": _IN_FLIGHT,
    "builtins.ConnectionAbortedError": _IN_FLIGHT,
    "ssl.SSLError": _IN_FLIGHT,
    "http.client.BadStatusLine": _IN_FLIGHT,
    "http.client.IncompleteRead": _IN_FLIGHT,
    "http.client.LineTooLong": _IN_FLIGHT,
    "http.client.UnknownProtocol": _IN_FLIGHT,
    "asyncio.exceptions.IncompleteReadError": _IN_FLIGHT,
    "smtplib.SMTPServerDisconnected": _IN_FLIGHT,
    # redrive's own: refused before the call, unknown, and what is certain although it is a `TimeoutError`.
    "redrive.errors.CircuitOpen": _NOT_SENT,
    "redrive.errors.Overloaded": _NOT_SENT,
    "redrive.errors.OutcomeUnknown": _IN_FLIGHT,
    "redrive.errors.UnambiguousTimeout": _ANSWERED,
    "redrive.errors.TimedOut": _ANSWERED,
    # The same of other libraries, as far as they have no built-in exception as their origin.
    "trio.TooSlowError": _IN_FLIGHT,
    "httpx.RemoteProtocolError": _IN_FLIGHT,
    "aiohttp.client_exceptions.ServerDisconnectedError": _IN_FLIGHT,
}

# Classes with their origin among their arguments and not as their cause.
_WRAPPERS = frozenset({"urllib.error.URLError", "requests.exceptions.RequestException", "urllib3.exceptions.HTTPError"})

# Functions that open a connection, by module and qualified name: while one of them runs, nothing was sent.
_OPENING = frozenset(
    {
        ("socket", "create_connection"),
        ("ssl", "SSLSocket.do_handshake"),
        ("http.client", "HTTPConnection.connect"),
        ("asyncio.base_events", "BaseEventLoop.create_connection"),
        ("asyncio.selector_events", "BaseSelectorEventLoop.sock_connect"),
        ("asyncio.unix_events", "_UnixSelectorEventLoop.create_unix_connection"),
        ("trio._highlevel_open_tcp_stream", "open_tcp_stream"),
        ("urllib3.util.connection", "create_connection"),
        # They wait for leave to call.
        ("redrive.retrying.limiter", "Limiter._await_in_thread"),
        ("redrive.retrying.limiter", "Limiter._reserve"),
    }
)


def _reader(name: str, kind: type[T]) -> Callable[[BaseException], T | None]:  # noqa: ARG001 - for its type
    """Return a function that reads an attribute without the look-up of the user's class, which may raise."""
    return cast("Callable[[BaseException], T | None]", BaseException.__dict__[name].__get__)


_traceback = _reader("__traceback__", TracebackType)
_arguments = _reader("args", tuple)
_leaves = cast("Callable[[BaseException], tuple[BaseException, ...]]", vars(BaseExceptionGroup)["exceptions"].__get__)


def stage_of_class(types: tuple[str, ...]) -> tuple[Stage, bool]:
    """Return the stage that the names of a class and its bases prove, and True if no single exception differs.

    An exception with a cause may differ all the same.
    """
    stage = next((_STAGES[name] for name in types if name in _STAGES), _ANSWERED)
    return stage, stage is not _IN_FLIGHT and DISTRUSTED not in types and _WRAPPERS.isdisjoint(types)


def stage_of(exception: BaseException) -> Stage:
    """Return the stage that an exception and its origins prove."""
    found = {stage_of_one(link) for link in origins(exception)} - {None}
    if _IN_FLIGHT in found:
        return _IN_FLIGHT
    return _NOT_SENT if found == {_NOT_SENT} else _ANSWERED


def is_distrusted(exception: BaseException) -> bool:
    """Return True if an exception, or an origin of it, is a certificate that was not trusted."""
    return any(DISTRUSTED in _names(link) for link in origins(exception))


def origins(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its origins: explicit causes, exceptions among its arguments, leaves of groups."""
    seen: set[int] = set()
    waiting: list[BaseException] = [exception]
    while waiting:
        link = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        inner = _leaves(link) if is_a(link, BaseExceptionGroup) else _arguments(link) or ()
        waiting += [each for each in (cause_of(link), *inner) if is_a(each, BaseException)]


def stage_of_one(link: BaseException) -> Stage | None:
    """Return the stage that one exception proves by itself; None if it proves nothing."""
    stage = next((_STAGES[name] for name in _names(link) if name in _STAGES), None)
    if stage is not _IN_FLIGHT:
        return stage
    # The `TimeoutError` of a timeout is raised outside of it, from the cancellation that was raised inside.
    cause = cause_of(link)
    opening = _opens(_traceback(link)) or (cause is not None and _opens(_traceback(cause)))
    return _NOT_SENT if opening else _IN_FLIGHT


def _opens(place: TracebackType | None) -> bool:
    """Return True if a traceback ends inside of a function that opens a connection."""
    while place is not None:
        frame = place.tb_frame
        if (frame.f_globals.get("__name__"), frame.f_code.co_qualname) in _OPENING:
            return True
        place = place.tb_next
    return False


def _names(link: BaseException) -> Iterator[str]:
    return (f"{kind.__module__}.{kind.__qualname__}" for kind in type(link).__mro__)
