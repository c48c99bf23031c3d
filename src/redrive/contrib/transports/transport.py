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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar
from urllib.request import getproxies

from redrive.contrib.http.classify import Request, Response, Terms
from redrive.contrib.http.held import SHORT
from redrive.contrib.http.plans import checked, key_for
from redrive.contrib.transports.bodies import aread, aread_whole, is_short, leave, read_whole
from redrive.contrib.transports.bodies import read as read_part
from redrive.contrib.transports.call import RequestCall
from redrive.contrib.transports.package import Package
from redrive.errors import ConfigurationError
from redrive.policy import Policy
from redrive.retrying.loops import aoutcome, outcome
from redrive.retrying.own import OwnBudget
from redrive.retrying.state import CallState, start
from redrive.seams import spelled, without

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
InnerT = TypeVar("InnerT")
ClientT = TypeVar("ClientT")


class Transport(Generic[RequestT, InnerT]):
    """The half of the transports that has no colour; see `redrive.contrib.httpx.RetryTransport` for the arguments."""

    #: The package whose requests it sends.
    package: ClassVar[Package]
    _can: ClassVar[dict[str, bool]]

    if not TYPE_CHECKING:
        # A transport of the other colour is an easy mistake, and httpx asks for what that has.
        __getattr__ = without("transport")

    @spelled("RetryTransport")
    def __init__(
        self,
        policy: Policy | str | None = None,
        inner: InnerT | None = None,
        *,
        idempotency_key: bool | Callable[[RequestT], str | None] = False,
        read: int | None = SHORT,
        statuses: Iterable[int] | None = None,
        methods: Iterable[str] | None = None,
    ) -> None:
        self.package.refuse_other(inner, f"{type(self).__name__}(): the inner transport")
        self._terms = Terms.of(self.package, statuses, methods)
        #: The policy as it was given, for ``with transport.policy.override(...):``.
        self.policy: Policy = checked(policy, type(self).__name__, terms=self._terms, **self._can)
        self._inner: Any = inner or self._usual()
        self._own = OwnBudget()
        self._key = idempotency_key
        self._read = read

    def _usual(self) -> Any:  # noqa: ANN401 - of the package
        raise NotImplementedError

    def _start(self, request: Request) -> tuple[CallState, RequestCall]:
        """Return a call under the policy of a request, and the state that its attempts share."""
        if not isinstance(request, self.package.httpx.Request):
            self.package.refuse_other(request, f"{type(self).__name__}: the request")
        call = RequestCall(self.package, request, self._terms, key_for(request, self._key, self.package))
        return start(call.plan(self.policy, self._own), call.name), call


class SyncTransport(Transport[RequestT, InnerT], Generic[RequestT, ResponseT, InnerT]):
    """The transport of a blocking client."""

    _can: ClassVar = {"hedges": False, "awaits": False}

    def _usual(self) -> Any:  # noqa: ANN401 - of the package
        httpx = self.package.httpx
        return _Routing(httpx.Client()) if _has_proxies() else httpx.HTTPTransport()

    def handle_request(self, request: RequestT) -> ResponseT:
        """Send a request, and repeat it while the policy decides so.

        The request's extension ``redrive`` may be a policy of its own. Return the last response, whatever its status;
        its ``extensions["redrive"]`` is the record.

        Raises:
            Exception: the last exception of the inner transport, with a note, and the record as ``__retry__``.
            CircuitOpen: the breaker of the policy refuses.
            TypeError: the request is one of another package.
        """
        state, call = self._start(request)
        try:
            response: ResponseT = call.give(outcome(state, self._send, (call,), {}))
            return response
        finally:
            for left in call.held.leftovers():
                left.close()

    def _send(self, call: RequestCall) -> Response:
        former = call.held.former()
        if former is not None:
            former.close()
        attempt = call.attempt()
        try:
            response = self._inner.handle_request(attempt.request)
            bad = attempt.answered(response)
            is_read = bad is None and is_short(self.package, response, self._read)
            if is_read:
                read_whole(self.package, response)
        except BaseException as error:
            attempt.failed(error)
            raise
        if bad is None:
            if not is_read:
                leave(self.package, response, self._read)
            return response
        if attempt.drains(response):
            read_part(self.package, response, SHORT)
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


class AsyncTransport(Transport[RequestT, InnerT], Generic[RequestT, ResponseT, InnerT]):
    """The transport of an asynchronous client."""

    _can: ClassVar = {"hedges": True, "awaits": True}

    def _usual(self) -> Any:  # noqa: ANN401 - of the package
        httpx = self.package.httpx
        return _AsyncRouting(httpx.AsyncClient()) if _has_proxies() else httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: RequestT) -> ResponseT:
        """See `SyncTransport.handle_request`."""
        state, call = self._start(request)
        try:
            response: ResponseT = call.give(await aoutcome(state, self._send, (call,), {}))
            return response
        finally:
            for left in call.held.leftovers():
                await left.aclose()

    async def _send(self, call: RequestCall) -> Response:
        former = call.held.former()
        if former is not None:
            await former.aclose()
        attempt = call.attempt(is_async=True)
        try:
            response = await self._inner.handle_async_request(attempt.request)
            bad = attempt.answered(response)
            is_read = bad is None and is_short(self.package, response, self._read)
            if is_read:
                await aread_whole(self.package, response)
        except BaseException as error:
            attempt.failed(error)
            raise
        if bad is None:
            if not is_read:
                leave(self.package, response, self._read)
            return response
        if attempt.drains(response):
            await aread(self.package, response, SHORT)
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


def wrapped(
    client: ClientT, kinds: tuple[type[Any], type[Any]], policy: Policy | str | None, **options: object
) -> ClientT:
    """Have a client retry; see `redrive.contrib.httpx.wrap`. ``kinds`` are the transports of its package."""
    package: Package = kinds[0].package
    httpx = package.httpx
    package.refuse_other(client, "wrap(): the client")
    if not isinstance(client, httpx.Client | httpx.AsyncClient):
        raise TypeError(f"wrap() takes an {package.name}.Client or an {package.name}.AsyncClient, not {client!r}")
    kind = kinds[0] if isinstance(client, httpx.Client) else kinds[1]
    inner = transports_of(client)
    if any(isinstance(each, kind) for each in inner):
        raise ConfigurationError("wrap(): a transport of this client retries already: make the client without it")
    checked = kind(policy, inner=inner[0], **options).policy
    exchange(client, lambda inner: kind(checked, inner, **options))
    return client


def transports_of(client: Any) -> list[Any]:  # noqa: ANN401 - of a package
    """Return the transports of a client: the one without a proxy, and those of its proxies and mounts."""
    return [client._transport, *(each for each in client._mounts.values() if each is not None)]


def exchange(client: Any, around: Callable[[Any], Any]) -> None:  # noqa: ANN401 - of a package
    """Replace each transport of a client by another one around it."""
    client._transport = around(client._transport)
    # None: no proxy for these URLs.
    client._mounts = {pattern: None if each is None else around(each) for pattern, each in client._mounts.items()}


def _has_proxies() -> bool:
    """Return True if the environment, or the settings of the system, name a proxy that httpx uses."""
    found = getproxies()
    return any(found.get(scheme) for scheme in ("http", "https", "all"))


class _Routing:
    """Sends each request by the transport that a client has for its URL."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - of a package
        self._client = client

    def handle_request(self, request: Request) -> Response:
        """Send a request through the proxy for its URL, or without one."""
        return self._client._transport_for_url(request.url).handle_request(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the transports of the client."""
        self._client.close()


class _AsyncRouting:
    """Sends each request by the transport that an asynchronous client has for its URL."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - of a package
        self._client = client

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request through the proxy for its URL, or without one."""
        return await self._client._transport_for_url(request.url).handle_async_request(request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the transports of the client."""
        await self._client.aclose()
