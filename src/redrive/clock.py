"""Clocks: the only module that reads the time or sleeps.

Code that decides gets ``now`` as an argument; code that waits gets a `Clock`. Tests pass
``redrive.testing.VirtualClock``. Durable work uses the time of the database, so these clocks serve in-process retries,
background duties and display.
"""

from __future__ import annotations

import functools
import sys
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "boot_time", "checkpoint", "in_trio"]


class Clock(Protocol):
    """The interface of a clock."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since a fixed point; they never go back."""
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
        """Return the present instant, aware, in UTC."""
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
    """Return True if the caller runs in a task of trio; any other coroutine is assumed to run under asyncio."""
    # None also while another thread is importing trio.
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    return lowlevel is not None and bool(lowlevel.in_trio_task())


async def checkpoint() -> None:
    """Let other tasks run, and raise the cancellation of the current task if there is one; under asyncio or trio."""
    if in_trio():
        await sys.modules["trio"].lowlevel.checkpoint()
        return
    import asyncio

    await asyncio.sleep(0)


def boot_time() -> tuple[str, int] | None:
    """Return an id of the boot of this machine and the microseconds since then; None on systems other than Linux.

    All processes of a machine count the same microseconds. The count includes sleep, and a change of the clock does not
    change it.
    """
    boot = _boot()
    return None if boot is None else (boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)


@functools.cache
def _boot() -> str | None:
    # Slow to import, and a retried call does not need it.
    from pathlib import Path

    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A container may have another count.
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return None
