"""Connections that a client could hold open: streams of events, and requests that do not arrive."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request as HttpRequest

import redrive
from redrive.cli import server
from redrive.clock import SystemClock
from redrive.operate.exchange import Refusal, Site
from redrive.web import Account, Role, Users, create_app, hash_token, reading
from redrive.web.asgi import Dashboard
from redrive.web.several import Dashboards
from redrive.web.streams import Streams
from tests.retrying.helpers import JumpingLoop, LoopClock
from tests.web.served import served

USERS = Users({name: Account(Role.READ, token=hash_token(name)) for name in ("ann", "bob")})
PATIENCE = 60


@pytest.fixture
def app() -> Iterator[redrive.App]:
    """Return an App."""
    found = redrive.App("memory://")
    found.open()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let limits be reached soon."""
    monkeypatch.setattr("redrive.web.streams.MOST", 2)


def _status(client: httpx.Client, name: str) -> int:
    with client.stream("GET", "/live", headers={"Authorization": f"Bearer {name}"}) as answer:
        return answer.status_code


def test_a_user_has_a_number_of_streams(app: redrive.App):
    """A further stream of a user is refused until one ends; other users and pages do not notice."""
    with served(create_app(app, auth=USERS)) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        ann = {"Authorization": "Bearer ann"}
        with contextlib.ExitStack() as opened:
            first = [opened.enter_context(client.stream("GET", "/live", headers=ann)).status_code for _ in range(2)]
            refused = client.get("/live", headers=ann)

            assert [200, 200, 429] == [*first, refused.status_code]
            assert "60" == refused.headers["retry-after"]
            assert 200 == _status(client, "bob")
            assert 200 == client.get("/queues", headers=ann).status_code
        for _ in range(PATIENCE * 20):
            if _status(client, "ann") == 200:
                return
            SystemClock().sleep(0.05)
        pytest.fail("the end of a stream is not counted")


def test_an_ended_stream_counts_no_more():
    """A stream counts until it ends, also by an error of the connection."""
    streams = Streams()

    async def events() -> AsyncIterator[str]:
        """Yield one event."""
        yield "event: changed\n\n"

    async def lost(_: object) -> None:
        """Fail as a lost connection does."""
        raise ConnectionResetError

    async def receive() -> dict[str, str]:
        """Wait for ever."""
        await asyncio.Event().wait()
        return {}

    for _ in range(5):
        with pytest.raises((ConnectionResetError, ExceptionGroup)):
            asyncio.run(streams.open("ann", events())({"type": "http"}, receive, lost))  # type: ignore[arg-type]
    streams.open("ann", events())
    streams.open("ann", events())
    with pytest.raises(Refusal):
        streams.open("ann", events())


@contextlib.contextmanager
def _running(app: redrive.App) -> Iterator[tuple[str, int]]:
    """Run the server of ``redrive web`` in a thread, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        running = server.Server(Dashboards({"": Dashboard(Site(app), USERS, None)}))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            yield place.getsockname()
        finally:
            running.should_exit = True
            thread.join()


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


class Wire(asyncio.Transport):
    """The server's end of a connection.

    Attributes:
        sent: what the server has sent.
        closed_at: the time of the loop when the server closed it; None before that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed_at: float | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what is sent."""
        self.sent += data

    def close(self) -> None:
        """Note the time."""
        self.closed_at = asyncio.get_running_loop().time()

    def is_closing(self) -> bool:
        """Return True after the end."""
        return self.closed_at is not None

    def resume_reading(self) -> None:
        """Read on, as always."""


def _connected(app: redrive.App) -> tuple[Any, Wire]:
    """Return a connection to the server of ``redrive web``, and its wire."""
    running, wire = server.Server(Dashboards({"": Dashboard(Site(app), USERS, None)})), Wire()
    running.config.load()
    protocol: Any = running.config.http_protocol_class
    connection = protocol(running.config, running.server_state, {}, asyncio.get_running_loop())
    connection.connection_made(wire)
    return connection, wire


@pytest.mark.parametrize("parts", [[], [b"G"], [GET], [GET + b"X: y\r\n"] + [b"a: b\r\n"] * 100])
def test_late_headers_end_a_connection(app: redrive.App, parts: list[bytes]):
    """A connection without a whole head ends in time, also if it sends a little each second."""

    async def main() -> Wire:
        """Send the parts, and wait."""
        connection, wire = _connected(app)
        for part in itertools.takewhile(lambda _: not wire.is_closing(), parts):
            connection.data_received(part)
            await LoopClock().asleep(1)
        await LoopClock().asleep(3600)
        return wire

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        wire = runner.run(main())

    assert (b"", server.HEADERS) == (wire.sent, wire.closed_at)


HOST = b"Host: localhost\r\nOrigin: http://localhost\r\n"
LONG = HOST + b"Content-Length: 100000\r\n\r\n"
CHUNKED = HOST + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /login HTTP/1.1\r\n" + LONG, b"200"),
        (b"GET /login HTTP/1.1\r\n" + CHUNKED, b"200"),
        (b"POST /jobs/1 HTTP/1.1\r\n" + LONG, b"303"),
        (b"POST /logout HTTP/1.1\r\n" + LONG, b"303"),
        (b"POST /queues HTTP/1.1\r\n" + CHUNKED, b"405"),
    ],
    ids=["get", "chunked", "refused", "logout", "unknown"],
)
def test_a_body_that_nothing_reads_ends_a_connection(
    app: redrive.App, head: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
):
    """After the response the rest of a body has as long as headers have, also if it comes byte by byte."""
    monkeypatch.setattr(server, "HEADERS", 1.0)
    with _running(app) as address, socket.create_connection(address, PATIENCE) as client:
        client.sendall(head)
        answer = client.recv(20)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                client.sendall(b"a")
                SystemClock().sleep(0.02)
        with contextlib.suppress(ConnectionError):
            while client.recv(10_000):
                pass

    assert answer.startswith(b"HTTP/1.1 " + status)


def test_a_body_that_comes_after_the_response_keeps_the_connection(app: redrive.App):
    """The rest of a body may arrive after the response; the next request is answered."""
    with _running(app) as address, socket.create_connection(address, PATIENCE) as client:
        client.sendall(GET + b"Content-Length: 2\r\n\r\na")
        answer = client.recv(10_000)
        client.sendall(b"b" + GET + b"\r\n")
        while part := client.recv(10_000):
            answer += part

    assert 2 == answer.count(b"HTTP/1.1 200")


def test_a_response_is_sent_without_a_delay(app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """Its second write waits for no acknowledgement of the first, which browsers delay by 40 ms."""
    known: list[bool] = []
    made = server.PromptProtocol.connection_made

    def connection_made(self: Any, transport: asyncio.Transport) -> None:
        """Note what is set for the connection."""
        made(self, transport)
        accepted = transport.get_extra_info("socket")
        known.append(bool(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))

    monkeypatch.setattr(server.PromptProtocol, "connection_made", connection_made)
    with _running(app) as address, socket.create_connection(address, PATIENCE) as client:
        client.sendall(GET + b"\r\n")
        client.recv(10_000)

    assert [True] == known


def test_a_second_request_has_the_same_time(app: redrive.App):
    """A connection that was used once ends too; a request that arrives in time is answered."""

    async def main() -> Wire:
        """Send a request just in time, and a part of a second one."""
        connection, wire = _connected(app)
        connection.data_received(GET)
        await LoopClock().asleep(server.HEADERS - 1)
        connection.data_received(b"\r\n")
        await asyncio.gather(*connection.tasks)
        connection.data_received(GET)
        await LoopClock().asleep(3600)
        return wire

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        wire = runner.run(main())

    assert wire.sent.startswith(b"HTTP/1.1 200")
    assert 1 == wire.sent.count(b"HTTP/1.1")
    assert 2 * server.HEADERS - 1 == wire.closed_at


@pytest.mark.realtime
def test_a_stream_is_not_ended_by_the_time_of_headers(app: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """A request whose headers have arrived may take longer."""
    monkeypatch.setattr(server, "HEADERS", 0.3)
    with _running(app) as (host, port), httpx.Client(timeout=PATIENCE) as client:
        headers = {"Authorization": "Bearer ann"}
        with client.stream("GET", f"http://{host}:{port}/live", headers=headers) as answer:
            texts = answer.iter_text()
            begin = next(texts)
            SystemClock().sleep(0.6)
            app.named("later").enqueue()
            changed = next(texts)

    assert ("retry: 2000\n\n", True) == (begin, "changed" in changed)


def test_a_body_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch):
    """A form that is sent too slowly is refused, and its connection ends."""
    monkeypatch.setattr(reading, "LONGEST", 0.0)

    async def receive() -> dict[str, str]:
        """Wait for ever."""
        await asyncio.Event().wait()
        return {}

    with pytest.raises(Refusal) as refused:
        asyncio.run(reading.read_body(HttpRequest({"type": "http", "method": "POST", "headers": []}, receive)))  # type: ignore[arg-type]

    assert (408, "close") == (refused.value.status, refused.value.headers["Connection"])
