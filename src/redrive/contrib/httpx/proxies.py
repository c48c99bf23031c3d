"""The transports behind a retrying one that is given none: those of a client, with the proxies of the environment.

httpx reads ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` only for a client without a transport of its
own, and has no public name for the choice of a transport by the URL. `transports_of` has the names that it uses; a test
compares them with httpx.
"""

# ruff: noqa: SLF001 - see above

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.request import getproxies

from redrive.contrib import extra

with extra("httpx"):
    import httpx


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
