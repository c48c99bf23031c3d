"""A proxy in front of a TCP server that injects faults into chosen requests.

It parses no protocol. A *request* is the bytes of one read from the client, which on the loopback interface is one
message, or one pipeline of them, as long as clients wait for their answers. A fault hits the first request that
contains its ``when``. The faults differ in what matters for a retry: whether the server has executed the request.

=================  ====================================================  ==========================
fault              what the client sees                                  executed
=================  ====================================================  ==========================
``CUT_BEFORE``     the connection ends                                   no
``SWALLOW``        nothing, ever                                         no
``CUT_AFTER``      the connection ends, without a byte of the answer     yes, when the cut is seen
``TRUNCATE``       the first ``size`` bytes of the answer, then the end  yes, when the cut is seen
``DROP``           nothing, ever                                         yes, `Fault.wait_answered`
``HOLD``           nothing until `Fault.release`, then the answer        yes, `Fault.wait_answered`
=================  ====================================================  ==========================

Nothing here sleeps: a delay is a ``HOLD`` that the test releases. The proxy runs in threads, so synchronous and
asynchronous tests can use it. ::

    with Proxy(("127.0.0.1", server.port)) as proxy:
        fault = proxy.on(FaultKind.CUT_AFTER, when=b"COMMIT")
        ...  # talk to proxy.host, proxy.port
        assert fault.hits == 1
"""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

__all__ = ["PATIENCE", "Fault", "FaultKind", "Proxy"]

PATIENCE = 60.0
"""Seconds after which a test that waits for a signal fails."""

_CHUNK = 1 << 16
_AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: a close sends a reset


class FaultKind(Enum):
    """The kind of a fault; see the table at the top."""

    CUT_BEFORE = auto()
    SWALLOW = auto()
    CUT_AFTER = auto()
    TRUNCATE = auto()
    DROP = auto()
    HOLD = auto()


@dataclass
class Fault:
    """A fault.

    Attributes:
        kind: its kind.
        when: bytes that the request contains; empty for every request.
        times: how many requests are hit.
        size: bytes of the answer that are let through, for ``TRUNCATE``.
        reset: whether the client's connection ends by a reset (``ECONNRESET``) instead of an end of stream.
        hits: how many requests have been hit.
    """

    kind: FaultKind
    when: bytes = b""
    times: int = 1
    size: int = 1
    reset: bool = False
    hits: int = 0
    _hit: Event = field(default_factory=Event, repr=False)
    _answered: Event = field(default_factory=Event, repr=False)
    _released: Event = field(default_factory=Event, repr=False)

    def wait_hit(self) -> None:
        """Wait until a request has been hit, and has gone to the server if this kind lets it through."""
        assert self._hit.wait(PATIENCE), f"no request has met {self}"

    def wait_answered(self) -> None:
        """Wait until the server has answered a request that was hit, and so has executed it."""
        assert self._answered.wait(PATIENCE), f"the server has answered no request that met {self}"

    def release(self) -> None:
        """Let through what a ``HOLD`` holds now and would hold later."""
        self._released.set()


class _Connection:
    """A client's connection, its connection to the server, and a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.sockets = (client, server)
        self._proxy = proxy
        self._client, self._server = client, server
        self._awaited: Fault | None = None  # the fault of the request that the server answers next
        self._over = Lock()  # taken once
        self.threads = [Thread(target=self._guarded, args=(each,), daemon=True) for each in (self._up, self._down)]

    def _guarded(self, work: object) -> None:
        with contextlib.suppress(OSError):  # one side has ended, so the other is ended too
            work()  # type: ignore[operator]
        self.end()

    def _up(self) -> None:
        while request := self._client.recv(_CHUNK):
            fault = self._proxy.hit_by(request)
            if fault is not None and fault.kind is FaultKind.CUT_BEFORE:
                fault._hit.set()
                return self.end(reset=fault.reset)
            if fault is None or fault.kind is not FaultKind.SWALLOW:
                self._awaited = fault or self._awaited
                self._server.sendall(request)
            if fault is not None:
                fault._hit.set()
        return None

    def _down(self) -> None:
        while answer := self._server.recv(_CHUNK):
            fault = self._awaited
            if fault is None:
                self._client.sendall(answer)
                continue
            fault._answered.set()
            if fault.kind is FaultKind.DROP:
                continue  # and all that follows, as on a connection that is lost without an error
            if fault.kind is FaultKind.HOLD:
                fault._released.wait(PATIENCE)
                self._awaited = None
                self._client.sendall(answer)
                continue
            self._client.sendall(answer[: fault.size] if fault.kind is FaultKind.TRUNCATE else b"")
            return self.end(reset=fault.reset)
        return None

    def end(self, *, reset: bool = False) -> None:
        """End both connections. Idempotent."""
        if not self._over.acquire(blocking=False):
            return
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            # While the other thread reads from the client, a close has no effect. Shutting down the reading side alone
            # wakes that thread; shutting down both would send the client a proper end of stream instead of a reset.
            self._client.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
        if reset:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._client.close()

    def close(self) -> None:
        """End both connections, and wait until the threads have ended."""
        self.end()
        for thread in self.threads:
            thread.join(PATIENCE)
        for each in self.sockets:
            each.close()


class Proxy:
    """A proxy on the loopback interface in front of one server.

    Args:
        upstream: host and port of the server, or the path of its Unix socket.

    Attributes:
        host: the address that it listens on.
        port: the port that it listens on; the same after `refuse` and `accept`.
        faults: the faults to inject; the first one that hits a request is used.
        requests: the bytes that came from clients, one entry for each read.
        connections: how many clients have connected.
    """

    host = "127.0.0.1"

    def __init__(self, upstream: tuple[str, int] | str) -> None:
        self.faults: list[Fault] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._upstream = upstream
        self._lock = Lock()
        self._open: list[_Connection] = []
        self._listener: socket.socket | None = None
        self._thread: Thread | None = None
        self.accept()

    def on(self, kind: FaultKind, when: bytes = b"", *, times: int = 1, size: int = 1, reset: bool = False) -> Fault:
        """Add a fault; see `Fault`."""
        fault = Fault(kind, when, times, size, reset)
        self.faults.append(fault)
        return fault

    def count(self, part: bytes) -> int:
        """Return how many requests have contained these bytes."""
        return sum(part in request for request in self.requests)

    def refuse(self) -> None:
        """Stop listening, so that clients are refused, and end the open connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self.cut()

    def accept(self) -> None:
        """Listen, again after `refuse`."""
        listener = socket.create_server((self.host, self.port))
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._thread = Thread(target=self._serve, args=(listener,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End every open connection."""
        with self._lock:
            standing, self._open = self._open, []
        for fault in self.faults:
            fault._released.set()
        for connection in standing:
            connection.close()

    def close(self) -> None:
        """Stop listening and end all connections."""
        self.refuse()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hit_by(self, request: bytes) -> Fault | None:
        """Record a request and return the fault that hits it, if any."""
        with self._lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.hits < fault.times and fault.when in request:
                    fault.hits += 1
                    return fault
        return None

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = _to(self._upstream)
        except OSError:  # the client sees the end of the stream, as from any proxy without a server
            client.close()
            return
        connection = _Connection(self, client, server)
        with self._lock:
            self.connections += 1
            self._open.append(connection)
        for thread in connection.threads:
            thread.start()


def _to(address: tuple[str, int] | str) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection
