"""httpx: one way to ask, in each colour."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import subprocess

import httpx
import pytest
import trio

from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport
from redrive.testing import VirtualClock, using
from tests.debian import needed, program

NEVER = httpx.Timeout(60)
"""Longer than any test takes."""


class Pauses(VirtualClock):
    """A clock that jumps, and lets something happen in each wait."""

    def __init__(self, *actions):
        super().__init__()
        self.actions = list(actions)
        self.waits = []

    def sleep(self, seconds):
        """Advance the clock, and run the next action."""
        self._waited(seconds)
        super().sleep(seconds)

    async def asleep(self, seconds):
        """Advance the clock, and run the next action."""
        done = self._waited(seconds)
        if inspect.isawaitable(done):
            await done
        await super().asleep(seconds)

    def _waited(self, seconds):
        self.waits.append(seconds)
        return self.actions.pop(0)() if self.actions else None


class Sender:
    """Sends one request with a client that retries, and waits in no time.

    Attributes:
        clock: of the retries.
        client: the last one.
        transport: the last one.
    """

    def __init__(self, name):
        self.name = name
        self.is_async = name != "sync"
        self.clock = Pauses()
        self.request = None

    def inner(self, **options):
        """Return the inner transport."""
        options = {"verify": _UNVERIFIED, **options}
        return (httpx.AsyncHTTPTransport if self.is_async else httpx.HTTPTransport)(**options)

    def retrying(self, policy=None, inner=None, **options):
        """Return a transport that retries."""
        kind = AsyncRetryTransport if self.is_async else RetryTransport
        return kind(policy, self.inner() if inner is None else inner, **options)

    def send(self, transport, method, url, **request):
        """Send a request, and read the answer."""
        return self.run(transport, lambda client: self.one(client, method, url, **request))

    def run(self, transport, function, **options):
        """Let a function use a client; in async colours it returns an awaitable."""
        with using(clock=self.clock):
            if not self.is_async:
                with httpx.Client(transport=transport, timeout=NEVER, **options) as client:
                    return function(client)
            runner = trio.run if self.name == "trio" else lambda main: asyncio.run(main())
            return runner(lambda: self._main(transport, function, options))

    async def _main(self, transport, function, options):
        async with httpx.AsyncClient(transport=transport, timeout=NEVER, **options) as client:
            return await function(client)

    def one(self, client, method, url, *, stream=False, **request):
        """Return one request, built so that a test can change its timeouts between two attempts."""
        self.request = client.build_request(method, url, **request)
        return client.send(self.request, stream=stream)

    def be_patient(self):
        """Let the attempts that follow wait as long as it takes."""
        self.request.extensions["timeout"] = NEVER.as_dict()


_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE


@pytest.fixture(params=["sync", "asyncio", "trio"])
def colour(request):
    """Each colour."""
    return Sender(request.param)


@pytest.fixture(scope="session")
def self_signed(tmp_path_factory):
    """Return the TLS context of a server with an untrusted certificate."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        needed("openssl", lambda: program("openssl")),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.fixture
def sync():
    """Return the colour of plain calls, for tests without a colour."""
    return Sender("sync")


@pytest.fixture(params=["asyncio", "trio"])
def acolour(request):
    """Each colour that has hedges and cancellation."""
    return Sender(request.param)
