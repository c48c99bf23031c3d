"""``redrive dev module:app``: a worker and the dashboard in one terminal, which start again when a file is saved.

This process watches the files and holds the port. The app runs in a child process (`redrive.cli.dev.process`), so that
changed code is imported anew. A request that arrives in between waits until the child serves it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer

from redrive.cli.dev.files import Files
from redrive.cli.dev.setup import HOST, Setup
from redrive.cli.loading import Targets
from redrive.cli.screen import say
from redrive.clock import SystemClock
from redrive.errors import ConfigurationError

# Seconds between two looks at the files, and the largest part of the time that looks may take.
EVERY, SHARE = 0.25, 0.1

# Seconds until a child that was asked to stop is asked again, and until it is killed.
PATIENCE = 4.0, 2.0

# The exit status of a child that cannot load its App.
_WRONG = 2


def dev(
    app: Targets,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the dashboard; 0 chooses one.")] = 8765,
    memory: Annotated[
        bool, typer.Option("--memory", help="Use a throw-away database, in which the clock can be advanced.")
    ] = False,
) -> None:
    """Run a worker and the dashboard of an app, or of several, and start both again when a file is saved.

    For development: it serves this machine only, and prints a link that logs in once. Ctrl-C ends it.
    """
    with tempfile.TemporaryDirectory(prefix="redrive-dev-") as folder, _listen(port) as listening:
        status = Reloader(app, Path(folder), listening, memory=memory).run()
    raise typer.Exit(status)


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"--port {port} cannot be used: {error.strerror}; --port 0 chooses one") from error
    return listening


class Reloader:
    """Runs the child process, and starts another one when a file below the current folder has changed.

    Args:
        apps: the Apps, as ``module:app``.
        folder: for what all children share; no other user can read it.
        listening: the socket of the dashboard.
        memory: True for a throw-away database.
    """

    def __init__(self, apps: Sequence[str], folder: Path, listening: socket.socket, *, memory: bool) -> None:
        self._files = Files(Path.cwd())
        self._listening = listening
        self._alive, self._ours = os.pipe()
        shared = (listening.fileno(), self._alive)
        self._setup = Setup.new(apps, folder, *shared, port=listening.getsockname()[1], memory=memory)
        self._stops = 0

    def run(self) -> int:
        """Run until Ctrl-C, and return the exit status. A child that ends at the first start is not started again."""
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, self._stop)
        is_first = True
        while not self._stops:
            child = self._start()
            changed = self._watch(child)
            status = child.poll()
            if is_first and status == _WRONG:
                return _WRONG
            is_first = False
            if changed is None and status is not None and not self._stops:
                say(f"the app has ended with status {status}; save a file to start it again", err=True)
                changed = self._watch(None)
            self._end(child)
            if changed is not None:
                say(f"{changed} has changed; the app starts again")
        return 0

    def _start(self) -> subprocess.Popen[bytes]:
        # The import paths of this process, as a program such as `manage.py` has made them.
        paths = os.pathsep.join(each for each in sys.path if each)
        return subprocess.Popen(  # noqa: S603 - this interpreter, with a program of our own
            [sys.executable, "-m", "redrive.cli.dev.process", msgspec.json.encode(self._setup).decode()],
            env={**os.environ, "PYTHONPATH": paths},
            pass_fds=[self._setup.listening, self._setup.alive],
        )

    def _watch(self, child: subprocess.Popen[bytes] | None) -> Path | None:
        """Return a file that has changed; None if the child has ended, or this process was asked to stop."""
        clock = SystemClock()
        while not self._stops:
            before = clock.monotonic()
            changed = self._files.changed()
            if changed is not None:
                return changed
            rest = max(EVERY, (clock.monotonic() - before) / SHARE)
            if child is None:
                clock.sleep(rest)
            elif _ended(child, rest):
                return None
        return None

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Ask the child to stop: running handlers have a second to finish, and their jobs are given back then."""
        for patience in PATIENCE:
            if child.poll() is None:
                child.terminate()
                _ended(child, patience)
        child.kill()
        child.wait()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stops += 1


def _ended(child: subprocess.Popen[bytes], within: float) -> bool:
    try:
        child.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True
