"""HTTP servers on the loopback interface that fail on demand and record the requests that they executed.

A server has a script: one step for each request; after its end all requests are answered. A connection takes its step
when it is accepted, so that the order does not depend on speed. A slow server waits until its client closes the
connection, without sleeping."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from threading import Event, Lock, Thread
from typing import Self

import h2.config
import h2.connection
import h2.events

__all__ = [
    "GOAWAY_BEFORE",
    "GOAWAY_OURS",
    "HALF_BODY",
    "HALF_HEAD",
    "REFUSED_STREAM",
    "RESET_AFTER",
    "RESET_BEFORE",
    "SLOW_BODY",
    "SLOW_HEAD",
    "Executed",
    "Http2Server",
    "HttpServer",
    "answer",
    "chunked",
]

_AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: a close sends a reset


@dataclass(frozen=True)
class Executed:
    """A request that a server has taken on."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


Step = Callable[[socket.socket], bool]
"""Treats one request; returns whether the connection stays open."""


def answer(status: int = 200, body: bytes = b"ok", **headers: str) -> Step:
    """Return an answer with a length."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return _sends("\r\n".join([*lines, "", ""]).encode() + body, stays=True)


def chunked(status: int, *chunks: bytes, ends: bool = True, content_type: str = "text/plain") -> Step:
    """Return an answer without a length."""
    parts = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return _sends(head + parts + (b"0\r\n\r\n" if ends else b""), stays=ends)


def _sends(data: bytes, *, stays: bool) -> Step:
    def step(connection: socket.socket) -> bool:
        connection.sendall(data)
        return stays

    return step


def _reset(connection: socket.socket) -> bool:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    return False


def _after(data: bytes) -> Step:
    def step(connection: socket.socket) -> bool:
        if data:
            connection.sendall(data)
        while connection.recv(1024):
            pass  # until the client goes away
        return False

    return step


def RESET_BEFORE(connection: socket.socket) -> bool:  # noqa: N802 - a step like the others
    """Reset the connection before any part of the request was read."""
    return _reset(connection)


RESET_AFTER = _reset
HALF_HEAD = _sends(b"HTTP/1.1 200 O", stays=False)
HALF_BODY = _sends(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.", stays=False)
SLOW_HEAD = _after(b"")
SLOW_BODY = _after(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.")


class Listener:
    """Accepts connections, each in a thread of its own.

    Args:
        script: what becomes of the requests, in order.
        tls: wraps connections.
        listens: from the beginning; otherwise connections are refused until `listen`.
    """

    def __init__(self, *script: Step, tls: ssl.SSLContext | None = None, listens: bool = True) -> None:
        self.executed: list[Executed] = []
        self.has_executed = Event()
        self.connections = 0
        self._script = list(script)
        self._tls = tls
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}/"
        if listens:
            self.listen()

    def listen(self) -> None:
        """Accept from now on."""
        self._listener.listen()
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(connection)
            self.connections += 1
            self._start(self._serve, connection, self.connections - 1, self._step())

    def _step(self) -> Step:
        with self._lock:
            return self._script.pop(0) if self._script else answer()

    def _serve(self, plain: socket.socket, number: int, step: Step) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            self._talk(connection, number, step)
        except OSError:
            pass  # the client has gone away
        finally:
            connection.close()
            plain.close()

    def _talk(self, connection: socket.socket, number: int, step: Step) -> None:
        raise NotImplementedError

    def refuse(self) -> None:
        """Refuse connections from now on; those that were accepted go on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads[:1]:  # the one that accepts: it may have accepted one more
            thread.join(10)

    def close(self) -> None:
        """Refuse connections, and wait until all that were accepted have ended."""
        self.refuse()
        for thread in list(self._threads):
            thread.join(10)
        alive = [thread for thread in self._threads if thread.is_alive()]
        assert [] == alive, "a client has left connections open"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.close()


class HttpServer(Listener):
    """Speaks HTTP/1.1."""

    def _talk(self, connection: socket.socket, number: int, step: Step) -> None:
        if step is RESET_BEFORE:
            connection.recv(1, socket.MSG_PEEK)  # it has come, and nobody reads it
            step(connection)
            return
        steps = chain([step], iter(self._step, None))
        with connection.makefile("rb") as stream:
            while (request := _read(stream, number)) is not None:
                self.executed.append(request)
                self.has_executed.set()
                if not next(steps)(connection):
                    return


def _read(stream, number: int) -> Executed | None:
    first = stream.readline()
    if not first:
        return None
    method, target, _ = first.decode().split(" ")
    headers = {}
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(stream.readline(), 16):
            body += stream.read(size)
            stream.readline()
        stream.readline()
    else:
        body = stream.read(int(headers.get("content-length", 0)))
    return Executed(method, target, headers, body, number)


# ------------------------------------------------------------------------------------------------------------- HTTP/2


def REFUSED_STREAM(state: h2.connection.H2Connection, stream: int) -> bool:  # noqa: N802 - a step like the others
    """Refuse the stream before any work is done; the connection stays."""
    state.reset_stream(stream, error_code=7)
    return False


def GOAWAY_BEFORE(state: h2.connection.H2Connection, stream: int) -> bool:  # noqa: N802 - a step like the others
    """Send GOAWAY without having worked on this stream."""
    state.close_connection(last_stream_id=stream - 1)
    return False


def GOAWAY_OURS(state: h2.connection.H2Connection, stream: int) -> bool:  # noqa: N802 - a step like the others
    """Send GOAWAY with this stream possibly begun."""
    state.close_connection(last_stream_id=stream)
    return True


def _answered(state: h2.connection.H2Connection, stream: int) -> bool:
    state.send_headers(stream, [(":status", "200"), ("content-length", "2")])
    state.send_data(stream, b"ok", end_stream=True)
    return True


@dataclass
class _Open:
    headers: dict[str, str]
    body: bytes = field(default=b"")


class Http2Server(Listener):
    """Speaks HTTP/2, to clients that know it does. Its steps return whether the request was executed."""

    def _talk(self, connection: socket.socket, number: int, step) -> None:
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        requests: dict[int, _Open] = {}
        steps = chain([step], iter(self._step, None))
        connection.sendall(state.data_to_send())
        while data := connection.recv(65536):
            for event in state.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    requests[event.stream_id] = _Open({k.decode(): v.decode() for k, v in event.headers})
                elif isinstance(event, h2.events.DataReceived):
                    requests[event.stream_id].body += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    request, step = requests.pop(event.stream_id), next(steps)
                    if (step if step in _FAULTS else _answered)(state, event.stream_id):
                        method, target = request.headers[":method"], request.headers[":path"]
                        self.executed.append(Executed(method, target, request.headers, request.body, number))
            connection.sendall(state.data_to_send())
            if state.state_machine.state is h2.connection.ConnectionState.CLOSED:
                _after(b"")(connection)  # a close would be a reset, and might destroy what was sent


_FAULTS = (REFUSED_STREAM, GOAWAY_BEFORE, GOAWAY_OURS)
