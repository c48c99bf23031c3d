"""One request through a transport: what its attempts have in common, in either colour.

The transports call and wait; here is what they need to know. Each attempt gets a request of its own, so that copies
of a hedged call do not disturb one another, with the same headers and the same body, and with two extensions of
httpx's:

* ``timeout``: what the request says, cut to what remains of the deadline around it, anew for each step: what it took to
  connect is not there any more to read.
* ``trace``: a callback that listens to the steps, and hands on to the one that the request brought along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import httpx

from redrive.contrib.httpx.bodies import SHORT, Body, is_short
from redrive.contrib.httpx.classify import Evidence, Trail, mark
from redrive.policy import Failure, Stage
from redrive.policy.outcome import Outcome, Record
from redrive.retrying import http
from redrive.retrying.context import SCOPE, deadline

__all__ = ["EXTENSION", "Attempt", "Call", "KeyOption", "Named", "with_key"]

A = TypeVar("A")
T = TypeVar("T")

EXTENSION = "redrive"
"""Of a request: its own policy. Of a response: its record."""

KeyOption = bool | Callable[[httpx.Request], str | None]

_PHASES = ("connect", "read", "write", "pool")
_LEAST = 0.001  # seconds; to a socket, a timeout of zero means something else
_SOONER = 0.05  # seconds by which httpx ends a step before redrive cancels it; it closes less tidily when cancelled
_MISDIRECTED = 421  # asks for another connection (RFC 9110, 15.5.20), so this one is not read to be used again


def with_key(request: httpx.Request, option: KeyOption) -> httpx.Headers:
    """The headers of a request, with a key if it needs one and has none.

    Args:
        request: as the client gives it. It is left as it is: sent once more, it is another call.
        option: of the transport.

    Raises:
        RuntimeError: see `redrive.retrying.http.idempotency_key`.
    """
    headers = request.headers.copy()
    if option and request.method != "CONNECT" and not http.is_idempotent(request.method, headers):
        uid = None if option is True else option(request)
        if option is True or uid is not None:
            headers[http.IDEMPOTENCY_KEY] = http.idempotency_key(uid)
    return headers


class Call:
    """What all attempts of one request share.

    Args:
        request: as the client gives it.
        headers: that are sent.

    Attributes:
        name: for messages, events and metrics: method and host.
    """

    def __init__(self, request: httpx.Request, headers: httpx.Headers) -> None:
        self._request = request
        self._headers = headers
        self._held: dict[object, httpx.Response] = {}
        plain = isinstance(request.stream, httpx.ByteStream)
        self.body = None if plain else Body(request.stream)
        self.name = f"{request.method} {request.url.host}"

    @property
    def is_repeatable(self) -> bool:
        """Whether the request may be repeated although nobody knows whether it took effect."""
        return http.is_idempotent(self._request.method, self._headers)

    def attempt(self, *, is_async: bool = False) -> Attempt:
        """Begin another one.

        Args:
            is_async: the transport is.
        """
        extensions = dict(self._request.extensions)
        given = dict(extensions.get("timeout") or {})
        attempt = Attempt(self, given, extensions.get("trace"), sooner=_SOONER if is_async else 0.0)
        extensions.pop(EXTENSION, None)
        stream = self._request.stream if self.body is None else self.body
        trace = _coroutine(attempt.hear) if is_async else attempt.hear
        attempt.request = httpx.Request(
            self._request.method,
            self._request.url,
            headers=self._headers,
            stream=stream,
            extensions={**extensions, "timeout": attempt.timeout, "trace": trace},
        )
        if self.body is None:
            attempt.request.read()  # some transports look at `request.content`, which httpx has read, too
        return attempt

    # --- responses that have not been given back yet

    def hold(self, response: httpx.Response) -> None:
        """This may be the response that the caller gets, or be followed by another attempt."""
        self._held[_copy()] = response

    def former(self) -> httpx.Response | None:
        """The response of the attempt before, if there is one; it has not been closed yet."""
        return self._held.pop(_copy(), None)

    def answer(self, outcome: Outcome[httpx.Response]) -> httpx.Response:
        """What the caller gets.

        Args:
            outcome: of the call.

        Raises:
            Exception: what the last attempt raised, unless it stands for an answer.
        """
        error = getattr(outcome, "error", None)
        if isinstance(error, httpx.HTTPStatusError) and any(held is error.response for held in self._held.values()):
            response = error.response
        else:
            response = outcome.unwrap()
        record: Record = outcome.record
        response.extensions[EXTENSION] = record
        self._held = {copy: held for copy, held in self._held.items() if held is not response}
        return response

    def leftovers(self) -> list[httpx.Response]:
        """The responses that nobody will get; to be closed."""
        left, self._held = list(self._held.values()), {}
        return left


class Attempt:
    """One attempt.

    Args:
        call: that it is one of.
        given: the timeouts that the request brings along, by phase.
        trace: the callback that it brings along.
        sooner: seconds by which it ends before its deadline, or a tenth of the time if that is less.

    Attributes:
        request: what is sent.
        timeout: its timeouts, kept up to date.
    """

    request: httpx.Request

    def __init__(
        self, call: Call, given: Mapping[str, float | None], trace: Callable[..., Any] | None, *, sooner: float
    ) -> None:
        self._call = call
        self._given = given
        self._trace = trace
        self._sooner = sooner
        self._trail = Trail()
        self.timeout = dict(given)
        self._cut()

    def hear(self, event: str, info: dict[str, Any]) -> Any:  # noqa: ANN401 - what the user's callback returns
        """Listen to a step of httpcore."""
        self._trail.hear(event, info)
        self._cut()
        return None if self._trace is None else self._trace(event, info)

    def _cut(self) -> None:
        end = deadline()
        self.timeout.update(self._given)
        if end is not None:
            left = max(end.remaining - min(self._sooner, end.remaining / 10), _LEAST)
            self.timeout |= {phase: min(self.timeout.get(phase) or left, left) for phase in _PHASES}

    def failed(self, error: BaseException) -> None:
        """It ended so: write on the error what is known."""
        mark(error, Evidence(self.request, self._trail.stage(error), self._is_spent()))

    def answered(self, response: httpx.Response) -> httpx.HTTPStatusError | None:
        """Its answer has begun.

        Args:
            response: its head.

        Returns:
            The error that stands for a bad one.
        """
        self._trail.answered = True
        response.request = self.request
        self._call.hold(response)
        if self._failure(response) is None:
            return None
        message = f"HTTP status {response.status_code} for {self._call.name}"
        error = httpx.HTTPStatusError(message, request=self.request, response=response)
        mark(error, Evidence(self.request, Stage.ANSWERED, self._is_spent()))
        return error

    def drains(self, response: httpx.Response) -> bool:
        """Whether a bad answer is read, so that its connection is free while the call waits."""
        failure = self._failure(response)
        if failure is None or failure.candidate is False or response.status_code == _MISDIRECTED:
            return False
        return "content-length" not in response.headers or is_short(response, SHORT)

    def _failure(self, response: httpx.Response) -> Failure | None:
        return http.failure_of(self.request.method, response.status_code, sent=self.request.headers.multi_items())

    def _is_spent(self) -> bool:
        return self._call.body is not None and self._call.body.spent


class Named(Generic[T]):
    """A function under the name that a call is to be told of by.

    Args:
        name: of the call.
        function: that is called.
        argument: what it is called with.
    """

    def __init__(self, name: str, function: Callable[[A], T], argument: A) -> None:
        self.__qualname__ = name
        self.__module__ = ""
        self._call = partial(function, argument)

    def __call__(self) -> T:
        """Call it."""
        return self._call()


def _coroutine(hear: Callable[..., Any]) -> Callable[..., Any]:
    """A callback as httpcore's async half wants it."""

    async def trace(event: str, info: dict[str, Any]) -> None:
        heard = hear(event, info)
        if heard is not None:
            await heard

    return trace


def _copy() -> object:
    """Which copy of a hedged call this is; of others there is one."""
    scope = SCOPE.get()
    return None if scope is None else scope.call
