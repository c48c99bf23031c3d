"""Debian's redis-server, started for a test on the loopback interface and ended after it."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self

import redis

__all__ = ["RedisServer"]

_TRIES = 5
"""Another process may take the port between the check and the server's start."""


class RedisServer:
    """A server on a free port.

    Args:
        binary: the path of redis-server.
        folder: its working directory.
        *options: its command line options, in addition to the address."""

    host = "127.0.0.1"
    READY = "Ready to accept connections"
    LOADS = "Server initialized"  # it listens then, and goes on to read what it has saved

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        self._binary, self._folder, self._options = binary, folder, options
        for _ in range(_TRIES):
            self.port = _free_port(self.host)
            problem = self._start()
            if problem is None:
                return
        raise RuntimeError(f"redis-server did not start: {problem}")

    def _start(self, *options: str) -> str | None:
        command = [self._binary, "--bind", self.host, "--port", str(self.port), "--dir", str(self._folder)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self._options, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout
        lines = []
        for line in self._process.stdout:
            lines.append(line.strip())
            if (self.LOADS if "--key-load-delay" in options else self.READY) in line:
                self._drain = Thread(target=self._read_on, daemon=True)
                self._drain.start()
                return None
        self._process.wait()
        self._process.stdout.close()
        return "; ".join(lines[-3:])

    def _read_on(self) -> None:  # or it would stand still when the pipe is full
        assert self._process.stdout
        for _ in self._process.stdout:
            pass

    def ask(self, *words: object) -> Any:
        """Execute a command on a connection without a proxy."""
        with redis.Redis(host=self.host, port=self.port, decode_responses=True) as direct:
            return direct.execute_command(*words)

    def kill(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()
        self._drain.join()
        if self._process.stdout:
            self._process.stdout.close()

    def restart(self, *options: str) -> None:
        """Restart the server on the same port; it is empty unless it has saved its data."""
        problem = self._start(*options)
        assert problem is None, problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
