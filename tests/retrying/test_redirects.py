"""Tests of calls whose request was redirected: another attempt repeats the request before the redirect."""

from __future__ import annotations

import asyncio
import socket
import types
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import httpx2
import pytest
import requests
import urllib3

import redrive
from redrive.policy import Backoff, Failure, Stage
from redrive.policy.known import describe
from tests.contrib.httpx.server import HttpServer, answer

ATTEMPTS = 3


def by_urllib(method: str, url: str) -> None:
    """Send a request."""
    request = urllib.request.Request(url, data=b"x" if method == "POST" else None, method=method)  # noqa: S310 - ours
    urllib.request.urlopen(request).close()  # noqa: S310 - ours


def by_requests(method: str, url: str) -> None:
    """Send a request."""
    requests.request(method, url, timeout=60).raise_for_status()


def by_urllib3(method: str, url: str) -> None:
    """Send a request."""
    with urllib3.PoolManager() as pool:
        answered = pool.request(method, url, retries=urllib3.Retry(connect=0, redirect=5))
    if answered.status != 200:
        raise urllib3.exceptions.HTTPError(answered.status)


def by_httpx(method: str, url: str) -> None:
    """Send a request."""
    httpx.request(method, url, follow_redirects=True).raise_for_status()


def by_httpx2(method: str, url: str) -> None:
    """Send a request."""
    httpx2.request(method, url, follow_redirects=True).raise_for_status()


def by_httpx_awaited(method: str, url: str) -> None:
    """Send a request."""

    async def send() -> None:
        async with httpx.AsyncClient(follow_redirects=True) as client:
            (await client.request(method, url)).raise_for_status()

    asyncio.run(send())


@pytest.fixture
def refused() -> Iterator[str]:
    """Return the address of a port that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/done"


CLIENTS = [by_urllib, by_requests, by_urllib3, by_httpx, by_httpx2, by_httpx_awaited]


def requests_of(client: Callable[[str, str], None], method: str, *script: Any) -> list[str]:
    """Return the methods of the requests to a server with this script, by a function that is retried."""

    @redrive.retry(on=Exception, attempts=ATTEMPTS, backoff=Backoff.constant(0))
    def send() -> None:
        client(method, server.url)

    with HttpServer(*script) as server:
        with suppress(Exception):
            send()
        return [each.method for each in server.executed]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [302, 303])
def test_a_post_is_not_repeated_because_its_redirect_is_refused(client: Any, status: int, refused: str):
    """The server has accepted the request, so that the connection of the redirect proves nothing about it."""
    assert ["POST"] == requests_of(client, "POST", *[answer(status, Location=refused)] * ATTEMPTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_get_is_repeated_although_it_was_redirected(client: Any, refused: str):
    """A request that is safe may be repeated from its begin if the connection of its redirect is refused."""
    assert ["GET"] * ATTEMPTS == requests_of(client, "GET", *[answer(302, Location=refused)] * ATTEMPTS)


@pytest.mark.parametrize("client", [by_urllib, by_requests, by_httpx, by_httpx2, by_httpx_awaited])
def test_a_post_is_not_repeated_because_the_target_of_its_redirect_fails(client: Any):
    """The answer of the target is none to the request before it."""
    script = [answer(303, Location="/done"), answer(503)] * ATTEMPTS

    assert ["POST", "GET"] == requests_of(client, "POST", *script)
    assert ["GET"] * 2 * ATTEMPTS == requests_of(client, "GET", *script)


@pytest.mark.parametrize("client", [by_requests, by_urllib3, by_httpx, by_httpx2])
def test_a_post_is_not_repeated_because_it_was_redirected_too_often(client: Any):
    """The request before all redirects is sent once."""
    sent = requests_of(client, "POST", *[answer(303, Location="/more")] * 99)

    assert ["POST"] == [method for method in sent if method == "POST"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_request_that_was_not_redirected_is_repeated(client: Any, refused: str):
    """Nothing was sent."""
    with pytest.raises(Exception) as found:
        client("POST", refused)

    assert Stage.NOT_SENT is describe(found.value).stage


@pytest.mark.parametrize(
    ("history", "stage"),
    [
        ([types.SimpleNamespace(method="POST")], Stage.IN_FLIGHT),
        ([types.SimpleNamespace(method="GET")], Stage.NOT_SENT),
        ([object()], Stage.IN_FLIGHT),
        ([], Stage.NOT_SENT),
    ],
)
def test_aiohttp_has_the_redirects_in_a_variable(history: list[object], stage: Stage):
    """A class stands for that of aiohttp: its function, as its history of answers."""
    names: dict[str, Any] = {"__name__": "aiohttp.client", "error": ConnectionRefusedError()}
    exec(  # noqa: S102 - a module with the name of aiohttp's
        "class ClientSession:\n    def _request(self, history):\n        raise OSError('refused') from error\n", names
    )
    with pytest.raises(OSError, match="refused") as found:
        names["ClientSession"]()._request(history)

    assert stage is Failure.of(found.value).stage


def test_another_version_of_a_library_may_have_other_variables():
    """The exception has the stage that it has without the redirect."""
    names: dict[str, Any] = {"__name__": "urllib3.poolmanager", "error": ConnectionRefusedError()}
    exec(  # noqa: S102 - a module with the name of urllib3's
        "class PoolManager:\n    def urlopen(self, redirect_location):\n        raise OSError('no') from error\n", names
    )
    with pytest.raises(OSError, match="no") as found:
        names["PoolManager"]().urlopen("/done")

    assert Stage.NOT_SENT is Failure.of(found.value).stage
