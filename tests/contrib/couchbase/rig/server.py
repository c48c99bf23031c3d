"""Debian's memcached, started for a test on the loopback interface and ended after it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

__all__ = ["Memcached"]

_TRIES = 5
"""Another process may take the port between the check and the server's start."""


class Memcached:
    """One server on a port that was free a moment ago.

    Args:
        binary: path of memcached.
        *options: of its command line, beside address and user.
    """

    def __init__(self, binary: str, *options: str) -> None:
        self.host = "127.0.0.1"
        for _ in range(_TRIES):
            self._process = self._start(binary, *options)
            problem = self._until_it_listens()
            if problem is None:
                break
            self.close()
        else:
            raise RuntimeError(f"{Path(binary).name} did not start: {problem}")
        self._drain = Thread(target=self._read_on, daemon=True)
        self._drain.start()

    def _start(self, binary: str, *options: str) -> subprocess.Popen[str]:
        self.port = _free_port(self.host)
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        # Verbose twice, for the line that says that it listens: a signal to wait for, instead of a time.
        command = [binary, "-l", self.host, "-p", str(self.port), "-U", "0", "-t", "1", "-vv", *user, *options]
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    @property
    def endpoint(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def _until_it_listens(self) -> str | None:
        assert self._process.stderr
        lines = []
        for line in self._process.stderr:
            if "server listening" in line:
                return None
            lines.append(line.strip())
        return "; ".join(lines[-3:])

    def _read_on(self) -> None:  # or it would stand still when the pipe is full
        assert self._process.stderr
        for _ in self._process.stderr:
            pass

    def stop(self) -> None:
        """Stop its work, so that it answers nothing; returns when it stands still."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it, whatever state it is in."""
        self.kill()
        if hasattr(self, "_drain"):
            self._drain.join()
        if self._process.stderr:
            self._process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
