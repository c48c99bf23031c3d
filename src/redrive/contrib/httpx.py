"""Transports for httpx that retry.

::

    with httpx.Client(transport=RetryTransport("5 100ms 5s")) as client:
        page = client.get("https://example.org/")

May import: `redrive.retrying` and below, and httpx (the extra ``httpx``). Must never: repeat a request with unknown
effect that is not idempotent, send earlier than a server asked, or take a body away from its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from redrive.contrib import extra
from redrive.contrib.http import classify
from redrive.contrib.http.held import SHORT
from redrive.contrib.http.models import for_models
from redrive.contrib.transports.package import package
from redrive.contrib.transports.transport import AsyncTransport, SyncTransport, wrapped
from redrive.policy import Failure, Policy

with extra("httpx"):
    import httpx

__all__ = ["AsyncRetryTransport", "RetryTransport", "failure_of", "for_models", "wrap"]

_HTTPX = package("httpx")

C = TypeVar("C", httpx.Client, httpx.AsyncClient)


class RetryTransport(SyncTransport[httpx.Request, httpx.Response, httpx.BaseTransport], httpx.BaseTransport):
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
            failed attempt. None: all bodies except streams of events (``text/event-stream``); not for downloads.
        statuses: the statuses that are retried, from 200 to 599, instead of those of `redrive.retrying.http`. A single
            further one is better named by the policy, ``on=(httpx.TransportError, httpx.HTTPStatusError, "HTTP_404")``.
        methods: the methods of requests that may be repeated once they were sent, instead of the idempotent ones. A
            request with an idempotency key may be, too.

    Raises:
        PolicyValueError: the policy is not valid here, or a status or a method is unknown.
        PolicySyntaxError: the directive cannot be read.
        TypeError: the policy is neither a policy nor a directive, or ``inner`` is a transport of another package.
    """

    package = _HTTPX


class AsyncRetryTransport(
    AsyncTransport[httpx.Request, httpx.Response, httpx.AsyncBaseTransport], httpx.AsyncBaseTransport
):
    """A transport that retries the requests of an `httpx.AsyncClient`, under asyncio or trio.

    Differences from `RetryTransport`: an ``attempt_timeout`` and a given deadline cancel an attempt, and requests that
    may be repeated, with a body of bytes, are hedged if the policy has a hedge.

    It takes the same arguments and raises the same errors. ``inner`` is by default that of an `httpx.AsyncClient`; all
    copies of a hedged request have the same idempotency key.
    """

    package = _HTTPX


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
    """Describe an error of an httpx client, for the policy of a function; return None for other errors.

    ::

        @redrive.retry("5 100ms 5s", on=redrive.contrib.httpx.failure_of)
        def fetch():
            return httpx.get("https://example.org/").raise_for_status()

    As with `redrive.retrying.http.failure_of`, the policy need not know the request: a failure is *in flight* only if
    the request may not be repeated. For a plain client only the class of the exception is known; a `RetryTransport`
    under the function leaves the retries to it, and knows more. A failure that a retry would repeat is lasting.

    Args:
        error: the error. Without it the result is a function of an error with the statuses and methods given here:
            ``on=failure_of(statuses=[404, 503], methods=["GET", "POST"])``.
        statuses: the statuses that are retried, as in `RetryTransport`.
        methods: the methods that may be repeated, as in `RetryTransport`.

    Raises:
        PolicyValueError: ``statuses`` or ``methods`` have an unknown status or method.
    """
    return classify.failure_of(_HTTPX, error, statuses, methods)


def wrap(
    client: C,
    policy: Policy | str | None = None,
    *,
    idempotency_key: bool | Callable[[httpx.Request], str | None] = False,
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
    options: dict[str, Any] = {"idempotency_key": idempotency_key, "read": read}
    options |= {"statuses": statuses, "methods": methods}
    return wrapped(client, (RetryTransport, AsyncRetryTransport), policy, **options)
