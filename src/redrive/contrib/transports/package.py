"""httpx, or another package with its classes: what its errors mean, and how far a request got.

Errors are described by the steps of httpcore, as the ``trace`` extension reports them, and otherwise by their classes.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, cast

from redrive.contrib.http.classify import Evidence, Library, Request, Response
from redrive.errors.foreign import attribute, cause_of, context_of, is_a
from redrive.policy import Failure, Stage
from redrive.policy.failure import Lasting
from redrive.policy.hints import Headers
from redrive.policy.stage import frames

# The code of RFC 9113, section 7.
_REFUSED_STREAM = 7
_SENDING = ".send_request_headers.started"
_NAMES = frozenset({"httpx", "httpx2"})


@cache
def package(name: str) -> Package:
    """Return the package with a name; it can be imported."""
    return Package(name)


class Package(Library):
    """httpx, or another package with its classes."""

    def __init__(self, name: str) -> None:
        #: The module: mypy cannot know that both have the same classes.
        self.httpx: Any = import_module(name)
        self.name = name
        httpx = self.httpx
        self.answers: type[BaseException] = httpx.HTTPStatusError
        self.by_default: tuple[type[BaseException], ...] = (httpx.TransportError, httpx.HTTPStatusError)
        self._no_connection = (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.PoolTimeout,
            httpx.ProxyError,
            httpx.UnsupportedProtocol,
        )
        self._hopeless = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
        # The module itself may be another one (`httpx2.alias_httpx`).
        self._client = f"{httpx.__name__}._client"

    def __reduce__(self) -> tuple[Callable[[str], Package], tuple[str]]:
        return package, (self.name,)

    def refuse_other(self, given: object, where: str) -> None:
        """Raise TypeError for an object of a package with the same classes under another name."""
        for base in type(given).__mro__:
            name = base.__module__.partition(".")[0]
            if name in _NAMES and name != self.httpx.__name__:
                raise TypeError(
                    f"{where} is a {name}.{base.__name__}, and this is for {self.name}: use redrive.contrib.{name}"
                )

    # --- reading errors

    def status_of(self, response: Response) -> int:
        """See `Library.status_of`."""
        return cast("int", response.status_code)

    def pairs(self, headers: Any) -> Headers:  # noqa: ANN401 - of the package
        """See `Library.pairs`."""
        return cast("Headers", headers.multi_items())

    def request_of(self, error: BaseException) -> Request | None:
        """Return the request that another attempt sends; None if it is unknown."""
        earlier = self._earlier(error)
        if earlier:
            return earlier[0].request
        # The property of httpx raises RuntimeError for an error that was raised outside of a client.
        return super().request_of(error) or attribute(error, "request")

    def is_redirected(self, error: BaseException) -> bool:
        """See `Library.is_redirected`."""
        return bool(self._earlier(error))

    def broken(self, error: BaseException, evidence: Evidence | None) -> Failure:
        """See `Library.broken`."""
        stage = Trail(self).stage(error) if evidence is None else evidence.stage
        if self._earlier(error):
            stage = Stage.IN_FLIGHT
        timed_out = is_a(error, (self.httpx.TimeoutException, TimeoutError))
        failure = Failure.of(error, reason="TIMEOUT" if timed_out else None, stage=stage)
        hopeless = is_a(error, self._hopeless) or self._is_distrusted(error)
        return failure._replace(lasting=Lasting(stage=stage)) if hopeless else failure

    def has_no_connection(self, error: BaseException) -> bool:
        """Return True if an error by its class was raised before there was a connection."""
        return is_a(error, self._no_connection)

    def _is_distrusted(self, error: BaseException) -> bool:
        """Return True if a certificate was not trusted; httpcore has that as the context of its error, or its text."""
        if not is_a(error, self.httpx.ConnectError):
            return False
        believed = not any(is_a(link, ssl.SSLCertVerificationError) for link in _chain(error))
        return not believed or "CERTIFICATE_VERIFY_FAILED" in str(error)

    def _earlier(self, error: BaseException) -> list[Response]:
        """Return the redirects before the request that failed: it was sent by a client, not by a transport."""
        response = self.response_of(error)
        if response is not None:
            return cast("list[Response]", response.history)
        for (module, name), frame in frames(error):
            if module == self._client and name.endswith("._send_handling_redirects"):
                return cast("list[Response]", frame.f_locals.get("history") or [])
        return []


class Trail:
    """The steps of httpcore in one attempt."""

    __slots__ = ("_package", "answered", "reported", "sent", "stream")

    def __init__(self, package: Package) -> None:
        self._package = package
        # True if httpcore has reported a step, has begun to write the request, has received the head of the answer.
        self.reported: bool = False
        self.sent: bool = False
        self.answered: bool = False
        # The number of the HTTP/2 stream.
        self.stream: int | None = None

    def on_step(self, event: str, info: Mapping[str, Any]) -> None:
        """Record a step that the ``trace`` extension reports."""
        self.reported = True
        if event.endswith(_SENDING) and info["request"].method != b"CONNECT":
            self.sent = True
            self.stream = info.get("stream_id")

    def stage(self, error: BaseException) -> Stage:
        """Return the progress of an attempt that ended in an error."""
        if self.answered:
            return Stage.IN_FLIGHT
        # The request was not sent if the error has no connection (after it has begun to send, httpcore changes the
        # connection only if the server has proved that it did nothing), if HTTP/2 proves that the server did nothing,
        # or if none of the reported steps wrote the request; the CONNECT of a tunnel through a proxy does not count.
        is_unsent = self._package.has_no_connection(error) or self._refused(error)
        return Stage.NOT_SENT if is_unsent or (self.reported and not self.sent) else Stage.IN_FLIGHT

    def _refused(self, error: BaseException) -> bool:
        """Return True if HTTP/2 proves that the server did nothing; h2's event is the argument of httpcore's error."""
        event = next(iter(attribute(cause_of(error), "args", ())), None)
        last = getattr(event, "last_stream_id", None)
        if last is not None:
            return self.stream is not None and self.stream > last
        reset = getattr(event, "stream_id", None)
        return reset is not None and getattr(event, "error_code", None) == _REFUSED_STREAM


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = cause_of(link) or context_of(link)
