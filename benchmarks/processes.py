"""Starts a worker process, watches it, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

__all__ = ["LIMIT", "Process", "Stuck", "answer", "cpu_seconds", "running", "wait"]

Process: TypeAlias = "subprocess.Popen[bytes]"
"""A worker process."""

LOOK = 0.001
"""Seconds between two looks at a worker: short against what is measured, and idle in between (it has its own core)."""

PATIENCE = 120.0
"""Seconds after which a benchmark is stuck."""


LIMIT = 900.0
"""Seconds that a subject may take for one measurement; the longest takes two minutes."""


class Stuck(Exception):
    """A worker ended by itself, or got nowhere."""


def answer(command: Sequence[str], limit: float = LIMIT) -> str:
    """Run the process of a subject, and end it with all that it has started.

    Args:
        command: its command line.
        limit: seconds that it may take.

    Returns:
        The last line of its output.

    Raises:
        Stuck: it failed, or took longer.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise Stuck(f"it has not answered within {limit:g} s") from None
        finally:
            # Its workers, which it ends itself unless it was killed or stuck.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode or not output:
        raise Stuck(f"its process ended with status {process.returncode}; its output stands above")
    return output.splitlines()[-1]


@contextlib.contextmanager
def running(command: Sequence[str], env: Mapping[str, str], log: Path) -> Iterator[Process]:
    """Run a worker process for the length of a ``with`` block.

    Args:
        command: its command line.
        env: added to the environment.
        log: where its output goes.

    Yields:
        The process.

    Raises:
        Stuck: something in the block got stuck; the end of the log is part of the message.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    except Stuck as error:
        raise Stuck(f"{error}; the worker said:\n{log.read_text()[-2000:]}") from error
    finally:
        _end(process)


def _end(process: Process) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait(what: str, reached: Callable[[], bool], *processes: Process) -> float:
    """Wait for workers to get somewhere.

    Args:
        what: is waited for, for messages.
        reached: has it happened?
        *processes: the workers.

    Returns:
        The instant at which it was seen to have happened, by ``time.monotonic``.

    Raises:
        Stuck: it does not happen any more.
    """
    until = time.monotonic() + PATIENCE
    while not reached():
        for process in processes:
            if process.poll() is not None:
                raise Stuck(f"a worker ended with {process.returncode}, before {what}")
        if time.monotonic() > until:
            raise Stuck(f"{PATIENCE:g} s have passed without {what}")
        time.sleep(LOOK)
    return time.monotonic()


def cpu_seconds(process: Process) -> float:
    """Return the processor time of all threads of a process.

    Args:
        process: must not have been waited for.

    Returns:
        Seconds; NaN where the system has no ``/proc``.
    """
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return float("nan")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
