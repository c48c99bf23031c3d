"""The child process of `redrive dev`: the workers and the dashboards of its apps on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from redrive.app.app import App
from redrive.cli import main
from redrive.cli.dev.setup import Setup
from redrive.cli.loading import load_apps
from redrive.cli.server import Server
from redrive.cli.worker import leave, start_log, stuck
from redrive.clock import SystemClock
from redrive.operate.exchange import Dev
from redrive.runtime.group import WorkerGroup
from redrive.runtime.worker import Worker
from redrive.web.asgi import Dashboard
from redrive.web.link import LoginLink
from redrive.web.several import Dashboards, sites

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
    """The workers, which stop while the clock is advanced, so that they lose no lease by that.

    Args:
        apps: the Apps, by name.
        clock: of the throw-away databases; None if the clock cannot be advanced.
    """

    def __init__(self, apps: Mapping[str, App], clock: AdvancedClock | None) -> None:
        self._apps = apps
        self._clock = clock
        self._workers = self._new()
        self._steps: list[tuple[timedelta, asyncio.Future[None]]] = []
        self._is_stopping = False

    def _new(self) -> WorkerGroup:
        return WorkerGroup({name: Worker(app, shutdown_timeout=PATIENCE) for name, app in self._apps.items()})

    async def run(self) -> None:
        """Run jobs until stopped."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._workers.run()
            if self._workers.abandoned or self._is_stopping:
                return
            for by, done in self._steps:
                assert self._clock is not None  # otherwise nothing advances it
                self._clock.advance(by)
                done.set_result(None)
            self._steps.clear()
            self._workers = self._new()

    def stop(self) -> None:
        """Stop the workers; a second call gives back what still runs."""
        self._is_stopping = True
        self._workers.stop()

    def advance(self, by: timedelta) -> None:
        """Advance the clock while no worker runs; called in another thread than the event loop's."""
        asyncio.run_coroutine_threadsafe(self._advance(by), self._loop).result()

    async def _advance(self, by: timedelta) -> None:
        done = self._loop.create_future()
        self._steps.append((by, done))
        self._workers.stop()
        await done


class DevServer(Server):
    """The server of the dashboard beside the worker, which handles the signals."""

    def __init__(self, dashboards: Dashboards, links: Collection[LoginLink]) -> None:
        super().__init__(dashboards)
        self._links = links

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and print the links."""
        await super().startup(sockets)
        for each in self._links:
            each.start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield

    def stop(self) -> None:
        """End the streams, then the server."""
        self.handle_exit(signal.SIGTERM, None)


def serve(setup: Setup) -> None:
    """Run the workers and the dashboards until the process is asked to stop."""
    start_log(logging.INFO)
    apps = load_apps(setup.apps)
    clock = AdvancedClock(setup.offset) if setup.memory else None
    for number, app in enumerate(apps.values()):
        if clock is not None:
            app.close()
            app.url, app.clock = setup.database(number), clock
        app.open()
    asyncio.run(_serve(setup, apps if len(apps) > 1 else {"": next(iter(apps.values()))}, clock))
    if stuck():
        leave("leaving; handlers in threads end with the process")


async def _serve(setup: Setup, apps: Mapping[str, App], clock: AdvancedClock | None) -> None:
    worker = DevWorker(apps, clock)
    found = sites(apps, dev=Dev(None if clock is None else worker.advance))
    links = {name: setup.link(number, f"/{name}") for number, name in enumerate(found)}
    dashboards = {name: Dashboard(site, setup.users, (), link=links[name]) for name, site in found.items()}
    server = DevServer(Dashboards(dashboards), links.values())

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
        for app in apps.values():
            app.close()


if __name__ == "__main__":
    main(functools.partial(serve, msgspec.json.decode(sys.argv[1], type=Setup)))
