"""Transports for httpx2 that retry: `redrive.contrib.httpx` for that package, on which SDKs of AI services are built.

::

    transport = RetryTransport(for_models("5 1s 1m"))
    client = openai.OpenAI(max_retries=0, http_client=openai.DefaultHttpxClient(transport=transport))

httpx2 has the classes of httpx under another name, and neither package accepts those of the other one. May import:
`redrive.retrying` and below, and httpx2 (the extra ``httpx2``).
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

with extra("httpx2"):
    import httpx2

__all__ = ["AsyncRetryTransport", "RetryTransport", "failure_of", "for_models", "wrap"]

_HTTPX2 = package("httpx2")

C = TypeVar("C", httpx2.Client, httpx2.AsyncClient)


class RetryTransport(SyncTransport[httpx2.Request, httpx2.Response, httpx2.BaseTransport], httpx2.BaseTransport):
    """A transport that retries the requests of an `httpx2.Client`; see `redrive.contrib.httpx.RetryTransport`."""

    package = _HTTPX2


class AsyncRetryTransport(
    AsyncTransport[httpx2.Request, httpx2.Response, httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport
):
    """The same for an `httpx2.AsyncClient`; see `redrive.contrib.httpx.AsyncRetryTransport`."""

    package = _HTTPX2


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
    """Describe an error of an httpx2 client, for the policy of a function; see `redrive.contrib.httpx.failure_of`."""
    return classify.failure_of(_HTTPX2, error, statuses, methods)


def wrap(
    client: C,
    policy: Policy | str | None = None,
    *,
    idempotency_key: bool | Callable[[httpx2.Request], str | None] = False,
    read: int | None = SHORT,
    statuses: Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
) -> C:
    """Have a client retry all its requests, and return it; see `redrive.contrib.httpx.wrap`."""
    options: dict[str, Any] = {"idempotency_key": idempotency_key, "read": read}
    options |= {"statuses": statuses, "methods": methods}
    return wrapped(client, (RetryTransport, AsyncRetryTransport), policy, **options)
