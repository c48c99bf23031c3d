"""A proxy that delays each byte between clients and a server, and counts round trips."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

__all__ = ["Distance", "distant"]


class Distance:
    """A proxy on the loopback interface.

    Attributes:
        port: its port.
        seconds: the time of a round trip through it.
        trips: the round trips so far: how often a client has sent something as the first on its connection, or after
            an answer. Several statements in one message are one.
        open: the connections that are open.
        last_at: when something was carried last, an instant of the monotonic clock.
    """

    def __init__(self, upstream: Path, seconds: float) -> None:
        self.port = self.trips = self.open = 0
        self.seconds = seconds
        self.last_at = time.monotonic()
        self._upstream = upstream
        self._connecting: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Carry what clients and the server send, for the length of an ``async with`` block."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Side(self, is_client=True), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    def connect(self, client: _Side) -> None:
        """Connect to the server for a client."""
        connecting = asyncio.ensure_future(self._connect(client))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)

    async def _connect(self, client: _Side) -> None:
        loop = asyncio.get_running_loop()
        _, server = await loop.create_unix_connection(lambda: _Side(self, is_client=False), str(self._upstream))
        server.connect(client)
        client.connect(server)


class _Side(asyncio.Protocol):
    """One side of a connection through the proxy."""

    def __init__(self, proxy: Distance, *, is_client: bool) -> None:
        self._proxy = proxy
        self._is_client = is_client
        self._other: _Side | None = None
        self._early: list[bytes] = []
        self._transport: asyncio.Transport
        self.has_answer = True
        """True if the other side was the last to send something."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect a client to the server."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_client:
            self._proxy.open += 1
            self._proxy.connect(self)

    def connect(self, other: _Side) -> None:
        """Carry what this side sends to another one."""
        self._other = other
        for chunk in self._early:
            self.data_received(chunk)

    def data_received(self, data: bytes) -> None:
        """Carry what this side sends, after half of the time of a round trip."""
        if self._other is None:
            self._early.append(data)
            return
        self._proxy.trips += self._is_client and self.has_answer
        self.has_answer, self._other.has_answer = False, True
        self._proxy.last_at = time.monotonic()
        asyncio.get_running_loop().call_later(self._proxy.seconds / 2, self._other.write, data)

    def write(self, data: bytes) -> None:
        """Deliver what the other side has sent."""
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side."""
        del exc
        self._proxy.open -= self._is_client
        if self._other is not None:
            self._other.close()

    def close(self) -> None:
        """Close this side."""
        self._transport.close()


@contextlib.contextmanager
def distant(upstream: Path, seconds: float) -> Iterator[Distance]:
    """Run a proxy in a thread for the length of a ``with`` block.

    Args:
        upstream: the Unix socket of the server.
        seconds: the time of a round trip through the proxy.

    Yields:
        The proxy.
    """
    ready: list[asyncio.AbstractEventLoop] = []
    proxy, listening, ended = Distance(upstream, seconds), threading.Event(), asyncio.Event()

    async def run() -> None:
        ready.append(asyncio.get_running_loop())
        async with proxy.listening():
            listening.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    listening.wait()
    try:
        yield proxy
    finally:
        ready[0].call_soon_threadsafe(ended.set)
        thread.join()
