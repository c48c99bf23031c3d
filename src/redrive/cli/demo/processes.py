"""The demo's other processes: one receiver and some workers.

They are started as anybody would start them, ``python receiver.py`` and ``python -m redrive worker delivery:app``, and
spoken to with signals only. Two details:

* Each gets a session of its own, so that a Ctrl-C in the terminal reaches the demo alone, which then decides who is to
  be told what.
* If the demo itself is killed, nobody is left to stop them. On Linux the kernel is asked to do it
  (``PR_SET_PDEATHSIG``); elsewhere they go on, and the next demo on the same database says that the ledger is taken.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from redrive.cli.demo.files import PACKAGE, Files
from redrive.clock import Clock
from redrive.errors import RedriveError

__all__ = ["Child", "ChildError", "Children"]

_PR_SET_PDEATHSIG = 1
_PATIENCE = 15.0  # seconds until a process that was asked to stop is killed: a worker's grace, and some
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class ChildError(RedriveError):
    """A process of the demo could not start, or ended when it should not."""


class Child:
    """A running process.

    Attributes:
        name: for people, e.g. ``worker 2``.
        pid: its process id.
    """

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process

    @property
    def alive(self) -> bool:
        """Has it not ended yet?"""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, without a chance to tidy up, and wait for the kernel to have done it."""
        self._process.kill()
        self._process.wait()

    def first_line(self) -> str:
        """Wait for the first line that it prints; empty if it ends without one."""
        assert self._process.stdout is not None  # noqa: S101 - only asked of a process with a pipe
        with self._process.stdout as said:
            return said.readline()


class Children:
    """Starts processes and stops them all.

    Args:
        files: where they write.
        program: folder of the example that they run.
        seed: of the receiver's plan.
        clock: to wait by.
    """

    def __init__(self, files: Files, program: Path, *, seed: int, clock: Clock) -> None:
        self._files = files
        self._program = program
        self._seed = seed
        self._clock = clock
        self._log = files.log.open("ab")
        self._log_start = self._log.tell()
        self.receiver: Child | None = None
        self.workers: list[Child] = []
        self._url = ""

    @property
    def log(self) -> Path:
        """Where they print to."""
        return self._files.log

    def start_receiver(self, port: int) -> Child:
        """Start the receiver and wait until it listens.

        Args:
            port: on the loopback address; 0 takes any free one.

        Raises:
            ChildError: it did not start, e.g. because the port is taken.
        """
        options = ["--ledger", str(self._files.ledger), "--seed", str(self._seed), "--port", str(port)]
        self.receiver = self._start("receiver", [str(self._program / "receiver.py"), *options], stdout=subprocess.PIPE)
        self._url = self.receiver.first_line().strip().removeprefix("listening on ")
        if not self._url:
            raise ChildError(self.last_words() or f"the receiver did not start; see {self._files.log}")
        return self.receiver

    def start_worker(self) -> Child:
        """Start one more worker."""
        name = f"worker {len(self.workers) + 1}"
        worker = self._start(name, ["-m", "redrive", "worker", "delivery:app"], stdout=self._log)
        self.workers.append(worker)
        return worker

    def last_words(self) -> str:
        """The last line that any of them printed in this run."""
        written = self._files.log.read_bytes()[self._log_start :].decode(errors="replace").strip()
        return written.rpartition("\n")[2]

    def stop_workers(self) -> None:
        """Ask the workers to finish what they run and to end; kills those that do not. Returns when all have ended."""
        _stop([worker for worker in self.workers if worker.alive], self._clock)

    def close(self) -> None:
        """Stop everything in order: the workers before the receiver that they speak to."""
        self.stop_workers()
        if self.receiver is not None:
            _stop([self.receiver], self._clock)
        self._log.close()

    def kill(self) -> None:
        """Stop everything at once."""
        for child in (*self.workers, *([self.receiver] if self.receiver else [])):
            child.kill()
        self._log.close()

    def _start(self, name: str, arguments: list[str], *, stdout: object) -> Child:
        path = os.pathsep.join(
            (str(self._program), str(PACKAGE.parent))
        )  # they run this redrive, wherever they are started
        process = subprocess.Popen(  # noqa: S603 - our own programs, by our own interpreter
            [sys.executable, *arguments],
            cwd=self._program,
            env={
                **os.environ,
                **self._files.settings,
                "WEBHOOKS_URL": self._url,
                "PYTHONPATH": path,
                "PYTHONUNBUFFERED": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=stdout,  # type: ignore[call-overload]
            stderr=self._log,
            start_new_session=True,
            preexec_fn=_die_with_parent if _LIBC else None,  # noqa: PLW1509 - one system call, takes no lock
            text=True,
        )
        return Child(name, process)


def _die_with_parent() -> None:
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(children: list[Child], clock: Clock) -> None:
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = clock.monotonic() + _PATIENCE
    while any(child.alive for child in children) and clock.monotonic() < deadline:
        clock.sleep(0.02)
    for child in children:
        child.kill()
