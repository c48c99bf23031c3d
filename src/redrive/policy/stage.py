"""The progress of a call before it failed, as exceptions prove it (RFC 0049).

=============================================================  ===========  ============================================
exception                                                      stage        reason
=============================================================  ===========  ============================================
``ConnectionRefusedError``, ``socket.gaierror``, ``herror``    not sent     there was no connection
``ssl.SSLCertVerificationError``                               not sent     the handshake ends before the request
`TimeoutError`, ``trio.TooSlowError``,                         in flight    no answer came; the call may have arrived
``multiprocessing.TimeoutError``,
``subprocess.TimeoutExpired``
``ConnectionResetError``, `BrokenPipeError`,                   in flight    the connection was lost
``ConnectionAbortedError``, ``imaplib.IMAP4.abort``
a bare `OSError` with an ``errno`` of `_LOST`                  in flight    the network was lost, in an unknown phase
other ``ssl.SSLError``                                         in flight    the connection was lost
``http.client.HTTPException``, ``RemoteDisconnected``,         in flight    the answer is missing, or cannot be read
``IncompleteRead`` and others of the table below
all of these, raised while a connection was opened             not sent     the traceback proves it (`_OPENING`)
all of these and others of urllib, requests, urllib3 and       in flight    the first request was accepted; proved by
aiohttp, after a redirect of a request that is not safe                     the traceback (`_REDIRECTS`)
every other exception                                          answered     as is any other ``OSError`` or
                                                                            ``ConnectionError``
=============================================================  ===========  ============================================

Subclasses have the stage of their base class. An exception also has the stage of its origins: of its explicit causes
(``raise Declined from error``), of exceptions among the arguments of ``urllib.error.URLError`` and of the classes of
requests and urllib3, of exceptions among the arguments of a cause, and of the leaves of a group. If one of them was in
flight, the whole call was. The arguments of other exceptions have no effect: ``raise Declined(error)`` is answered.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

from redrive.errors.foreign import attribute, cause_of, is_a

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
    # An answer with too many headers is of the base class; these are raised before anything is sent.
    "http.client.HTTPException": _IN_FLIGHT,
    "http.client.ImproperConnectionState": _ANSWERED,
    "http.client.InvalidURL": _ANSWERED,
    "http.client.NotConnected": _ANSWERED,
    "urllib.error.ContentTooShortError": _IN_FLIGHT,
    "asyncio.exceptions.IncompleteReadError": _IN_FLIGHT,
    "asyncio.exceptions.LimitOverrunError": _IN_FLIGHT,
    "concurrent.futures._base.BrokenExecutor": _IN_FLIGHT,
    "imaplib.IMAP4.abort": _IN_FLIGHT,
    "multiprocessing.context.TimeoutError": _IN_FLIGHT,
    "subprocess.TimeoutExpired": _IN_FLIGHT,
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
    "httpx.TooManyRedirects": _IN_FLIGHT,
    "httpx2.RemoteProtocolError": _IN_FLIGHT,
    "httpx2.TooManyRedirects": _IN_FLIGHT,
    "aiohttp.client_exceptions.ServerDisconnectedError": _IN_FLIGHT,
}

# Classes with their origin among their arguments and not as their cause.
_WRAPPERS = frozenset({"urllib.error.URLError", "requests.exceptions.RequestException", "urllib3.exceptions.HTTPError"})

# The numbers of a bare `OSError` that stand for a lost network. A connection that is open may raise each of them, too.
_LOST = frozenset(
    {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ENOTCONN}
)

# Methods of HTTP without an effect that a repetition would have again.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

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
        ("urllib3.connection", "HTTPConnection.connect"),
        ("urllib3.connection", "HTTPSConnection.connect"),
        ("aiohttp.connector", "BaseConnector.connect"),
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


# Functions that follow a redirect, by module and qualified name, and how to read the method of the first request from
# their local variables: None if there was no redirect, "" if its method is unknown.
_REDIRECTS: dict[tuple[object, str], Callable[[dict[str, Any]], str | None]] = {
    ("urllib.request", "HTTPRedirectHandler.http_error_302"): lambda names: names["req"].get_method(),
    ("requests.sessions", "SessionRedirectMixin.resolve_redirects"): lambda names: _first_method(names["hist"]),
    # An answer of 303 has replaced the method of the request.
    ("urllib3.poolmanager", "PoolManager.urlopen"): lambda names: (
        ("" if names["response"].status == _SEE_OTHER else names["method"]) if names.get("redirect_location") else None
    ),
    ("aiohttp.client", "ClientSession._request"): lambda names: _first_method(names.get("history")),
}
_SEE_OTHER = 303


def _first_method(answers: object) -> str | None:
    """Return the method of the request before the first of some redirects; None if there was none."""
    if not isinstance(answers, list) or not answers:
        return None
    # aiohttp has it in the answer.
    return str(attribute(attribute(answers[0], "request"), "method") or attribute(answers[0], "method", ""))


def stage_of_class(types: tuple[str, ...]) -> tuple[Stage, bool]:
    """Return the stage that the names of a class and its bases prove, and True if no single exception differs.

    An exception with a cause may differ all the same.
    """
    stage = next((_STAGES[name] for name in types if name in _STAGES), _ANSWERED)
    return stage, stage is not _IN_FLIGHT and DISTRUSTED not in types and _WRAPPERS.isdisjoint(types)


def stage_of(exception: BaseException) -> Stage:
    """Return the stage that an exception and its origins prove."""
    found = {stage_of_one(link) for link in origins(exception)} - {None}
    if _IN_FLIGHT in found or is_redirected(exception):
        return _IN_FLIGHT
    return _NOT_SENT if found == {_NOT_SENT} else _ANSWERED


def is_redirected(exception: BaseException) -> bool:
    """Return True if an exception belongs to the target of a redirect, and the request before it was not safe."""
    return any(map(_is_redirected, origins(exception)))


def is_distrusted(exception: BaseException) -> bool:
    """Return True if an exception, or an origin of it, is a certificate that was not trusted."""
    return any(DISTRUSTED in _names(link) for link in origins(exception))


def origins(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its origins: causes, certain exceptions among their arguments, leaves of groups."""
    seen: set[int] = set()
    waiting: list[tuple[BaseException, bool]] = [(exception, False)]
    while waiting:
        link, is_caused = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        inner: tuple[object, ...] = ()
        if is_a(link, BaseExceptionGroup):
            inner = _leaves(link)
        elif is_caused or not _WRAPPERS.isdisjoint(_names(link)):
            inner = _arguments(link) or ()
        waiting += [(each, is_caused) for each in inner if is_a(each, BaseException)]
        cause = cause_of(link)
        if cause is not None:
            waiting.append((cause, True))


def stage_of_one(link: BaseException) -> Stage | None:
    """Return the stage that one exception proves by itself; None if it proves nothing."""
    stage = next((_STAGES[name] for name in _names(link) if name in _STAGES), None)
    if type(link) is OSError and is_lost(link):
        stage = _IN_FLIGHT
    if stage is not _IN_FLIGHT:
        return stage
    # The `TimeoutError` of a timeout is raised outside of it, from the cancellation that was raised inside.
    return _NOT_SENT if opens(link) or opens(cause_of(link)) else _IN_FLIGHT


def is_lost(error: OSError) -> bool:
    """Return True if the number of a bare `OSError` stands for a lost network, so that its class proves nothing."""
    return error.errno in _LOST


def opens(link: BaseException | None) -> bool:
    """Return True if a traceback ends inside of a function that opens a connection."""
    return any(name in _OPENING for name, _ in frames(link))


def _is_redirected(link: BaseException) -> bool:
    names = {*_names(link)}
    if "builtins.OSError" not in names and _WRAPPERS.isdisjoint(names):
        return False
    # Of the answer of which `raise_for_status` of requests complains.
    methods = [_first_method(attribute(attribute(link, "response"), "history"))]
    for name, frame in frames(link):
        if name in _REDIRECTS:
            # Another version of the library may have other variables.
            with suppress(Exception):
                methods.append(_REDIRECTS[name](frame.f_locals))
    return any(method is not None and method not in _SAFE for method in methods)


def frames(link: BaseException | None) -> Iterator[tuple[tuple[object, str], FrameType]]:
    """Yield the frames of a traceback, each after the module and the qualified name of its function."""
    place = None if link is None else _traceback(link)
    while place is not None:
        frame = place.tb_frame
        yield (frame.f_globals.get("__name__"), frame.f_code.co_qualname), frame
        place = place.tb_next


def _names(link: BaseException) -> Iterator[str]:
    return (f"{kind.__module__}.{kind.__qualname__}" for kind in type(link).__mro__)
