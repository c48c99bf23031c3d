"""requests and aiohttp: one way to ask."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from threading import Thread
from typing import Any, NamedTuple

import aiohttp
import pytest
import requests
import urllib3

import redrive.contrib.aiohttp
import redrive.contrib.requests
from redrive.contrib.requests import RetryAdapter
from redrive.policy.outcome import Record
from redrive.testing import using
from tests.contrib.httpx.conftest import Pauses, self_signed  # noqa: F401 - a fixture

PATIENT = 60
"""Seconds, longer than any test takes."""


class Got(NamedTuple):
    """What a caller gets."""

    status: int
    body: bytes
    record: Record


class Client:
    """Sends one request with a client that retries, and waits in no time."""

    name = ""
    errors: tuple[type[Exception], ...] = ()
    module: Any = None

    def __init__(self):
        self.clock = Pauses()

    def send(self, policy, method, url, *, hasty=False, **request):
        """Send a request; with ``hasty`` the first attempt waits only for a moment, for bytes or to connect."""
        with using(clock=self.clock):
            return self._send(policy, method, url, hasty=hasty, **request)

    def caught(self, policy, method, url, **request):
        """Send a request that fails, and return the error."""
        with pytest.raises(self.errors) as raised:
            self.send(policy, method, url, **request)
        return raised.value

    def plain(self, method, url, **request):
        """Send a request without retries, and raise the client's own error for a bad status."""
        raise NotImplementedError

    def _send(self, policy, method, url, *, hasty, **request):
        raise NotImplementedError


class OfRequests(Client):
    """requests."""

    name = "requests"
    errors = (requests.RequestException,)
    module = redrive.contrib.requests

    def adapter(self, policy=None, **options):
        """Return an adapter."""
        return RetryAdapter(policy, **options)

    def session(self, adapter):
        """Return a session that sends everything through an adapter."""
        session = requests.Session()
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        session.trust_env = False
        return session

    def _send(self, policy, method, url, *, hasty, verify=False, proxy=None, options=None, **request):
        phase = "connect" if hasty == "connect" else "read"
        timeout = urllib3.Timeout(**{"connect": PATIENT, "read": PATIENT, phase: 0.05 if hasty else PATIENT})
        if hasty:
            self.clock.actions.insert(0, lambda: setattr(timeout, f"_{phase}", PATIENT))
        proxies = None if proxy is None else {"http": proxy, "https": proxy}
        more = {"verify": verify, "proxies": proxies, "timeout": timeout, **request}
        with self.session(self.adapter(policy, **options or {})) as session:
            response = session.request(method, url, **more)
            return Got(response.status_code, response.content, response.__retry__)

    def plain(self, method, url, *, key=None):
        """See `Client.plain`."""
        headers = {} if key is None else {"Idempotency-Key": key}
        requests.request(method, url, headers=headers, timeout=PATIENT).raise_for_status()


class OfAiohttp(Client):
    """aiohttp."""

    name = "aiohttp"
    errors = (aiohttp.ClientError, TimeoutError)
    module = redrive.contrib.aiohttp

    def _send(self, *args, **more):
        return asyncio.run(self.asend(*args, **more))

    async def asend(self, policy, method, url, *, hasty=False, verify=False, options=None, session=None, **request):
        """Send a request from a coroutine."""
        phase = "connect" if hasty == "connect" else "sock_read"
        timeout = aiohttp.ClientTimeout(**{"total": None, "sock_read": PATIENT, phase: 0.05 if hasty else PATIENT})
        if hasty:
            self.clock.actions.insert(0, lambda: object.__setattr__(timeout, phase, PATIENT))
        middleware = redrive.contrib.aiohttp.retry(policy, **options or {})
        made = {"timeout": timeout, **(session or {}), "middlewares": [middleware]}
        async with (
            aiohttp.ClientSession(**made) as client,
            client.request(method, url, ssl=verify, **request) as response,
        ):
            return Got(response.status, await response.read(), response.__retry__)

    def plain(self, method, url, *, key=None):
        """See `Client.plain`."""
        headers = {} if key is None else {"Idempotency-Key": key}

        async def send():
            async with aiohttp.ClientSession() as client, client.request(method, url, headers=headers) as response:
                response.raise_for_status()
                await response.read()

        asyncio.run(send())


@pytest.fixture(params=[OfRequests, OfAiohttp], ids=lambda kind: kind.name)
def client(request):
    """Each client."""
    return request.param()


@pytest.fixture
def of_requests():
    """Return the client of requests."""
    return OfRequests()


@pytest.fixture
def of_aiohttp():
    """Return the client of aiohttp."""
    return OfAiohttp()


class Proxy:
    """A proxy that answers the first CONNECT as it is told, and opens tunnels afterwards.

    Args:
        first: the bytes of the first answer; b"" to close the connection, None to leave it open without an answer.
    """

    def __init__(self, first):
        self.connects = 0
        self._first = first
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = []
        self._threads = [Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self._threads.append(Thread(target=self._serve, args=[connection], daemon=True))
                self._threads[-1].start()

    def _serve(self, connection):
        head = b""
        with contextlib.suppress(OSError):
            while b"\r\n\r\n" not in head:
                head += connection.recv(1024)
            self.connects += 1
            if self.connects == 1:
                if self._first is None:
                    connection.recv(1)
                connection.sendall(self._first or b"")
                connection.close()
                return
            port = int(head.split()[1].rpartition(b":")[2])
            behind = socket.create_connection(("127.0.0.1", port))
            self._open.append(behind)
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            self._threads.append(Thread(target=self._pump, args=[behind, connection], daemon=True))
            self._threads[-1].start()
            self._pump(connection, behind)

    def _pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)
