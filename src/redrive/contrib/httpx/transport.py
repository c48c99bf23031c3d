"""The two transports: a call under a policy around another transport, in each colour; and clients that have them.

The transport behind one that is given none is that of a client, with the proxies of the environment. httpx reads
``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` only for a client without a transport of its own, and
has no public name for the choice of a transport by the URL. `transports_of` has the names that it uses; a test compares
them with httpx.
"""

# ruff: noqa: SLF001 - see above

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.request import getproxies

from redrive.contrib import extra
from redrive.contrib.httpx.bodies import SHORT, aread, aread_whole, is_short, leave, read_whole
from redrive.contrib.httpx.bodies import read as read_part
from redrive.contrib.httpx.call import KeyOption, RequestCall, checked, plan_for, with_key
from redrive.contrib.httpx.classify import Allowed
from redrive.errors import ConfigurationError
from redrive.policy import Policy
from redrive.retrying.loops import aoutcome, outcome
from redrive.retrying.own import OwnBudget
from redrive.retrying.state import start

with extra("httpx"):
    import httpx

C = TypeVar("C", httpx.Client, httpx.AsyncClient)


class RetryTransport(httpx.BaseTransport):
    """A transport that retries the requests of an `httpx.Client`.

    Args:
        policy: the policy, or a directive such as ``"5 100ms 5s"``; by default three attempts. Without ``on`` it
            retries httpx's transport errors, and answers according to `redrive.retrying.http`. Leave ``idempotent``
            open: it is set for each request.
        inner: the transport that sends the requests; by default that of a client without options, with the proxies of
            the environment. Options such as ``http2``, ``verify``, ``limits`` and ``proxy`` belong there; a client
            with a ``proxy`` of its own needs `redrive.contrib.httpx.wrap`. Leave its own ``retries`` at 0.
        idempotency_key: True: give each request that needs one an ``Idempotency-Key``, the same for all its attempts;
            or a function of the request that returns a unique value (the id of an order or a job), or None. An
            existing key is kept. Only for servers that check it.
        read: read bodies of at most this many bytes before the transport returns, so that one that breaks off is a
            failed attempt. None: all bodies; not for downloads and event streams.
        statuses: the statuses that are retried, from 200 to 599, instead of those of `redrive.retrying.http`. A single
            further one is better named by the policy, ``on=(httpx.TransportError, httpx.HTTPStatusError, "HTTP_404")``.
        methods: the methods of requests that may be repeated once they were sent, instead of the idempotent ones. A
            request with an idempotency key may be, too.

    Raises:
        PolicyValueError: the policy is not valid here, or a status or a method is unknown.
        PolicySyntaxError: the directive cannot be read.
        TypeError: the policy is neither a policy nor a directive.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        inner: httpx.BaseTransport | None = None,
        *,
        idempotency_key: KeyOption = False,
        read: int | None = SHORT,
        statuses: Iterable[int] | None = None,
        methods: Iterable[str] | None = None,
    ) -> None:
        self._allowed = Allowed.of(statuses, methods)
        #: The policy as it was given, for ``with transport.policy.override(...):``.
        self.policy = checked(policy, type(self).__name__, allowed=self._allowed, hedges=False)
        self._inner = inner or inner_transport()
        self._own = OwnBudget()
        self._key = idempotency_key
        self._read = read

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and repeat it while the policy decides so.

        The request's extension ``redrive`` may be a policy of its own. Return the last response, whatever its status;
        its ``extensions["redrive"]`` is the record.

        Raises:
            Exception: the last exception of the inner transport, with a note, and the record as ``__retry__``.
            CircuitOpen: the breaker of the policy refuses.
        """
        call = RequestCall(request, with_key(request, self._key), self._allowed)
        state = start(plan_for(self.policy, request, call, self._allowed, self._own), call.name)
        try:
            return call.answer(outcome(state, self._send, (call,), {}))
        finally:
            for response in call.leftovers():
                response.close()

    def _send(self, call: RequestCall) -> httpx.Response:
        former = call.former()
        if former is not None:
            former.close()
        attempt = call.attempt()
        try:
            response = self._inner.handle_request(attempt.request)
            bad = attempt.answered(response)
            if bad is None and is_short(response, self._read):
                read_whole(response)
        except BaseException as error:
            attempt.failed(error)
            raise
        if bad is None:
            if not is_short(response, self._read):
                leave(response, self._read)
            return response
        if attempt.drains(response):
            read_part(response, SHORT)
        raise bad

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(kind, error, traceback)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """A transport that retries the requests of an `httpx.AsyncClient`, under asyncio or trio.

    Differences from `RetryTransport`: an ``attempt_timeout`` and a given deadline cancel an attempt, and requests that
    may be repeated, with a body of bytes, are hedged if the policy has a hedge.

    It takes the same arguments and raises the same errors. ``inner`` is by default that of an `httpx.AsyncClient`; all
    copies of a hedged request have the same idempotency key.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        idempotency_key: KeyOption = False,
        read: int | None = SHORT,
        statuses: Iterable[int] | None = None,
        methods: Iterable[str] | None = None,
    ) -> None:
        self._allowed = Allowed.of(statuses, methods)
        #: The policy as it was given.
        self.policy = checked(policy, type(self).__name__, allowed=self._allowed, hedges=True)
        self._inner = inner or async_inner_transport()
        self._own = OwnBudget()
        self._key = idempotency_key
        self._read = read

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `RetryTransport.handle_request`."""
        call = RequestCall(request, with_key(request, self._key), self._allowed)
        state = start(plan_for(self.policy, request, call, self._allowed, self._own), call.name)
        try:
            return call.answer(await aoutcome(state, self._send, (call,), {}))
        finally:
            for response in call.leftovers():
                await response.aclose()

    async def _send(self, call: RequestCall) -> httpx.Response:
        former = call.former()
        if former is not None:
            await former.aclose()
        attempt = call.attempt(is_async=True)
        try:
            response = await self._inner.handle_async_request(attempt.request)
            bad = attempt.answered(response)
            if bad is None and is_short(response, self._read):
                await aread_whole(response)
        except BaseException as error:
            attempt.failed(error)
            raise
        if bad is None:
            if not is_short(response, self._read):
                leave(response, self._read)
            return response
        if attempt.drains(response):
            await aread(response, SHORT)
        raise bad

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(kind, error, traceback)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


def wrap(
    client: C,
    policy: Policy | str | None = None,
    *,
    idempotency_key: KeyOption = False,
    read: int | None = SHORT,
    statuses: Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
) -> C:
    """Have a client retry all its requests, also those through its proxies and its mounts.

    A client with a proxy sends nothing through the transport that it is given beside it. It is wrapped instead::

        client = wrap(httpx.Client(proxy="http://proxy.example:3128"), "5 100ms 5s")

    Args:
        client: a client of either colour that has sent nothing yet. It keeps its options: its proxies, those of the
            environment, ``verify``, ``http2``, ``limits``.
        policy: see `RetryTransport`.
        idempotency_key: see `RetryTransport`.
        read: see `RetryTransport`.
        statuses: see `RetryTransport`.
        methods: see `RetryTransport`.

    Returns:
        The same client.

    Raises:
        PolicyValueError: the policy, a status or a method is not valid.
        PolicySyntaxError: the directive cannot be read.
        ConfigurationError: a transport of the client retries already.
        TypeError: it is no client of httpx, or the policy is neither a policy nor a directive.
    """
    if not isinstance(client, httpx.Client | httpx.AsyncClient):
        raise TypeError(f"wrap() takes an httpx.Client or an httpx.AsyncClient, not {client!r}")
    kind: Any = RetryTransport if isinstance(client, httpx.Client) else AsyncRetryTransport
    if any(isinstance(each, kind) for each in transports_of(client)):
        raise ConfigurationError("wrap(): a transport of this client retries already: make the client without it")
    options = {"idempotency_key": idempotency_key, "read": read, "statuses": statuses, "methods": methods}
    checked = kind(policy, inner=transports_of(client)[0], **options).policy
    exchange(client, lambda inner: kind(checked, inner, **options))
    return client


def transports_of(client: httpx.Client | httpx.AsyncClient) -> list[Any]:
    """Return the transports of a client: the one without a proxy, and those of its proxies and mounts."""
    return [client._transport, *(each for each in client._mounts.values() if each is not None)]


def exchange(client: httpx.Client | httpx.AsyncClient, around: Callable[[Any], Any]) -> None:
    """Replace each transport of a client by another one around it."""
    made: Any = client
    made._transport = around(client._transport)
    # None: no proxy for these URLs.
    made._mounts = {pattern: None if each is None else around(each) for pattern, each in client._mounts.items()}


def inner_transport() -> httpx.BaseTransport:
    """Return a transport that sends as a client without options does."""
    return _Routing(httpx.Client()) if _has_proxies() else httpx.HTTPTransport()


def async_inner_transport() -> httpx.AsyncBaseTransport:
    """Return a transport that sends as an asynchronous client without options does."""
    return _AsyncRouting(httpx.AsyncClient()) if _has_proxies() else httpx.AsyncHTTPTransport()


def _has_proxies() -> bool:
    """Return True if the environment, or the settings of the system, name a proxy that httpx uses."""
    found = getproxies()
    return any(found.get(scheme) for scheme in ("http", "https", "all"))


class _Routing(httpx.BaseTransport):
    """Sends each request by the transport that a client has for its URL."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request through the proxy for its URL, or without one."""
        return self._client._transport_for_url(request.url).handle_request(request)

    def close(self) -> None:
        """Close the transports of the client."""
        self._client.close()


class _AsyncRouting(httpx.AsyncBaseTransport):
    """Sends each request by the transport that an asynchronous client has for its URL."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request through the proxy for its URL, or without one."""
        return await self._client._transport_for_url(request.url).handle_async_request(request)

    async def aclose(self) -> None:
        """Close the transports of the client."""
        await self._client.aclose()
