"""The HTTP server of the dashboard."""

from __future__ import annotations

import errno
import socket
from types import FrameType

from redrive.cli.screen import say
from redrive.contrib import extra

with extra("web"):
    import uvicorn

from redrive.errors import RedriveError
from redrive.runtime.systemd import Systemd
from redrive.web.asgi import Dashboard

# Seconds that open requests have when the server stops.
GRACE = 3


class Server(uvicorn.Server):
    """A server that ends the streams of open pages when it is asked to stop; they would hold it up."""

    def __init__(self, dashboard: Dashboard, host: str = "127.0.0.1", port: int = 0, prefix: str = "") -> None:
        super().__init__(
            uvicorn.Config(
                dashboard.application(),
                host=host,
                port=port,
                root_path=prefix,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._dashboard = dashboard
        self._systemd = Systemd()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the address, print it, and serve until the process is asked to stop."""
        listening = sockets or _listen(self.config.host, self.config.port)
        for each in listening:
            say(f"the dashboard is at http://{_address(*each.getsockname()[:2])}/; Ctrl-C ends it")
        super().run(listening)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and notify the service manager."""
        await super().startup(sockets)
        self._systemd.notify("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then the server."""
        self._systemd.notify("STOPPING=1")
        self._dashboard.pulse.stop()
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
