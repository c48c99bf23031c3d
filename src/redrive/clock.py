"""Time as an interface; the only module that reads a clock or sleeps.

Everything that decides gets ``now`` as an argument (law 1). Everything that waits gets a `Clock`. In production that
is `SystemClock`; tests pass ``redrive.testing.VirtualClock``, which jumps instead of sleeping. Durable work asks the
database for the time (law 8), so the clock here serves in-process retries, background duties and display.

Event loops are loaded when they are used (law 10): asyncio by the first `SystemClock.asleep`, and trio never, since
whoever runs under it has loaded it already.
"""

from __future__ import annotations

import functools
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "SystemClock", "boot_time", "in_trio"]

_PROC = Path("/proc")


class Clock(Protocol):
    """What redrive needs of a clock."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for this many seconds."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Suspend the calling task for this many seconds, under asyncio or trio."""
        ...


class SystemClock:
    """The clock of this machine."""

    # The C function itself, not a method around it: a decorated call reads it once, and 50 ns are half of its cost.
    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for this many seconds."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Suspend the calling task for this many seconds, under asyncio or trio."""
        if in_trio():
            await sys.modules["trio"].sleep(seconds)
            return
        import asyncio

        await asyncio.sleep(seconds)


def in_trio() -> bool:
    """Whether the caller runs in a task of trio; any other coroutine is taken to run under asyncio.

    Asks trio only if somebody has imported it: nobody can run under it otherwise.
    """
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)  # None also while another thread is importing trio
    return lowlevel is not None and bool(lowlevel.in_trio_task())


def boot_time() -> tuple[str, int] | None:
    """Return which boot of which machine this is, and the microseconds since then.

    All processes of a machine count the same microseconds. The count goes on while the machine sleeps, and a change of
    its clock does not change it.

    Returns:
        A name of the boot and the count; None where the system does not say, which only Linux does.
    """
    boot = _boot()
    return None if boot is None else (boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)


@functools.cache
def _boot() -> str | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        # A container may have another count.
        return f"{boot} {(_PROC / 'self/ns/time').readlink()}"
    except OSError:
        return None
