"""Tests of requests with a first attempt that fails at a certain stage: the table of the documentation."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack

import httpx
import pytest

from redrive.retrying import http
from tests.architecture.source import DOCS
from tests.contrib.httpx.server import (
    GOAWAY_BEFORE,
    GOAWAY_OURS,
    HALF_BODY,
    HALF_HEAD,
    REFUSED_STREAM,
    RESET_AFTER,
    RESET_BEFORE,
    SLOW_BODY,
    SLOW_HEAD,
    Http2Server,
    HttpServer,
    answer,
)

KEY = {http.IDEMPOTENCY_KEY: '"one"'}
REQUESTS = {
    "GET": {"method": "GET"},
    "POST": {"method": "POST", "content": b"body"},
    "POST with a key": {"method": "POST", "content": b"body", "headers": KEY},
}
HTTP2 = {"http1": False, "http2": True}
HASTY = httpx.Timeout(60, read=0.05, pool=0.05)


# httpx leaves generators of bodies behind that it has not sent to their end, and trio complains of that.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning")


def _page() -> dict[str, list[int]]:
    """Return the table of the reference: for each stage the number of executions, by kind of request."""
    text = (DOCS / "reference" / "httpx.md").read_text()
    _, head, body = re.split(r"^(\| the first attempt .*\n\| ---.*\n)", text, flags=re.MULTILINE)
    assert list(REQUESTS) == [cell.strip() for cell in head.splitlines()[0].split("|")[2:-1]]
    rows = (line.split("|")[1:-1] for line in body.split("\n\n")[0].splitlines())
    return {name.strip(): [int(cell) for cell in cells] for name, *cells in rows}


class FailingRequest:
    """One request with a first attempt that fails."""

    def __init__(self, colour, stack, monkeypatch, self_signed):
        self.colour = colour
        self._stack = stack
        self._monkeypatch = monkeypatch
        self._self_signed = self_signed
        self.server = None

    def _send(self, request, server, inner=None, **options):
        self.server = self._stack.enter_context(server)
        transport = self.colour.retrying("1 1s", self.colour.inner(**options) if inner is None else inner)
        return self.colour.send(transport, url=self.server.url, **request)

    def scripted(self, step):
        """Send to a server that runs this step first."""
        return lambda request: self._send(request, HttpServer(step))

    def slow(self, step):
        """Send to a server that runs this step first, with a short timeout of the client."""

        def play(request):
            self.colour.clock.actions.append(self.colour.be_patient)
            return self._send({**request, "timeout": HASTY}, HttpServer(step))

        return play

    def http2(self, step):
        """Send to a server of HTTP/2 that runs this step first."""
        return lambda request: self._send(request, Http2Server(step), **HTTP2)

    def refused(self, request):
        """Send to a port without a listener."""
        server = HttpServer(listens=False)
        self.colour.clock.actions.append(server.listen)
        return self._send(request, server)

    def not_found(self, request):
        """Send while no name can be resolved."""

        def unknown(*_, **__):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        self._monkeypatch.setattr(socket, "getaddrinfo", unknown)
        self.colour.clock.actions.append(self._monkeypatch.undo)
        return self._send(request, HttpServer())

    def not_trusted(self, request):
        """Use a self-signed certificate."""
        return self._send(request, HttpServer(tls=self._self_signed), verify=True)

    def broken_tls(self, request):
        """Send to a server that closes the connection in the handshake."""
        server = _Hanging(tls=self._self_signed)
        return self._send(request, server)

    def pool(self, request):
        """Occupy the only connection with an answer that is not read."""
        server = self.server = self._stack.enter_context(HttpServer(answer(body=b"x" * 70_000)))
        transport = self.colour.retrying("1 1s", self.colour.inner(limits=httpx.Limits(max_connections=1)))

        def both(client):
            taken = client.send(client.build_request("GET", server.url), stream=True)
            self.colour.clock.actions += [lambda: self.colour.be_patient() or taken.close()]
            return self.colour.one(client, url=server.url, timeout=HASTY, **request)

        async def aboth(client):
            taken = await client.send(client.build_request("GET", server.url), stream=True)
            self.colour.clock.actions += [lambda: self.colour.be_patient() or taken.aclose()]
            return await self.colour.one(client, url=server.url, timeout=HASTY, **request)

        try:
            return self.colour.run(transport, aboth if self.colour.is_async else both)
        finally:
            server.executed = server.executed[1:]


class _Hanging(HttpServer):
    def _serve(self, plain, number, step):
        if number == 0:
            plain.recv(1)
            plain.close()
        else:
            super()._serve(plain, number, step)


PLAYS = {
    "name not found": [lambda scenario: scenario.not_found],
    "connection refused": [lambda scenario: scenario.refused],
    "no free connection in time": [lambda scenario: scenario.pool],
    "TLS handshake broken off": [lambda scenario: scenario.broken_tls],
    "certificate not trusted": [lambda scenario: scenario.not_trusted],
    "HTTP/2: stream refused": [lambda scenario: scenario.http2(REFUSED_STREAM)],
    "HTTP/2: server goes away, before our stream": [lambda scenario: scenario.http2(GOAWAY_BEFORE)],
    "HTTP/2: server goes away, after our stream": [lambda scenario: scenario.http2(GOAWAY_OURS)],
    "reset before the request was read": [lambda scenario: scenario.scripted(RESET_BEFORE)],
    "reset after the request was read": [lambda scenario: scenario.scripted(RESET_AFTER)],
    "half a head": [lambda scenario: scenario.scripted(HALF_HEAD)],
    "half a body": [lambda scenario: scenario.scripted(HALF_BODY)],
    "no head in time": [lambda scenario: scenario.slow(SLOW_HEAD)],
    "no body in time": [lambda scenario: scenario.slow(SLOW_BODY)],
    "503": [lambda scenario: scenario.scripted(answer(503))],
    "429, 425, 421 or 408": [
        lambda scenario, status=status: scenario.scripted(answer(status)) for status in (429, 425, 421, 408)
    ],
    "409": [lambda scenario: scenario.scripted(answer(409))],
    "404 or 501": [lambda scenario, status=status: scenario.scripted(answer(status)) for status in (404, 501)],
}


def test_the_table_is_complete():
    """Each stage of the documentation is played, and each that is played is documented."""
    assert list(_page()) == list(PLAYS)


def test_a_server_may_go_away_between_two_requests(colour):
    """After a GOAWAY between two requests, a second POST is sent on another connection."""

    def both(client):
        return [client.post(server.url), client.post(server.url)]

    async def aboth(client):
        return [await client.post(server.url), await client.post(server.url)]

    with Http2Server(answer(), GOAWAY_BEFORE) as server:
        transport = colour.retrying("1 1s", colour.inner(**HTTP2))
        responses = colour.run(transport, aboth if colour.is_async else both)

        assert [200, 200] == [response.status_code for response in responses]
        assert [0, 1] == [each.connection for each in server.executed]


def test_httpcore_does_not_send_half_a_stream(sync):
    """If httpcore itself changes the connection, a stream that was read is an error, not an empty body."""

    def body():
        yield b"body"

    def both(client):
        client.post(server.url)
        client.post(server.url, content=body())

    with Http2Server(answer(), GOAWAY_BEFORE) as server:
        transport = sync.retrying("1 1s", sync.inner(**HTTP2))
        with pytest.raises(httpx.StreamConsumed):
            sync.run(transport, both)

        assert 1 == len(server.executed)


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("name", PLAYS)
def test_requests_are_repeated_as_documented(colour, name, kind, monkeypatch, self_signed):
    """Requests are executed twice only if that is harmless, and are repeated if the first was proved not executed."""
    expected = _page()[name][list(REQUESTS).index(kind)]
    for play in PLAYS[name]:
        with ExitStack() as stack:
            scenario = FailingRequest(colour, stack, monkeypatch, self_signed)
            try:
                play(scenario)(REQUESTS[kind])
            except httpx.TransportError as error:
                ended = error
            else:
                ended = None
            scenario.server.close()

            assert [REQUESTS[kind]["method"]] * expected == [each.method for each in scenario.server.executed]
            assert ended is None or "redrive" not in str(ended)
