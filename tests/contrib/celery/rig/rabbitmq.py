"""Debian's rabbitmq-server, started for tests on the loopback interface and ended after them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kombu import Connection

__all__ = ["RabbitServer"]

PATIENCE = 200
"""Seconds until it must have started."""


class RabbitServer:
    """A server with a node, a cookie and an epmd of its own.

    Args:
        script: the path of the script ``rabbitmq-server`` itself, and not of Debian's wrapper, which changes the user.
        folder: for its data and its log.
    """

    host = "127.0.0.1"

    def __init__(self, script: str, folder: Path) -> None:
        self._folder = folder
        self.port, epmd, distribution = (_free_port(self.host) for _ in range(3))
        self.url = f"amqp://guest:guest@{self.host}:{self.port}//"
        self._script = Path(script)
        self._node = f"redrive{self.port}@localhost"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),  # of the cookie
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": self.host,
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ALLOW_INPUT": "1",  # so that the script becomes the server, which can be waited for
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput",
        }
        (folder / "rabbitmq.conf").write_text("loopback_users.guest = true\n")
        (folder / "plugins").write_text("[].\n")
        # The server would start one that outlives it.
        self._epmd = self._start("epmd", "-port", str(epmd), "-address", self.host)
        self._server = self._start(str(self._script))
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                command,
                env=self.environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with Connection(self.url, connect_timeout=1) as connection:
                    connection.connect()
            except OSError:
                assert self._server.poll() is None, (self._folder / "output").read_text()
                assert time.monotonic() < deadline, (self._folder / "output").read_text()
                time.sleep(0.1)
            else:
                return

    def evaluate(self, code: str) -> str:
        """Evaluate an expression of Erlang in the server."""
        command = [str(self._script.with_name("rabbitmqctl")), "-n", self._node, "eval", code]
        done = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def close(self) -> None:
        """End both processes, with all that they have started."""
        for each in (self._server, self._epmd):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
