"""A middleware for clients of aiohttp that retries.

::

    async with aiohttp.ClientSession(middlewares=[retry("5 100ms 5s")]) as session:
        async with session.get("https://example.org/") as page:
            ...

A middleware runs inside the ``total`` timeout of the session; when that is over, the call is. aiohttp itself calls all
middlewares a second time for an idempotent request whose connection was lost; this one answers that with the error of
the first time. May import: `redrive.retrying` and below, and aiohttp (the extra ``aiohttp``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, cast, overload

from redrive.contrib import extra
from redrive.contrib.http import classify
from redrive.contrib.http.classify import Evidence, Library, Request, Response, Terms, mark
from redrive.contrib.http.held import SHORT, Held, is_short
from redrive.contrib.http.models import for_models
from redrive.contrib.http.plans import Choice, checked, key_for, prepared
from redrive.errors.foreign import attribute, cause_of, is_a
from redrive.policy import Failure, Policy, Stage
from redrive.policy.failure import Lasting
from redrive.policy.stage import is_redirected, opens, stage_of
from redrive.retrying import http
from redrive.retrying.loops import aoutcome
from redrive.retrying.own import OwnBudget
from redrive.retrying.state import start

with extra("aiohttp"):
    import aiohttp
    from aiohttp.base_protocol import BaseProtocol
    from aiohttp.client_middlewares import ClientHandlerType
    from aiohttp.http import HttpProcessingError
    from aiohttp.multipart import BodyPartReaderPayload

__all__ = ["RetryMiddleware", "failure_of", "for_models", "retry"]

_NO_CONNECTION = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_DISTRUSTED = (aiohttp.ClientConnectorCertificateError, aiohttp.ServerFingerprintMismatch)
_OVER = "the total timeout of the session is over"

# The errors after which aiohttp begins again, and the methods with which it does.
_REPEATED = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class FailedAnswer(aiohttp.ClientResponseError):
    """An answer that is a failed attempt: what the policy's ``on`` gets for it."""

    def __init__(self, request: aiohttp.ClientRequest, response: aiohttp.ClientResponse) -> None:
        super().__init__(
            request.request_info,
            (),
            status=response.status,
            message=response.reason or "",
            headers=response.headers,
        )
        #: The answer.
        self.response = response


class _Aiohttp(Library):
    """The errors of aiohttp."""

    name = "aiohttp"
    answers: type[BaseException] = aiohttp.ClientResponseError
    by_default: tuple[type[BaseException], ...] = (
        aiohttp.ClientConnectionError,
        aiohttp.ClientPayloadError,
        aiohttp.ClientResponseError,
    )

    def __reduce__(self) -> str:
        return "LIBRARY"

    def response_of(self, error: object) -> Response | None:
        """Return the answer that an error stands for, or the error itself, which has its status and headers."""
        if not is_a(error, aiohttp.ClientResponseError) or is_a(error, aiohttp.ClientHttpProxyError):
            return None
        # The answer could not be read, or was one redirect too many; the status is an invention of aiohttp.
        if is_a(cause_of(error), HttpProcessingError) or is_a(error, aiohttp.TooManyRedirects):
            return None
        return getattr(error, "response", error)

    def status_of(self, response: Response) -> int:
        """See `Library.status_of`."""
        return cast("int", response.status)

    def pairs(self, headers: Any) -> Any:  # noqa: ANN401 - of aiohttp, or None
        """See `Library.pairs`."""
        return headers or ()

    def request_of(self, error: BaseException) -> Request | None:
        """Return the request that another attempt sends; None if it is unknown."""
        if is_a(error, aiohttp.ClientResponseError):
            # That before all redirects.
            return error.history[0].request_info if error.history else error.request_info
        return super().request_of(error)

    def is_redirected(self, error: BaseException) -> bool:
        """See `Library.is_redirected`."""
        return bool(attribute(error, "history")) or is_redirected(error)

    def broken(self, error: BaseException, evidence: Evidence | None) -> Failure:
        """See `Library.broken`."""
        stage = _stage(error) if evidence is None else evidence.stage
        failure = Failure.of(error, reason="TIMEOUT" if is_a(error, TimeoutError) else None, stage=stage)
        if is_a(error, (*_DISTRUSTED, aiohttp.TooManyRedirects)):
            return failure._replace(lasting=Lasting(stage=stage))
        # That of a policy has the evidence on its cause.
        is_over = type(error) is TimeoutError and attribute(error, "__http__") is not None
        return failure._replace(permanent=_OVER) if is_over else failure


def _stage(error: BaseException) -> Stage:
    """Return how far a request got that ended in an error without an answer."""
    if is_redirected(error):
        return Stage.IN_FLIGHT
    # A cancellation proves by its traceback that there was no connection yet.
    is_unsent = is_a(error, (*_NO_CONNECTION, *_DISTRUSTED)) or opens(error) or stage_of(error) is Stage.NOT_SENT
    return Stage.NOT_SENT if is_unsent else Stage.IN_FLIGHT


LIBRARY = _Aiohttp()


def retry(
    policy: Policy | str | None = None,
    *,
    idempotency_key: bool | Callable[[aiohttp.ClientRequest], str | None] = False,
    read: int | None = SHORT,
    statuses: Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
) -> RetryMiddleware:
    """Return a middleware that retries the requests of a session, or of one request (``middlewares=``).

    Each redirect is a request of its own. Middlewares before it in the list see the last answer only, and so does
    ``raise_for_status=True``; those after it see each attempt.

    Args:
        policy: the policy, or a directive such as ``"5 100ms 5s"``; by default three attempts. Without ``on`` it
            retries connection and payload errors of aiohttp, and answers according to `redrive.retrying.http`. Leave
            ``idempotent`` open: it is set for each request.
        idempotency_key: see `redrive.contrib.httpx.RetryTransport`.
        read: read bodies of at most this many bytes within the attempt, so that one that breaks off is a failed
            attempt. None: all bodies except streams of events (``text/event-stream``); not for downloads.
        statuses: see `redrive.contrib.httpx.RetryTransport`.
        methods: see `redrive.contrib.httpx.RetryTransport`.

    Raises:
        PolicyValueError: the policy is not valid here, or a status or a method is unknown.
        PolicySyntaxError: the directive cannot be read.
        TypeError: the policy is neither a policy nor a directive.
    """
    terms = Terms.of(LIBRARY, statuses, methods)
    meant = checked(policy, "retry", terms=terms, hedges=False, awaits=True)
    return RetryMiddleware(meant, terms, idempotency_key, read)


class RetryMiddleware:
    """A middleware that retries; `retry` makes it."""

    def __init__(
        self,
        policy: Policy,
        terms: Terms,
        key: bool | Callable[[aiohttp.ClientRequest], str | None],  # noqa: FBT001 - one of two kinds
        read: int | None,
    ) -> None:
        #: The policy as it was given, for ``with middleware.policy.override(...):``.
        self.policy = policy
        self._terms = terms
        self._key = key
        self._read = read
        self._own = OwnBudget()

    async def __call__(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """Send a request, and repeat it while the policy decides so.

        Return the last response, whatever its status; its attribute ``__retry__`` is the record.

        Raises:
            aiohttp.ClientError: the last error, with a note, and the record as ``__retry__``.
            TimeoutError: the ``total`` timeout of the session is over.
            CircuitOpen: the breaker of the policy refuses.
        """
        _raise_again(request)
        key = key_for(request, self._key, LIBRARY)
        if key is not None:
            request.headers[http.IDEMPOTENCY_KEY] = key
        repeatable = self._terms.may_repeat(request)
        plan, choice = prepared(self.policy, self._terms, self._own, repeatable=repeatable, copyable=False)
        call = _Call(request, handler, choice, self._terms, self._read)
        state = start(plan, f"{request.method} {request.url.host}")
        try:
            response, record = call.held.answer(await aoutcome(state, call.attempt, (), {}))
        except _REPEATED as error:
            _keep(request, error)
            raise
        finally:
            for left in call.held.leftovers():
                left.close()
        response.__retry__ = record
        return cast("aiohttp.ClientResponse", response)


# ------------------------------------------------------------------------------------- the repetition of aiohttp itself

# The timer of a call, which all its requests share, and the error that has ended it.
_ENDED: ContextVar[tuple[object, Exception] | None] = ContextVar("redrive_aiohttp_ended", default=None)


def _keep(request: aiohttp.ClientRequest, error: Exception) -> None:
    """Keep the error of a call that aiohttp begins again; it would multiply the attempts."""
    is_final = is_a(error, _NO_CONNECTION) or request.method not in _METHODS
    timer = getattr(request, "_timer", None)
    if not is_final and timer is not None:
        _ENDED.set((timer, error))


def _raise_again(request: aiohttp.ClientRequest) -> None:
    """Raise the error of a call that aiohttp has begun again."""
    ended = _ENDED.get()
    if ended is not None:
        _ENDED.set(None)
        timer, error = ended
        if timer is getattr(request, "_timer", None):
            raise error


# ---------------------------------------------------------------------------------------------------------- one request


class _Call:
    """The state that all attempts of one request share."""

    def __init__(
        self,
        request: aiohttp.ClientRequest,
        handler: ClientHandlerType,
        choice: Choice,
        terms: Terms,
        read: int | None,
    ) -> None:
        self.held = Held(LIBRARY)
        self._request = request
        self._handler = handler
        self._choice = choice
        self._terms = terms._replace(hints=choice.hints)
        self._read = read
        self._begun = False

    async def attempt(self) -> aiohttp.ClientResponse:
        """Send the request once; raise the error that stands for a bad answer."""
        request = self._request
        former = self.held.former()
        if former is not None:
            former.close()
        if self._begun:
            # The task that wrote the body before must not share it with the next one.
            with suppress(aiohttp.ClientError, OSError):
                await request.close()
        self._begun = True
        try:
            response = await self._handler(request)
        except BaseException as error:
            self._failed(error, _stage(error))
            raise
        self.held.hold(response)
        if not self._choice.accepts(response.status):
            bad = FailedAnswer(request, response)
            self._failed(bad, Stage.ANSWERED)
            await self._drain(response)
            raise bad
        if is_short(response.status, response.headers, self._read):
            try:
                await _read(response)
            except BaseException as error:
                self._failed(error, Stage.IN_FLIGHT)
                raise
        return response

    def _failed(self, error: BaseException, stage: Stage) -> None:
        """Mark the error of an attempt with what is known about the request."""
        body = self._request.body
        spent = getattr(body, "consumed", False) or (stage is not Stage.NOT_SENT and not _is_readable_again(body))
        mark(error, Evidence(self._request, stage, spent))

    async def _drain(self, response: aiohttp.ClientResponse) -> None:
        """Read a failed answer, so that its connection is free while the call waits."""
        failure = self._terms.answer(self._request, response)
        if self._choice.drains(failure, response.status) and is_short(response.status, response.headers, SHORT):
            # The reader of the last answer gets the error, too.
            with suppress(aiohttp.ClientError):
                await _read(response)


def _is_readable_again(body: Any) -> bool:  # noqa: ANN401 - bytes, or a payload
    """Return True if a body can be sent twice: aiohttp rewinds files and forms; a user's class may do anything."""
    if is_a(body, aiohttp.MultipartWriter):
        return all(_is_readable_again(part) for part, *_ in body)
    is_stream = is_a(body, (aiohttp.AsyncIterablePayload, BodyPartReaderPayload))
    return not is_stream and type(body).__module__.partition(".")[0] in {"aiohttp", "builtins"}


async def _read(response: aiohttp.ClientResponse) -> None:
    """Read the body of an answer to its end, and leave it to the caller as if it had not been read."""
    data = await response.read()
    if isinstance(response.content, aiohttp.StreamReader):
        loop = asyncio.get_running_loop()
        # Above its limit it would pause the connection, which is another call's by now.
        again = aiohttp.StreamReader(BaseProtocol(loop), len(data) + 1, loop=loop)
        again.feed_data(data)
        again.feed_eof()
        response.content = again


@overload
def failure_of(
    error: BaseException, *, statuses: Iterable[int] | None = ..., methods: Iterable[str] | None = ...
) -> Failure | None: ...
@overload
def failure_of(
    *, statuses: Iterable[int] | None = ..., methods: Iterable[str] | None = ...
) -> Callable[[BaseException], Failure | None]: ...
def failure_of(
    error: BaseException | None = None, *, statuses: Iterable[int] | None = None, methods: Iterable[str] | None = None
) -> Failure | Callable[[BaseException], Failure | None] | None:
    """Describe an error of aiohttp, for the policy of a function; see `redrive.contrib.httpx.failure_of`."""
    return classify.failure_of(LIBRARY, error, statuses, methods)
