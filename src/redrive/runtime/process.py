"""The identity of this process, and a check that another process of this machine is gone.

A process number is used again, it means another process in another container, and hosts share names. So a process is
also identified by its *birth*: the boot id of the machine, the namespace of process numbers and the start time. Its
number is comparable only if the first two are equal to ours. Only Linux has all three; elsewhere no process counts as
gone, and a dead worker is found by its lease.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from redrive.engine.records import Process

_PROC = Path("/proc")
# States of a process that has ended and has not been reaped by its parent.
_DEAD = "ZX"


def present() -> Process:
    """Return the host, the number and the birth of this process."""
    place, begun = _place(), _begun(os.getpid())
    birth = None if place is None or begun is None else f"{place} {begun[1]}"
    return Process(socket.gethostname(), os.getpid(), birth)


def is_gone(process: Process) -> bool:
    """Return True if this process is certainly not running any more, False also if that cannot be known."""
    place, _, moment = (process.birth or "").rpartition(" ")
    if not place or place != _place():
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # It exists and belongs to another user.
        pass
    begun = _begun(process.pid)
    return begun is not None and (begun[0] in _DEAD or begun[1] != moment)


def _place() -> str | None:
    """Return the boot id of this machine and the namespace of process numbers of this process."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _begun(pid: int) -> tuple[str, str] | None:
    """Return the state of a process and its start in ticks since the boot; see ``man proc``, under ``stat``."""
    try:
        # The second field is the name in brackets, which may contain anything.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]
