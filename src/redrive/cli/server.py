"""The HTTP server of the dashboard."""

from __future__ import annotations

from types import FrameType

from redrive.cli.screen import say
from redrive.contrib import extra

with extra("web"):
    import uvicorn

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

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Start, and print the address, unless the caller listens."""
        await super().startup(sockets)  # type: ignore[arg-type]
        for each in [] if sockets else self.servers:
            name, port = each.sockets[0].getsockname()[:2]
            say(f"the dashboard is at http://{name if ':' not in name else f'[{name}]'}:{port}/; Ctrl-C ends it")
        self._systemd.notify("READY=1")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then the server."""
        self._systemd.notify("STOPPING=1")
        self._dashboard.pulse.stop()
        super().handle_exit(sig, frame)
