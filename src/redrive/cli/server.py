"""The HTTP server of the dashboard."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Collection
from types import FrameType

from redrive.cli.screen import say
from redrive.contrib import extra

with extra("web"):
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.errors import RedriveError
from redrive.runtime.systemd import Systemd
from redrive.web.several import Dashboards

# Seconds that open requests have when the server stops.
GRACE = 3

# Seconds within which the headers of a request arrive, and after a response the rest of a body that was not read.
# uvicorn waits for both without a limit, so that connections which send a byte now and then would use up the open files
# of the process. A body that is read has a limit of its own; see `redrive.web.reading`.
HEADERS = 10.0


class PromptProtocol(H11Protocol):
    """A connection that ends if the headers of a request are late, or the rest of a body is that nothing reads."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the base class
        """Begin to wait for the first request."""
        super().connection_made(transport)
        accepted = transport.get_extra_info("socket")
        # The headers and the body of a response are two writes. Without this, the second one waits for the browser to
        # acknowledge the first, for 40 ms. asyncio sets it only if a listening socket names its protocol.
        if accepted is not None and accepted.family in {socket.AF_INET, socket.AF_INET6}:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read, and wait on if the headers of a request, or the rest of a body, have not arrived."""
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        """Go on, and wait for the rest of the body; a connection that is closed at once might lose the response."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        self._done()
        super().connection_lost(exc)

    def _wait(self) -> None:
        is_unread = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        if self.conn.their_state is not h11.IDLE and not is_unread:
            self._done()
        elif self._late is None:
            # It is not begun anew by each byte.
            self._late = self.loop.call_later(HEADERS, self.transport.close)

    def _done(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Server(uvicorn.Server):
    """A server that ends the streams of open pages when it is asked to stop; they would hold it up.

    Args:
        dashboards: what it serves.
        host: the name or the address at which it listens.
        port: 0 selects a free one.
        prefix: the path that a proxy removes.
        proxies: addresses and networks of the proxies whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed.
    """

    def __init__(
        self,
        dashboards: Dashboards,
        host: str = "127.0.0.1",
        port: int = 0,
        prefix: str = "",
        *,
        proxies: Collection[str] = (),
    ) -> None:
        super().__init__(
            uvicorn.Config(
                dashboards.application(),
                host=host,
                port=port,
                root_path=prefix,
                http=PromptProtocol,
                # uvicorn believes each process of this machine otherwise.
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._dashboards = dashboards
        self._systemd = Systemd()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the address, print it, and serve until the process is asked to stop."""
        listening = sockets or _listen(self.config.host, self.config.port)
        for each in listening:
            for path in self._dashboards.paths:
                of = f" of {path.strip('/')}" if path != "/" else ""
                say(f"the dashboard{of} is at http://{_address(*each.getsockname()[:2])}{path}; Ctrl-C ends it")
        super().run(listening)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and notify the service manager."""
        await super().startup(sockets)
        self._systemd.notify("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then the server."""
        self._systemd.notify("STOPPING=1")
        self._dashboards.stop()
        super().handle_exit(sig, frame)


def _listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at all addresses of a host; raise `RedriveError` if one is not free."""
    listening: list[socket.socket] = []
    try:
        found = {(family, at[:2]) for family, *_, at in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        for family, (name, number) in sorted(found):
            try:
                listening.append(socket.create_server((str(name), int(number)), family=family))
            except OSError as error:
                # The name ``localhost`` has an address of IPv6 also where the machine has IPv6 switched off.
                if not listening or error.errno != errno.EADDRNOTAVAIL:
                    raise
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise RedriveError(
            f"the dashboard cannot listen at {_address(host, port)}: {why}; give another --port (0 selects a free one) "
            "or --host, or end the program that listens there"
        ) from error
    return listening


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
