"""Connections that a client could hold open: streams of events, and requests that do not arrive."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from starlette.requests import Request as HttpRequest

import redrive
from redrive.cli import server
from redrive.clock import SystemClock
from redrive.web import Account, Role, Users, create_app, hash_token, reading
from redrive.web.asgi import Dashboard
from redrive.web.exchange import Refusal, Site
from redrive.web.streams import Streams
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
    monkeypatch.setattr(server, "HEADERS", 0.3)


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
        running = server.Server(Dashboard(Site(app), USERS, None))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            yield place.getsockname()
        finally:
            running.should_exit = True
            thread.join()


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("parts", [[], [b"G"], [GET], [GET + b"X: y\r\n"] + [b"a: b\r\n"] * 100])
def test_late_headers_end_a_connection(app: redrive.App, parts: list[bytes]):
    """A connection without a whole head ends, also if it sends a little again and again."""
    with _running(app) as address, socket.create_connection(address, PATIENCE) as client:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                client.sendall(part)
                SystemClock().sleep(0.02)
        with contextlib.suppress(ConnectionError):
            assert b"" == client.recv(1)


def test_a_second_request_has_the_same_time(app: redrive.App):
    """A connection that was used once ends too; a request that arrives in time is answered."""
    with _running(app) as address, socket.create_connection(address, PATIENCE) as client:
        client.sendall(GET + b"\r\n")
        answer = client.recv(10_000)
        client.sendall(GET)
        while part := client.recv(10_000):
            answer += part

    assert answer.startswith(b"HTTP/1.1 200")
    assert 1 == answer.count(b"HTTP/1.1")


@pytest.mark.realtime
def test_a_stream_is_not_ended_by_the_time_of_headers(app: redrive.App):
    """A request whose headers have arrived may take longer."""
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
