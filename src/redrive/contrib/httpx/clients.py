"""A client of httpx with transports that all retry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from redrive.contrib import extra
from redrive.contrib.httpx.bodies import SHORT
from redrive.contrib.httpx.call import KeyOption
from redrive.contrib.httpx.proxies import exchange, transports_of
from redrive.contrib.httpx.transport import AsyncRetryTransport, RetryTransport
from redrive.errors import ConfigurationError
from redrive.policy import Policy

with extra("httpx"):
    import httpx

C = TypeVar("C", httpx.Client, httpx.AsyncClient)


def wrap(  # noqa: PLR0913 - the options of a transport
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
