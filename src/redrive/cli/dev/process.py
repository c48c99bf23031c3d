"""The child process of `redrive dev`: the worker and the dashboard of an app on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from redrive.app.app import App
from redrive.cli import main
from redrive.cli.dev.setup import Setup
from redrive.cli.loading import load_app
from redrive.cli.server import Server
from redrive.cli.worker import leave, start_log, stuck
from redrive.clock import SystemClock
from redrive.operate.exchange import Dev, Site
from redrive.runtime.worker import Worker
from redrive.web.asgi import Dashboard
from redrive.web.link import LoginLink

# The time in which running handlers may finish after a file was saved.
PATIENCE = timedelta(seconds=1)


class AdvancedClock(SystemClock):
    """The clock of this machine, advanced by a span that a file keeps while processes come and go."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = timedelta(microseconds=int(path.read_text()) if path.exists() else 0)

    def now(self) -> datetime:
        """Return the present instant, advanced."""
        return super().now() + self._offset

    def advance(self, by: timedelta) -> None:
        """Advance the clock."""
        self._offset += by
        self._path.write_text(str(self._offset // timedelta.resolution))


class DevWorker:
    """A worker that stops while the clock is advanced, so that it loses no lease by that.

    Args:
        app: the App.
        clock: of the throw-away database; None if the clock cannot be advanced.
    """

    def __init__(self, app: App, clock: AdvancedClock | None) -> None:
        self._app = app
        self._clock = clock
        self._worker = Worker(app, shutdown_timeout=PATIENCE)
        self._steps: list[tuple[timedelta, asyncio.Future[None]]] = []
        self._is_stopping = False

    async def run(self) -> None:
        """Run jobs until stopped."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._worker.run()
            if self._worker.abandoned or self._is_stopping:
                return
            for by, done in self._steps:
                assert self._clock is not None  # otherwise nothing advances it
                self._clock.advance(by)
                done.set_result(None)
            self._steps.clear()
            self._worker = Worker(self._app, shutdown_timeout=PATIENCE)

    def stop(self) -> None:
        """Stop the worker; a second call gives back what still runs."""
        self._is_stopping = True
        self._worker.stop()

    def advance(self, by: timedelta) -> None:
        """Advance the clock while no worker runs; called in another thread than the event loop's."""
        asyncio.run_coroutine_threadsafe(self._advance(by), self._loop).result()

    async def _advance(self, by: timedelta) -> None:
        done = self._loop.create_future()
        self._steps.append((by, done))
        self._worker.stop()
        await done


class DevServer(Server):
    """The server of the dashboard beside the worker, which handles the signals."""

    def __init__(self, dashboard: Dashboard, link: LoginLink) -> None:
        super().__init__(dashboard)
        self._link = link

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the link."""
        await super().startup(sockets)
        self._link.start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield

    def stop(self) -> None:
        """End the streams, then the server."""
        self.handle_exit(signal.SIGTERM, None)


def serve(setup: Setup) -> None:
    """Run the worker and the dashboard until the process is asked to stop."""
    start_log(logging.INFO)
    app = load_app(setup.app)
    clock = None
    if setup.memory:
        app.close()
        clock = AdvancedClock(setup.offset)
        app.url, app.clock = setup.database, clock
    app.open()
    asyncio.run(_serve(setup, app, clock))
    if stuck():
        leave("leaving; handlers in threads end with the process")


async def _serve(setup: Setup, app: App, clock: AdvancedClock | None) -> None:
    worker = DevWorker(app, clock)
    site = Site(app, reference=setup.app, dev=Dev(None if clock is None else worker.advance))
    link = setup.link()
    server = DevServer(Dashboard(site, setup.users, (), link=link), link)

    def stop() -> None:
        """Stop both."""
        loop.remove_reader(setup.alive)
        server.stop()
        worker.stop()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    # Ctrl-C reaches this process too; the one that watches files answers it.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_reader(setup.alive, stop)
    serving = asyncio.create_task(server.serve([socket.socket(fileno=setup.listening)]))
    try:
        await worker.run()
    finally:
        server.stop()
        await serving
        app.close()


if __name__ == "__main__":
    main(functools.partial(serve, msgspec.json.decode(sys.argv[1], type=Setup)))
