"""Which process this is, and whether another one on this machine is gone.

A process number alone says little: it is used again after a while, it means something else in another container, and
machines are called alike. So a process is told by its *birth* too: the boot of the machine, the namespace of process
numbers, and the moment at which it began. Only where the first two are ours, its number means what it means here, and
only Linux says all three; elsewhere nobody is ever said to be gone, and a dead worker is found by its lease.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from redrive.engine.records import Process

__all__ = ["is_gone", "present"]

_PROC = Path("/proc")
_DEAD = "ZX"
"""States of a process that has ended and whose parent has not yet asked how."""


def present() -> Process:
    """Describe this process.

    Returns:
        Its host, its number and its birth.
    """
    place, begun = _place(), _begun(os.getpid())
    birth = None if place is None or begun is None else f"{place} {begun[1]}"
    return Process(socket.gethostname(), os.getpid(), birth)


def is_gone(process: Process) -> bool:
    """Is this process surely not running any more?

    Args:
        process: as it described itself.

    Returns:
        False also where nobody can tell.
    """
    place, _, moment = (process.birth or "").rpartition(" ")
    if not place or place != _place():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # there is one, of another user
    begun = _begun(process.pid)
    return begun is not None and (begun[0] in _DEAD or begun[1] != moment)


def _place() -> str | None:
    """This boot of this machine, and our namespace of process numbers."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _begun(pid: int) -> tuple[str, str] | None:
    """The state of a process, and when it began in ticks since the boot; see ``man proc``, under ``stat``."""
    try:
        # Its name stands in brackets, and may hold anything.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]
