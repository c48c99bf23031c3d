"""What lets service managers observe workers: answers to probes over HTTP, a heartbeat file, and systemd.

Probes are answered, and the file is written, by a thread with an event loop of its own. So the probes of a process with
a blocked event loop are answered too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from redrive.app.app import App
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError
from redrive.observe.logs import logger
from redrive.runtime.health import PROBES, STALE, TICK, WorkerHealth
from redrive.runtime.supervision import cancel, first
from redrive.runtime.systemd import Systemd
from redrive.runtime.worker import Worker

log = logger("redrive.worker")

#: Bytes and seconds that a request may take.
LARGEST: Final = 8 * 1024
LONGEST: Final = 5.0

#: Seconds between two writes of the file.
WRITTEN_EVERY: Final = 2.0

#: Seconds to wait for the end of the thread.
LAST_WAIT: Final = 1.0


class Probes:
    """The probes of the workers of a process, as an asynchronous context manager around their run.

    Args:
        workers: each with its app, by the name of the app.
        address: ``HOST:PORT`` to answer at; the default host is the loopback interface, and port 0 selects a free port.
        path: the heartbeat file.

    Attributes:
        url: where probes are answered, without the path of a probe; None without an address.

    Raises:
        ConfigurationError: the address is invalid or cannot be bound, or the file cannot be written.
    """

    def __init__(
        self, workers: Mapping[str, tuple[App, Worker]], address: str | None = None, path: Path | None = None
    ) -> None:
        self._workers = [worker for _, worker in workers.values()]
        self._health = WorkerHealth(workers)
        self._systemd = Systemd()
        self._clock = SystemClock()
        self._path = path
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="redrive-health", daemon=True)
        if path is not None:
            write_file(path, {"ticked_at": self._health.ticked_at})
        self._socket = None if address is None else listen(address)
        self.url: str | None = None
        if self._socket is not None:
            host, port = self._socket.getsockname()[:2]
            self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        if self.url is not None:
            log.info("health probes are answered at %s: /livez, /readyz and /startupz", self.url)
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._announce())]
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel(*self._tasks)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LAST_WAIT)
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    # ------------------------------------------------------------------------------ in the event loop of the worker

    async def _tick(self) -> None:
        every = min(TICK, (self._systemd.watchdog or 2 * TICK) / 2)
        while True:
            self._health.tick()
            if self._systemd.watchdog is not None:
                self._systemd.notify("WATCHDOG=1")
            await self._clock.asleep(every)

    async def _announce(self) -> None:
        # An outage of one database must not end the workers of the others.
        await first(*[each.registered.wait() for each in self._workers])
        self._systemd.notify("READY=1")
        await first(*[each.stopping.wait() for each in self._workers])
        self._systemd.notify("STOPPING=1")

    # ------------------------------------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        # The loop has only weak references to its tasks.
        tasks = [self._loop.create_task(each) for each in (self._serve(), self._write())]
        try:
            self._loop.run_forever()
        finally:
            # Requests that are being read, too.
            self._loop.run_until_complete(cancel(*tasks, *(asyncio.all_tasks(self._loop) - {*tasks})))
            self._loop.close()

    async def _serve(self) -> None:
        if self._socket is not None:
            server = await asyncio.start_server(self._answer, sock=self._socket, limit=LARGEST)
            async with server:
                await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(LONGEST):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(head))
                await writer.drain()
        writer.close()

    async def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        probe = rest.partition(" ")[0].partition("?")[0].removeprefix("/")
        if probe not in PROBES:
            return _http(HTTPStatus.NOT_FOUND, b"{}", method)
        if method not in {"GET", "HEAD"}:
            return _http(HTTPStatus.METHOD_NOT_ALLOWED, b"{}", method)
        verdict = await self._health.verdict(probe)
        status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
        return _http(status, msgspec.json.encode(verdict), method)

    async def _write(self) -> None:
        is_written = True
        while self._path is not None:
            checks = {probe: (await self._health.verdict(probe)).checks for probe in PROBES}
            try:
                write_file(self._path, {"ticked_at": self._health.ticked_at, "checks": checks})
                is_written = True
            except ConfigurationError as error:
                # The disk may be full; the file grows old, and the liveness probe then fails.
                if is_written:
                    log.warning("%s", error)
                is_written = False
            await self._clock.asleep(WRITTEN_EVERY)


def listen(address: str) -> socket.socket:
    """Return a socket that listens at ``HOST:PORT``; raise `ConfigurationError` if that is not possible."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal():
        raise ConfigurationError(f"{address!r} is not an address for probes: give HOST:PORT, such as 127.0.0.1:8080")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"probes cannot be answered at {address}: {error}") from error


def write_file(path: Path, values: dict[str, Any]) -> None:
    """Replace the heartbeat file; raise `ConfigurationError` if it cannot be written."""
    new = path.with_name(f"{path.name}.new")
    try:
        # A reader sees either the old file or the new one.
        new.write_bytes(msgspec.json.encode({**values, "stale_after": STALE}))
        os.replace(new, path)  # noqa: PTH105 - the same call
    except OSError as error:
        raise ConfigurationError(f"the worker file {path} cannot be written: {error.strerror}") from error


def _http(status: HTTPStatus, body: bytes, method: str) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)
