"""Proxies of the environment and of a client, which a retrying client keeps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport, wrap
from redrive.errors import ConfigurationError, PolicyValueError
from redrive.policy import Backoff, Policy

POLICY = Policy(attempts=2, backoff=Backoff.constant(0))
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Counting(BaseHTTPRequestHandler):
    """Answers 503 and then 200, and counts."""

    def do_GET(self):
        """Answer."""
        self.server.urls.append(self.path)
        self.send_response(503 if len(self.server.urls) % 2 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Print nothing."""


@contextlib.contextmanager
def serving() -> Iterator[ThreadingHTTPServer]:
    """Yield a server on this machine; ``urls`` are what it was asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    server.urls = []
    thread = Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Remove the proxies of the environment, and return what sets them."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch.setenv


def get(client: httpx.Client | httpx.AsyncClient, url: str) -> int:
    """Return the status of a GET, with a client of either colour, which is closed."""

    async def aget():
        async with client:
            return (await client.get(url)).status_code  # noqa: ASYNC212 - it is asynchronous

    if isinstance(client, httpx.AsyncClient):
        return asyncio.run(aget())
    with client:
        return client.get(url).status_code


COLOURS = pytest.mark.parametrize(
    ("client", "transport"),
    [(httpx.Client, RetryTransport), (httpx.AsyncClient, AsyncRetryTransport)],
    ids=["sync", "asyncio"],
)


@COLOURS
def test_the_proxy_of_the_environment_is_used(environment, client, transport):
    """A transport without an inner one sends as a client without options: through the proxy of the environment."""
    with serving() as proxy, serving() as shop:
        environment("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        environment("NO_PROXY", "localhost")

        assert 200 == get(client(transport=transport(POLICY)), "http://shop.invalid/a")
        assert 200 == get(client(transport=transport(POLICY)), f"http://localhost:{shop.server_port}/b")
        assert (["http://shop.invalid/a"] * 2, ["/b"] * 2) == (proxy.urls, shop.urls)


@COLOURS
def test_without_a_proxy_nothing_lies_between(client, transport):
    """Without proxies in the environment the inner transport is httpx's own."""
    with serving() as shop:
        made = transport(POLICY)

        assert isinstance(made._inner, httpx.HTTPTransport | httpx.AsyncHTTPTransport)
        assert 200 == get(client(transport=made), f"http://127.0.0.1:{shop.server_port}/")


@COLOURS
def test_a_wrapped_client_keeps_its_proxy(client, transport):
    """A client with a proxy of its own retries through it."""
    with serving() as proxy:
        url = f"http://127.0.0.1:{proxy.server_port}"

        assert 200 == get(wrap(client(proxy=url), POLICY), "http://shop.invalid/")
        assert ["http://shop.invalid/"] * 2 == proxy.urls


@COLOURS
def test_a_wrapped_client_keeps_its_mounts(environment, client, transport):
    """The mounts of a client and the proxies of the environment retry, and hosts without a proxy go directly."""
    with serving() as proxy, serving() as shop:
        environment("ALL_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        environment("NO_PROXY", "127.0.0.1")
        asked = []

        def reply(request):
            asked.append(request)
            return httpx.Response(503 if len(asked) == 1 else 200)

        def made():
            return wrap(client(mounts={"http://mounted.invalid": httpx.MockTransport(reply)}), POLICY)

        urls = "http://mounted.invalid/", "http://shop.invalid/", f"http://127.0.0.1:{shop.server_port}/"
        assert [200] * 3 == [get(made(), url) for url in urls]
        assert (2, 2, 2) == (len(asked), len(proxy.urls), len(shop.urls))


def test_a_wrapped_client_takes_the_options_of_a_transport():
    """All options of a transport hold for each transport of the client."""
    answers = []

    def reply(_):
        answers.append(404 if not answers else 200)
        return httpx.Response(answers[-1])

    client = wrap(httpx.Client(transport=httpx.MockTransport(reply)), POLICY, statuses=[404], methods=["POST"])

    assert 200 == client.post("http://shop/").status_code


def test_what_is_no_plain_client_is_refused():
    """A client is wrapped once, and options are checked."""
    with pytest.raises(ConfigurationError, match="retries already"):
        wrap(wrap(httpx.Client()))
    with pytest.raises(
        TypeError, match=f"takes an {httpx.__name__}.Client or an {httpx.__name__}.AsyncClient, not 'client'"
    ):
        wrap("client")
    with pytest.raises(PolicyValueError, match="999 is no status"):
        wrap(httpx.Client(), statuses=[999])


def test_an_unopened_transport_can_be_closed(environment):
    """A transport with proxies can be closed without having been opened."""
    environment("HTTP_PROXY", "http://127.0.0.1:1")

    RetryTransport().close()
    asyncio.run(AsyncRetryTransport().aclose())
