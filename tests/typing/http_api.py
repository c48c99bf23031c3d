"""Type tests of the integrations of HTTP clients; see `tests/typing/api.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import aiohttp
import httpx
import httpx2
import requests

import redrive.contrib.aiohttp as of_aiohttp
import redrive.contrib.httpx as old
import redrive.contrib.httpx2 as new
import redrive.contrib.requests as of_requests
from redrive.policy import Failure, Policy

assert_type(new.for_models("5 1s 1m"), Policy)

# --- each package has transports of its own ---------------------------------------------------------------------------

assert_type(httpx.Client(transport=old.RetryTransport("5 1s")), httpx.Client)
assert_type(httpx2.Client(transport=new.RetryTransport("5 1s", httpx2.HTTPTransport(http2=True))), httpx2.Client)
httpx2.AsyncClient(transport=new.AsyncRetryTransport(new.for_models("5 1s"), read=None))
httpx2.Client(transport=old.RetryTransport())  # type: ignore[arg-type]
new.RetryTransport("5 1s", httpx.HTTPTransport())  # type: ignore[arg-type]

assert_type(new.wrap(httpx2.AsyncClient(), "5 1s"), httpx2.AsyncClient)
assert_type(old.wrap(httpx.Client(), "5 1s"), httpx.Client)
new.wrap(httpx.Client())  # type: ignore[type-var]


def number(request: httpx2.Request) -> str | None:
    """Return the number of an order."""
    assert_type(request.url, httpx2.URL)
    return request.headers.get("X-Order")


new.RetryTransport(idempotency_key=number)
old.RetryTransport(idempotency_key=number)  # type: ignore[arg-type]
sent = new.RetryTransport().handle_request(httpx2.Request("GET", "https://example.org/"))
assert_type(sent, httpx2.Response)

# --- requests and aiohttp ---------------------------------------------------------------------------------------------

session = requests.Session()
session.mount("https://", of_requests.RetryAdapter("3 100ms 2s", idempotency_key=True, pool_maxsize=20))
assert_type(session.get("https://example.org/"), requests.Response)
of_requests.RetryAdapter("3 1s", idempotency_key=lambda request: request.url)
of_requests.RetryAdapter(3)  # type: ignore[arg-type]
of_requests.RetryAdapter("3 1s", read=None, idempotency_key=number)  # type: ignore[arg-type]

aiohttp.ClientSession(middlewares=(of_aiohttp.retry("3 100ms 2s", read=None),))
aiohttp.ClientSession(middlewares=[of_aiohttp.retry(of_aiohttp.for_models("3 1s"), statuses=[404])])
of_aiohttp.retry("3 1s", idempotency_key=lambda request: request.method)
of_aiohttp.retry("3 1s", idempotency_key=number)  # type: ignore[arg-type]
assert_type(of_aiohttp.retry().policy, Policy)

# --- functions --------------------------------------------------------------------------------------------------------

assert_type(new.failure_of(ValueError()), Failure | None)
assert_type(new.failure_of(statuses=[404]), Callable[[BaseException], Failure | None])
assert_type(of_requests.failure_of(ValueError()), Failure | None)
assert_type(of_aiohttp.failure_of(methods=["POST"]), Callable[[BaseException], Failure | None])
